"""The search of a segment: the order of its stages, the content of the cache key, and a stage that fails."""

from __future__ import annotations

import math
from typing import Any

import pytest
from onnx import ModelProto, helper

from superopt.algebra.dim_binding import DimBinding
from superopt.algebra.terms import variable
from superopt.budget import active_time
from superopt.cost.measure import Clock
from superopt.cost.segment_cost import Measured
from superopt.model.islands import Chart
from superopt.model.load import load
from superopt.policy import COMPARISON, SEARCH
from superopt.rules.fp_flags import FpMode
from superopt.runtime.session import Device
from superopt.search.apply import State, Step
from superopt.search.backtracking import OUT_OF_TIME, Cost, SearchLimits, SearchResult
from superopt.search.ruleset import RuleSet
from superopt.search.search_log import SearchLog
from superopt.search.segment_search import Batch, SegmentSearch, SegmentTask
from superopt.search.segments import Gain, whole_islands
from tests.models import model

STAGES = ["recall", "find", "fuse", "confirm"]


class Noted(SegmentSearch):
    """A search that lists the stages that run. The stage `failing` raises an error."""

    def __init__(self, clock: Clock, mode: FpMode = FpMode.RELAXED, failing: str = "") -> None:
        super().__init__([], clock, 17, [DimBinding({})], 1.0, allow_contrib=False, mode=mode, strict=False, log=SearchLog())
        self.stages: list[str] = []
        self.failing = failing

    def _recall(self, batch: Batch, task: SegmentTask, *rest: Any) -> SearchResult:
        self.note("recall")
        return super()._recall(batch, task, *rest)

    def _find(self, batch: Batch, task: SegmentTask) -> SearchResult:
        self.note("find")
        return super()._find(batch, task)

    def _fuse(self, batch: Batch, task: SegmentTask, found: SearchResult) -> SearchResult:
        self.note("fuse")
        return super()._fuse(batch, task, found)

    def _confirm(self, batch: Batch, task: SegmentTask, found: SearchResult) -> SearchResult:
        self.note("confirm")
        return super()._confirm(batch, task, found)

    def note(self, stage: str) -> None:
        self.stages.append(stage)
        if stage == self.failing:
            raise RecursionError

    def gain(self, *, seconds: float = 60.0, weight_budget: float = 0.0, repeated: bool = False) -> Gain:
        nodes = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
        parts = whole_islands(Chart(load(model(nodes, {"x": [4]}, {"y": [4]})).model), {})
        end = active_time() + seconds
        (gain,) = self.gains(parts, end, find=find, weight_budget=weight_budget, repeated=repeated)
        return gain


def find(start: State, _: RuleSet, /, *, estimate: Cost, measure: Cost, limits: SearchLimits | None) -> SearchResult:
    del measure, limits
    return SearchResult(start, (), estimate(start), estimate(start), 1, "searched")


@pytest.fixture
def clock() -> Clock:
    """Return a clock with a cache in memory."""
    return Clock(Device("cpu", 1))


def test_a_result_is_searched_fused_and_confirmed_before_it_is_cached(clock: Clock) -> None:
    search = Noted(clock)
    first = search.gain()
    assert (first.found.stopped, search.stages) == ("searched", STAGES)
    again = search.gain()
    assert (again.found, search.stages) == (first.found, [*STAGES, "recall"])


def test_a_segment_without_time_is_looked_up_only(clock: Clock) -> None:
    search = Noted(clock)
    assert (search.gain(seconds=-1.0).found.stopped, search.stages) == (OUT_OF_TIME, ["recall"])
    known = Noted(Clock(Device("cpu", 1)))
    known.gain()
    assert (known.gain(seconds=-1.0).found.stopped, known.stages) == ("searched", [*STAGES, "recall"])


def test_a_repeated_search_does_not_use_the_result_that_a_deadline_cut_short(clock: Clock) -> None:
    search = Noted(clock)
    assert search.gain(seconds=-1.0).found.stopped == OUT_OF_TIME
    assert search.gain().found.stopped == OUT_OF_TIME
    assert search.gain(repeated=True).found.stopped == "searched"
    assert search.stages == ["recall", "recall", *STAGES]


