"""Cutting a long island into windows that are searched one by one.

Nodes are given in topological order. A window is a run of consecutive nodes, so windows depend on each other in one direction
only; cuts are made where few values cross, at a single value where the graph allows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

N = TypeVar("N")


def windows(
    nodes: Sequence[N], reads: Mapping[N, Sequence[N]], *, least: int = 8, most: int = 32, offset: int = 0
) -> list[tuple[N, ...]]:
    """Consecutive windows of `least` to `most` nodes (the first may be shorter, the last may be), covering all nodes.

    `reads` lists, for each node, the nodes of the sequence whose results it uses. `offset` shifts the first cut, so that
    seams of one pass lie inside the windows of the next.
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


def _crossings(nodes: Sequence[N], reads: Mapping[N, Sequence[N]]) -> list[int]:
    """For each position, how many results of nodes up to it are used by nodes after it."""
    position = {node: i for i, node in enumerate(nodes)}
    last_use = list(range(len(nodes)))
    for node in nodes:
        for source in reads.get(node, ()):
            last_use[position[source]] = max(last_use[position[source]], position[node])
    change = [0] * (len(nodes) + 1)
    for i, last in enumerate(last_use):
        if last > i:
            change[i] += 1
            change[last] -= 1
    live = 0
    counts: list[int] = []
    for i in range(len(nodes)):
        live += change[i]
        counts.append(live)
    return counts


def _cut(crossing: Sequence[int], start: int, least: int, most: int, end: int) -> int:
    """The end of the window that begins at `start`: the first single-value cut past `least`, else the narrowest."""
    if end - start <= least:
        return end
    choices = range(start + least, min(start + most, end) + 1)
    for stop in choices:
        if stop == end or crossing[stop - 1] <= 1:
            return stop
    return min(choices, key=lambda stop: (crossing[stop - 1], -stop))
