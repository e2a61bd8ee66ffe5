"""Algorithms that replace an operator: their results, their proofs, and their expected gains."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable
from superopt.discovery.definitions import algorithm_axioms
from superopt.discovery.explore import prove_definition
from superopt.model.lower import lower
from superopt.proof.definitions.index import prove_axiom
from superopt.rules.rule import axioms, parse_rule, parse_rules
from superopt.rules.verdict import Proved, Refuted
from superopt.search.algorithm import algorithm_sites, with_algorithms
from superopt.search.apply import State
from superopt.search.backtracking import SearchLimits, SearchResult
from superopt.search.roofline import CPU, estimate_seconds
from superopt.search.ruleset import RuleSet
from tests.operator_cases import arrays_for, evaluated, ran

pytestmark = pytest.mark.slow

GRAM = "reshape(x @ transpose(x, perm=(-3, -1, -2)), shape=(x.shape[-3], x.shape[-2] * x.shape[-2]))"
COMPUTED = {
    "gram_matmul.algorithm-alone": f"{GRAM} @ w",
    "gram_matmul.algorithm-first": f"concat({GRAM}, y, axis=-1) @ w",
    "gram_matmul.algorithm-last": f"concat(y, {GRAM}, axis=-1) @ w",
    "merge_groups.algorithm-four": "conv(x, w, strides=s, pads=p, dilations=d, group=4 * g)",
    "merge_groups.algorithm-two": "conv(x, w, strides=s, pads=p, dilations=d, group=2 * g)",
    "winograd.algorithm-four-three": "conv(x, w, pads=p)",
    "winograd.algorithm-two-five": "conv(x, w, pads=p)",
    "winograd.algorithm-two-three": "conv(x, w, pads=p)",
}
LAWS = sorted(COMPUTED)


def gram(x: Term) -> Term:
    """Return the flattened Gram matrix of the rows of each batch element."""
    batch, n, _ = x.sizes
    return apply("reshape", apply("matmul", x, apply("transpose", x, perm=(-3, -1, -2))), shape=(batch, n * n))


def test_no_algorithm_is_forgotten() -> None:
    assert sorted(algorithm_axioms()) == LAWS


@pytest.mark.parametrize("name", LAWS)
def test_the_algorithms_are_proved_for_all_sizes(name: str) -> None:
    verdict = prove_axiom(axioms()[name])
    assert isinstance(verdict, Proved), verdict
    assert not verdict.bounded


@pytest.mark.parametrize("name", LAWS)
def test_each_algorithm_gives_the_rule_from_what_it_computes(name: str) -> None:
    found = prove_definition(name, 0)
    assert not found.undecided
    (rule,) = found.definitions
    assert rule.family == "algorithms"
    assert rule.rule.statement.left == COMPUTED[name]
    assert rule.proof.axioms == (name,)


# ---------------------------------------------------------------- Gram matrices


@pytest.mark.parametrize(("batch", "rows"), [(1, 1), (2, 2), (3, 5), (33, 16), (40, 15), (90, 10)])
def test_products_of_two_rows_are_made_once(batch: int, rows: int) -> None:
    x, w = variable("x", (batch, rows, 3)), variable("w", (rows * rows, 7))
    term = apply("gram_matmul", x, apply("gram_kernel", w, rows=rows))
    arrays = arrays_for(term)
    (expected,) = evaluated(arrays, apply("matmul", gram(x), w))
    np.testing.assert_allclose(evaluated(arrays, term)[0], expected, rtol=1e-9, atol=1e-9)
    lowered = lower({"y": term}, 17)
    (found,) = ran(lowered, {"y": term}, arrays, 17)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert [node.op_type for node in lowered.nodes].count("Gather") == (batch * rows * rows < 1 << 13)


@pytest.mark.parametrize("batch", [1, 90])
def test_what_a_kernel_has_for_the_second_of_two_products_is_not_read(batch: int) -> None:
    x, u = variable("x", (batch, 10, 3)), variable("u", (100, 7))
    arrays = arrays_for(term := apply("gram_matmul", x, u))
    (expected,) = evaluated(arrays, term)
    below = np.tril(np.ones((10, 10), dtype=bool), -1).reshape(100)
    arrays["u"][below] += 5
    (found,) = ran(lower({"y": term}, 17), {"y": term}, arrays, 17)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_products_of_rows_of_two_tensors_are_no_gram_matrix() -> None:
    text = axioms()["gram_matmul.algorithm-alone"].text
    wrong = text.replace("x @ transpose(x", "x @ transpose(y").replace("for x[3]", "for x[3], y[3]")
    assert wrong != text
    assert isinstance(prove_axiom(parse_rule(f"wrong: {wrong}")), Refuted)


def test_of_an_algorithm_for_several_operators_only_what_it_takes_is_told_apart() -> None:
    x, y = apply("relu", variable("h", (128, 27, 16))), variable("y", (128, 16))
    w = variable("w", (16 + 27 * 27, 512), constant=True)
    whole = apply("relu", apply("matmul", apply("concat", y, gram(x), axis=-1), w))
    beside = prove_definition("gram_matmul.algorithm-last", 0).definitions[0].rule
    (place,) = algorithm_sites((whole,), RuleSet([], [beside]), lambda state: -float(str(state).count("gram_matmul")))
    (own,), (other,) = place.alone
    assert own.op == "matmul"
    assert {t.shape for t in subterms(own, other) if t.is_variable} == {x.shape, y.shape, w.shape}
    assert [t.op for t in subterms(own, other)].count("relu") == 0
    arrays = arrays_for(own)
    expected, found = evaluated(arrays, own, other)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize(("count", "depth"), [*itertools.product((1, 2, 4), (1, 3))])
def test_a_convolution_of_merged_groups_is_the_same(count: int, depth: int) -> None:
    x, w = variable("x", (2, 4 * depth, 6, 5)), variable("w", (12, depth, 3, 2))
    merged = apply("merge_groups", w, group=4, count=count)
    assert merged.shape == (12, count * depth, 3, 2)
    term = apply("conv", x, merged, group=4 // count, pads=(1, 0, 1, 2))
    arrays = arrays_for(term)
    (expected,) = evaluated(arrays, apply("conv", x, w, group=4, pads=(1, 0, 1, 2)))
    np.testing.assert_allclose(evaluated(arrays, term)[0], expected, rtol=1e-9, atol=1e-9)
    (found,) = ran(lower({"y": term}, 17), {"y": term}, arrays, 17)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_groups_that_are_not_the_convolutions_are_refuted() -> None:
    text = axioms()["merge_groups.algorithm-two"].text
    wrong = text.replace("merge_groups(w, group=2 * g, count=2)", "merge_groups(w, group=4 * g, count=2)")
    assert wrong != text
    assert isinstance(prove_axiom(parse_rule(f"wrong: {wrong}")), Refuted)


@pytest.mark.parametrize(("depth", "pays"), [(1, False), (4, True), (8, True), (16, False), (32, False)])
def test_groups_that_leave_lanes_empty_are_thought_to_gain(depth: int, pays: bool) -> None:
    x, w = variable("x", (1, 32 * depth, 28, 28)), variable("w", (32 * depth, depth, 3, 3), constant=True)
    around = {"pads": (1, 1, 1, 1)}
    plain = estimate_seconds((apply("conv", x, w, group=32, **around),), CPU)
    best = min(
        estimate_seconds((apply("conv", x, apply("merge_groups", w, group=32, count=n), group=32 // n, **around),), CPU)
        for n in (2, 4)
    )
    assert (best < plain) == pays


# ---------------------------------------------------------------- algorithms that are used


def test_algorithms_that_do_not_pay_together_are_tried_one_by_one() -> None:
    rules = parse_rules(
        """
        exp-of-negative: exp(x) => reciprocal(exp(scale(x, factor=-1))) for x[1]
        tanh-by-sigmoid: tanh(x) => scale(sigmoid(scale(x, factor=2)), factor=2) - ones(shape=x.shape) for x[1]
        """
    )
    x = variable("x", (4,))
    start: State = (apply("exp", x), apply("tanh", x))
    costs = {"exp": 4.0, "reciprocal": 2.0, "tanh": 4.0, "sigmoid": 3.0}

    def estimate(state: State) -> float:
        there = {term.op for term in subterms(*state)}
        return sum(costs[op] for op in there & {*costs} - ({"exp"} if "reciprocal" in there else set()))

    def measure(state: State) -> float:
        return estimate(state) + 9.0 * ({"reciprocal", "sigmoid"} <= {term.op for term in subterms(*state)})

    found = SearchResult(start, (), measure(start), measure(start), 0, "every state was expanded")
    after = with_algorithms(found, RuleSet([], rules), estimate=estimate, measure=measure, limits=SearchLimits())
    assert [step.rule for step in after.steps] == ["exp-of-negative"]
    assert (after.before, after.after, after.stopped) == (8.0, 6.0, found.stopped)
