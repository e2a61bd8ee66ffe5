"""The axiomatic prover proves true equations with proofs that replay, and never proves a false equation."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from superopt.algebra.operators import apply, registry
from superopt.algebra.terms import Atom, Dim, Size, Sym, size, subterms, variable
from superopt.proof import verify
from superopt.proof.axioms import saturate, standing
from superopt.proof.axioms.axiomatic import prove_from_axioms
from superopt.proof.axioms.closure import Closure, Given
from superopt.proof.axioms.ground import read_ground
from superopt.proof.axioms.replay import Derivation, replay_proof, type_objection
from superopt.proof.definedness import undefined_somewhere
from superopt.proof.definitions.assumptions import Assumptions
from superopt.proof.ledger import prove_axioms
from superopt.proof.precondition import add_preconditions
from superopt.rules.rule import REGROUP, Rule, axiom_law_names, axiom_laws, axioms, parse_rule, parse_rules
from superopt.rules.store import load
from superopt.rules.verdict import Proved, Unknown

pytestmark = pytest.mark.slow

TRUE = parse_rules(
    """
    reassociate:      (a @ b) @ c => a @ (b @ c)  for a[2, 3], b[2], c[2]
    factor-three:     x @ y + x @ z + x @ w => x @ (y + z + w)  for x[2, 3], y[2], z[2], w[2]
    fold-branch:      x @ w + (x @ a) @ b => x @ (w + a @ b)  for x[2, 3], w[2], a[2], b[2]
    share-input:      (x @ y, x @ z) => (slice(m := x @ concat(y, z, axis=-1), axis=-1, start=0, stop=y.shape[-1]),
                      slice(m, axis=-1, start=y.shape[-1], stop=y.shape[-1] + z.shape[-1]))  for x[2, 3], y[2], z[2]
    share-relu:       (relu(x @ y), relu(x @ z)) => (slice(m := relu(x @ concat(y, z, axis=-1)), axis=-1, stop=y.shape[-1]),
                      slice(m, axis=-1, start=y.shape[-1], stop=y.shape[-1] + z.shape[-1]))  for x[2, 3], y[2], z[2]
    residual:         x + x @ w => x @ (w + eye(n=x.shape[-1]))  for x[2, 3], w[2]
    cancel:           x @ y + (z - x @ y) => z  for x[2, 3], y[2], z[2, 3]
    transposed:       transpose(x @ y, perm=(-1, -2)) @ z
                      => transpose(y, perm=(-1, -2)) @ (transpose(x, perm=(-1, -2)) @ z)  for x[2], y[2], z[2]
    fold-scale:       (x @ w) * expand(t, shape=(x @ w).shape, axes=(-1,)) + expand(b, shape=(x @ w).shape, axes=(-1,))
                      => x @ (w * expand(t, shape=w.shape, axes=(-1,))) + expand(b, shape=(x @ w).shape, axes=(-1,))
                      for x[2, 3], w[2], t[1], b[1]
    merge-branches:   conv(x, v, strides=s, pads=p, dilations=d, group=g) + conv(x, w, strides=s, pads=p, dilations=d, group=g)
                      => conv(x, v + w, strides=s, pads=p, dilations=d, group=g)
                      for x[4], v[4], w[4], s[2], p[4], d[2] where v.shape[-2] == w.shape[-2], v.shape[-1] == w.shape[-1]
    enlarge:          conv(x, v, pads=(1, 1, 1, 1)) + conv(x, w)
                      => conv(x, v + pad(w, before=(0, 0, 1, 1), after=(0, 0, 1, 1)), pads=(1, 1, 1, 1))
                      for x[4], v[4], w[4] where v.shape[-2] == w.shape[-2] + 2, v.shape[-1] == w.shape[-1] + 2
    identity-branch:  conv(x, v, pads=(1, 1, 1, 1), group=g) + x
                      => conv(x, v + identity_kernel(shape=v.shape, at=(1, 1)), pads=(1, 1, 1, 1), group=g)
                      for x[4], v[4] where v.shape[-2] == 3, v.shape[-1] == 3
    share-image:      (conv(x, v, strides=s, pads=p), conv(x, w, strides=s, pads=p))
                      => (slice(m := conv(x, concat(v, w, axis=-4), strides=s, pads=p), axis=-3, stop=v.shape[-4]),
                      slice(m, axis=-3, start=v.shape[-4], stop=v.shape[-4] + w.shape[-4]))
                      for x[4], v[4], w[4], s[2], p[4] where v.shape[-2] == w.shape[-2], v.shape[-1] == w.shape[-1]
    fold-norm:        conv(x, w, strides=s, group=g) * expand(t, shape=conv(x, w, strides=s, group=g).shape, axes=(-3,))
                      => conv(x, w * expand(t, shape=w.shape, axes=(-4,)), strides=s, group=g)  for x[4], w[4], t[1], s[2]
    factor-out:       scale(x, factor=a) @ y + z => scale(x @ y + scale(z, factor=1 / a), factor=a)
                      for x[2], y[2], z[2] where a != 0
    divided-on-left:  scale(scale(x, factor=a), factor=1 / a) => x  for x[2]
    """
)

FALSE = parse_rules(
    """
    canary:           x => y  for x[2], y[2]
    canary-square:    x => y  for x[2], y[2]
                      where x.shape[-1] == y.shape[-1], x.shape[-2] == y.shape[-2], x.shape[-1] == x.shape[-2]
    nothing-is-all:   zeros(shape=x.shape) + x - x => ones(shape=x.shape)  for x[2]
    relu-over-add:    relu(x) + relu(y) => relu(x + y)  for x[2, 3], y[2, 3]
    commute:          x @ y => y @ x  for x[2], y[2] where x.shape[-2] == y.shape[-1]
    swapped:          x @ concat(y, z, axis=-1) => concat(x @ z, x @ y, axis=-1)  for x[2], y[2], z[2]
    lost-factor:      scale(x, factor=a) @ y => x @ y  for x[2], y[2]
    off-centre:       conv(x, w) => conv(x, pad(w, before=(0, 0, 2, 1), after=(0, 0, 0, 1)), pads=(1, 1, 1, 1))  for x[4], w[4]
    grouped-concat:   concat(conv(x, v, group=g), conv(x, w, group=g), axis=-3) => conv(x, concat(v, w, axis=-4), group=g)
                      for x[4], v[4], w[4] where v.shape[-2] == w.shape[-2], v.shape[-1] == w.shape[-1]
    """
)

ILL_TYPED = parse_rules(
    """
    other-kernels:    conv(x, v) + conv(x, w, pads=p) => conv(x, v + w)  for x[4], v[4], w[4], p[4]
    too-long:         x => slice(x, axis=-1, start=0, stop=y.shape[-1])  for x[2], y[2]
    other-shape:      relu(x) => relu(x @ y)  for x[2], y[2] where x.shape[-1] == y.shape[-2]
    """
)

REFUTED = [
    rule
    for path in sorted((Path(__file__).parent / "refuted").glob("*.rules"))
    for rule in parse_rules(path.read_text(encoding="utf-8"))
]


def test_laws_are_named_without_being_read() -> None:
    assert axiom_law_names() == axiom_laws().keys()


@pytest.mark.parametrize("rule", TRUE, ids=lambda r: r.name)
def test_a_true_rule_is_proved_and_replays(rule: Rule) -> None:
    verdict = prove_from_axioms(rule)
    assert isinstance(verdict, Proved), verdict
    assert verdict.kind == "axioms"
    assert verdict.axioms
    assert set(verdict.axioms) <= set(axiom_laws())
    again = replay_proof(rule, verdict.instances)
    assert isinstance(again, Proved), again
    assert again.instances == verdict.instances


@pytest.mark.parametrize("rule", [*FALSE, *REFUTED[::2]], ids=lambda r: r.name)
def test_a_false_rule_is_never_proved(rule: Rule) -> None:
    assert isinstance(prove_from_axioms(rule), Unknown)
    well_formed = add_preconditions(rule)
    if well_formed is not None and well_formed is not rule:
        assert isinstance(prove_from_axioms(well_formed), Unknown)


@pytest.mark.parametrize("rule", ILL_TYPED, ids=lambda r: r.name)
def test_the_right_side_must_be_well_typed_and_of_the_same_shape(rule: Rule) -> None:
    for equation in rule.equations:
        assert type_objection(Assumptions(equation)) is not None
    assert isinstance(prove_from_axioms(rule), Unknown)
    assert isinstance(replay_proof(rule, []), Unknown)


def test_every_false_law_is_there() -> None:
    assert len(REFUTED) >= 20


# ---------------------------------------------------------------- the canary: all axioms, instantiated on many terms


def crowded() -> tuple[Assumptions, saturate.Saturation]:
    """Return a saturation that instantiates every axiom on many terms over two square matrices."""
    assumptions = Assumptions(next(r for r in FALSE if r.name == "canary-square").equations[0])
    (x,), (y,) = assumptions.left, assumptions.right
    n = x.shape[-1]
    a = size(Sym("a", real=True))
    search = saturate.Saturation(
        assumptions, frozenset(registry()), saturate.SaturationLimits(rounds=3, terms=800, growth=((8, 24),))
    )
    image = apply("reshape", x, shape=(1, 1, n, n))
    kernel = apply("reshape", y, shape=(1, 1, n, n))
    seeds = [
        apply("matmul", apply("matmul", x, y), x),
        apply("matmul", x, apply("add", y, apply("eye", n=n))),
        apply("add", apply("matmul", x, y), apply("zeros", shape=(n, n))),
        apply("sub", apply("scale", x, factor=a), apply("scale", y, factor=2)),
        apply("relu", apply("mul", x, apply("ones", shape=(n, n)))),
        apply("slice", apply("concat", x, y, axis=-1), axis=-1, start=0, stop=n),
        apply("slice", apply("concat", x, y, axis=-1), axis=-1, start=n, stop=n + n),
        apply("transpose", apply("matmul", x, y), perm=(-1, -2)),
        apply("matmul", apply("concat", x, y, axis=-1), apply("concat", y, x, axis=-2)),
        apply("conv", image, kernel),
        apply("conv", image, apply("pad", kernel, before=(0, 0, 1, 1), after=(0, 0, 1, 1)), pads=(1, 1, 1, 1)),
        apply("avg_pool", image, kernel=(n, n), strides=(1, 1), pads=(0, 0, 0, 0)),
        apply("reduce_sum", x, axes=(-1,)),
        apply("reduce_mean", y, axes=(-1,)),
    ]
    for term in seeds:
        search.closure.add(term)
    return assumptions, search


def test_the_canary_survives_all_axioms_on_many_terms() -> None:
    assumptions, search = crowded()
    canary = tuple(zip(assumptions.left, assumptions.right, strict=True))
    assert not search.run(canary)
    texts = [reason.text for reason in search.closure.reasons() if isinstance(reason, Given)]
    assert len(texts) > 60
    assert len({text.partition("(")[0] for text in texts}) > 30
    grounds = [read_ground(text, assumptions) for text in texts]
    assert not Derivation(canary, grounds).follows(grounds)
    derivable = [Derivation(((g.left, g.right),), grounds).follows([g]) for g in grounds[:5]]
    assert all(derivable)


# ---------------------------------------------------------------- invalid proofs


def proof(name: str) -> tuple[Rule, Proved]:
    rule = next(r for r in TRUE if r.name == name)
    verdict = prove_from_axioms(rule)
    assert isinstance(verdict, Proved)
    return rule, verdict


@pytest.mark.parametrize("name", ["fold-branch", "share-input", "residual", "enlarge"])
def test_every_instance_of_a_proof_is_needed(name: str) -> None:
    rule, verdict = proof(name)
    for left_out in verdict.instances:
        assert isinstance(replay_proof(rule, [i for i in verdict.instances if i != left_out]), Unknown)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("matmul.wishful(x=x, y=w)", "no axiom is called matmul.wishful"),
        ("matmul.associativity", "not an instance"),
        ("matmul.associativity(x=)", "not an instance"),
        ("matmul.associativity(x, w, w)", "not an instance"),
        ("matmul.associativity(x=x, y=w, z=u)", "not declared"),
        ("matmul.associativity(x=x, y=w, z=conjure(w))", "no operator is called"),
        ("concat.slice-in-first(x=x, y=x, a=0, b=1 / 2, k=-1)", "does not derive"),
    ],
)
def test_what_is_no_instance_is_refused(text: str, why: str) -> None:
    rule, _ = proof("residual")
    verdict = replay_proof(rule, [text])
    assert isinstance(verdict, Unknown)
    assert why in verdict.reason


def test_an_instance_whose_conditions_do_not_follow_is_refused() -> None:
    rule = parse_rule("a: x @ y => x @ y + zeros(shape=(x @ y).shape) for x[2], y[2]")
    assert isinstance(replay_proof(rule, ["add.zero(x=x @ y)"]), Proved)
    verdict = replay_proof(rule, ["matmul.associativity(x=x, y=y, z=x)", "add.zero(x=x @ y)"])
    assert isinstance(verdict, Unknown)
    assert "do not follow" in verdict.reason


def test_a_proof_for_another_rule_proves_nothing() -> None:
    _, verdict = proof("factor-three")
    rule = parse_rule("a: x @ y + x @ z + x @ w => x @ (y + z + y)  for x[2], y[2], z[2], w[2]")
    assert isinstance(replay_proof(rule, verdict.instances), Unknown)


def forget_axioms() -> None:
    saturate.axiom_directions.cache_clear()
    saturate.readings_within.cache_clear()


def test_a_false_axiom_proves_too_much_but_has_no_standing(monkeypatch: pytest.MonkeyPatch) -> None:
    false = parse_rule("additive: relu(x + y) == relu(x) + relu(y)  for x[2, 3], y[2, 3]")
    name = "relu.additive"
    wrong = {**axioms(), name: Rule(name, false.statement, false.equations)}
    for module in ("saturate", "ground"):
        monkeypatch.setattr(f"superopt.proof.axioms.{module}.axioms", lambda: wrong)
    monkeypatch.setattr("superopt.proof.axioms.standing.axiom_laws", lambda: wrong)
    forget_axioms()
    standing.axiom_verdict.cache_clear()
    try:
        rule = next(r for r in FALSE if r.name == "relu-over-add")
        assert isinstance(prove_from_axioms(rule), Proved)
        assert not isinstance(verify.prove_rule(rule), Proved)
    finally:
        forget_axioms()
        standing.axiom_verdict.cache_clear()


def test_a_rule_is_as_bounded_as_its_axioms(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, _ = proof("reassociate")
    monkeypatch.setattr("superopt.proof.axioms.standing.axiom_verdict", lambda name: Proved(0.0, ("g in 1, 2",)))
    verdict = verify.prove_rule(rule)
    assert isinstance(verdict, Proved)
    assert verdict.bounded == ("matmul.associativity: g in 1, 2",)


# ---------------------------------------------------------------- parts of the prover


def test_what_the_right_side_needs_is_written_down() -> None:
    text = "a: conv(x, v, strides=s) + conv(x, w, strides=s) => conv(x, v + w, strides=s) for x[4], v[4], w[4], s[2]"
    rule = parse_rule(text)
    assert isinstance(prove_from_axioms(rule), Unknown)
    whole = add_preconditions(rule)
    assert whole is not None
    assert len(whole.statement.where) == 2
    assert isinstance(prove_from_axioms(whole), Proved)
    assert add_preconditions(whole) is whole
    assert add_preconditions(parse_rule("b: relu(x) => relu(concat(x, x, axis=-1)) for x[2]")) is None


def test_an_equality_is_added_before_the_bounds_that_it_implies() -> None:
    rule = parse_rule("a: pad(x, before=(p,), after=(0,)) => pad(reshape(x, shape=(p,)), before=(p,), after=(0,)) for x[1]")
    whole = add_preconditions(rule)
    assert whole is not None
    assert len(whole.statement.where) == 1


def test_congruence_is_explained_by_what_was_given() -> None:
    closure = Closure()
    a, b, c, d = (variable(name, 2) for name in "abcd")
    left = closure.add(apply("relu", apply("add", a, b)))
    right = closure.add(apply("relu", apply("add", c, d)))
    closure.merge(a, d, Given("first", a, d))
    assert not closure.equal(left, right)
    closure.merge(c, b, Given("second", c, b))
    closure.merge(a, closure.add(apply("relu", d)), Given("third", a, apply("relu", d)))
    assert closure.equal(left, right)
    given, regrouped = closure.explain(((left, right),))
    assert {g.text for g in given} == {"first", "second"}
    assert not regrouped


@pytest.mark.parametrize("turned", [False, True])
def test_a_term_that_was_not_added_is_in_the_class_of_the_terms_congruent_to_it(turned: bool) -> None:
    """The operands of a sum may be in any order. The operands of a matrix product may not."""
    closure = Closure()
    a, b, c = (variable(name, (2, 2)) for name in "abc")
    total, product = (closure.add(apply(op, a, b)) for op in ("add", "matmul"))
    assert closure.lookup(apply("add", b, c)) is None
    one, other = (c, a) if turned else (a, c)
    closure.merge(closure.add(one), closure.add(other), Given("given", one, other))
    assert closure.lookup(apply("add", b, c)) is closure.find(total)
    assert closure.lookup(apply("matmul", c, b)) is closure.find(product)
    assert closure.lookup(apply("matmul", b, c)) is None


def test_sizes_that_must_agree_are_one_size() -> None:
    (equation,) = parse_rule("a: conv(x, w, group=g) => conv(x, w, group=g) for x[4], w[4]").equations
    assumptions = Assumptions(equation)
    x, w = assumptions.variables["x"], assumptions.variables["w"]
    assert str(x.shape[-3]) == "w.shape[-3] * g"
    assert assumptions.holds(w.shape[-4] - size(Sym("g")) >= 0)
    assert not assumptions.holds(w.shape[-4] - size(Sym("g")) - 1 >= 0)


def test_stored_proofs_replay() -> None:
    """The test replays one in 32 of the stored proofs. `superopt prove` replays all of them."""
    axiomatic = [stored for stored in load() if stored.entry.kind == "axioms"]
    for stored in axiomatic[::32]:
        verdict = replay_proof(stored.rule, stored.entry.instances)
        assert isinstance(verdict, Proved), stored.rule
        assert verdict.instances == stored.entry.instances


def test_regrouping_states_the_shape_of_the_two_operands_alone() -> None:
    laws = [law for name, law in axiom_laws().items() if name.endswith(f".{REGROUP}")]
    assert laws
    for law in laws:
        for term in (
            term for equation in law.equations for side in (*equation.left, *equation.right) for term in subterms(side)
        ):
            if term.args and all(arg.is_variable for arg in term.args):
                assert term.shape == apply(term.op, *term.args).shape


def test_the_laws_of_the_named_operators_are_proved_alone() -> None:
    laws = axiom_laws()
    wanted = sorted(name for name in laws if name.partition(".")[0] in ("one_hot", "zeros"))
    rows = list(itertools.islice(prove_axioms(operators=["zeros", "one_hot"]), len(wanted) + 1))
    assert [(row.name, row.rule, row.proved) for row in rows] == [(name, laws[name], True) for name in wanted]


@pytest.mark.parametrize(
    ("quotient", "divisor"), [("7 // k == 3", 2), ("7 // k == 2", 3), ("8 // k == 8", 1), ("8 // k == 2", None)]
)
def test_a_quotient_of_one_divisor_alone_is_solved_for_it(quotient: str, divisor: int | None) -> None:
    """8 // 3 and 8 // 4 are both 2, so `8 // k == 2` does not determine k."""
    text = f"cut: slice(x, axis=-1, start=0, stop=k) => slice(x, axis=-1, start=0, stop=k) for x[1] where {quotient}"
    solved = Assumptions(parse_rule(text).equations[0]).solved
    assert solved.get(Sym("k")) == divisor


