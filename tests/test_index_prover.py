"""The index prover: proofs of every axiom for all sizes, laws beyond the axioms, refuted wrong laws, and its arithmetic."""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from superopt.algebra.operators import apply, operator, registry
from superopt.algebra.terms import (
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
    negation,
    same,
    size,
    subterms,
    variables,
)
from superopt.errors import InstantiationError, ShapeError
from superopt.notation.parsing import Equation, equation_at_ranks
from superopt.policy import PROOF
from superopt.proof.definitions import arithmetic
from superopt.proof.definitions.align import first_from, floor_quotients
from superopt.proof.definitions.alpha import collect_summands, shape
from superopt.proof.definitions.arithmetic import SolverEffort, is_contradictory, is_valid
from superopt.proof.definitions.assumptions import Assumptions
from superopt.proof.definitions.clearing import clear_denominator
from superopt.proof.definitions.forms import canonical_rational_power, is_indicator
from superopt.proof.definitions.index import Attempt, commutative_obligations, prove_axiom, prove_equation
from superopt.proof.definitions.maxima import largest
from superopt.proof.definitions.normal import Normal
from superopt.proof.definitions.signs import Sign, Signs
from superopt.proof.definitions.simplify import quotient_without_remainder, simplify_sum, vanishes
from superopt.proof.definitions.sums import (
    Call,
    GuardedValue,
    Largest,
    Power,
    Read,
    Sum,
    Summand,
    TableElement,
    single,
    substitute_summand,
    times,
)
from superopt.proof.definitions.tables import contract_table
from superopt.proof.sample import mismatch, replay_counterexample
from superopt.proof.verify import prove_rule
from superopt.rules.rule import Rule, axioms, parse_rule, parse_rules
from superopt.rules.verdict import Proved, Refuted, Unknown
from superopt.speclib.recurrence import recurrences

pytestmark = pytest.mark.slow

WRONG = [r for path in sorted((Path(__file__).parent / "refuted").glob("*.rules")) for r in parse_rules(path.read_text())]

LAWS = parse_rules(
    """
    relu-of-chain:      relu((x @ y) @ z) => relu(x @ (y @ z))  for x[2, 3], y[2], z[2]
    relu-of-columns:    relu(x @ concat(y, z, axis=-1)) => concat(relu(x @ y), relu(x @ z), axis=-1)  for x[2], y[2], z[2]
    relu-of-square:     relu((x + y) * (x + y)) => relu(x * x + scale(x * y, factor=2) + y * y)  for x[2], y[2]
    first-of-blocks: slice(depth_to_space(concat(x, y, axis=-4), block=o), axis=-4, stop=x.shape[-4])
        => depth_to_space(x, block=o)  for x[4], y[4]
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
    smaller-under-largest: reduce_max(minimum(x, expand(y, shape=x.shape, axes=(-2,))), axes=(-1,))
                        => minimum(reduce_max(x, axes=(-1,)), y)  for x[2], y[1]
    scaled-by-parts:    scale(x, factor=0.5 * a + 0.25 * b)
                        => scale(scale(x, factor=0.5), factor=a) + scale(scale(x, factor=0.25), factor=b)  for x[1]
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
    shared-by-heads:    reshape(expand(reshape(x, shape=(n, g, k)), shape=(n, g, r, k), axes=(-4, -3, -1)),
                                shape=(n, g * r * k)) @ y
                        => x @ reshape(reduce_sum(reshape(y, shape=(g, r, k, y.shape[-1])), axes=(-3,)),
                                       shape=(g * k, y.shape[-1]))
                        for x[2], y[2]
    """
)

