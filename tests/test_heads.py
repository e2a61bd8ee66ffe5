"""Stored rules compute repeated attention heads and biases of enlarged images only once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable
from superopt.cost.measure import Clock
from superopt.cost.segment_cost import Measured
from superopt.rules.rule import parse_rule
from superopt.rules.store import load_rules
from superopt.runtime.session import Device
from superopt.search import roofline
from superopt.search.apply import State
from superopt.search.backtracking import search
from superopt.search.ruleset import RuleSet, only_reshapes
from tests.operator_cases import evaluated

pytestmark = pytest.mark.slow

GROUPS, SHARED, TOKENS, WIDTH, NEW = 2, 4, 256, 32, 1


def estimate(state: State) -> float:
    return roofline.estimate_seconds(state, roofline.CPU)


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return RuleSet(load_rules())


def found(start: Term, rules: RuleSet) -> Term:
    """Run a search, check that the result has the values of `start`, and return the result."""
    (after,) = search((start,), rules, estimate=estimate, measure=estimate).outputs
    random = np.random.default_rng(7)
    arrays = {t.name: random.standard_normal(t.sizes) for t in subterms(start) if t.is_variable}
    one, other = evaluated(arrays, after, start)
    np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)
    return after


def repeated(name: str) -> Term:
    """Return keys or values of a few heads, copied for each query head that shares them, as exporters write it."""
    x = variable(name, (1, GROUPS, TOKENS, WIDTH))
    copies = apply("expand", x, shape=(1, GROUPS, SHARED, TOKENS, WIDTH), axes=(-5, -4, -2, -1))
    return apply("reshape", copies, shape=(1, GROUPS * SHARED, TOKENS, WIDTH))


def test_values_are_multiplied_without_copies_of_them(rules: RuleSet) -> None:
    scores = variable("x", (1, GROUPS * SHARED, NEW, TOKENS))
    assert not {t.op for t in subterms(found(apply("matmul", scores, repeated("v")), rules))} & {"expand"}


def test_keys_are_multiplied_without_copies_of_them(rules: RuleSet) -> None:
    queries = variable("x", (1, GROUPS * SHARED, NEW, WIDTH))
    keys = apply("transpose", repeated("k"), perm=(-4, -3, -1, -2))
    assert not {t.op for t in subterms(found(apply("matmul", queries, keys), rules))} & {"expand"}


def test_scores_of_groups_need_no_other_shape(rules: RuleSet) -> None:
    heads, groups = (1, GROUPS * SHARED, NEW, TOKENS), (1, GROUPS, SHARED * NEW, TOKENS)
    scores, mask = variable("x", groups), variable("m", (TOKENS,), constant=True)
    masked = apply(
        "add", apply("scale", apply("reshape", scores, shape=heads), factor=0.5), apply("expand", mask, shape=heads, axes=(-1,))
    )
    after = found(apply("reshape", apply("softmax", masked, axis=-1), shape=groups), rules)
    assert [t for t in subterms(after, constants=False) if t.op == "reshape"] == []


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_estimates_know_which_transposes_products_read_through(rank: int) -> None:
    x, y = (variable(name, (6,) * rank) for name in "xy")
    product = estimate((apply("matmul", x, y),))
    for order in [*itertools.permutations(range(-rank, 0))][1:]:
        turned = apply("transpose", x, perm=order)
        for operands in ((turned, y), (y, turned)):
            together = apply("matmul", *operands)
            swapped = order == (*range(-rank, -2), -1, -2)
            assert (estimate((together,)) == product or swapped) == (len(kernels(together)) == 1)
            assert estimate((together, turned)) > product


def test_heads_of_one_batch_are_read_through_products(rules: RuleSet) -> None:
    q, k = (apply("reshape", variable(name, (1, TOKENS, 4 * WIDTH)), shape=(1, TOKENS, 4, WIDTH)) for name in "qk")
    start = apply("matmul", apply("transpose", q, perm=(-4, -2, -3, -1)), apply("transpose", k, perm=(-4, -2, -1, -3)))
    assert kernels(start).count("Transpose") == 2
    assert "Transpose" not in kernels(found(start, rules))


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("reshape(x, shape=(1, 1)) => reshape(reshape(x, shape=(1,)), shape=(1, 1)) for x[0, 1]", True),
        ("reshape(reshape(x, shape=(1, 1)), shape=(1,)) => reshape(reshape(x, shape=()), shape=(1,)) for x[1]", True),
        ("reshape(reshape(x, shape=(1, 1)), shape=x.shape) => x for x[0, 1]", False),
        ("reshape(relu(x), shape=(1,)) => relu(reshape(x, shape=(1,))) for x[0, 2]", False),
    ],
)
def test_steps_that_only_rename_axes_are_none_of_a_search(text: str, only: bool) -> None:
    assert only_reshapes(parse_rule(f"rule: {text}")) is only


def kernels(term: Term) -> list[str]:
    """Return the operators that ONNX Runtime runs to compute the term."""
    clock = Clock(Device())
    return [kernel.node.op_type for kernel in clock.kernels(Measured(clock, 17).model((term,)))]


def test_a_bias_is_added_before_an_image_is_enlarged(rules: RuleSet) -> None:
    image, bias = variable("x", (1, 16, 24, 24)), variable("b", (16,), constant=True)
    larger = apply("upsample", image, rows=2, columns=2)
    start = apply("add", larger, apply("expand", bias, shape=larger.shape, axes=(-3,)))
    assert found(start, rules).op == "upsample"