def test_a_product_that_is_one_is_solved_for_its_factors_and_sizes_come_first() -> None:
    """If both factors are 1, the quotient 2 // k is 1, which holds only at k = 2."""
    where = "x.shape[-1] * (2 // k) == 1, 2 // k >= 1"
    text = f"padded: pad(x, before=(k,), after=(0,)) => pad(x, before=(k,), after=(0,)) for x[1] where {where}"
    solved = Assumptions(parse_rule(text).equations[0]).solved
    assert solved == {Dim("x", -1): 1, Sym("k"): 2}


@pytest.mark.parametrize(
    ("where", "atom", "value"),
    [
        ("x.shape[-1] == y.shape[-1]", Dim("y", -1), size(Dim("x", -1))),
        ("x.shape[-1] == k + 2", Dim("x", -1), size(Sym("k")) + 2),
        ("k == y.shape[-1] + x.shape[-1]", Dim("y", -1), size(Sym("k")) - size(Dim("x", -1))),
        ("k == n + 2", Sym("n"), size(Sym("k")) - 2),
    ],
)
def test_an_equality_is_solved_for_the_size_of_the_last_variable(where: str, atom: Atom, value: Size) -> None:
    """An equality is solved for a size before it is solved for an attribute."""
    text = f"cut: slice(concat(x, y, axis=-1), axis=-1, start=n, stop=k) => zeros(shape=(k - n,)) for x[1], y[1] where {where}"
    assert Assumptions(parse_rule(text).equations[0]).solved == {atom: value}