BY_CASES = parse_rules(
    """
    relu-of-square:     relu(x * x) => x * x  for x[1, 2, 3, 4]
    relu-apart:         relu(x) - relu(scale(x, factor=-1)) => x  for x[1, 2, 3, 4]
    relu-both:          relu(x) + relu(scale(x, factor=-1)) => abs(x)  for x[1, 2]
    relu-squared:       relu(x) * relu(x) => relu(x) * x  for x[1, 2]
    relu-negative:      relu(scale(relu(x), factor=-1)) => zeros(shape=x.shape)  for x[1, 2]
    relu-of-rest:       relu(x - relu(x)) => zeros(shape=x.shape)  for x[2]
    relu-exchanged:     relu(relu(y) * x) => relu(relu(x) * y)  for x[2], y[2]
    relu-turned:        relu(y - x) + x => relu(x - y) + y  for x[2], y[2]
    relu-squared-in:    relu(x) * y * y => relu(x * y * y)  for x[2], y[2]
    relu-under-sum:     reduce_sum(relu(x) - relu(scale(x, factor=-1)), axes=(-1,)) => reduce_sum(x, axes=(-1,))  for x[2]
    relu-of-sum:        relu(reduce_sum(relu(x), axes=(-1,))) => reduce_sum(relu(x), axes=(-1,))  for x[2]
    relu-of-average:    relu(avg_pool(relu(x), kernel=k, strides=s, pads=p, include_pads=1))
                        => avg_pool(relu(x), kernel=k, strides=s, pads=p, include_pads=1)  for x[4], s[2], p[4], k[2]
    relu-of-constant:   relu(reduce_mean(expand(t, shape=n, axes=(-2,)), axes=(-1,)))
                        => reduce_mean(relu(expand(t, shape=n, axes=(-2,))), axes=(-1,))  for t[1], n[2]
    largest-and-least:  maximum(x, y) + minimum(x, y) => x + y  for x[2], y[2]
    largest-of-three:   maximum(maximum(x, y), z) => maximum(y, maximum(z, x))  for x[2], y[2], z[2]
    largest-shifted:    maximum(x + z, y + z) => maximum(x, y) + z  for x[2], y[2], z[2]
    lattice:            maximum(x, minimum(y, z)) => minimum(maximum(x, y), maximum(x, z))  for x[2], y[2], z[2]
    chosen-exp:         exp(where(less(x, y), x, y)) => exp(minimum(x, y))  for x[2], y[2]
    chosen-equal:       where(equal(x, y), exp(x), exp(y)) => exp(y)  for x[2], y[2]
    step-as-choice:     less(zeros(shape=x.shape), x) * x => relu(x)  for x[2]
    elu-of-negative:    relu(elu(scale(relu(x), factor=-1))) => zeros(shape=x.shape)  for x[2]
    """
)

