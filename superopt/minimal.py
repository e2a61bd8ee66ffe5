"""The minimal core: no equality in it follows from the rest of it, and from what composites are, by equality saturation."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from superopt import store
from superopt.discovery import Equality
from superopt.execute import Tasks, digest_of
from superopt.find.definitions import definitions
from superopt.prove.derive import Laws, derivable
from superopt.prove.derive_audit import opinion
from superopt.prove.derive_chain import Chain
from superopt.rule import Rule, digest

BATCH = 32

Support: TypeAlias = "frozenset[str] | None"
Search: TypeAlias = "Callable[[Sequence[Rule], Sequence[int], Collection[int]], tuple[tuple[Support, ...], float]]"


def minimal(equalities: Sequence[Equality], tasks: Tasks, version: str) -> tuple[list[Equality], float]:
    """The equalities, those of the core that the rest derives demoted to the search; and the processor seconds of the tasks.

    Only what is stored, as a rule in one direction at least, may derive anything. The fewer laws there are, the further a
    search comes within its limits, so what is left is gone through again until nothing leaves it. Of what is left then, that
    is searched with wide limits which egglog derives at numbers. `version` says what results rest on.
    """
    stored = [i for i, e in enumerate(equalities) if e.part == store.CORE and e.rules]
    fixed = list(definitions().values())
    seconds = 0.0

    def left(core: Sequence[int], search: Search) -> list[int]:
        nonlocal seconds
        laws = [*fixed, *(replace(equalities[i].rule, name=f"equality-{i}") for i in core)]
        left_out, spent = superfluous(laws, len(fixed), tasks, version, search)
        seconds += spent
        return [i for position, i in enumerate(core, len(fixed)) if position not in left_out]

    core = stored
    while (fewer := left(core, derived)) != core:
        core = fewer
    core = left(core, derived_widely)
    demotions = set(stored) - set(core)
    return [e.demoted() if i in demotions else e for i, e in enumerate(equalities)], seconds


def derived(laws: Sequence[Rule], positions: Sequence[int], without: Collection[int]) -> tuple[tuple[Support, ...], float]:
    """For the law at each position, names of others, none of them at `without`, that derive it, or None; and seconds."""
    return _derived(laws, positions, lambda every, at: derivable(laws[at], every, without={at, *without}))


def derived_widely(
    laws: Sequence[Rule], positions: Sequence[int], without: Collection[int]
) -> tuple[tuple[Support, ...], float]:
    """As `derived`, with wide limits, of what egglog derives at several instances."""
    return _derived(laws, positions, lambda every, at: opinion(every, at, without).chains)


def _derived(
    laws: Sequence[Rule], positions: Sequence[int], search: Callable[[Laws, int], Sequence[Chain] | None]
) -> tuple[tuple[Support, ...], float]:
    started = time.process_time()
    prepared = Laws(laws)
    chains = [search(prepared, position) for position in positions]
    found = [None if c is None else frozenset(name for chain in c for name in chain.rules) for c in chains]
    return tuple(found), time.process_time() - started


def superfluous(
    laws: Sequence[Rule], fixed: int, tasks: Tasks, version: str, search: Search = derived
) -> tuple[list[int], float]:
    """Positions of laws that the rest derives, the latest first, each left out for those before it; and seconds of tasks.

    The first `fixed` laws stay. Names are unique.
    """
    key = digest_of(version, search.__name__, *map(digest, laws))
    for first in range(fixed, len(laws), BATCH):
        positions = range(first, min(first + BATCH, len(laws)))
        tasks.start(str(first), digest_of(key, first), search, laws, positions, ())
    support: dict[int, frozenset[str]] = {}
    seconds = 0.0
    for name, (found, spent) in tasks.results():
        support.update((int(name) + i, names) for i, names in enumerate(found) if names is not None)
        seconds += spent
    left_out: list[int] = []
    for position in sorted(support, reverse=True):
        gone = {laws[p].name for p in left_out}
        if not support[position] & gone or search(laws, [position], left_out)[0][0] is not None:
            left_out.append(position)
    return left_out, seconds