@pytest.mark.parametrize(("latest", "expected"), [(120.0, 117.0), (115.0, 115.0), (105.0, 110.0)])
def test_the_time_for_recognized_operators_is_not_taken_from_the_search_of_an_island(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, latest: float, expected: float
) -> None:
    seconds = iter([100.0, 107.0])
    found = SearchResult((variable("x", (4,)),), (), 1.0, 1.0, 0, "")
    task = SegmentTask(found.outputs, RuleSet([]), lambda _: 1.0, lambda _: 1.0, SearchLimits(deadline=110.0))
    search = Noted(clock)
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    (part,) = whole_islands(Chart(load(model(nodes, {"x": [4]}, {"y": [4]})).model), {})
    measured = Measured(clock, 17)
    batch = Batch(find, part.island, measured, measured, {}, {}, {}, repeated=False, latest=latest)
    deadlines: list[float] = []

    def searched(_: Batch, later: SegmentTask) -> SearchResult:
        deadlines.append(later.limits.deadline)
        return found

    monkeypatch.setattr("superopt.search.segment_search.active_time", lambda: next(seconds))
    monkeypatch.setattr(search, "_recognize", lambda *_: found)
    monkeypatch.setattr(search, "_find", searched)
    search._find_in_island(batch, task)
    assert deadlines == [expected]


@pytest.mark.parametrize(("steps", "after"), [((), 0.9), ((Step("same", (), ()),), 0.45)])
def test_gain_of_recognized_operators_by_whole_timing_is_kept(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, steps: tuple[Step, ...], after: float
) -> None:
    outputs = (variable("x", (4,)),)
    task = SegmentTask(outputs, RuleSet([]), lambda _: 1.0, lambda _: 1.0, SearchLimits())
    search = Noted(clock)
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    (part,) = whole_islands(Chart(load(model(nodes, {"x": [4]}, {"y": [4]})).model), {})
    measured = Measured(clock, 17)
    batch = Batch(find, part.island, measured, measured, {}, {}, {}, repeated=False, latest=math.inf)
    recognized = SearchResult(outputs, steps, 1.0, 0.5 if steps else 1.0, 1, "")
    monkeypatch.setattr(search, "_recognize", lambda *_: recognized)
    monkeypatch.setattr(search, "_find", lambda *_: SearchResult(outputs, (), 1.0, 0.9, 2, ""))
    found = search._find_in_island(batch, task)
    assert (found.steps, found.after) == (steps, after)


def test_results_behind_other_gates_and_within_other_budgets_are_cached_apart(clock: Clock) -> None:
    for search, weight_budget in ((Noted(clock), 0.0), (Noted(clock), 4.0), (Noted(clock, FpMode.PRECISE), 4.0)):
        search.gain(weight_budget=weight_budget)
        assert search.stages == STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_a_segment_is_left_as_it_is_where_a_stage_fails(clock: Clock, stage: str) -> None:
    search = Noted(clock, failing=stage)
    gain = search.gain()
    assert (gain.left, gain.found.steps) == ("RecursionError:", ())
    assert search.stages == STAGES[: STAGES.index(stage) + 1]
    assert Noted(clock).gain().found.stopped == "searched"


class Sure(Clock):
    """A clock on which every comparison of two models has the same answer."""

    def __init__(self, *, faster: bool) -> None:
        super().__init__(Device("cpu", 1))
        self.faster = faster

    def stands(self, before: ModelProto, after: ModelProto, predicted: float, least: float) -> bool:
        del before, after, predicted, least
        return self.faster


class Lucky(Noted):
    """A search that finds a state equal to the start, with a time that is lower by a given factor."""

    def __init__(self, clock: Clock, seconds: float, factor: float) -> None:
        super().__init__(clock)
        self.seconds, self.factor = seconds, factor

    def _find(self, batch: Batch, task: SegmentTask) -> SearchResult:
        del batch
        step = Step("same", task.start, task.start)
        return SearchResult(task.start, (step,), self.seconds, self.seconds / self.factor, 1, "searched")


LONG = 2 * COMPARISON.long_run_seconds
TINY, SMALL, CLEAR = 1 + SEARCH.min_gain_share / 2, 1 + 2 * SEARCH.min_gain_share, SEARCH.clear_speedup_factor + 0.1


@pytest.mark.parametrize(
    ("seconds", "factor", "faster", "kept"),
    [
        (LONG, CLEAR, False, True),
        (LONG, SMALL, False, False),
        (LONG, SMALL, True, True),
        (LONG, TINY, True, False),
        (LONG / 4, CLEAR, False, False),
        (LONG / 4, TINY, True, True),
    ],
)
def test_a_long_run_is_timed_again_only_for_a_gain_that_is_in_doubt(
    seconds: float, factor: float, *, faster: bool, kept: bool
) -> None:
    """In a segment that takes long, a clear gain is accepted and a tiny gain is refused without a second measurement."""
    found = Lucky(Sure(faster=faster), seconds, factor).gain().found
    assert (len(found.steps), found.after) == ((1, seconds / factor) if kept else (0, seconds))