FUNCTIONS = parse_rules(
    """
    softmax-shifted:    softmax(x + expand(t, shape=x.shape, axes=(-2,)), axis=-1) => softmax(x, axis=-1)  for x[2], t[1]
    softmax-stable:     softmax(x - expand(reduce_max(x, axes=(-1,)), shape=x.shape, axes=(-2,)), axis=-1)
                        => softmax(x, axis=-1)  for x[2]
    softmax-then-matmul: softmax(x + expand(t, shape=x.shape, axes=(-2,)), axis=-1) @ y => softmax(x, axis=-1) @ y
                        for x[2], t[1], y[2]
    matmul-then-softmax: y @ softmax(x + expand(t, shape=x.shape, axes=(-2,)), axis=-1) => y @ softmax(x, axis=-1)
                        for x[2], t[1], y[2]
    softmax-sums-to-one: reduce_sum(softmax(x, axis=-1), axes=(-1,)) => ones(shape=(x.shape[-2],))  for x[2]
    softmax-turned:     softmax(transpose(x, perm=(-1, -2)), axis=-1) => transpose(softmax(x, axis=-2), perm=(-1, -2))  for x[2]
    log-of-softmax:     log(softmax(x, axis=-1)) => log_softmax(x, axis=-1)  for x[2]
    exp-of-log-softmax: exp(log_softmax(x, axis=-1)) => softmax(x, axis=-1)  for x[2]
    centred-twice:      layer_norm(x + scale(ones(shape=x.shape), factor=a), epsilon=e) => layer_norm(x, epsilon=e)  for x[1, 2]
    affine-into-matmul: (layer_norm(x, epsilon=e) * expand(g, shape=x.shape, axes=(-1,))
                        + expand(b, shape=x.shape, axes=(-1,))) @ w
                        => layer_norm(x, epsilon=e) @ (expand(g, shape=w.shape, axes=(-2,)) * w)
                        + expand(b, shape=x.shape, axes=(-1,)) @ w
                        for x[2], g[1], b[1], w[2]
    scale-into-rms:     rms_norm(x, epsilon=e) * expand(g, shape=x.shape, axes=(-1,)) @ w
                        => rms_norm(x, epsilon=e) * expand(g, shape=x.shape, axes=(-1,)) @ w  for x[2], g[1], w[2]
    quotient-undone:    x * reciprocal(x) => ones(shape=x.shape)  for x[2]
    reciprocal-undone:  reciprocal(reciprocal(x)) => x  for x[2]
    reciprocal-of-both: reciprocal(x * y) => reciprocal(y) * reciprocal(x)  for x[2], y[2]
    fractions-added:    reciprocal(x) + reciprocal(y) => (x + y) * reciprocal(x * y)  for x[2], y[2]
    roots-multiplied:   sqrt(x) * sqrt(y) => sqrt(x * y)  for x[2], y[2]
    root-divided:       x * rsqrt(x) => sqrt(x)  for x[2]
    root-cancelled:     sqrt(x) * rsqrt(x) => ones(shape=x.shape)  for x[2]
    logarithms-added:   log(x) + log(y) => log(x * y)  for x[2], y[2]
    logarithm-undone:   exp(log(x)) => x  for x[2]
    exponential-undone: log(exp(x) * exp(y)) => x + y  for x[2], y[2]
    cube-undone:        exp(scale(log(x * x * x), factor=1 / 3)) => x  for x[2]
    relu-of-exp:        relu(exp(x)) => exp(x)  for x[2]
    relu-of-roots:      relu(x * sqrt(y)) => relu(x) * sqrt(y)  for x[2], y[2]
    sigmoid-turned:     sigmoid(x) + sigmoid(scale(x, factor=-1)) => ones(shape=x.shape)  for x[2]
    sigmoid-of-largest: reduce_max(sigmoid(x), axes=(-1,)) => sigmoid(reduce_max(x, axes=(-1,)))  for x[2]
    tanh-of-pool:       max_pool(tanh(x), kernel=k, strides=s, pads=p) => tanh(max_pool(x, kernel=k, strides=s, pads=p))
                        for x[4], k[2], s[2], p[4]
    softplus-turned:    softplus(scale(x, factor=-1)) => softplus(x) - x  for x[2]
    gelu-turned:        gelu(scale(x, factor=-1)) => gelu(x) - x  for x[2]
    choice-kept:        where(c, log(x), y) => where(c, log(x), y + zeros(shape=y.shape))  for c[2], x[2], y[2]
    one-root-each:      concat(log(x), y, axis=-1) => concat(log(x), y + zeros(shape=y.shape), axis=-1)  for x[2], y[2]
    """
)

DIVISIONS = parse_rules(
    """
    factored-out:       scale(x, factor=a) + y => scale(x + scale(y, factor=1 / a), factor=a)  for x[2], y[2] where a != 0
    factored-negative:  scale(x, factor=a) + y => scale(x + scale(y, factor=1 / a), factor=a)  for x[2], y[2] where a <= -1
    factored-from-sum:  scale(x, factor=a) + scale(y, factor=b)
                        => scale(scale(x, factor=a * (1 / (a + b))) + scale(y, factor=b * (1 / (a + b))), factor=a + b)
                        for x[2], y[2] where a >= 1, b >= 0
    by-a-product:       scale(scale(x, factor=a), factor=b) + y => scale(x + scale(y, factor=1 / (a * b)), factor=a * b)
                        for x[2], y[2] where a != 0, b != 0
    relu-factored:      relu(scale(x, factor=a) + y) => scale(relu(x + scale(y, factor=1 / a)), factor=a)
                        for x[2], y[2] where a >= 0, a != 0
    divided-on-left:    scale(scale(x, factor=a), factor=1 / a) => x  for x[2]
    reciprocal-scaled:  reciprocal(scale(x, factor=a)) => scale(reciprocal(x), factor=1 / a)  for x[2]
    scaled-reciprocal:  scale(reciprocal(x), factor=1 / a) => reciprocal(scale(x, factor=a))  for x[2]
    quotient-scaled:    y * reciprocal(scale(x, factor=a)) => scale(y * reciprocal(x), factor=1 / a)  for x[2], y[2]
    quotients-summed:   reduce_sum(reciprocal(scale(x, factor=a)), axes=(-1,))
                        => scale(reduce_sum(reciprocal(x), axes=(-1,)), factor=1 / a)  for x[2]
    equal-where-scaled: where(equal(scale(x, factor=a), scale(y, factor=a)), x, z) => where(equal(x, y), x, z)
                        for x[2], y[2], z[2] where a != 0
    power-of-root:      power(exp(x), exponent=a) => power(power(exp(x), exponent=1 / a), exponent=a * a)  for x[2] where a != 0
    root-of-scaled:     sqrt(scale(x, factor=a * a)) => scale(sqrt(x), factor=a)  for x[2] where a >= 0, a != 0
    logarithm-of-scaled: log(scale(x, factor=a)) => log(x) + log(scale(ones(shape=x.shape), factor=a))
                        for x[2] where a >= 0, a != 0
    """
)
"""Laws that divide by an attribute variable that is not zero.

`refuted/divisions.rules` has the same laws for variables that may be zero.
"""

