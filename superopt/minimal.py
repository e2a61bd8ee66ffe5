"""The minimal core: no equality in it follows from the rest of it, and from what composites are, by equality saturation."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from superopt import store
from superopt.discovery import Equality
from superopt.execute import Tasks, digest_of
from superopt.find.definitions import definitions
from superopt.prove.derive import Laws, derivable
from superopt.rule import Rule, digest

BATCH = 32

Support = frozenset[str] | None


def minimal(equalities: Sequence[Equality], tasks: Tasks, version: str) -> tuple[list[Equality], float]:
    """The equalities, those of the core that the rest derives demoted to the search; and the processor seconds of the tasks.

    Only what is stored, as a rule in one direction at least, may derive anything. The fewer laws there are, the further a
    search comes within its limits, so what is left is gone through again until nothing leaves it. `version` says what results
    rest on.
    """
    stored = [i for i, e in enumerate(equalities) if e.part == store.CORE and e.rules]
    fixed = list(definitions().values())
    core, seconds = stored, 0.0
    while True:
        laws = [*fixed, *(replace(equalities[i].rule, name=f"equality-{i}") for i in core)]
        left_out, spent = superfluous(laws, len(fixed), tasks, version)
        seconds += spent
        if not left_out:
            break
        core = [i for position, i in enumerate(core, len(fixed)) if position not in left_out]
    demotions = set(stored) - set(core)
    return [e.demoted() if i in demotions else e for i, e in enumerate(equalities)], seconds


def superfluous(laws: Sequence[Rule], fixed: int, tasks: Tasks, version: str) -> tuple[list[int], float]:
    """Positions of laws that the rest derives, the latest first, each left out for those before it; and seconds of tasks.

    The first `fixed` laws stay. Names are unique.
    """
    key = digest_of(version, *map(digest, laws))
    for first in range(fixed, len(laws), BATCH):
        positions = range(first, min(first + BATCH, len(laws)))
        tasks.start(str(first), digest_of(key, first), derived, laws, positions, ())
    support: dict[int, frozenset[str]] = {}
    seconds = 0.0
    for name, (found, spent) in tasks.results():
        support.update((int(name) + i, names) for i, names in enumerate(found) if names is not None)
        seconds += spent
    left_out: list[int] = []
    for position in sorted(support, reverse=True):
        gone = {laws[p].name for p in left_out}
        if not support[position] & gone or derived(laws, [position], left_out)[0][0] is not None:
            left_out.append(position)
    return left_out, seconds


def derived(laws: Sequence[Rule], positions: Sequence[int], without: Collection[int]) -> tuple[tuple[Support, ...], float]:
    """For the law at each position, names of others, none of them at `without`, that derive it, or None; and seconds."""
    started = time.process_time()
    prepared = Laws(laws)
    found: list[Support] = []
    for position in positions:
        chains = derivable(laws[position], prepared, without={position, *without})
        found.append(None if chains is None else frozenset(name for chain in chains for name in chain.rules))
    return tuple(found), time.process_time() - started
