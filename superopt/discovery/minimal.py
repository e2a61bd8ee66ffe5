"""Make the core rules minimal: an equality that follows from other core equalities leaves the core.

Equality saturation searches for a derivation of each core equality from the remaining core equalities. A derivation may also
use the definitions of composite operators (operators that are defined as terms of smaller operators).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from superopt.discovery.candidates import Equality
from superopt.discovery.definitions import composite_definitions
from superopt.policy import DISCOVERY
from superopt.proof.derivation.derive import Laws, Scope, derive_rule
from superopt.rules import store
from superopt.rules.rule import Rule, digest
from superopt.worker_pool import Tasks, task_key

Support: TypeAlias = "frozenset[str] | None"
"""The names of the laws from which a law was derived, or None if no derivation was found."""


def demote_derivable(equalities: Sequence[Equality], tasks: Tasks, version: str) -> tuple[list[Equality], float]:
    """Move a core equality to the search rules (SEARCH) if the rest of the core implies the equality.

    A law is a core equality that is stored as a rule in at least one direction. A derivation may use only laws and the
    definitions of composite operators. A core equality that is not a law always stays in the core. With fewer laws, a search
    for a derivation can take more steps within its limits. The searches are therefore repeated until no law leaves the core.
    The search for a derivation of a law is skipped if the usable laws are the same as in the previous round. `version`
    identifies the code on which the results depend.

    Returns:
        All equalities, and the CPU time of the tasks in seconds.
    """
    stored = [i for i, e in enumerate(equalities) if e.part == store.CORE and e.rules]
    definitions = tuple(composite_definitions().values())
    seconds = 0.0
    scopes: dict[int, Scope] = {}
    core: list[int] = []
    fewer = stored
    while fewer != core:
        core = fewer
        laws = Laws([*definitions, *(replace(equalities[i].rule, name=f"equality-{i}") for i in core)])
        scope = {i: laws.scope(position) for position, i in enumerate(core, len(definitions))}
        asked = [position for position, i in enumerate(core, len(definitions)) if scope[i] != scopes.get(i)]
        scopes |= scope
        gone, spent = find_redundant_generated_laws(laws.rules, asked, tasks, version)
        seconds += spent
        fewer = [i for position, i in enumerate(core, len(definitions)) if position not in gone]
    demotions = set(stored) - set(core)
    return [e.demoted() if i in demotions else e for i, e in enumerate(equalities)], seconds


def derive_generated_laws(
    laws: Sequence[Rule], positions: Sequence[int], without: Collection[int]
) -> tuple[tuple[Support, ...], float]:
    """For each position in `positions`, search for a derivation of the law at this position from the other laws.

    Laws at positions in `without` are not used.

    Returns:
        A tuple with an entry for each position, and the CPU time in seconds. An entry contains the names of the laws that the
        derivation uses, or is None if no derivation was found.
    """
    started = time.process_time()
    prepared = Laws(laws)
    found: list[Support] = []
    for position in positions:
        chains = derive_rule(laws[position], prepared, without={position, *without})
        found.append(None if chains is None else frozenset(name for chain in chains for name in chain.rules))
    return tuple(found), time.process_time() - started


def find_redundant_generated_laws(
    laws: Sequence[Rule], asked: Sequence[int], tasks: Tasks, version: str
) -> tuple[list[int], float]:
    """Find laws that follow from the other laws. The names of the laws must be unique.

    The laws at the positions in `asked` are tried from the last to the first. A law that was found redundant is not used to
    derive laws at earlier positions.

    Returns:
        The positions of the redundant laws, and the CPU time in seconds.
    """
    key = task_key(version, *map(digest, laws))
    size = max(1, min(DISCOVERY.max_laws_per_task, len(asked) // DISCOVERY.min_law_tasks))
    batches = [asked[first : first + size] for first in range(0, len(asked), size)]
    for number, positions in enumerate(batches):
        tasks.start(str(number), task_key(key, *positions), derive_generated_laws, laws, positions, ())
    supports: dict[int, Support] = {}
    seconds = 0.0
    for name, (found, spent) in tasks.results(tuple):
        supports.update(zip(batches[int(name)], found, strict=True))
        seconds += spent
    gone: list[int] = []
    for position in sorted(supports, reverse=True):
        names = {laws[p].name for p in gone}
        support = supports[position]
        if support is not None and support & names:
            ((support,), _) = derive_generated_laws(laws, [position], gone)
        if support is not None:
            gone.append(position)
    return gone, seconds