NARROWER = parse_rules(
    """
    reciprocal-twice:   x => reciprocal(reciprocal(x))  for x[2]
    quotient:           x => x * (x * reciprocal(x))  for x[2]
    logarithm:          x => exp(log(x))  for x[2]
    roots:              sqrt(x * y) => sqrt(x) * sqrt(y)  for x[2], y[2]
    root:               sqrt(x) => x * rsqrt(x)  for x[2]
    two-roots:          reciprocal(x) => rsqrt(x) * rsqrt(x)  for x[2]
    nothing:            zeros(shape=x.shape) => scale(log(x), factor=0)  for x[2]
    difference:         zeros(shape=x.shape) => reciprocal(x) - reciprocal(x)  for x[2]
    not-chosen:         where(c, log(x), y) => where(c, log(x), y) + scale(log(x), factor=0)  for c[2], x[2], y[2]
    cut-off:            slice(log(x), axis=-1, start=0, stop=1)
                        => slice(log(x), axis=-1, start=0, stop=1)
                        + scale(slice(log(x), axis=-1, start=x.shape[-1] - 1, stop=x.shape[-1]), factor=0)  for x[2]
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


def one_equation(axiom: Rule) -> Equation:
    """Return the axiom at one of its choices of ranks. The axiom's name decides which."""
    choices = list(axiom.statement.rank_choices())
    start = zlib.crc32(axiom.name.encode()) % len(choices)
    for ranks in choices[start:] + choices[:start]:
        try:
            return equation_at_ranks(axiom.statement, ranks)
        except ShapeError:
            continue
    raise AssertionError


def some_axioms() -> list[str]:
    """Return every axiom that few operators share, and one in six of the axioms that many operators share."""
    shared = Counter(name.partition(".")[2] for name in axioms())
    return [name for name in axioms() if shared[name.partition(".")[2]] < 8 or zlib.crc32(name.encode()) % 6 == 0]


@pytest.mark.parametrize("name", some_axioms())
def test_axiom_is_proved_for_all_sizes(name: str) -> None:
    axiom = axioms()[name]
    verdict = prove_equation(one_equation(axiom), both_ways=axiom.statement.arrow == "==")
    assert isinstance(verdict, Proved), str(verdict)
    assert verdict.bounded == ()


@pytest.mark.parametrize("equation", equations_of(named([*LAWS, *BY_CASES, *FUNCTIONS, *DIVISIONS])))
def test_law_beyond_the_axioms_is_proved(equation: Equation) -> None:
    verdict = prove_equation(equation)
    assert isinstance(verdict, Proved), str(verdict)
    assert verdict.bounded == ()


def test_commutative_operators_are_commutative_and_associative() -> None:
    began = time.perf_counter()
    found = dict(commutative_obligations())
    elapsed = (time.perf_counter() - began) * 1e3
    operators = {name for name, spec in registry().items() if spec.commutative}
    assert set(found) == {f"{n}.{law}" for n in operators for law in ("commutativity", "regrouping")}
    assert all(isinstance(v, Proved) and v.milliseconds <= elapsed for v in found.values())


@pytest.mark.parametrize("rule", WRONG, ids=lambda r: r.name)
def test_wrong_law_is_refuted_by_a_counterexample_that_can_be_replayed(rule: Rule) -> None:
    verdict = prove_axiom(rule)
    assert isinstance(verdict, Refuted), str(verdict)
    found = [replay_counterexample(e, verdict.counterexample) for e in rule.equations]
    assert verdict.counterexample in found


@pytest.mark.parametrize("equation", equations_of(named(WRONG)))
def test_wrong_law_is_never_proved(equation: Equation) -> None:
    assert not Attempt(equation, {}).proved


@pytest.mark.parametrize("rule", NARROWER, ids=lambda r: r.name)
def test_what_is_defined_in_fewer_places_is_never_proved(rule: Rule) -> None:
    assert not any(Attempt(equation, {}).proved for equation in rule.equations)
    assert not isinstance(prove_rule(rule), Proved)


@pytest.mark.parametrize("rule", NARROWER, ids=lambda r: r.name)
def test_an_axiom_that_widens_has_one_direction(rule: Rule) -> None:
    (equation, *_) = rule.equations
    turned = Equation(equation.right, equation.left, equation.where, equation.ranks)
    assert Attempt(turned, {}).proved
    assert not Attempt(turned, {}, both_ways=True).proved


def test_a_proof_is_given_up_for_its_length_and_not_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    equation = parse_rule("a: layer_norm(layer_norm(x, epsilon=1), epsilon=1) => layer_norm(x, epsilon=1) for x[2]").equations[
        0
    ]
    monkeypatch.setattr("superopt.proof.definitions.normal.PROOF", replace(PROOF, max_multiplied_summands=50))
    assert "more than 50 summands" in Attempt(equation, {}).reason


def test_wrong_laws_about_every_function() -> None:
    about = {op for rule in WRONG for op in rule.operators}
    functions = {name for name, spec in registry().items() if spec.arity and spec.definition and spec.exact != "ring"}
    recurrent = {name for r in recurrences() for name in (r.every, *r.last)}  # no wrong rule contains recurrences
    own = {name for name in functions if any("." in known for known in operator(name).onnx)}  # or contrib operators
    fused = {name for name in functions if hasattr(operator(name).module, "FUSIONS")}  # or fused operators
    assert functions - about == recurrent | own | fused


def test_enough_wrong_laws() -> None:
    assert len(WRONG) >= 150


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
    """Return axioms that are wrong after a change of their right side.

    The change moves one attribute by 1, or exchanges one variable for another.
    """
    rng = random.Random(0)
    laws = [one_equation(rule) for rule in axioms().values() if "reshape" not in rule.operators]
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
    proved = [m for m in mutants(40) if Attempt(m, {}).proved]
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
    ([at_least(r, 0), r < s, at_least(a, 0), a < b, q * s * b + r * b + a < g * s * b], q < g),
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
    ([at_least(r, 0), r < s, at_least(a, 0), a < b, q * s * b + r * b + a < g * s * b], q + 1 < g),
    ([], at_least(2 * a, 1) & at_least(0, a)),
    ([negation(same(s, 1)), at_least(a, 0)], at_least(a * (q - s * floor_divide(q, s)), 0)),
]


