"""Passes: the order in which a whole model is searched, each pass starting from the result of the previous pass.

Whole islands are swept, then windows are searched, then windows that cover the seams between those. Mutants replace operators
before these passes, because rules may find more in mutants, and in a separate attempt after them, because rules may find less
in mutants than in the model's own operators.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from superopt.budget import active_time
from superopt.model.islands import Charts
from superopt.model.load import Model
from superopt.policy import OPTIMIZATION
from superopt.report.progress import Listener, Progress
from superopt.search.backtracking import OUT_OF_TIME
from superopt.search.backtracking import search as windowed
from superopt.search.island import search_island
from superopt.search.mutants import search_mutants
from superopt.search.segment_search import SegmentSearch
from superopt.search.segments import Gain, Passes, Runs, Segment, segments, whole_islands
from superopt.search.selection import affordable_gains, splice_fitting

MUTANTS = "mutants"
RULES = {
    "sweeps": OPTIMIZATION.sweeps_time_share,
    "windows": OPTIMIZATION.window_time_share,
    "windows between": OPTIMIZATION.between_window_time_share,
}
FIRST = {MUTANTS: OPTIMIZATION.first_mutant_time_share, **RULES}
LAST = {**RULES, MUTANTS: OPTIMIZATION.last_mutant_time_share}
"""The passes of each order with their shares of the time. Time that a pass does not use goes to the passes after it."""


def budget_of(nodes: int, seconds: float, sizes: int, weights: int, pace: float = 1.0) -> float:
    """Return the search budget in seconds for a model.

    The budget grows with the model's run time, and faster than its number of nodes, because a step tries all rules at every
    node again. Above the minimum, the budget shrinks with the time to load and to run the model, because checks and comparisons
    take time besides.

    Args:
        nodes: The number of nodes.
        seconds: The seconds of one run.
        sizes: The number of sizes at which the model runs.
        weights: The bytes of the weights.
        pace: How many times as long a search takes as on the machine of these figures.
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
    """A model with the gains that each pass took, and all gains that were found.

    `too_large` counts the gains left out because the weights would grow too much. `cut_short` says whether a deadline ended any
    search.
    """

    model: Model
    passes: Passes = ()
    searched: tuple[Gain, ...] = ()
    too_large: int = 0
    cut_short: bool = False

    @property
    def seconds(self) -> float:
        """The seconds that the passes save in a run, by the cost model."""
        return sum(gain.seconds for taken in self.passes for gain in taken)


@dataclass(frozen=True, eq=False)
class SearchedModel:
    """The result of a search of a model.

    Attributes:
        best: The model with the gains that save most.
        others: The gains of other orders of passes.
        stopped: What ended the search before every segment was searched, or an empty text.
        relowered: All islands re-emitted without a change of the algebra, if that alone may be faster; None if not tried.
        contrib_potential_seconds: The seconds of a run that ONNX Runtime's own operators would save, if they are not allowed.
        failed: The error that ended the search, or an empty text.
    """

    best: ImprovedModel
    others: Sequence[Passes] = ()
    stopped: str = ""
    relowered: tuple[Gain, ...] | None = None
    contrib_potential_seconds: float = 0.0
    failed: str = ""

    @property
    def orders(self) -> tuple[Passes, ...]:
        """The gains of all orders of passes, best first."""
        return self.best.passes, *self.others


def improvements(model: Model, passes: PassRunner, moves: Sequence[str], budget: float) -> list[ImprovedModel]:
    """Return what passes make of the model within the budget, in seconds, sorted by the time saved, most first.

    `moves` are "rules", "mutants", or both. With both, one result has mutants last; another has mutants first if they save more
    than `OPTIMIZATION.min_mutant_pass_gain_share`.
    """
    start, end = ImprovedModel(model), active_time() + budget
    if MUTANTS not in moves:
        return [passes.run(RULES if moves else {}, start, end)]
    if "rules" not in moves:
        return [passes.run({MUTANTS: 1.0}, start, end)]
    now = active_time()
    mutated = passes.run({MUTANTS: 1.0}, start, now + (end - now) * FIRST[MUTANTS] / sum(FIRST.values()))
    if not mutated.seconds:
        return [passes.run(RULES, mutated, end)]
    if mutated.seconds < OPTIMIZATION.min_mutant_pass_gain_share * sum(
        gain.found.before * gain.runs for gain in mutated.searched if gain.found.steps
    ):
        return [passes.run(LAST, start, end)]
    first = passes.run(RULES, mutated, (active_time() + end) / 2)
    last = passes.run(LAST, start, end)
    return sorted((first, last), key=lambda improved: -improved.seconds)


@dataclass(frozen=True, eq=False)
class PassRunner:
    """Runs passes over a model, and reports each to the listener under the next of the `numbers`.

    The weights grow by no more than `weight_budget`, in bytes.
    """

    search: SegmentSearch
    charts: Charts
    weight_budget: float
    runs: Runs
    listener: Listener
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def run(self, kinds: Mapping[str, float], start: ImprovedModel, end: float) -> ImprovedModel:
        """Return the result of passes of these kinds, each within its share of the time left until `end`."""
        improved = start
        for place, kind in enumerate(kinds):
            now = active_time()
            share = kinds[kind] / sum([*kinds.values()][place:])
            improved = self._run_pass(kind, improved, now + share * (end - now))
        return improved

    def _run_pass(self, kind: str, start: ImprovedModel, deadline: float) -> ImprovedModel:
        chart = self.charts.of(start.model)
        find = {"sweeps": search_island, MUTANTS: search_mutants}.get(kind, windowed)
        between = kind == "windows between"
        parts = segments(chart, self.runs, between=between) if find is windowed else whole_islands(chart, self.runs)
        left = self.weight_budget - sum(gain.bytes for taken in start.passes for gain in taken)
        found = list(self._reported(self.search.gains(parts, deadline, find=find, weight_budget=left), parts))
        chosen = affordable_gains(found, left)
        model, taken, dropped = splice_fitting(start.model, chosen) if chosen else (start.model, [], [])
        return ImprovedModel(
            model,
            (*start.passes, tuple(taken)),
            (*start.searched, *found, *dropped),
            max(start.too_large, len(affordable_gains(found, math.inf)) - len(chosen)),
            start.cut_short or any(gain.found.stopped == OUT_OF_TIME for gain in found),
        )

    def _reported(self, gains: Iterable[Gain], parts: Sequence[Segment]) -> Iterator[Gain]:
        """Yield the gains and report each to the listener."""
        phase, total = f"search, pass {next(self.numbers)}", len({part.state for part in parts})
        self.listener(Progress(phase, 0, total))
        for done, gain in enumerate(gains, 1):
            detail = f"{len(gain.found.steps)} steps save {gain.seconds * 1e6:.0f} us" if gain.found.steps else ""
            self.listener(Progress(phase, done, total, detail))
            yield gain
