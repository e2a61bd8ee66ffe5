"""Cutting a long island into windows that are searched one by one.

Nodes are given in topological order. A window is a run of consecutive nodes, so windows depend on each other in one direction
only; cuts are made where few values cross, at a single value where the graph allows it. Layers of a deep model are cut alike,
so what is searched in one of them is known of all.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

N = TypeVar("N")

LONGEST = 512
"""Nodes of the longest layer whose repetitions are looked for."""


def windows(
    nodes: Sequence[N],
    reads: Mapping[N, Sequence[Hashable]],
    kinds: Sequence[Hashable] = (),
    *,
    least: int = 8,
    most: int = 32,
    between: bool = False,
) -> list[tuple[N, ...]]:
    """Consecutive windows of `least` to `most` nodes (the last of all nodes or of a layer may be shorter), covering all nodes.

    `reads` lists, for each node, the nodes of the sequence whose results it uses, and values from elsewhere. `kinds`, if they
    are given, say of each node what it computes: where a sequence of kinds repeats, each repetition is a layer, cut as the
    others are. With `between`, windows go from the middle of one of those to the middle of the next, as far as `most` allows:
    what was a seam lies inside.
    """
    crossing = _crossings(nodes, reads)
    number: dict[Hashable, int] = {}
    numbers = np.array([number.setdefault(kind, len(number)) for kind in kinds or range(len(nodes))], dtype=np.int64)
    ends = _Cutting(crossing, numbers, min(least, most), most).ends(0, len(nodes))
    if between:
        ends = _between(crossing, ends, most)
    return [tuple(nodes[start:end]) for start, end in itertools.pairwise([0, *ends]) if start < end]


@dataclass(frozen=True)
class _Cutting:
    """How a sequence is cut: what crosses after each node, the number of its kind, and the sizes of windows."""

    crossing: Sequence[int]
    kinds: npt.NDArray[np.int64]
    least: int
    most: int

    def ends(self, start: int, end: int) -> list[int]:
        """Ends of windows from here to there: of layers, cut alike and where least crosses, and of what is around them."""
        layers = self._layers(start, end)
        if layers is None:
            return self._cuts(start, end)
        first, last, period = layers

        def widest(phase: int) -> int:
            return max(self.crossing[cut - 1] for cut in self._cuts(phase, phase + period))

        phase = min(range(first, first + period), key=widest)
        offsets = [cut - phase for cut in self._cuts(phase, phase + period)]
        inside = [layer + offset for layer in range(phase, last - period + 1, period) for offset in offsets]
        return [*self.ends(start, phase), *inside, *self.ends(inside[-1], end)]

    def _layers(self, start: int, end: int) -> tuple[int, int, int] | None:
        """From where to where layers of how many nodes repeat, two or more of them; those that cover most, the shortest."""
        here, found, most = self.kinds[start:end], None, 0
        for period in range(self.least, min(LONGEST, len(here) // 2) + 1):
            breaks = np.flatnonzero(np.concatenate(([True], here[period:] != here[:-period], [True])))
            runs = np.diff(breaks) - 1
            longest = int(np.argmax(runs))
            run = int(runs[longest])
            if run >= period and run + period > most:
                first, most = start + int(breaks[longest]), run + period
                found = first, first + most, period
        return found

    def _cuts(self, start: int, end: int) -> list[int]:
        """Ends of windows from here to there, one after the other; what is left at the end is in the last where it has room."""
        ends: list[int] = []
        while start < end:
            stop = _cut(self.crossing, start, self.least, self.most, end)
            start = end if end - stop < self.least and end - start <= self.most else stop
            ends.append(start)
        return ends


def _between(crossing: Sequence[int], ends: Sequence[int], most: int) -> list[int]:
    """Ends of windows from the middle of one window to the middle of the next; an old seam stays where that is too long."""
    found: list[int] = []
    for start, end in itertools.pairwise([0, *ends]):
        quarter = (end - start) // 4
        inside = range(start + max(quarter, 1), end - quarter)
        middle = min(inside, key=lambda stop: (crossing[stop - 1], abs(2 * stop - start - end)), default=end)
        if found and middle - found[-1] > most:
            found.append(start)
        found.append(middle)
    if found[-1] != ends[-1]:
        found.append(ends[-1])
    return found


def _crossings(nodes: Sequence[N], reads: Mapping[N, Sequence[Hashable]]) -> list[int]:
    """For each position, how many values are used after it that are results of nodes up to it, or used up to it as well.

    A value from elsewhere counts as a result does, so that blocks which repeat are cut alike, the first of them too.
    """
    born: dict[Hashable, int] = {node: position for position, node in enumerate(nodes)}
    last_use: dict[Hashable, int] = {}
    for position, node in enumerate(nodes):
        for source in reads.get(node, ()):
            born.setdefault(source, position)
            last_use[source] = position
    change = [0] * (len(nodes) + 1)
    for source, last in last_use.items():
        if last > born[source]:
            change[born[source]] += 1
            change[last] -= 1
    return list(itertools.accumulate(change[:-1]))


def _cut(crossing: Sequence[int], start: int, least: int, most: int, end: int) -> int:
    """The end of the window that begins at `start`: the first single-value cut past `least`, else the narrowest."""
    if end - start <= least:
        return end
    choices = range(start + least, min(start + most, end) + 1)
    for stop in choices:
        if stop == end or crossing[stop - 1] <= 1:
            return stop
    return min(choices, key=lambda stop: (crossing[stop - 1], -stop))
