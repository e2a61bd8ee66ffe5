"""Cut a long island (a convex region of a model) into windows, which are searched one by one.

Nodes are given in topological order. A window is a sequence of consecutive nodes, so a window depends only on earlier windows.
As few values as possible should cross a cut. All layers of a deep model are cut at the same places, so a search result for one
layer holds for every layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from superopt.policy import SEARCH

N = TypeVar("N")


def windows(
    nodes: Sequence[N],
    reads: Mapping[N, Sequence[Hashable]],
    kinds: Sequence[Hashable] = (),
    *,
    least: int = SEARCH.min_window_nodes,
    most: int = SEARCH.max_window_nodes,
    between: bool = False,
) -> list[tuple[N, ...]]:
    """Cut the nodes into consecutive windows of `least` to `most` nodes each, and return the windows.

    The last window of all nodes and the last window of each layer may be shorter.

    Args:
        nodes: the nodes in topological order.
        reads: for each node, the sources that the node reads. A source is another node of the sequence, or a value from
            outside.
        kinds: for each node, the kind of its computation. If a sequence of kinds repeats, each repetition is a layer, and all
            layers are cut at the same places.
        least: the smallest number of nodes of a window.
        most: the largest number of nodes of a window.
        between: whether to shift the windows by about half a window. Each shifted window then reaches from the middle of one
            unshifted window to the middle of the next unshifted window. A shifted window that would have more than `most` nodes
            is cut at the boundary between the two unshifted windows.
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
    """The data for cutting a sequence of nodes into windows.

    Attributes:
        crossing: For each node, the number of values that cross the cut after the node.
        kinds: The kind of each node's computation, as a number.
        least: The smallest number of nodes of a window.
        most: The largest number of nodes of a window.
    """

    crossing: Sequence[int]
    kinds: npt.NDArray[np.int64]
    least: int
    most: int

    def ends(self, start: int, end: int) -> list[int]:
        """Cut the nodes from `start` to `end` into windows of consecutive nodes, and return the ends of the windows.

        All layers (repetitions of the same kinds of nodes) are cut at the same offsets, where the fewest values cross. The
        nodes around the layers are cut separately.
        """
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
        """Return the start, the end and the period of a sequence of equal layers, or None if no sequence of kinds repeats.

        The period is the number of nodes of a layer. The sequence that covers the most nodes is chosen. If several sequences
        cover equally many nodes, the shortest period is chosen.
        """
        here, found, most = self.kinds[start:end], None, 0
        for period in range(self.least, min(SEARCH.max_layer_nodes, len(here) // 2) + 1):
            breaks = np.flatnonzero(np.concatenate(([True], here[period:] != here[:-period], [True])))
            runs = np.diff(breaks) - 1
            longest = int(np.argmax(runs))
            run = int(runs[longest])
            if run >= period and run + period > most:
                first, most = start + int(breaks[longest]), run + period
                found = first, first + most, period
        return found

    def _cuts(self, start: int, end: int) -> list[int]:
        """Cut the nodes from `start` to `end` into windows, from left to right, and return the ends of the windows.

        If fewer than `least` nodes remain after a window, the remaining nodes are added to the window, unless the longer window
        would exceed `most` nodes.
        """
        ends: list[int] = []
        while start < end:
            stop = _cut(self.crossing, start, self.least, self.most, end)
            start = end if end - stop < self.least and end - start <= self.most else stop
            ends.append(start)
        return ends


def _between(crossing: Sequence[int], ends: Sequence[int], most: int) -> list[int]:
    """Return the ends of new windows. Each new window begins and ends in the middle of a given window.

    `ends` contains the ends of the given windows. A new window that would be too long is cut at the end of a given window.
    """
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
    """Return, for each position, the number of values that cross the position.

    The result of a node crosses every position between the node and the last use of the result. A value from outside crosses
    every position between its first use and its last use. Values from outside are counted, so that the first of several
    repeated blocks is cut like the later blocks.
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
    """Return the end of the window that begins at `start`.

    The window has at least `least` nodes, if enough nodes are left, and at most `most` nodes. The window ends at the first
    position that at most one value crosses. If there is no such position, the window ends where the fewest values cross.
    """
    if end - start <= least:
        return end
    choices = range(start + least, min(start + most, end) + 1)
    for stop in choices:
        if stop == end or crossing[stop - 1] <= 1:
            return stop
    return min(choices, key=lambda stop: (crossing[stop - 1], -stop))
