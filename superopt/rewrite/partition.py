"""Cutting a long island into windows that are searched one by one.

Nodes are given in topological order. A window is a run of consecutive nodes, so windows depend on each other in one direction
only; cuts are made where few values cross, at a single value where the graph allows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

N = TypeVar("N")


def windows(
    nodes: Sequence[N], reads: Mapping[N, Sequence[Hashable]], *, least: int = 8, most: int = 32, between: bool = False
) -> list[tuple[N, ...]]:
    """Consecutive windows of `least` to `most` nodes (the last may be shorter), covering all nodes.

    `reads` lists, for each node, the nodes of the sequence whose results it uses, and values from elsewhere. With `between`,
    windows go from the middle of one of those to the middle of the next, as far as `most` allows: what was a seam lies inside.
    """
    crossing = _crossings(nodes, reads)
    ends: list[int] = []
    while not ends or ends[-1] < len(nodes):
        start = ends[-1] if ends else 0
        ends.append(_cut(crossing, start, min(least, most), most, len(nodes)))
    if between:
        ends = _between(crossing, ends, most)
    return [tuple(nodes[start:end]) for start, end in itertools.pairwise([0, *ends]) if start < end]


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
