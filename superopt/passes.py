"""Passes: how a whole model is searched, one pass on what came of the one before, and in which orders.

Whole islands are swept, then windows searched, and then those that lie between: a seam of the others is inside. Operators are
exchanged for corrected mutants before all that, for rules may find more in them, and, apart from that, after it, for rules may
find less in them than in what the model has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.active import active_time
from superopt.model.islands import Charts
from superopt.model.load import Model
from superopt.mutation import search_mutants
from superopt.report.progress import Listener, Progress
from superopt.rewrite.island import search_island
from superopt.rewrite.search import OUT_OF_TIME
from superopt.rewrite.search import search as windowed
from superopt.search import Search
from superopt.segments import Gain, Passes, Runs, Segment, segments, whole
from superopt.selection import affordable, fitting

MUTANTS = "mutants"
RULES = {"sweeps": 0.6, "windows": 0.25, "windows between": 0.15}
FIRST = {MUTANTS: 0.4, **RULES}
LAST = {**RULES, MUTANTS: 0.15}
"""The passes of each order, and how the time is shared: what one does not take is for those after it."""
LITTLE = 0.01
"""The share of what a model takes that mutants have to save for rules to be searched after them as well as before them."""
LEAST, MOST = 10.0, 30.0
"""Seconds that a search takes at least and at most where that is left to the model."""
LOADING = 20 / 2**30
"""Seconds that all the sessions of an optimization take longer to make for each byte of weights."""


def budget_of(nodes: int, seconds: float, sizes: int, weights: int, pace: float = 1.0) -> float:
    """The seconds to search a model of so many nodes and bytes of weights in, which runs for so many seconds, once at each of
    the sizes, where a search takes `pace` times as long as on the machine that these figures are of.

    They grow with its seconds, and faster than its nodes, which all rules are tried at again after a step. Beyond the least,
    they are the fewer the longer it takes to load and to run, for checks and comparisons come on top.
    """
    wanted = max(pace * max(LEAST, 0.01 * math.pow(nodes, 1.5)), 200 * seconds)
    return max(LEAST, min(wanted, MOST - 20 * seconds - 3 * (sizes - 1) - LOADING * weights))


@dataclass(frozen=True)
class Improved:
    """A model, the gains that each pass took to get there, and all that were found.

    Of these, `too_large` were left for the growth of the weights. `cut_short` says whether a deadline ended any search.
    """

    model: Model
    passes: Passes = ()
    searched: tuple[Gain, ...] = ()
    too_large: int = 0
    cut_short: bool = False

    @property
    def seconds(self) -> float:
        """What the passes save in a run, by the cost model."""
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
    """What the search makes of the model within the budget, in seconds, that which saves most first.

    `moves` are "rules", "mutants", or both: then with mutants first, where these gain more than little, and with mutants last.
    Weights become larger by no more than `room`, in bytes.
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
    """A search that tells the listener of its passes, numbered."""

    search: Search
    charts: Charts
    room: float
    runs: Runs
    listener: Listener
    number: int = 0

    def through(self, kinds: Mapping[str, float], start: Improved, end: float) -> Improved:
        """What passes of these kinds lead to, each within its share of what is left of the time until `end`."""
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
        found = list(self._told(self.search.gains(parts, deadline, find=find, room=room), parts))
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
        """The gains, with the listener told of each."""
        phase, total = f"search, pass {self.number}", len({part.state for part in parts})
        self.listener(Progress(phase, 0, total))
        for done, gain in enumerate(gains, 1):
            detail = f"{len(gain.found.steps)} steps save {gain.seconds * 1e6:.0f} us" if gain.found.steps else ""
            self.listener(Progress(phase, done, total, detail))
            yield gain
