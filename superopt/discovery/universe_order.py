"""The order in which universes are explored: rules of a universe make candidates with the same operators redundant."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from superopt.discovery.universe import Universe
from superopt.policy import DISCOVERY


def foundations(universes: Sequence[Universe]) -> dict[str, tuple[str, ...]]:
    """Return, for each universe, the names of the earlier universes that it waits for, in the given order.

    Two operators of one universe form a pair, because its terms combine them. A pair is known if an earlier universe has the
    pair too. A universe waits for the fewest earlier universes that have the share `DISCOVERY.covered_pair_share` of its known
    pairs. If several universes have equally many of these pairs, the universe with more pairs in total is chosen. A universe
    also waits for the universes for which those universes wait.
    """
    found: dict[str, tuple[str, ...]] = {}
    meetings = {u.name: _meetings(u) for u in universes}
    for position, universe in enumerate(universes):
        before = [u.name for u in universes[:position]]
        shared = meetings[universe.name] & set[tuple[str, str]]().union(*(meetings[name] for name in before))
        left, chosen = set(shared), dict[str, None]()
        while len(left) > (1 - DISCOVERY.covered_pair_share) * len(shared):
            best = max(before, key=lambda name: (len(meetings[name] & left), len(meetings[name])))
            left -= meetings[best]
            chosen.update(dict.fromkeys((*found[best], best)))
        found[universe.name] = tuple(name for name in before if name in chosen)
    return found


def _meetings(universe: Universe) -> set[tuple[str, str]]:
    operators = sorted({t.op for t in universe.templates} | {c.term.op for c in universe.constants})
    return set(itertools.combinations_with_replacement(operators, 2))
