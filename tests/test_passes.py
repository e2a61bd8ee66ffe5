"""The passes over a model: their orders, their shares of the time, and the choice of an order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from onnx import helper

from superopt.budget import active_time
from superopt.flows.report_fields import REGROUPED, arithmetic_of_passes
from superopt.model.islands import Charts
from superopt.model.load import Model, load
from superopt.policy import OPTIMIZATION
from superopt.rules.fp_flags import FpFlag, FpMode
from superopt.rules.rule import parse_rule
from superopt.search.apply import Step
from superopt.search.backtracking import OUT_OF_TIME, SearchResult, search
from superopt.search.island import search_island
from superopt.search.mutants import search_mutants
from superopt.search.passes import ImprovedModel, PassRunner, improvements
from superopt.search.schedule import Find
from superopt.search.search_log import SearchLog
from superopt.search.segment_search import SegmentSearch
from superopt.search.segments import Gain, Segment
from superopt.search.selection import affordable_gains, fallback_choices, priced_in_context, weight_budget
from tests.models import model

BUDGET = 100.0
KINDS: dict[Find, str] = {search_mutants: "mutants", search_island: "sweeps", search: "windows"}


@dataclass
class Recorded:
    """A search that records its requests, and returns planned gains.

    `finds` lists the seconds saved by each kind of search, one number for each request. `left` is the time in seconds that
    remains after a gain.
    """

    finds: dict[str, list[float]] = field(default_factory=dict)
    asked: list[tuple[str, float]] = field(default_factory=list)
    stopped: str = ""
    left: float = 0.0

    def gains(
        self,
        parts: Sequence[Segment],
        deadline: float,
        *,
        find: Callable[..., Any],
        weight_budget: float,
        repeated: bool,
        latest: float,
    ) -> Iterator[Gain]:
        assert weight_budget > 0
        assert deadline <= latest
        kind = KINDS[find]
        self.asked.append((f"{kind} again" if repeated else kind, deadline - active_time()))
        saved = self.finds.get(kind, [])
        if saved and parts:
            state = parts[0].state
            steps = (Step("again", state, state),)
            yield Gain((parts[0],), SearchResult(state, steps, self.left + saved.pop(0), self.left, 1, self.stopped), (0.0,))


def two_steps() -> Model:
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    return load(model(nodes, {"x": [4]}, {"y": [4]})).model


def found(recorded: Recorded, *moves: str) -> list[ImprovedModel]:
    runner = PassRunner(cast("SegmentSearch", recorded), Charts(), 1.0, {}, SearchLog())
    return improvements(ImprovedModel(two_steps()), runner, moves, BUDGET)


@pytest.mark.parametrize(
    ("moves", "first", "kinds"),
    [
        ((), [], []),
        (("mutants",), [], ["mutants"]),
        (("rules",), [], ["sweeps", "windows", "windows"]),
        (("rules", "mutants"), ["mutants"], ["sweeps", "windows", "windows", "mutants"]),
    ],
)
def test_the_moves_are_passes_of_which_the_last_has_all_that_is_left(
    moves: tuple[str, ...], first: list[str], kinds: list[str]
) -> None:
    recorded = Recorded()
    (only,) = found(recorded, *moves)
    assert [kind for kind, _ in recorded.asked] == [*first, *kinds]
    assert len(only.passes) == len(kinds)
    assert not only.seconds
    shares = [share for _, share in recorded.asked]
    assert first or shares == sorted(shares)
    assert all(0 < share <= BUDGET for share in shares)
    assert shares[-1:] == pytest.approx([BUDGET] if kinds else [], rel=0.1)


def test_equal_islands_are_searched_together_before_all_other_passes() -> None:
    nodes = [helper.make_node("Tanh", [x], [y]) for x, y in (("x", "s"), ("s", "y"), ("p", "t"), ("t", "q"))]
    two = load(model(nodes, {"x": [4], "p": [4]}, {"y": [4], "q": [4]})).model
    recorded = Recorded()
    runner = PassRunner(cast("SegmentSearch", recorded), Charts(), 1.0, {}, SearchLog())
    (only,) = improvements(ImprovedModel(two), runner, ["rules"], BUDGET)
    assert [kind for kind, _ in recorded.asked] == ["sweeps", "sweeps", "windows", "windows"]
    assert recorded.asked[0][1] == pytest.approx(OPTIMIZATION.parallel_time_share * BUDGET, rel=0.1)
    assert len(only.passes) == 4


@pytest.mark.parametrize(("windows", "first"), [([1.0, 0.0, 4.0, 0.0], "sweeps"), ([4.0, 0.0, 1.0, 0.0], "mutants")])
def test_where_mutants_gain_rules_come_first_too_and_what_saves_more_is_taken(windows: list[float], first: str) -> None:
    recorded = Recorded({"mutants": [2.0, 2.0], "windows": [*windows]})
    best, other = found(recorded, "rules", "mutants")
    rules = ["sweeps", "windows", "windows"]
    assert [kind for kind, _ in recorded.asked] == ["mutants", *rules, *rules, "mutants"]
    assert (best.seconds, other.seconds) == (6.0, 3.0)
    assert [bool(taken) for taken in best.passes] == {
        "mutants": [True, False, True, False],
        "sweeps": [False, True, False, True],
    }[first]


def test_where_mutants_gain_little_they_come_last_alone() -> None:
    recorded = Recorded({"mutants": [2.0, 2.0]}, left=300.0)
    (only,) = found(recorded, "rules", "mutants")
    assert [kind for kind, _ in recorded.asked] == ["mutants", "sweeps", "windows", "windows", "mutants"]
    assert only.seconds == 2.0


def test_gains_that_make_the_whole_model_slower_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = [gain(seconds) for seconds in (4.0, 3.0, 2.0, 1.0)]
    slow = gains[1]
    models: dict[tuple[Gain, ...], Model] = {(): two_steps()}

    def spliced(model: Model, taken: Sequence[Gain]) -> tuple[Model, list[Gain], list[Gain]]:
        applied = (*next(key for key, one in models.items() if one is model), *taken)
        return models.setdefault(applied, two_steps()), [*taken], []

    def ratio(before: Model, after: Model) -> tuple[float, float]:
        known = {id(model): key for key, model in models.items()}
        return (0.8, 0.9) if slow in known[id(after)] and slow not in known[id(before)] else (1.0, 1e9)

    monkeypatch.setattr("superopt.search.passes.splice_fitting", spliced)
    runner = PassRunner(cast("SegmentSearch", Recorded({})), Charts(), 1.0, {}, SearchLog(), ratio)
    model, taken, dropped = runner._in_context(models[()], gains, 3, 20.0)
    assert taken == [gains[0], *gains[2:]]
    assert model is models[tuple(taken)]
    assert not dropped


@pytest.mark.parametrize(
    ("low", "high", "saved"), [(1.2, 1.3, 2.0), (1.4, 1.5, 10 - 10 / 1.4), (0.9, 1.1, 10 - 10 / 1.1), (0.8, 1.0, 0.0)]
)
def test_savings_are_scaled_to_the_ratio_in_the_whole_model(low: float, high: float, saved: float) -> None:
    """The model takes 10 s. By the cost model, the gains save 2 s, which makes the model 1.25 times as fast."""
    once = priced_in_context([gain(0.5), gain(1.5)], 10.0, low, high)
    assert sum(one.seconds for one in once) == pytest.approx(saved)
    assert once[1].seconds == pytest.approx(3 * once[0].seconds)
    assert priced_in_context([gain(12.0)], 10.0, low, high)[0].seconds == pytest.approx(10 - 10 / high)


def test_passes_that_a_deadline_cut_short_run_once_more_in_the_time_that_is_left() -> None:
    recorded = Recorded({"sweeps": [1.0, 1.0]}, stopped=OUT_OF_TIME)
    (only,) = found(recorded, "rules")
    assert [kind for kind, _ in recorded.asked] == ["sweeps", "windows", "windows", "sweeps again"]
    assert recorded.asked[-1][1] == pytest.approx(BUDGET, rel=0.1)
    assert only.unfinished == {"sweeps"}
    assert only.seconds == 2.0
    assert not found(Recorded({"sweeps": [1.0]}, stopped=OUT_OF_TIME), "rules")[0].unfinished
    assert not found(Recorded({"sweeps": [1.0]}), "rules")[0].unfinished


def test_no_pass_runs_once_more_if_little_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.chain([0.0] * 5, itertools.repeat(BUDGET * (1.01 - OPTIMIZATION.min_repeated_time_share)))
    recorded = Recorded({"sweeps": [1.0]}, stopped=OUT_OF_TIME)
    monkeypatch.setattr("superopt.search.passes.active_time", lambda: next(times))
    assert found(recorded, "rules")[0].unfinished == {"sweeps"}
    assert [kind for kind, _ in recorded.asked] == ["sweeps", "windows", "windows"]


def gain(seconds: float, growth: float = 0.0) -> Gain:
    steps = (Step("again", (), ()),)
    return Gain((cast("Segment", SimpleNamespace(runs=1.0)),), SearchResult((), steps, seconds, 0.0, 1, ""), (0.0,), growth)


@pytest.mark.parametrize(("extra", "assumed"), [(FpFlag.NSZ, False), (FpFlag.NNAN, True)])
def test_assumptions_about_values_are_reported_if_a_step_needs_them(extra: FpFlag, *, assumed: bool) -> None:
    flags = frozenset({*REGROUPED, FpFlag.ARCP, extra})
    rule = replace(parse_rule("again: relu(relu(x)) => relu(x) for x[2]"), flags=flags)
    found = arithmetic_of_passes(((gain(1.0),),), [rule], FpMode.RELAXED)
    assert set(found.flags) == set(map(str, flags))
    assert bool(found.assumptions) == assumed
    assert not arithmetic_of_passes(((gain(1.0),),), [rule], FpMode.PRECISE).assumptions


def test_every_order_and_the_nodes_alone_are_tried_before_smaller_choices() -> None:
    little, large, later = (gain(seconds) for seconds in (1.0, 3.0, 2.0))
    one, other, forms = (little, large), (gain(4.0),), (gain(0.0),)
    assert [*fallback_choices(((), one), (), [(other,), ((), ())])] == [(one,), (other,), ((large,),)]
    assert [*fallback_choices((forms, one, (later,)), forms)] == [
        (forms, one, (later,)),
        (forms,),
        (forms, (large, little)),
        (forms, (large,)),
    ]
    assert [*fallback_choices((forms,), forms)] == [(forms,)]
    assert [*fallback_choices(((), ()), (), [(other,)])] == []


def test_gains_are_chosen_by_seconds_per_byte_within_the_growth() -> None:
    most, dense, least, shrinking, even = (
        gain(*of) for of in ((10.0, 100.0), (6.0, 40.0), (5.0, 60.0), (0.1, -8.0), (0.1, 0.0))
    )
    assert affordable_gains([most, least, dense], 100.0) == [dense, least]
    assert affordable_gains([most, least, dense], 99.0) == [dense]
    assert affordable_gains([most, dense, shrinking], 132.0) == [shrinking, dense, most]
    assert affordable_gains([dense, even, most], 39.0) == [even]
    assert affordable_gains([gain(0.0), gain(-1.0, -8.0)], 100.0) == []


def test_weights_may_grow_by_half_or_fourfold_while_they_are_small() -> None:
    assert weight_budget(0, None) == OPTIMIZATION.min_weight_growth_bytes
    assert weight_budget(2**20, None) == OPTIMIZATION.min_weight_growth_bytes + 3 * 2**20
    assert weight_budget(2**28, None) == OPTIMIZATION.min_weight_growth_bytes + 2**28
    assert weight_budget(2**31, None) == OPTIMIZATION.min_weight_growth_bytes + 2**30
    assert weight_budget(2**20, 0.25) == OPTIMIZATION.min_weight_growth_bytes + 2**18
