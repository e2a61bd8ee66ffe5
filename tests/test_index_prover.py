"""The index prover: every axiom proved for all sizes, laws beyond the axioms, known-wrong laws refuted, and its arithmetic."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from superopt.errors import InstantiationError, ShapeError
from superopt.graph import (
    Attribute,
    Cond,
    Dim,
    Extent,
    Size,
    Sym,
    Term,
    at_least,
    floor_divide,
    inverse,
    same,
    size,
    subterms,
    variables,
)
from superopt.op import apply, registry
from superopt.prove.arithmetic import Effort, contradictory, valid
from superopt.prove.index import Attempt, commutative_obligations, prove_axiom, prove_equation
from superopt.prove.sample import mismatch, replay
from superopt.prove.simplify import vanishes
from superopt.rule import Rule, axioms, parse_rule, parse_rules
from superopt.text import Equation
from superopt.verdict import Proved, Refuted, Unknown

WRONG = [r for path in sorted((Path(__file__).parent / "refuted").glob("*.rules")) for r in parse_rules(path.read_text())]

LAWS = parse_rules(
    """
    relu-of-chain:      relu((x @ y) @ z) => relu(x @ (y @ z))  for x[2, 3], y[2], z[2]
    relu-of-columns:    relu(x @ concat(y, z, axis=-1)) => concat(relu(x @ y), relu(x @ z), axis=-1)  for x[2], y[2], z[2]
    relu-of-square:     relu((x + y) * (x + y)) => relu(x * x + scale(x * y, factor=2) + y * y)  for x[2], y[2]
    relu-thrice:        relu(relu(relu(x))) => relu(x)  for x[1, 2, 3, 4]
    relu-doubled:       relu(x + x) => relu(x) + relu(x)  for x[2]
    relu-of-relu-doubled: relu(relu(x) + relu(x)) => relu(x + x)  for x[2]
    relu-scaled-inside: relu(scale(x, factor=a) @ y) => scale(relu(x @ y), factor=a)  for x[2], y[2] where a >= 0
    shared-input:       (x @ y, x @ z) => (slice(m := x @ concat(y, z, axis=-1), axis=-1, start=0, stop=y.shape[-1]),
                        slice(m, axis=-1, start=y.shape[-1], stop=y.shape[-1] + z.shape[-1]))  for x[2], y[2], z[2]
    cut-and-joined:     concat(slice(x, axis=-1, start=0, stop=a), slice(x, axis=-1, start=a, stop=x.shape[-1]), axis=-1) @ y
                        => x @ y  for x[2], y[2]
    sum-in-parts:       slice(x, axis=-1, start=0, stop=a) @ slice(y, axis=-2, start=0, stop=a)
                        + slice(x, axis=-1, start=a, stop=x.shape[-1]) @ slice(y, axis=-2, start=a, stop=y.shape[-2]) => x @ y
                        for x[2], y[2]
    sum-overlapping:    slice(x, axis=-1, start=0, stop=b) @ slice(y, axis=-2, start=0, stop=b)
                        + slice(x, axis=-1, start=a, stop=x.shape[-1]) @ slice(y, axis=-2, start=a, stop=y.shape[-2])
                        => x @ y + slice(x, axis=-1, start=a, stop=b) @ slice(y, axis=-2, start=a, stop=b)
                        for x[2], y[2]
    mean-of-product:    reduce_mean(x @ y, axes=(-2,)) => reduce_sum(scale(x, factor=1 / x.shape[-2]) @ y, axes=(-2,))
                        for x[2], y[2]
    mean-twice:         reduce_mean(reduce_mean(x, axes=(-1,)), axes=(-1,)) => reduce_mean(x, axes=(-2, -1))  for x[3, 4]
    branch-merged:      conv(x, w, strides=s, pads=p) + conv(x, v, strides=s, pads=(p0 - a, p1 - b, p2 - a, p3 - b))
                        => conv(x, w + pad(v, before=(0, 0, a, b), after=(0, 0, a, b)), strides=s, pads=p)
                        for x[4], w[4], v[4], s[2], p[4]
                        where w.shape[-2] == v.shape[-2] + 2 * a, w.shape[-1] == v.shape[-1] + 2 * b,
                        p0 >= a, p1 >= b, p2 >= a, p3 >= b
    residual-into-kernel: conv(x, w, pads=(a, b, a, b)) + x
                        => conv(x, w + identity_kernel(shape=w.shape, at=(a, b)), pads=(a, b, a, b))
                        for x[4], w[4] where w.shape[-2] == 2 * a + 1, w.shape[-1] == 2 * b + 1
    scale-into-grouped: conv(x, w, group=g, strides=s) * expand(t, shape=conv(x, w, group=g, strides=s).shape, axes=(-3,))
                        => conv(x, w * expand(t, shape=w.shape, axes=(-4,)), group=g, strides=s)
                        for x[4], w[4], t[1], s[2]
    pool-then-relu:     max_pool(relu(scale(x, factor=a)), kernel=k, strides=s, pads=p)
                        => scale(relu(max_pool(x, kernel=k, strides=s, pads=p)), factor=a)
                        for x[4], k[2], s[2], p[4] where a >= 0
    """
)

EVEN = "slice(x, axis=-1, start=(a * a + a) // 2 * 2, stop=b) => slice(x, axis=-1, start=a * a + a, stop=b) for x[1]"


def equations_of(rules: Mapping[str, Rule]) -> list[object]:
    return [
        pytest.param(equation, id=f"{name}-{''.join(str(rank) for _, rank in equation.ranks)}")
        for name, rule in rules.items()
        for equation in rule.equations
    ]


def named(rules: list[Rule]) -> dict[str, Rule]:
    return {rule.name: rule for rule in rules}


@pytest.mark.parametrize("equation", equations_of(axioms()))
def test_axiom_is_proved_for_all_sizes(equation: Equation) -> None:
    verdict = prove_equation(equation)
    assert isinstance(verdict, Proved), str(verdict)
    assert verdict.bounded == ()
    assert verdict.milliseconds > 0


@pytest.mark.parametrize("equation", equations_of(named(LAWS)))
def test_law_beyond_the_axioms_is_proved(equation: Equation) -> None:
    verdict = prove_equation(equation)
    assert isinstance(verdict, Proved), str(verdict)
    assert verdict.bounded == ()


def test_commutative_operators_are_commutative_and_associative() -> None:
    found = dict(commutative_obligations())
    operators = {name for name, spec in registry().items() if spec.commutative}
    assert set(found) == {f"{n}.{law}" for n in operators for law in ("commutativity", "regrouping")}
    assert all(isinstance(v, Proved) for v in found.values())


@pytest.mark.parametrize("rule", WRONG, ids=lambda r: r.name)
def test_wrong_law_is_refuted_by_a_counterexample_that_can_be_replayed(rule: Rule) -> None:
    verdict = prove_axiom(rule)
    assert isinstance(verdict, Refuted), str(verdict)
    found = [replay(e, verdict.counterexample) for e in rule.equations]
    assert verdict.counterexample in found


@pytest.mark.parametrize("equation", equations_of(named(WRONG)))
def test_wrong_law_is_never_proved(equation: Equation) -> None:
    assert not Attempt(equation, {}).proved


def test_enough_wrong_laws() -> None:
    assert len(WRONG) >= 25


def test_canary_is_not_proved() -> None:
    canary = parse_rule("canary: x => y for x[2], y[2]")
    assert not Attempt(canary.equations[0], {}).proved
    assert not Attempt(parse_rule("same-shape: x => y for x[2], y[2] where x.shape[-1] == 3").equations[0], {}).proved


def test_what_defeats_the_prover_is_proved_for_stated_values() -> None:
    verdict = prove_axiom(parse_rule(f"even: {EVEN}"))
    assert isinstance(verdict, Proved)
    assert verdict.bounded == ("a in 1, 2, 3, 4",)


def test_equation_without_instances_is_unknown() -> None:
    verdict = prove_axiom(parse_rule("vacuous: x => x + x for x[1] where x.shape[-1] == 0"))
    assert isinstance(verdict, Unknown)


def mutants(count: int) -> list[Equation]:
    """Axioms with one attribute of the right side off by one, or one variable exchanged for another, that are then wrong."""
    rng = random.Random(0)
    laws = [e for rule in axioms().values() for e in rule.equations if "reshape" not in rule.operators]
    found: list[Equation] = []
    while len(found) < count:
        law = rng.choice(laws)
        try:
            right = tuple(mutated(t, rng) for t in law.right)
            mutant = Equation(law.left, right, law.where, law.ranks)
            if all(a.rank == b.rank for a, b in zip(law.left, right, strict=True)) and mismatch(mutant, instances=20, seed=0):
                found.append(mutant)
        except (ShapeError, InstantiationError):
            continue
    return found


def mutated(term: Term, rng: random.Random) -> Term:
    target = rng.choice(subterms(term))
    others = [v for v in variables(term) if v.rank == target.rank and v is not target]
    done: dict[Term, Term] = {}
    for part in subterms(term):
        attributes = dict(part.attributes)
        if part is target and part.is_variable and others:
            done[part] = rng.choice(others)
        elif part.is_variable:
            done[part] = part
        else:
            if part is target and attributes:
                name = rng.choice(sorted(attributes))
                attributes[name] = shifted(attributes[name], rng)
            done[part] = apply(part.op, *(done[a] for a in part.args), **attributes)
    return done[term]


def shifted(value: Attribute, rng: random.Random) -> Attribute:
    if isinstance(value, tuple) and value:
        place = rng.randrange(len(value))
        return tuple(v + 1 if i == place else v for i, v in enumerate(value))
    return value + 1 if isinstance(value, int | Size) else value


def test_no_mutant_of_an_axiom_that_is_wrong_is_proved() -> None:
    proved = [m for m in mutants(60) if Attempt(m, {}).proved]
    assert proved == []


# ---------------------------------------------------------------- arithmetic

n, m = size(Dim("x", -1)), size(Dim("y", -1))
a, b, g, q, r, s = (size(Sym(name)) for name in "abgqrs")
real = size(Sym("t", real=True))

TRUE: list[tuple[list[Cond], Cond]] = [
    ([], at_least(n + m, 2)),
    ([at_least(a, 0), a < n], a < n + m),
    ([at_least(q, 0), at_least(s, 1)], at_least(q * s, 0)),
    ([at_least(r, 0), r < n, at_least(q * n + r, 0)], at_least(q, 0)),
    ([at_least(r, 0), r < n, q * n + r < g * n], q < g),
    ([at_least(r, 0), r < s, q * s + r < g * s], q < g),
    ([at_least(r, 0), r < n], same(floor_divide(r, n), 0)),
    ([at_least(a, 0), at_least(s, 1)], at_least(floor_divide(a, s), 0)),
    ([at_least(s, 1), a <= floor_divide(b, s)], a * s <= b),
    ([at_least(g, 1), same(inverse(g) * g, 1)], same(g * inverse(g), 1)),
    ([at_least(real, Fraction(1, 2))], at_least(real, Fraction(1, 3))),
]
FALSE: list[tuple[list[Cond], Cond]] = [
    ([], at_least(n, 2)),
    ([], at_least(a, 0)),
    ([at_least(real, Fraction(-1, 2))], at_least(real, 0)),
    ([at_least(q, 0)], at_least(q * s, 0)),
    ([at_least(r, 0)], same(floor_divide(r, s), 0)),
    ([], at_least(a - s * floor_divide(a, s), 0)),
    ([at_least(r, 0), r < n, q * n + r < g * n], q + 1 < g),
    ([], at_least(2 * a, 1) & at_least(0, a)),
]


@pytest.mark.parametrize(("facts", "claim"), TRUE)
def test_valid(facts: list[Cond], claim: Cond) -> None:
    assert valid(facts, claim)


@pytest.mark.parametrize(("facts", "claim"), FALSE)
@pytest.mark.parametrize("effort", Effort)
def test_not_valid(facts: list[Cond], claim: Cond, effort: Effort) -> None:
    assert not valid(facts, claim, effort)


def test_contradictory() -> None:
    assert contradictory([at_least(a, 1), at_least(0, a)])
    assert contradictory([same(n, 0)])
    assert not contradictory([at_least(a, 1), at_least(1, a)])
    assert not contradictory([at_least(real, Fraction(1, 4)), at_least(Fraction(3, 4), real)])


@pytest.mark.parametrize(
    ("coefficient", "zero"),
    [
        ((n + m) * inverse(n + m) - 1, True),
        (n * inverse(n + m) + m * inverse(n + m) - 1, True),
        (inverse(n) * inverse(m) - inverse(n * m), True),
        (inverse(n) - inverse(m), False),
        (inverse(n) + inverse(m) - inverse(n + m), False),
        (0, True),
        (Fraction(1, 3), False),
    ],
)
def test_coefficient_vanishes(coefficient: Extent, *, zero: bool) -> None:
    assert vanishes((), coefficient) == zero
