"""The order in which universes (vocabularies of operators and variables) are explored.

Rules from an earlier universe can make equalities in a later universe redundant if the universes share operators.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from superopt.discovery.universe import Universe
from superopt.policy import DISCOVERY


def foundations(universes: Sequence[Universe]) -> dict[str, tuple[str, ...]]:
    """Return a mapping from each universe's name to the names of the earlier universes that have to be explored first.

    A universe is a vocabulary of operators and variables. Any two operators of a universe form a pair, and each operator forms
    a pair with itself. A pair is shared if an earlier universe contains the pair. Earlier universes are chosen greedily, until
    the chosen universes together contain most of the universe's shared pairs. The required fraction is
    `DISCOVERY.covered_pair_share`. Each step chooses the universe that adds the most shared pairs. Ties are broken in favour of
    the universe with more pairs in total. All universes that a chosen universe needs are chosen too. The names are in the order
    of `universes`.
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
