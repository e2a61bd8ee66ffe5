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
    nodes: Sequence[N], reads: Mapping[N, Sequence[Hashable]], *, least: int = 8, most: int = 32, offset: int = 0
) -> list[tuple[N, ...]]:
    """Consecutive windows of `least` to `most` nodes (the first may be shorter, the last may be), covering all nodes.

    `reads` lists, for each node, the nodes of the sequence whose results it uses, and values from elsewhere. `offset` shifts
    the first cut, so that seams of one pass lie inside the windows of the next.
    """
    crossing = _crossings(nodes, reads)
    cuts: list[tuple[N, ...]] = []
    start = 0
    wanted = offset or least
    while start < len(nodes):
        end = _cut(crossing, start, min(wanted, most), most, len(nodes))
        cuts.append(tuple(nodes[start:end]))
        start, wanted = end, least
    return cuts


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