@pytest.mark.parametrize(("facts", "claim"), TRUE)
def test_valid(facts: list[Cond], claim: Cond) -> None:
    assert is_valid(facts, claim)


@pytest.mark.parametrize(("facts", "claim"), FALSE)
@pytest.mark.parametrize("effort", SolverEffort)
def test_not_valid(facts: list[Cond], claim: Cond, effort: SolverEffort) -> None:
    assert not is_valid(facts, claim, effort)


def test_what_was_asked_before_decides_nothing_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    question = frozenset([at_least(a, 2)]), at_least(n * a, n + 7), SolverEffort.NONLINEAR
    monkeypatch.setitem(arithmetic._sessions[-1].answers, question, True)
    assert is_valid(*question)
    with arithmetic.isolated_solver():
        assert not is_valid(*question)
    assert is_valid(*question)


@pytest.mark.parametrize(("facts", "claim"), FALSE)
def test_what_is_not_found_out_can_be_passed_over(monkeypatch: pytest.MonkeyPatch, facts: list[Cond], claim: Cond) -> None:
    with arithmetic.skip_questions() as unsettled:
        assert not is_valid(facts, claim)
    monkeypatch.setattr(arithmetic, "_answer", lambda *_: pytest.fail("it was asked again"))
    with arithmetic.skip_questions(unsettled) as again, arithmetic.isolated_solver():
        assert not is_valid(facts, claim)
    assert tuple(again) == tuple(unsettled)


