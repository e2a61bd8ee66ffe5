"""Passes: the order in which a whole model is searched, each pass starting from the result of the previous pass.

Whole islands are swept, then windows are searched, then windows that cover the seams between those. Mutants replace operators
before these passes, because rules may find more in mutants, and in a separate attempt after them, because rules may find less
in mutants than in the model's own operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.budget import active_time
from superopt.model.islands import Charts
from superopt.model.load import Model
from superopt.report.progress import Listener, Progress
from superopt.search.backtracking import OUT_OF_TIME
from superopt.search.backtracking import search as windowed
from superopt.search.island import search_island
from superopt.search.mutants import search_mutants
from superopt.search.segment_search import Search
from superopt.search.segments import Gain, Passes, Runs, Segment, segments, whole
from superopt.search.selection import affordable, fitting

MUTANTS = "mutants"
RULES = {"sweeps": 0.6, "windows": 0.25, "windows between": 0.15}
FIRST = {MUTANTS: 0.4, **RULES}
LAST = {**RULES, MUTANTS: 0.15}
"""The passes of each order with their shares of the time. Time that a pass does not use goes to the passes after it."""
LITTLE = 0.01
"""The share of a model's time that mutants must save for rules to be searched after mutants as well as before."""
LEAST, MOST = 10.0, 30.0
"""The least and the most seconds that a search takes if no budget is given."""
LOADING = 20 / 2**30
"""Additional seconds for opening all the sessions of an optimization, per byte of weights."""


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
    wanted = max(pace * max(LEAST, 0.01 * math.pow(nodes, 1.5)), 200 * seconds)
    return max(LEAST, min(wanted, MOST - 20 * seconds - 3 * (sizes - 1) - LOADING * weights))


@dataclass(frozen=True)
class Improved:
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


def improvements(
    model: Model,
    search: Search,
    moves: Sequence[str],
    *,
    charts: Charts,
    budget: float,
    room: float,
    runs: Runs,
    listener: Listener,
) -> list[Improved]:
    """Return what the search makes of the model within the budget, in seconds, sorted by the time saved, most first.

    `moves` are "rules", "mutants", or both. With both, one result has mutants last; another has mutants first if they save more
    than `LITTLE`. Weights grow by no more than `room`, in bytes.
    """
    under_way = _UnderWay(search, charts, room, runs, listener)
    end = active_time() + budget
    if MUTANTS not in moves:
        return [under_way.through(RULES if moves else {}, Improved(model), end)]
    if "rules" not in moves:
        return [under_way.through({MUTANTS: 1.0}, Improved(model), end)]
    now = active_time()
    mutated = under_way.through({MUTANTS: 1.0}, Improved(model), now + (end - now) * FIRST[MUTANTS] / sum(FIRST.values()))
    if not mutated.seconds:
        return [under_way.through(RULES, mutated, end)]
    if mutated.seconds < LITTLE * sum(gain.found.before * gain.runs for gain in mutated.searched if gain.found.steps):
        return [under_way.through(LAST, Improved(model), end)]
    first = under_way.through(RULES, mutated, (active_time() + end) / 2)
    last = under_way.through(LAST, Improved(model), end)
    return sorted((first, last), key=lambda one: -one.seconds)


@dataclass
class _UnderWay:
    """A search that numbers its passes and reports them to the listener."""

    search: Search
    charts: Charts
    room: float
    runs: Runs
    listener: Listener
    number: int = 0

    def through(self, kinds: Mapping[str, float], start: Improved, end: float) -> Improved:
        """Return the result of passes of these kinds, each within its share of the time left until `end`."""
        here = start
        for place, kind in enumerate(kinds):
            now = active_time()
            share = kinds[kind] / sum([*kinds.values()][place:])
            here = self._through(kind, here, now + share * (end - now))
        return here

    def _through(self, kind: str, start: Improved, deadline: float) -> Improved:
        self.number += 1
        chart = self.charts.of(start.model)
        find = {"sweeps": search_island, MUTANTS: search_mutants}.get(kind, windowed)
        between = kind == "windows between"
        parts = segments(chart, self.runs, between=between) if find is windowed else whole(chart, self.runs)
        room = self.room - sum(gain.bytes for taken in start.passes for gain in taken)
        found = list(self._told(self.search.gains(parts, deadline, find=find, weight_budget=room), parts))
        chosen = affordable(found, room)
        model, taken, dropped = fitting(start.model, chosen) if chosen else (start.model, [], [])
        return Improved(
            model,
            (*start.passes, tuple(taken)),
            (*start.searched, *found, *dropped),
            max(start.too_large, len(affordable(found, math.inf)) - len(chosen)),
            start.cut_short or any(gain.found.stopped == OUT_OF_TIME for gain in found),
        )

    def _told(self, gains: Iterable[Gain], parts: Sequence[Segment]) -> Iterator[Gain]:
        """Yield the gains and report each to the listener."""
        phase, total = f"search, pass {self.number}", len({part.state for part in parts})
        self.listener(Progress(phase, 0, total))
        for done, gain in enumerate(gains, 1):
            detail = f"{len(gain.found.steps)} steps save {gain.seconds * 1e6:.0f} us" if gain.found.steps else ""
            self.listener(Progress(phase, done, total, detail))
            yield gain
