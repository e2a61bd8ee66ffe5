"""Which universes are explored before which: what one finds makes another's candidates redundant where operators are shared."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from superopt.find.universe import Universe

COVERED = 0.75
"""The share of the pairs of operators that are news to no universe after it, for which a universe waits."""


def foundations(universes: Sequence[Universe]) -> dict[str, tuple[str, ...]]:
    """The names of the universes that each one builds on, in the order given: those before it that meet most of what it meets.

    Two operators of one universe meet in its terms. Of the pairs that meet in any universe before it, a universe waits for as
    few universes as meet `COVERED` of them, those of more pairs first where they meet as many, and for what those wait for.
    """
    found: dict[str, tuple[str, ...]] = {}
    meetings = {u.name: _meetings(u) for u in universes}
    for position, universe in enumerate(universes):
        before = [u.name for u in universes[:position]]
        shared = meetings[universe.name] & set[tuple[str, str]]().union(*(meetings[name] for name in before))
        left, chosen = set(shared), dict[str, None]()
        while len(left) > (1 - COVERED) * len(shared):
            best = max(before, key=lambda name: (len(meetings[name] & left), len(meetings[name])))
            left -= meetings[best]
            chosen.update(dict.fromkeys((*found[best], best)))
        found[universe.name] = tuple(name for name in before if name in chosen)
    return found


def _meetings(universe: Universe) -> set[tuple[str, str]]:
    operators = sorted({t.op for t in universe.templates} | {c.term.op for c in universe.constants})
    return set(itertools.combinations_with_replacement(operators, 2))
