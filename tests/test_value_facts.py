"""The value analysis covers the results of IEEE arithmetic, and finds values that are always finite."""

from __future__ import annotations

import numpy as np
import pytest

from superopt.algebra.evaluate import Floats, evaluate_terms
from superopt.algebra.operators import apply
from superopt.algebra.terms import Dim, Term, size, variable, variables
from superopt.algebra.value_analysis import ORDINARY_INPUT, UNBOUNDED, UNKNOWN, Facts, facts_of
from superopt.model.facts import folded_literal_facts
from superopt.policy import MODEL
from tests.operator_cases import WITH_OPERANDS, concrete, forms

pytestmark = pytest.mark.slow

X, C = variable("x", (3, 4)), variable("c", (3, 4))
ONES = apply("ones", shape=(3, 4))
COUNT = Facts(0.0, 64.0)
ORDINARY = {f"v{place}": ORDINARY_INPUT for place in range(6)}
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 88.0, 1e-38, 1e4, -1e4])
INFINITE = np.array([0.0, 1.0, -1e9, 3e38, -3.4e38, np.inf, -np.inf])


def drawn(term: Term, values: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        v.name: np.where(rng.random(v.sizes) < 0.5, rng.choice(values, v.sizes), rng.random(v.sizes)) for v in variables(term)
    }


@pytest.mark.parametrize("name", WITH_OPERANDS)
@pytest.mark.parametrize(("known", "values"), [(ORDINARY_INPUT, SPECIAL), (UNBOUNDED, INFINITE)], ids=["ordinary", "infinite"])
def test_facts_hold_what_definitions_evaluate_to(name: str, known: Facts, values: np.ndarray) -> None:
    """Definitions are evaluated in float64.

    The analysis assumes that results of ordinary inputs do not exceed an ordinary magnitude, so the test leaves out larger
    results.
    """
    if "softmax" in name or "attention" in name:  # these definitions sum exponentials; kernels subtract the largest first
        values = values[np.abs(values) < 8]
    every = forms(name)
    for seed in range(4):
        term = concrete(every[seed * 13 % len(every)], seed)
        arrays = drawn(term, values, seed)
        found = facts_of(term, dict.fromkeys(arrays, known))
        with np.errstate(all="ignore"):
            (result,) = evaluate_terms((term,), arrays, lambda _: None, Floats())
        if not found.nan:
            assert not np.isnan(result).any(), f"{term} is NaN, which {found} excludes"
        numbers = result[
            ~np.isnan(result) & (np.abs(result) <= MODEL.max_ordinary_magnitude if known is ORDINARY_INPUT else True)
        ]
        assert (numbers >= found.low - 1e-6 * abs(found.low) - 1e-9).all()
        assert (numbers <= found.high + 1e-6 * abs(found.high) + 1e-9).all()
        if found.finite and found.high < MODEL.max_ordinary_magnitude and found.low > -MODEL.max_ordinary_magnitude:
            assert np.isfinite(result).all()


def test_nothing_is_known_of_a_recurrence_over_a_long_sequence() -> None:
    def states(steps: int) -> Facts:
        operands = [(steps, 2, 3), (3, 20), (5, 20), (20,), (2, 5), (2, 5)]
        return facts_of(apply("lstm", *(variable(f"v{place}", shape) for place, shape in enumerate(operands))), ORDINARY)

    assert states(4).finite
    assert states(1 << 16) == UNKNOWN


@pytest.mark.parametrize(
    ("term", "finite"),
    [
        (apply("reciprocal", X), False),
        (apply("reciprocal", apply("maximum", X, ONES)), True),
        (apply("reciprocal", apply("add", apply("relu", X), ONES)), True),
        (apply("log", apply("abs", X)), False),
        (apply("log", apply("add", apply("abs", X), apply("scale", ONES, factor=0.001))), True),
        (apply("exp", X), False),
        (apply("exp", apply("sigmoid", X)), True),
        (apply("rsqrt", apply("add", apply("reduce_mean", apply("mul", X, X), axes=(-1,)), apply("ones", shape=(3,)))), True),
        (apply("sqrt", apply("sub", X, ONES)), False),
        (apply("softmax", X, axis=-1), True),
    ],
    ids=str,
)
def test_partial_operators_are_finite_where_their_operand_is_bounded_away(term: Term, finite: bool) -> None:
    assert facts_of(term, {"x": ORDINARY_INPUT}).finite == finite


def test_infinities_make_a_softmax_doubtful_and_a_comparison_does_not_pass_them_on() -> None:
    masked = apply("where", C, X, apply("scale", ONES, factor=float("-inf")))
    finite = apply("where", C, X, apply("scale", ONES, factor=-(2.0**100)))
    known = {"x": ORDINARY_INPUT, "c": Facts(0.0, 1.0)}
    assert facts_of(apply("softmax", masked, axis=-1), known).nan
    assert facts_of(apply("softmax", finite, axis=-1), known).finite
    assert facts_of(apply("less", X, C), {"x": UNBOUNDED, "c": UNBOUNDED}).finite
    assert not facts_of(finite, known).ordinary
    assert facts_of(apply("mul", X, C), {"x": UNBOUNDED, "c": Facts(0.0, 1.0)}).nan
    assert not facts_of(apply("mul", X, C), {"x": UNBOUNDED, "c": Facts(1.0, 2.0, zero=False)}).nan


def test_facts_of_literals_are_the_extremes_of_their_elements() -> None:
    numbers = apply("concat", apply("scale", ONES, factor=-3), apply("scale", ONES, factor=2), axis=-1)
    found = folded_literal_facts(numbers)
    assert (found.low, found.high, found.zero) == (-3.0, 2.0, False)
    assert folded_literal_facts(apply("ones", shape=(size(Dim("n", 0)),))) == UNKNOWN


@pytest.mark.parametrize("name", ["lstm", "lstm_cell"])
def test_the_facts_of_a_long_recurrence_are_found(name: str) -> None:
    shapes = {"x": (200, 1, 2), "w": (2, 12), "r": (3, 12), "b": (12,), "h": (1, 3), "c": (1, 3)}
    term = apply(name, *(variable(operand, shape) for operand, shape in shapes.items()))
    found = facts_of(term, dict.fromkeys(shapes, ORDINARY_INPUT))
    assert found.finite
    assert name == "lstm_cell" or (found.low, found.high) == (-1, 1)