def test_what_is_passed_over_is_never_found_to_hold() -> None:
    question = [at_least(n, a), at_least(a, 2)], at_least(n, 2), SolverEffort.LINEAR
    name = arithmetic._digest(sorted(question[0], key=str), *question[1:])
    with arithmetic.skip_questions() as unsettled:
        assert is_valid(*question)
        assert not tuple(unsettled)
    with arithmetic.skip_questions([name]) as unsettled:
        assert not is_valid(*question)
        assert tuple(unsettled) == (name,)
        with arithmetic.skip_questions():
            assert is_valid(*question)


def test_contradictory() -> None:
    assert is_contradictory([at_least(a, 1), at_least(0, a)])
    assert is_contradictory([same(n, 0)])
    assert not is_contradictory([at_least(a, 1), at_least(1, a)])
    assert not is_contradictory([at_least(real, Fraction(1, 4)), at_least(Fraction(3, 4), real)])


@pytest.mark.parametrize(
    ("facts", "quotient", "expected"),
    [
        ([at_least(r, 0), r < s, at_least(b, 1)], floor_divide(a * s + r, b * s), floor_divide(a, b)),
        ([at_least(r, 0), r < s], floor_divide(a * s + r, s * s), floor_divide(a, s)),
        ([at_least(r, 0), r < s + 1, at_least(b, 1)], floor_divide(a * s + r, b * s), None),
        ([at_least(r, -1), r < s, at_least(b, 1)], floor_divide(a * s + r, b * s), None),
        ([at_least(r, 0), r < s], floor_divide(a * s + r, b * s), None),
        ([at_least(r, 0), r < s, at_least(b, 1)], floor_divide(real * s + r, b * s), None),
        ([at_least(r, 0), r < s, at_least(b, 1)], floor_divide(a * s * Fraction(1, 2) + r, b * s), None),
    ],
)
def test_a_quotient_loses_the_remainders_that_are_too_small_to_change_it(
    facts: list[Cond], quotient: Extent, expected: Extent | None
) -> None:
    assert quotient_without_remainder((at_least(s, 1), *facts), next(floor_quotients([quotient]))) == expected


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


def summands(count: int) -> list[Summand]:
    """Return sums over i of the maximum over j of an element, and the sums with i and j exchanged.

    Both ranges have the same extent.
    """
    i, j = Sym("k.0"), Sym("k.1")
    element: Sum = (Summand(1, factors=(Read("x", (size(i), size(j))),)),)
    ranges = {k: (at_least(size(k), 0), at_least(n - 1, size(k))) for k in (i, j)}
    both = [
        Summand(1, (outer,), ranges[outer], (Largest((GuardedValue((inner,), ranges[inner], element),)),))
        for outer, inner in ((i, j), (j, i))
    ]
    return both[:count]


def test_what_is_alike_is_so_under_other_names_and_in_no_other_way() -> None:
    one, other = summands(2)
    renamed = substitute_summand(one, {Sym("k.0"): size(Sym("k.7")), Sym("k.1"): size(Sym("k.0"))}.get)  # type: ignore[arg-type]
    assert shape(one) == shape(renamed)
    assert shape(one) != shape(other)
    assert collect_summands([one, replace(renamed, coefficient=-1)]) == ()
    assert len(collect_summands([one, replace(other, coefficient=-1)])) == 2


def test_a_sum_over_an_index_is_not_alike_to_its_summand() -> None:
    assert shape(Summand(1, (Sym("k.0"),))) != shape(Summand(1))


@pytest.mark.parametrize(("last", "within"), [(1, True), (2, False)])
def test_a_table_is_a_condition_only_where_its_indices_are_within_it(last: int, *, within: bool) -> None:
    i, j = size(Sym("k.0")), size(Sym("k.1"))
    table = TableElement((2, 2), tuple(map(Fraction, (1, 0, 0, 1))), (i, j))
    guard = (at_least(i, 0), at_least(1, i), at_least(j, 0), at_least(last, j))
    expected = Summand(1, (), (*guard, same(i, j)))
    assert contract_table((), Summand(1, (), guard, (table,))) == (expected if within else None)