@pytest.mark.parametrize(("where", "undefined"), [("", True), (" where a >= 0", True), (" where a != 0", False)])
def test_a_divisor_that_may_be_zero_on_the_right_alone_leaves_it_undefined(where: str, *, undefined: bool) -> None:
    rule = parse_rule(f"divided: x => scale(scale(x, factor=a), factor=1 / a) for x[1]{where}")
    assert undefined_somewhere(Assumptions(rule.equations[0])) == undefined


@pytest.mark.parametrize(("spare", "expected"), [(0, True), (-1, False)])
def test_a_regrouped_sum_may_be_as_costly_as_the_limit(spare: int, expected: bool) -> None:
    x, y, z, u, v = (variable(name, (3, 4)) for name in "xyzuv")
    goals = ((apply("add", x, u), apply("add", v, z)),)
    weigh = Closure(())
    costliest, goal = (weigh.weight(weigh.add(term)) for term in (apply("add", x, y, z), goals[0][0]))
    growth = ((0, costliest - goal + spare),)
    assumptions = Assumptions(parse_rule("sides: x + y => y + x  for x[1], y[1]").equations[0])
    search = saturate.Saturation(assumptions, frozenset({"add"}), saturate.SaturationLimits(growth=growth), laws={})
    for name, value in ((u, apply("add", y, z)), (v, apply("add", x, y))):
        search.closure.merge(search.closure.add(name), search.closure.add(value), Given("given", name, value))
    assert search.run(goals) == expected
