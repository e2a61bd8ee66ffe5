"""Make the core of the rules minimal: move equalities that follow from other equalities of the core out of the core.

Equality saturation decides whether an equality follows. A derivation may also use the definitions of composite operators.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from superopt.discovery.candidates import Equality
from superopt.discovery.definitions import composite_definitions
from superopt.policy import DISCOVERY
from superopt.proof.derivation.audit import Opinion, opinion
from superopt.proof.derivation.chain import Chain
from superopt.proof.derivation.core import distinct_rules_to_derive
from superopt.proof.derivation.derive import Laws, Scope, derive_rule
from superopt.proof.derivation.egglog_engine import Outcome
from superopt.rules import store
from superopt.rules.rule import Rule, digest
from superopt.worker_pool import Tasks, task_key


@dataclass(frozen=True)
class Derivability:
    """The result of one search for a derivation of a law (an equality) from other laws.

    Attributes:
        support: the names of the laws that the derivation uses, or None if no derivation was found.
        outcome: the answer of egglog (an equality saturation engine), or None if egglog was not asked.
    """

    support: frozenset[str] | None
    outcome: Outcome | None = None


Owners: TypeAlias = "list[tuple[int | None, Rule]]"
"""Rules that a derivation may use, each with the position of its equality, or None for the definition of an operator."""
Reading: TypeAlias = "Callable[[Sequence[Equality], Sequence[int]], Owners]"
Search: TypeAlias = "Callable[[Sequence[Rule], Sequence[int], Collection[int]], tuple[tuple[Derivability, ...], float]]"


def demote_derivable(equalities: Sequence[Equality], tasks: Tasks, version: str) -> tuple[list[Equality], float]:
    """Move core equalities that follow from the rest of the core to the search rules (SEARCH).

    A law is a core equality of which at least one direction is stored as a rule. Only laws are used in derivations, and only
    laws can leave the core. With fewer laws, a search for a derivation gets further within its limits. So the searches are
    repeated until no law leaves the core. Three searches are tried in this order: `derive_generated_laws`,
    `derive_generated_laws_widely` and `derive_generated_laws_from_subsets`. A search is not repeated for a law if the other
    laws are the same as before. `version` identifies the code on which results depend.

    Returns:
        All equalities, and the processor seconds of the tasks.
    """
    stored = [i for i, e in enumerate(equalities) if e.part == store.CORE and e.rules]
    seconds = 0.0
    scopes: dict[Search, dict[int, Scope]] = {
        search: {} for search in (derive_generated_laws, derive_generated_laws_widely, derive_generated_laws_from_subsets)
    }
    said: dict[int, Outcome] = {}

    def left(core: Sequence[int], read: Reading, search: Search, wanted: Callable[[int], bool]) -> list[int]:
        nonlocal seconds
        owners = read(equalities, core)
        laws = Laws([rule if i is None else replace(rule, name=f"equality-{i}") for i, rule in owners])
        position = {i: p for p, (i, _) in enumerate(owners) if i is not None and wanted(i)}
        scope = {i: laws.scope(p) for i, p in position.items()}
        asked = {p: i for i, p in position.items() if scope[i] != scopes[search].get(i)}
        scopes[search] |= scope
        gone, verdicts, spent = find_redundant_generated_laws(laws.rules, [*asked], tasks, version, search)
        seconds += spent
        said.update((asked[p], verdict.outcome) for p, verdict in verdicts.items() if verdict.outcome is not None)
        return [i for i in core if position.get(i) not in gone]

    core: list[int] = []
    fewer = stored
    while fewer != core:
        core = fewer
        fewer = left(core, with_definitions, derive_generated_laws, lambda _: True)
        if fewer == core:  # if saturation does not join the sides, fewer laws do not join them either
            fewer = left(core, stored_core, derive_generated_laws_widely, lambda i: said.get(i) is not Outcome.APART)
        if fewer == core:
            fewer = left(core, stored_core, derive_generated_laws_from_subsets, lambda i: said.get(i) is Outcome.JOINED)
    demotions = set(stored) - set(core)
    return [e.demoted() if i in demotions else e for i, e in enumerate(equalities)], seconds


def with_definitions(equalities: Sequence[Equality], core: Sequence[int]) -> Owners:
    """Return the definitions of composite operators, then the equalities at the positions in `core`, as rules.

    A composite operator is defined as a term of smaller operators. Each rule has the position of its equality, or None for a
    definition.
    """
    return [*((None, rule) for rule in composite_definitions().values()), *((i, equalities[i].rule) for i in core)]


def stored_core(equalities: Sequence[Equality], core: Sequence[int]) -> Owners:
    """Return the stored rules of the equalities at the positions in `core`, each with the position of its equality.

    The rules are sorted by rule family. If several rules state one equality, only one of them is returned.
    """
    stored = ((found, i) for i in core for found in equalities[i].rules)
    owner = {found.rule: i for found, i in sorted(stored, key=lambda one: one[0].family)}
    return [(owner[rule], rule) for rule in distinct_rules_to_derive(owner)]


def derive_generated_laws(
    laws: Sequence[Rule], positions: Sequence[int], without: Collection[int]
) -> tuple[tuple[Derivability, ...], float]:
    """Search for a derivation of the law at each of the `positions` from the other laws, within narrow limits.

    Laws at positions in `without` are not used. Returns the result for each of the `positions`, and the processor seconds.
    """

    def search(every: Laws, at: int) -> Derivability:
        return Derivability(_names(derive_rule(laws[at], every, without={at, *without})))

    return _searched(laws, positions, search)


def derive_generated_laws_widely(
    laws: Sequence[Rule], positions: Sequence[int], without: Collection[int]
) -> tuple[tuple[Derivability, ...], float]:
    """Search for derivations as `derive_generated_laws` does, but within wide limits.

    A law is skipped if egglog (an equality saturation engine) cannot derive an instance of the law at numeric sizes.
    """
    return _searched(laws, positions, lambda every, at: _verdict(opinion(every, at, without, orders=1)))


def derive_generated_laws_from_subsets(
    laws: Sequence[Rule], positions: Sequence[int], without: Collection[int]
) -> tuple[tuple[Derivability, ...], float]:
    """Search for derivations as `derive_generated_laws_widely` does.

    If this fails, try other small sets of laws, and finally all laws.
    """
    return _searched(laws, positions, lambda every, at: _verdict(opinion(every, at, without)))


def _verdict(said: Opinion) -> Derivability:
    return Derivability(_names(said.chains), said.outcome)


def _names(chains: Sequence[Chain] | None) -> frozenset[str] | None:
    return None if chains is None else frozenset(name for chain in chains for name in chain.rules)


def _searched(
    laws: Sequence[Rule], positions: Sequence[int], search: Callable[[Laws, int], Derivability]
) -> tuple[tuple[Derivability, ...], float]:
    started = time.process_time()
    prepared = Laws(laws)
    return tuple(search(prepared, position) for position in positions), time.process_time() - started


def find_redundant_generated_laws(
    laws: Sequence[Rule], asked: Sequence[int], tasks: Tasks, version: str, search: Search
) -> tuple[list[int], dict[int, Derivability], float]:
    """Find laws that follow from the other laws. The names of the laws must be unique.

    The laws at the positions in `asked` are tried from the last to the first. A law that was found redundant is not used to
    derive laws at earlier positions.

    Returns:
        The positions of redundant laws, the result of `search` for each position in `asked`, and the processor seconds.
    """
    key = task_key(version, search.__name__, *map(digest, laws))
    size = max(1, min(DISCOVERY.max_laws_per_task, len(asked) // DISCOVERY.min_law_tasks))
    batches = [asked[first : first + size] for first in range(0, len(asked), size)]
    for number, positions in enumerate(batches):
        tasks.start(str(number), task_key(key, *positions), search, laws, positions, ())
    found: dict[int, Derivability] = {}
    seconds = 0.0
    for name, (verdicts, spent) in tasks.results(tuple):
        found.update(zip(batches[int(name)], verdicts, strict=True))
        seconds += spent
    gone: list[int] = []
    for position in sorted(found, reverse=True):
        names = {laws[p].name for p in gone}
        support = found[position].support
        if support is not None and support & names:
            support = search(laws, [position], gone)[0][0].support
        if support is not None:
            gone.append(position)
    return gone, found, seconds
