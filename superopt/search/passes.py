"""Passes: searches of a whole model. Each pass starts from the result of the previous pass.

The first pass sweeps whole islands (convex regions of the model). A sweep applies a rule at all of its matches at once. The
second pass searches windows. A window consists of consecutive nodes of an island. The third pass searches shifted windows: each
boundary between two windows of the second pass lies inside a window of the third pass.

If the model has equal islands that do not read the same values, a preliminary pass sweeps all equal islands together, so that
operators of different islands can be joined.

An additional pass replaces operators by mutants (cheaper terms whose wrong elements are corrected). The pass for mutants runs
before these three passes, because rules may improve mutants further. In a separate attempt, the pass for mutants runs last,
because rules sometimes improve the model's own operators more than mutants.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from superopt.budget import active_time
from superopt.model.islands import Charts
from superopt.model.load import Model
from superopt.policy import OPTIMIZATION
from superopt.report.number_texts import duration
from superopt.report.progress import Progress
from superopt.search.backtracking import OUT_OF_TIME
from superopt.search.backtracking import search as windowed
from superopt.search.island import search_island
from superopt.search.mutants import search_mutants
from superopt.search.search_log import SearchLog
from superopt.search.segment_search import SegmentSearch
from superopt.search.segments import Gain, Passes, Runs, Segment, parallel_islands, segments, whole_islands
from superopt.search.selection import affordable_gains, priced_in_context, splice_fitting

MUTANTS, PARALLEL = "mutants", "parallel islands"
RULES = {
    "sweeps": OPTIMIZATION.sweeps_time_share,
    "windows": OPTIMIZATION.window_time_share,
    "windows between": OPTIMIZATION.between_window_time_share,
}
FIRST = {MUTANTS: OPTIMIZATION.first_mutant_time_share, **RULES}
LAST = {**RULES, MUTANTS: OPTIMIZATION.last_mutant_time_share}
"""The order of the passes if the pass for mutants comes last. Each pass is mapped to its share of the search time.