@pytest.mark.parametrize(("fixed", "within"), [(1, True), (2, False), (-1, False)])
def test_a_table_at_a_fixed_index_is_a_condition_only_within_it(fixed: int, *, within: bool) -> None:
    i = size(Sym("k.0"))
    table = TableElement((2, 2), tuple(map(Fraction, (1, 0, 0, 1))), (i, fixed))
    guard = (at_least(i, 0), at_least(1, i))
    expected = Summand(1, (), (*guard, same(i, fixed)))
    assert contract_table((), Summand(1, (), guard, (table,))) == (expected if within else None)


def step_function(name: str, coefficient: int = 1) -> Summand:
    return Summand(coefficient, factors=(Call("zero", ((Summand(1, factors=(Read(name, ()),)),),)),))


def test_an_indicator_is_zero_or_one() -> None:
    x, y = step_function("x"), step_function("y")
    both = Summand(1, factors=x.factors + y.factors)
    assert is_indicator((x,))
    assert is_indicator((x, y, replace(both, coefficient=-1)))
    assert not is_indicator((step_function("x", 2),))
    assert not is_indicator((x, y))
    assert not is_indicator((x, Summand(1)))


@pytest.mark.parametrize(
    ("number", "exponent", "power"),
    [
        (4, Fraction(1, 2), 2),
        (Fraction(1, 4), Fraction(1, 2), Fraction(1, 2)),
        (Fraction(4, 9), Fraction(-3, 2), Fraction(27, 8)),
        (2, Fraction(1, 2), None),
        (-4, Fraction(1, 2), None),
        (4, Fraction(1, 3), None),
    ],
)
def test_powers_that_are_rational(number: Extent, exponent: Extent, power: Extent | None) -> None:
    assert canonical_rational_power(number, exponent) == power


def test_a_product_of_integers_is_one_for_negative_factors() -> None:
    whole = parse_rule("a: pad(x, before=(p,), after=(q,)) => x for x[1] where p * q * x.shape[-1] == 1")
    assumptions = Assumptions(whole.equations[0])
    assert assumptions.normal(n) == n


def test_what_is_chosen_is_not_multiplied_by_what_may_be_zero() -> None:
    chosen = "where(x, {0}, z + equal(x, zeros(shape=x.shape)) * {1})"
    left = chosen.format("reciprocal(x) + reciprocal(reciprocal(x) + x)", "y")
    for there, proved in (("y", True), ("w", False)):
        right = chosen.format("reciprocal(x) + reciprocal(x + reciprocal(x))", there)
        rule = parse_rule(f"a: {left} => {right} for x[1], z[1], y[1]{', w[1]' if there == 'w' else ''}")
        assert Attempt(rule.equations[0], {}).proved == proved


def test_the_largest_of_equal_values_is_the_value_only_if_there_is_one() -> None:
    k = Sym("k.0")
    value: Sum = (Summand(1, factors=(Read("x", ()),)),)
    candidate = GuardedValue((k,), (at_least(size(k), 0), at_least(a - 1, size(k))), value)
    assert largest((at_least(a, 1),), [candidate], Normal()) == value
    rest = replace(candidate, value=())
    assert largest((at_least(a, 0),), [candidate], Normal()) == (*value, Summand(1, factors=(Largest((rest,)),)))


def test_a_sum_that_is_a_denominator_is_cleared() -> None:
    x, y = Read("x", ()), Read("y", ())
    under = single(x) + single(y)
    parts = single(x, Power(under, -1)) + single(y, Power(under, -1))
    assert clear_denominator(parts + times(single(), -1), Normal()) == ()


def test_the_largest_of_no_values_has_an_unknown_sign() -> None:
    assert Signs().of((), single(Largest(()))) is Sign.UNKNOWN


@pytest.mark.parametrize("equal", [True, False])
def test_an_equality_or_its_negation_is_not_the_end_of_a_range(equal: bool) -> None:
    k = Sym("k.0")
    equality = same(n * size(k), 2 * n)
    counted = Summand(1, bound=(k,), guard=(equality if equal else negation(equality), at_least(5, size(k))))
    assert all(s.bound for s in simplify_sum((), (counted,), Normal()))


def test_an_extent_that_may_fall_has_no_first_value_from_which_it_is_not_negative() -> None:
    k = Sym("k.0")
    assert first_from(size(k) * 2 - a, k) == -floor_divide(-a, 2)
    assert first_from(size(k) * (n - m) - a, k) is None
