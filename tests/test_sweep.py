"""Sweeps over a whole island: rules that pay only where they are applied everywhere."""

from __future__ import annotations

import time

import numpy as np
import pytest

from superopt.graph import Term, subterms, variable
from superopt.op import apply
from superopt.rewrite import roofline
from superopt.rewrite.apply import State
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.schedule import gains
from superopt.rewrite.search import OUT_OF_TIME, Limits
from superopt.rewrite.sweep import sweep
from superopt.rule import parse_rules
from tests.operator_cases import evaluated

HOIST = "hoist: slice(x, axis=-2, start=a, stop=b) @ w => slice(x @ w, axis=-2, start=a, stop=b) for x[2], w[2]"
OUTSIDE = "outside: transpose(x, perm=(-1, -2)) @ w => transpose(transpose(w, perm=(-1, -2)) @ x, perm=(-1, -2)) for x[2], w[2]"
STEPS = 12


def estimate(state: State) -> float:
    return roofline.seconds(state, roofline.CPU)


def steps() -> State:
    """A product of each row of a matrix with the same weight, what comes of one row added to the next."""
    rows, w = variable("x", (STEPS, 16)), variable("w", (16, 16), constant=True)
    state: Term = apply("slice", variable("h", (STEPS, 16)), axis=-2, start=0, stop=1)
    for n in range(STEPS):
        state = apply("tanh", apply("add", apply("matmul", apply("slice", rows, axis=-2, start=n, stop=n + 1), w), state))
    return (state,)


def products(state: State) -> int:
    return sum(term.op == "matmul" for term in subterms(*state))


def test_what_pays_only_everywhere_is_found() -> None:
    start = steps()
    found = sweep(start, RuleSet(parse_rules(HOIST)), estimate=estimate, measure=estimate)
    assert products(start) == STEPS
    assert products(found.outputs) == 1
    assert found.after < found.before == estimate(start)
    (step,) = found.steps
    assert step.rule == "hoist"
    assert len(step.roots) == STEPS
    assert sum(gains(start, found.steps, estimate)) == pytest.approx(found.before - found.after)
    rng = np.random.default_rng(0)
    arrays = {"x": rng.standard_normal((STEPS, 16)), "w": rng.standard_normal((16, 16)), "h": rng.standard_normal((STEPS, 16))}
    np.testing.assert_allclose(evaluated(arrays, *found.outputs), evaluated(arrays, *start), rtol=1e-12)


def test_what_does_not_measure_faster_is_not_taken() -> None:
    start = steps()
    found = sweep(start, RuleSet(parse_rules(HOIST)), estimate=estimate, measure=lambda state: 1.0 / products(state))
    assert found.outputs == start
    assert not found.steps


def test_without_time_nothing_is_swept() -> None:
    limits = Limits(deadline=time.monotonic())
    found = sweep(steps(), RuleSet(parse_rules(HOIST)), estimate=estimate, measure=estimate, limits=limits)
    assert found.outputs == steps()
    assert found.stopped == OUT_OF_TIME


def test_a_rule_that_matches_once_is_left_to_the_windows() -> None:
    x, w = variable("x", (8, 16)), variable("w", (8, 4))
    start = (apply("matmul", apply("transpose", x, perm=(-1, -2)), w),)
    assert sweep(start, RuleSet(parse_rules(OUTSIDE)), estimate=estimate, measure=estimate).outputs == start