Time that a pass does not use goes to the later passes. Time that remains after all passes goes to the passes that were cut
short.
"""


def search_budget_seconds(nodes: int, seconds: float, sizes: int, weights: int, pace: float = 1.0) -> float:
    """Return the number of seconds that all passes of a search may take together.

    The budget grows with the model's run time and with the model's node count. A model with twice as many nodes gets more than
    twice the time, because each step of a search tries all rules at every node again. The upper limit is lower for models that
    take long to load or to run, because checks and comparisons also take time. The budget is at least
    `OPTIMIZATION.min_search_seconds`.

    Args:
        nodes: The number of nodes.
        seconds: The seconds of one run.
        sizes: The number of sizes at which the model runs.
        weights: The bytes of the weights.
        pace: The factor by which a search takes longer on this machine than on the reference machine. The constants in this
            function were chosen for the reference machine.
    """
    wanted = max(pace * max(OPTIMIZATION.min_search_seconds, 0.01 * math.pow(nodes, 1.5)), 200 * seconds)
    return max(
        OPTIMIZATION.min_search_seconds,
        min(
            wanted,
            OPTIMIZATION.max_search_seconds - 20 * seconds - 3 * (sizes - 1) - OPTIMIZATION.loading_seconds_per_byte * weights,
        ),
    )


@dataclass(frozen=True)
class ImprovedModel:
    """A model after some passes.

    A gain is the search result for one segment (a part of a model) and its copies (equal segments).

    Attributes:
        model: The model with the gains of all passes.
        passes: The gains that each pass applied to the model.
        searched: The gains of all searched segments, including gains that were not applied.
        too_large: The number of gains that are left out because the weights would grow too much.
        unfinished: The kinds of passes whose last search was ended by a deadline.
    """

    model: Model
    passes: Passes = ()
    searched: tuple[Gain, ...] = ()
    too_large: int = 0
    unfinished: frozenset[str] = frozenset()

    @property
    def seconds(self) -> float:
        """The seconds that the passes (searches of the whole model) save in one run, according to the cost model."""
        return sum(gain.seconds for taken in self.passes for gain in taken)


@dataclass(frozen=True, eq=False)
class SearchedModel:
    """The result of searching a model in several passes.

    A pass is one search of the whole model. A gain is the search result for one segment (a part of the model) and its copies
    (equal segments).

    Attributes:
        best: The model after the passes. If several orders of passes were tried, `best` is the model that saves the most time.
        others: The gains of each pass, for each tried order of passes that saves less time than `best`.
        stopped: The reason why the search ended before every part was searched. Empty if every part was searched.
        relowered: Search results that keep the terms of all islands (convex regions of the model). Only the nodes of the
            islands are generated anew from these terms. None if no nodes were generated anew.
        contrib_potential_seconds: The number of seconds by which ONNX Runtime's own operators would shorten a run. The number
            is 0 if these operators are allowed.
        failed: The error that ended the search. Empty if there was no error.
        log: The log of the search.
        seconds: The seconds that the search took.
    """

    best: ImprovedModel
    others: Sequence[Passes] = ()
    stopped: str = ""
    relowered: tuple[Gain, ...] | None = None
    contrib_potential_seconds: float = 0.0
    failed: str = ""
    log: SearchLog = field(default_factory=SearchLog)
    seconds: float = 0.0

    @property
    def orders(self) -> tuple[Passes, ...]:
        """The gains of each pass (search of the whole model), for each tried order of passes. The best order comes first."""
        return self.best.passes, *self.others


def improvements(start: ImprovedModel, passes: PassRunner, moves: Sequence[str], budget: float) -> list[ImprovedModel]:
    """Run passes over the model within `budget` seconds. Return the resulting models, the largest saving first.

    A pass is one search over the whole model. `moves` contains "rules", "mutants" or both. Mutants are cheaper terms that
    replace operators, with a correction of wrong elements. If `moves` contains both, the pass for mutants runs first. If this
    pass saves at most the share `OPTIMIZATION.min_mutant_pass_gain_share` of the searched segments' time, the pass for mutants
    runs last instead. The rules may then create operators that mutants improve. If the pass saves more, both orders are tried,
    and two models are returned.

    If `moves` contains "rules" and the model has equal islands that do not read the same values, these islands are searched
    together before all other passes.
    """
    end = active_time() + budget
    if "rules" in moves and passes.has_parallel_islands(start.model):
        now = active_time()
        start = passes.run_once({PARALLEL: 1.0}, start, now + (end - now) * OPTIMIZATION.parallel_time_share)
    if MUTANTS not in moves:
        return [passes.run(RULES if moves else {}, start, end)]
    if "rules" not in moves:
        return [passes.run({MUTANTS: 1.0}, start, end)]
    now = active_time()
    mutated = passes.run_once({MUTANTS: 1.0}, start, now + (end - now) * FIRST[MUTANTS] / sum(FIRST.values()))
    seconds = sum(gain.found.before * gain.runs for gain in mutated.searched if math.isfinite(gain.found.before))
    if mutated.seconds <= OPTIMIZATION.min_mutant_pass_gain_share * seconds:
        return [passes.run(LAST, start, end)]
    first = passes.run(RULES, mutated, (active_time() + end) / 2)
    last = passes.run(LAST, start, end)
    return sorted((first, last), key=lambda improved: -improved.seconds)


@dataclass(frozen=True, eq=False)
class PassRunner:
    """Runs passes (searches of a whole model), and reports the progress of each pass to `log`.

    The model's weights grow by at most `weight_budget` bytes. `ratio_in_context` times two whole models alternately, and
    returns the confidence interval of the ratio of their times. The ratio is above 1 if the second model is faster. If
    `ratio_in_context` is given, a pass keeps a rewrite only if the rewrite does not make the whole model slower. In this case,
    the saving of the rewrite is measured in the whole model. In the whole model, a segment that is fast in isolation may
    prevent a fusion by ONNX Runtime, or may need layout conversions around the segment. `seconds` is the time of one run of the
    model before the first pass. `numbers` yields the numbers of the passes in progress reports.
    """

    search: SegmentSearch
    charts: Charts
    weight_budget: float
    runs: Runs
    log: SearchLog
    ratio_in_context: Callable[[Model, Model], tuple[float, float]] | None = None
    seconds: float = 0.0
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def has_parallel_islands(self, model: Model) -> bool:
        """Return whether the model has equal islands that do not read the same values."""
        return bool(parallel_islands(self.charts.of(model), self.runs))

    def run(self, kinds: Mapping[str, float], start: ImprovedModel, end: float) -> ImprovedModel:
        """Run one pass of each kind in `kinds`, in the order of `kinds`, and return the resulting model with the gains.

        A pass is one search of the whole model, and a gain is the search result for one part of the model. `kinds` maps the
        name of a pass to a share. The time that is left until `end` is divided among the remaining passes in proportion to the
        shares. Passes that were cut short are run once more if enough time is left after the last pass
        (`OPTIMIZATION.min_repeated_time_share`).
        """
        began = active_time()
        improved = self.run_once(kinds, start, end)
        unfinished = {kind: share for kind, share in kinds.items() if kind in improved.unfinished}
        if unfinished and end - active_time() >= OPTIMIZATION.min_repeated_time_share * (end - began):
            improved = self.run_once(unfinished, improved, end, repeated=True)
        return improved

    def run_once(
        self, kinds: Mapping[str, float], start: ImprovedModel, end: float, *, repeated: bool = False
    ) -> ImprovedModel:
        """Run the passes as `run` does, but run each pass only once.

        If `repeated` is True, an earlier run of the passes was cut short, and cached results of that run are not used.
        """
        improved = start
        for place, kind in enumerate(kinds):
            now = active_time()
            share = kinds[kind] / sum([*kinds.values()][place:])
            improved = self._run_pass(kind, improved, now + share * (end - now), end, repeated=repeated)
        return improved

    def _run_pass(self, kind: str, start: ImprovedModel, deadline: float, end: float, *, repeated: bool) -> ImprovedModel:
        chart = self.charts.of(start.model)
        find = {"sweeps": search_island, PARALLEL: search_island, MUTANTS: search_mutants}.get(kind, windowed)
        between = kind == "windows between"
        whole = parallel_islands if kind == PARALLEL else whole_islands
        parts = segments(chart, self.runs, between=between) if find is windowed else whole(chart, self.runs)
        self.log.begin_pass(start.seconds)
        left = self.weight_budget - sum(gain.bytes for taken in start.passes for gain in taken)
        gains = self.search.gains(parts, deadline, find=find, weight_budget=left, repeated=repeated, latest=end)
        found = [*self._reported(gains, parts)]
        chosen = affordable_gains(found, left)
        seconds = self.seconds - start.seconds
        model, taken, dropped = self._in_context(start.model, chosen, OPTIMIZATION.max_gain_halvings, seconds)
        improved = ImprovedModel(
            model,
            (*start.passes, tuple(taken)),
            (*start.searched, *found, *dropped),
            max(start.too_large, len(affordable_gains(found, math.inf)) - len(chosen)),
            start.unfinished - {kind} | ({kind} if any(gain.found.stopped == OUT_OF_TIME for gain in found) else set()),
        )
        self.log.end_pass(improved.seconds)
        return improved

    def _in_context(
        self, model: Model, gains: Sequence[Gain], tries: int, seconds: float
    ) -> tuple[Model, list[Gain], list[Gain]]:
        """Apply gains to the model. Return the new model, the applied gains, and the gains that do not fit the model.

        If all gains together make the whole model slower, the gains are split into the larger and the smaller half. The larger
        half is tried first. `tries` is the largest number of successive splits. `seconds` is the time of one run of the model.
        """
        if not gains:
            return model, [], []
        changed, taken, dropped = splice_fitting(model, gains)
        if self.ratio_in_context is None or not taken:
            return changed, taken, dropped
        low, high = self.ratio_in_context(model, changed)
        if high >= 1:
            return changed, priced_in_context(taken, seconds, low, high), dropped
        if len(taken) == 1 or not tries:
            return model, [], dropped
        ranked = sorted(taken, key=lambda gain: -gain.seconds)
        larger, smaller = ranked[: len(ranked) // 2], ranked[len(ranked) // 2 :]
        changed, first, _ = self._in_context(model, larger, tries - 1, seconds)
        seconds -= sum(gain.seconds for gain in first)
        changed, second, _ = self._in_context(changed, smaller, tries - 1, seconds)
        return changed, first + second, dropped

    def _reported(self, gains: Iterable[Gain], parts: Sequence[Segment]) -> Iterator[Gain]:
        """Yield the gains (search results for parts of the model), and report each gain to `log`."""
        phase, total = f"search, pass {next(self.numbers)}", len({part.state for part in parts})
        self.log.tell(Progress(phase, 0, total))
        for done, gain in enumerate(gains, 1):
            self.log.segment_found(gain.seconds if gain.found.steps else 0.0)
            detail = f"{len(gain.found.steps)} steps save {duration(gain.seconds)}" if gain.found.steps else ""
            self.log.tell(Progress(phase, done, total, detail))
            yield gain
