"""Sweeps over a whole island: rules that pay only if they are applied at all of their matches."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from superopt.algebra.dim_binding import DimBinding, dimension
from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms, variable
from superopt.budget import active_time
from superopt.policy import SEARCH
from superopt.rules.fp_flags import FpMode
from superopt.rules.rule import parse_rules
from superopt.rules.store import load_rules
from superopt.search import roofline
from superopt.search.absorption import absorption
from superopt.search.apply import State, Step, replaced_terms
from superopt.search.backtracking import OUT_OF_TIME, Cost, SearchLimits, SearchResult, search
from superopt.search.gate import Gate
from superopt.search.record import result_from_json, result_to_json
from superopt.search.ruleset import RuleSet
from superopt.search.schedule import gains, weight_elements
from superopt.search.segment_search import SegmentTask
from superopt.search.sweep import SWEPT, sweep
from superopt.search.sweeper import Sweeper, Swept, _is_hoisted, _meets
from tests.justified_steps import apply_step as replayed
from tests.justified_steps import is_justified_step
from tests.operator_cases import evaluated

HOIST = "hoist: slice(x, axis=-2, start=a, stop=b) @ w => slice(x @ w, axis=-2, start=a, stop=b) for x[2], w[2]"
OUTSIDE = "outside: transpose(x, perm=(-1, -2)) @ w => transpose(transpose(w, perm=(-1, -2)) @ x, perm=(-1, -2)) for x[2], w[2]"
STEPS = 12


def estimate(state: State) -> float:
    return roofline.estimate_seconds(state, roofline.CPU)


def steps() -> State:
    """Return a chain of steps. Each step adds the product of a row and the same weight to the result of the previous step."""
    rows, w = variable("x", (STEPS, 16)), variable("w", (16, 16), constant=True)
    state: Term = apply("slice", variable("h", (STEPS, 16)), axis=-2, start=0, stop=1)
    for n in range(STEPS):
        state = apply("tanh", apply("add", apply("matmul", apply("slice", rows, axis=-2, start=n, stop=n + 1), w), state))
    return (state,)


def rules_of(*lines: str) -> RuleSet:
    return RuleSet(parse_rules("\n".join(lines)))


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


def test_pairs_of_one_sum_are_taken_at_once() -> None:
    """A sum of eight products becomes a sum of four, with one step of the rule for each pair."""
    rules = rules_of("pair: x @ v + y @ w => concat(y, x, axis=-1) @ concat(w, v, axis=-2) for x[2], y[2], w[2], v[2]")
    rows, ways = variable("x", (1, 8)), [variable(f"w{n}", (1, 4), constant=True) for n in range(8)]
    parts = [apply("slice", rows, axis=-1, start=n, stop=n + 1) for n in range(8)]
    start = (apply("add", *(apply("matmul", part, w) for part, w in zip(parts, ways, strict=True))),)
    sweeper = Sweeper(rules, estimate, math.inf, active_time() + 60)
    found = sweeper.swept(Swept(start, (), estimate(start)), "pair", [*rules.alone(start[0], "pair")])
    assert found is not None
    assert products(found.state) == len(found.steps) == 4
    together = [t for t in subterms(*found.state) if t.op == "concat" and not t.constant]
    assert sorted((t.args[0]["start"], t.args[1]["start"]) for t in together) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    here: tuple[Term, ...] | None = start
    for step in found.steps:
        assert here is not None
        assert is_justified_step(step, here, rules)
        here = replayed(here, step)
    assert here == found.state
    given = {t.name: np.random.default_rng(1).standard_normal(t.sizes) for t in subterms(*start) if t.is_variable}
    np.testing.assert_allclose(evaluated(given, *found.state)[0], evaluated(given, *start)[0], rtol=1e-12)


def attended(x: Term, name: str) -> Term:
    """Return the attention of a single token to itself, by two heads of four numbers."""

    def product(a: Term, part: str) -> Term:
        return apply("matmul", a, variable(f"{name}.{part}", (8, 8), constant=True))

    q, k, v = (
        apply("transpose", apply("reshape", product(x, part), shape=(1, 1, 2, 4)), perm=(-4, -2, -3, -1)) for part in "qkv"
    )
    scores = apply("softmax", apply("matmul", q, apply("transpose", k, perm=(-4, -3, -1, -2))), axis=-1)
    heads = apply("transpose", apply("matmul", scores, v), perm=(-4, -2, -3, -1))
    return apply("tanh", product(apply("reshape", heads, shape=(1, 1, 8)), "o"))


def test_what_computes_nothing_is_gone_after_a_sweep() -> None:
    """Of the attention to a single token, only two products remain.

    A sweep also removes moves that cancel after the `ones` between them are removed.
    """
    rules = rules_of(
        "alone: softmax(x, axis=-1) => ones(shape=x.shape) for x[4] where x.shape[-1] == 1",
        "token: ones(shape=(y.shape[-4], y.shape[-3], 1, 1)) @ y => y for y[4]",
        "swap: transpose(transpose(x, perm=(-4, -2, -3, -1)), perm=(-4, -2, -3, -1)) => x for x[4]",
        "flat: reshape(reshape(y, shape=(y.shape[-3], y.shape[-2], m0, m1)), shape=y.shape) => y for y[3]",
    )
    x = variable("x", (1, 1, 8))
    start = (attended(attended(x, "first"), "second"),)
    (swept,) = Sweeper(rules, estimate, math.inf, math.inf).descent(start, lambda _: True)
    assert [step.rule for step in swept.steps] == ["alone", "token", "swap", "flat"]
    assert [term.op for term in subterms(*swept.state) if not term.is_variable] == ["matmul", "matmul", "tanh"] * 2
    assert all(len(step.roots) == 2 for step in swept.steps)
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.standard_normal(t.sizes) for t in subterms(*start) if t.is_variable}
    np.testing.assert_allclose(evaluated(arrays, *swept.state), evaluated(arrays, *start), rtol=1e-12)


def test_tidying_removes_moves_that_cancel_and_swaps_no_others() -> None:
    """Other moves are not swapped, even if they cost less in the other order."""
    rules = rules_of(
        "swap: slice(transpose(x, perm=(-1, -2)), axis=-1, start=a, stop=b)"
        " => transpose(slice(x, axis=-2, start=a, stop=b), perm=(-1, -2)) for x[2]",
        "twice: transpose(transpose(x, perm=(-1, -2)), perm=(-1, -2)) => x for x[2]",
    )
    x = variable("x", (64, 16))
    turned = apply("transpose", x, perm=(-1, -2))
    cut = apply("slice", turned, axis=-1, start=0, stop=2)
    (swapped,) = (match.replacements for match in rules.alone(cut, "swap"))
    assert estimate(tuple(swapped)) < estimate((cut,))
    sweeper = Sweeper(rules, estimate, math.inf, math.inf)
    for start, steps in ((cut, []), (apply("tanh", apply("transpose", turned, perm=(-1, -2))), ["twice"])):
        tidied = sweeper.tidied(Swept((start,), (), estimate((start,))))
        assert [step.rule for step in tidied.steps] == steps


def test_what_does_not_measure_faster_is_not_taken() -> None:
    start = steps()
    found = sweep(start, RuleSet(parse_rules(HOIST)), estimate=estimate, measure=lambda state: 1.0 / products(state))
    assert found.outputs == start
    assert not found.steps


def test_a_sweep_that_is_estimated_slower_is_taken_where_it_measures_faster() -> None:
    found = sweep(steps(), RuleSet(parse_rules(HOIST)), estimate=lambda state: 1.0 / (1 + products(state)), measure=estimate)
    assert products(found.outputs) == 1


def test_without_time_nothing_is_swept() -> None:
    limits = SearchLimits(deadline=active_time())
    found = sweep(steps(), RuleSet(parse_rules(HOIST)), estimate=estimate, measure=estimate, limits=limits)
    assert found.outputs == steps()
    assert found.stopped == OUT_OF_TIME


def test_a_rule_that_matches_once_is_left_to_the_windows() -> None:
    x, w = variable("x", (8, 16)), variable("w", (8, 4))
    start = (apply("matmul", apply("transpose", x, perm=(-1, -2)), w),)
    assert sweep(start, RuleSet(parse_rules(OUTSIDE)), estimate=estimate, measure=estimate).outputs == start


BESIDE = (
    "beside: (x @ w, x @ v) => (slice((t := x @ concat(w, v, axis=-1)), axis=-1, stop=w.shape[-1]), "
    "slice(t, axis=-1, start=w.shape[-1], stop=w.shape[-1] + v.shape[-1])) for x[2], w[2], v[2]"
)
ADDED = (
    "added: (x + y, q + z) => (slice((t := concat(x, q, axis=k) + concat(y, z, axis=k)), axis=k, stop=x.shape[k]), "
    "slice(t, axis=k, start=x.shape[k], stop=x.shape[k] + q.shape[k])) "
    "for x[2], y[2], q[2], z[2], k[-1, -2] where x.shape[others(x, k)] == q.shape[others(q, k)]"
)
TWICE = (
    "twice: slice(slice(x, axis=k, start=a, stop=b), axis=k, start=c, stop=d) => slice(x, axis=k, start=a + c, stop=a + d) "
    "for x[2], k[-1, -2]"
)
ADJACENT = (
    "adjacent: concat(slice(x, axis=k, start=a, stop=b), slice(x, axis=k, start=b, stop=c), axis=k) "
    "=> slice(x, axis=k, start=a, stop=c) for x[2], k[-1, -2]"
)
HALVES = "halves: concat(slice(x, axis=k, stop=a), slice(x, axis=k, start=a, stop=x.shape[k]), axis=k) => x for x[2], k[-1, -2]"
WIDTHS = (16, 24, 8, 40, 16, 32, 8)


def layers() -> State:
    """Return products of one input with seven weights of different widths, with a bias added to each product."""
    x = variable("x", (4, 16))
    weights = [variable(f"w{n}", (16, width), constant=True) for n, width in enumerate(WIDTHS)]
    biases = [variable(f"b{n}", (4, width), constant=True) for n, width in enumerate(WIDTHS)]
    return tuple(apply("add", apply("matmul", x, w), b) for w, b in zip(weights, biases, strict=True))


def test_layers_side_by_side_become_one() -> None:
    start = layers()
    rules = rules_of(BESIDE, ADDED, TWICE, ADJACENT, HALVES)
    found = sweep(start, rules, estimate=estimate, measure=estimate)
    live = [t.op for t in subterms(*found.outputs) if not t.constant]
    assert [live.count(op) for op in ("matmul", "add", "slice", "concat")] == [1, 1, len(WIDTHS), 0]
    assert sum(gains(start, found.steps, estimate)) == pytest.approx(found.before - found.after)
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.standard_normal(t.sizes) for t in subterms(*start) if t.is_variable}
    np.testing.assert_allclose(
        np.concatenate(evaluated(arrays, *found.outputs), axis=-1),
        np.concatenate(evaluated(arrays, *start), axis=-1),
        rtol=1e-12,
    )


def test_what_feeds_another_is_not_joined_with_it() -> None:
    x, w, v = variable("x", (4, 16)), variable("w", (16, 16), constant=True), variable("v", (16, 16), constant=True)
    first = apply("matmul", x, w)
    start = (apply("matmul", apply("add", apply("matmul", first, w), x), v), apply("matmul", first, v))
    rules = rules_of(ADDED, TWICE, ADJACENT, HALVES, BESIDE)
    for state in Sweeper(rules, estimate, 10 * estimate(start), active_time() + 60).cheaper(start):
        assert products(state.state) >= 3


def test_a_form_that_there_is_room_for_is_found_in_the_place_of_a_faster_one() -> None:
    costs = {_weighted(size): 1.0 / size for size in (1, 2, 4, 8)}
    start, *others = costs

    def find(state: State, _: RuleSet, /, *, estimate: Cost, measure: Cost, limits: SearchLimits | None) -> SearchResult:
        del estimate
        assert limits is not None
        best = min((state, *others), key=measure)
        return SearchResult(best, (), measure(state), measure(best), int(limits.room), "")

    task = SegmentTask(start, rules_of(), estimate, costs.__getitem__, SearchLimits())
    task = task.restricted(Gate(FpMode.FAST, {}, absorption), weight_elements, 12.0)
    found = find(task.start, task.rules, estimate=estimate, measure=task.measure, limits=task.limits)
    assert (found.outputs, found.before, found.after, found.expanded) == (_weighted(4), 1.0, 0.25, 12)


def _weighted(size: int) -> State:
    """Return a product with a weight of four times `size` numbers."""
    return (apply("matmul", variable("x", (1, 4)), variable("w", (4, size), constant=True)),)


def test_replacements_that_need_each_other_cannot_be_made() -> None:
    x = variable("x", (4, 4))
    one, other = apply("relu", x), apply("tanh", x)
    assert replaced_terms((one, other), {one: apply("add", other, x), other: apply("mul", one, x)}) is None
    done = replaced_terms((one,), {one: apply("add", other, x), other: apply("sigmoid", x)})
    assert done is not None
    assert done[one] is apply("add", apply("sigmoid", x), x)


@pytest.mark.parametrize("state", [steps(), layers()])
def test_what_was_found_is_what_is_restored(state: State) -> None:
    rules = rules_of(HOIST, BESIDE, ADDED, TWICE)
    found = sweep(state, rules, estimate=estimate, measure=estimate)
    assert found.steps
    assert result_from_json(json.loads(json.dumps(result_to_json(found)))) == found


def test_what_was_found_of_open_extents_is_restored() -> None:
    x = variable("x", (dimension("batch"), 4))
    before, after = apply("relu", apply("relu", x)), apply("relu", x)
    found = SearchResult((after,), (Step("again", (before,), (after,)),), 2.0, 1.0, 1, SWEPT)
    assert result_from_json(json.loads(json.dumps(result_to_json(found)))) == found


def test_parts_whose_ends_are_open_are_joined() -> None:
    batch = dimension("batch")
    x, h = variable("x", (4 * batch, 16)), variable("h", (batch, 16))
    weights = [variable(name, (16, 8), constant=True) for name in "wv"]
    rows = apply("slice", x, axis=-2, start=batch, stop=2 * batch)
    start = tuple(apply("add", apply("matmul", rows, w), apply("matmul", h, w)) for w in weights)
    sizing = DimBinding({"batch": 3})

    def at(state: State) -> float:
        return estimate(tuple(map(sizing.at, state)))

    found = sweep(start, rules_of(BESIDE, ADDED, TWICE, ADJACENT, HALVES), estimate=at, measure=at)
    assert products(found.outputs) == 2


def test_a_bias_is_added_before_what_is_repeated() -> None:
    x, y = variable("x", (32, 64)), variable("y", (48, 64))
    b, shape = variable("b", (64,), constant=True), (48, 32, 64)
    rows, columns = (apply("expand", t, shape=shape, axes=axes) for t, axes in ((x, (-2, -1)), (y, (-3, -1))))
    start: State = (apply("add", apply("add", rows, columns), apply("expand", b, shape=shape, axes=(-1,))),)
    after = search(start, RuleSet(load_rules()), estimate=estimate, measure=estimate).outputs
    assert [math.prod(t.sizes) == math.prod(shape) for t in subterms(*after) if t.op == "add"].count(True) == 1
    arrays = {t.name: np.random.default_rng(n).standard_normal(t.sizes) for n, t in enumerate((x, y, b))}
    np.testing.assert_allclose(evaluated(arrays, *after), evaluated(arrays, *start), rtol=1e-12, atol=1e-12)


def test_a_convolution_and_its_bias_are_one_kernel() -> None:
    image, kernel = variable("x", (1, 4, 8, 8)), variable("w", (4, 4, 3, 3), constant=True)
    conv = apply("conv", image, kernel)
    sums = [
        apply("add", conv, apply("expand", variable("b", (4,), constant=constant), shape=conv.shape, axes=(-3,)))
        for constant in (False, True)
    ]
    apart, together = (estimate((one,)) for one in sums)
    assert apart - together == pytest.approx(roofline.CPU.launch)


def test_a_slower_state_with_more_rejoined_slices_is_accepted_if_it_is_hardly_slower() -> None:
    x = variable("x", (4, 6))
    parts = [apply("slice", x, axis=-1, start=start, stop=start + 3) for start in (0, 3)]
    before = Swept((apply("concat", *(apply("relu", part) for part in parts), axis=-1),), (), 1.0)
    after = Swept((apply("relu", apply("concat", *parts, axis=-1)),), (), 1.0)
    assert _meets(before, after)
    assert not _meets(after, before)
    assert _meets(before, replace(after, estimate=1.0 + SEARCH.min_estimated_gain_share))
    assert not _meets(before, replace(after, estimate=2.0))


def test_a_state_is_hoisted_only_if_operators_that_move_elements_come_nearer_to_the_outputs() -> None:
    moved = apply("transpose", x := variable("x", (4, 6)), perm=(-1, -2))
    before = Swept((apply("relu", moved),), (), 1.0)
    after = Swept((apply("transpose", apply("relu", x), perm=(-1, -2)),), (), 1.0)
    assert _is_hoisted(before, after)
    assert not _is_hoisted(before, before)
    assert not _is_hoisted(after, before)
    assert not _is_hoisted(before, replace(after, estimate=2.0))
