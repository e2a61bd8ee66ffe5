"""Generate rewrite rules: enumerate terms, find equal terms, prove equations, and store proved equations as rules.

A universe is a vocabulary of variables, constants and operators, and is explored by one or more tasks. All terms of a universe
up to a size are enumerated and grouped by their values. Two terms of equal value suggest an equation. The equation is dropped
if known rules imply the equation. Otherwise, the equation is generalised to all sizes and proved. Each direction that may help
a search becomes a rule. The results of all tasks are merged in the order of the universes. So the order in which tasks finish
does not matter.

Next, a rule is removed from the core (the minimal rule set) if other rules imply this rule. Three kinds of rules are proved
without enumeration: definitions of composite operators, algorithms such as Winograd's, and generalised mutants. (A mutant
equals an operator at some output positions.) Each rule gets the floating-point flags that it needs. Finally, rules are
generated from the traits (properties such as elementwise) and the axioms of each operator. This last step can also be run for a
single operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from superopt.algebra.operators import registry
from superopt.discovery.candidates import Equality, FoundRule, UniverseCounts
from superopt.discovery.definitions import ALGORITHMS
from superopt.discovery.definitions import FAMILY as DEFINITIONS
from superopt.discovery.explore import Findings, exploration_peak_bytes
from superopt.discovery.job import (
    define_all,
    discovery_code_version,
    explore_all,
    explore_operators,
    final_counts,
    flag_all,
    generalise_all,
    merge_findings,
)
from superopt.discovery.join import THREE
from superopt.discovery.minimal import demote_derivable
from superopt.discovery.names import name_rules
from superopt.discovery.universes.elementwise import FAMILY as OPERATORS
from superopt.discovery.universes.families import ABOUT, FAMILIES, UNIVERSES
from superopt.floating_point.witnesses import StoredWitness, read_witnesses, to_store, write_witnesses
from superopt.partial.families import MUTANTS
from superopt.policy import DISCOVERY
from superopt.proof.definitions.arithmetic import z3_solver_version
from superopt.rules import store
from superopt.rules.rule import Rule
from superopt.worker_pool import Finished, Tasks

EVERY = (*FAMILIES, DEFINITIONS, ALGORITHMS, OPERATORS, MUTANTS)


@dataclass(frozen=True)
class Generation:
    """The results of one generation of rules, and the time and memory of the generation.

    Attributes:
        seed: The random seed.
        counts: The counts of terms and rules for each universe (a vocabulary of operators from which terms are built).
        rules: The rules.
        undecided: Equations that were neither proved nor refuted.
        stages: The CPU time of each stage in seconds, over all processes.
        elapsed: The wall-clock time in seconds.
        peak_bytes: The peak memory of the process that used the most memory.
        total_bytes: An upper bound on the memory of all processes together.
        processes: The number of worker processes besides this process.
        resumed: The number of tasks whose results were already stored.

    The rules do not depend on `processes` and `resumed`.
    """

    seed: int
    counts: tuple[UniverseCounts, ...]
    rules: tuple[FoundRule, ...]
    undecided: tuple[tuple[str, str], ...]
    stages: Mapping[str, float]
    elapsed: float
    peak_bytes: int
    total_bytes: int
    processes: int
    resumed: int

    @property
    def core(self) -> int:
        """The number of core rules: rules that the other core rules do not imply."""
        return sum(found.part == store.CORE for found in self.rules)

    @property
    def search(self) -> int:
        """The number of search rules: rules that the core rules imply, and that are stored because they help a search."""
        return len(self.rules) - self.core

    def of(self, family: str) -> tuple[FoundRule, ...]:
        """Return the rules of one family (the rules of one file), in the order in which they are stored."""
        return tuple(found for found in self.rules if found.family == family)


def generate(
    *,
    seed: int = 0,
    families: Sequence[str] = EVERY,
    folder: Path | None = None,
    workers: int = 1,
    scheduler: str = "",
    resume: Path | None = None,
    progress: Callable[[UniverseCounts], None] = lambda _: None,
) -> Generation:
    """Find, prove and store the rules of the families. The same seed always gives the same files.

    A family is a group of universes (vocabularies of operators) whose rules are stored in one file. The families before a
    requested family are also enumerated, because their rules may make rules of the requested family redundant.

    Args:
        seed: The random seed.
        families: The names of the families.
        folder: The folder for the rules, or None for superopt's own folder.
        workers: The number of processes for tasks.
        scheduler: The Dask cluster for tasks, as in `superopt.worker_pool.Tasks`, or an empty text.
        resume: A folder for the results of finished tasks. A result that an earlier run stored there is used again.
        progress: Receives the counts of a universe when the universe is finished.

    Raises:
        StoreError: The folder of rules cannot be written.
        SchedulerError: The tasks cannot run on the scheduler, or their results cannot be stored.
    """
    started = time.perf_counter()
    last = max((FAMILIES.index(family) for family in families if family in FAMILIES), default=-1)
    universes = [u for u in UNIVERSES if FAMILIES.index(u.family) <= last]
    finished = Finished(resume)
    with Tasks(workers=workers, scheduler=scheduler, finished=finished) as tasks:
        found = explore_all(universes, tasks, seed, progress)
        composites = define_all(tasks, seed) if {DEFINITIONS, ALGORITHMS} & set(families) else ()
        mutants = generalise_all(tasks, seed) if MUTANTS in families else ()
        equalities, prune = _pruned(merge_findings(found), tasks)
        stated = (*composites, *mutants)
        rules = [rule for e in equalities for rule in e.rules] + [rule for one in stated for rule in one.definitions]
        rules = [one for one in sort_generated_rules(rules) if one.family in families]
        stored = _with_flags(rules, tasks, seed)
        for family in families:
            if family != OPERATORS:
                _write(family, [one for one in stored if one.family == family], folder)
        every = [findings for parts in (*found.values(), stated) for findings in parts]
        operators = tuple(registry()) if OPERATORS in families else ()
        alone, their_rules, their_prune = _of_operators(operators, tasks, seed, folder, progress)
    _write_refuted((*every, *alone), folder)
    finished.drop_old()
    return _generation(
        seed,
        (*final_counts(found, equalities), *(findings.counts for findings in (*stated, *alone))),
        (*rules, *their_rules),
        (*every, *alone),
        prune + their_prune,
        time.perf_counter() - started,
        tasks,
    )


def generate_operators(
    names: Sequence[str],
    *,
    seed: int = 0,
    folder: Path | None = None,
    workers: int = 1,
    scheduler: str = "",
    resume: Path | None = None,
    progress: Callable[[UniverseCounts], None] = lambda _: None,
) -> Generation:
    """Find, prove and store the rules that follow from the definitions, the traits and the axioms of the named operators.

    The new rules replace the rules that were stored for the same operators. Other stored rules do not change. A rule is not
    stored if other stored rules imply this rule. After an operator is added to specs/, a call of this function finds the
    operator's rules, and a call of `generate` is not necessary. See `generate` for the arguments.

    Raises:
        StoreError: The folder of rules cannot be read or written.
        SchedulerError: The tasks cannot run on the scheduler, or their results cannot be stored.
    """
    started = time.perf_counter()
    finished = Finished(resume)
    with Tasks(workers=workers, scheduler=scheduler, finished=finished) as tasks:
        composites = define_all(tasks, seed, names)
        rules = [rule for findings in composites for rule in findings.definitions]
        stored = _with_flags(rules, tasks, seed)
        for family in (DEFINITIONS, ALGORITHMS):
            _replace(family, names, [one for one in stored if one.family == family], folder)
        alone, their_rules, prune = _of_operators(names, tasks, seed, folder, progress)
    _write_refuted((*composites, *alone), folder)
    finished.drop_old()
    counts = tuple(findings.counts for findings in (*composites, *alone))
    elapsed = time.perf_counter() - started
    return _generation(seed, counts, (*rules, *their_rules), (*composites, *alone), prune, elapsed, tasks)


def sort_generated_rules(rules: Sequence[FoundRule]) -> list[FoundRule]:
    """Sort the rules by family (the rules of one file), and give all rules unique names.

    In a family, the core rules (a minimal set) come before the search rules, which the core rules imply. The names in a family
    do not depend on later families.
    """
    ordered: list[FoundRule] = []
    for family in EVERY:
        found = sorted((f for f in rules if f.family == family), key=lambda f: f.part)
        names = name_rules([f.rule for f in found], [f.rule for f in ordered])
        ordered += [replace(f, rule=rule) for f, rule in zip(found, names, strict=True)]
    return ordered


# ---------------------------------------------------------------- rules of single operators


def _of_operators(
    names: Sequence[str], tasks: Tasks, seed: int, folder: Path | None, progress: Callable[[UniverseCounts], None]
) -> tuple[tuple[Findings, ...], tuple[FoundRule, ...], float]:
    """Find the rules that follow from the traits and axioms of the operators.

    Store the rules that do not follow from other stored rules. Return the results of all tasks, the rules, and the CPU time in
    seconds for removing redundant rules. The rules of one operator do not depend on the other operators in `names`.
    """
    if not names:
        return (), (), 0.0
    others = [family for family in store.families(folder) if family not in (OPERATORS, MUTANTS)]
    stored = [pair for family in others for pair in store.read_family(family, folder)]
    known = [rule for rule, entry in stored if store.ledger_objection(rule, entry) is None]
    findings = explore_operators(names, known, tasks, seed, progress)
    pruned = [_pruned(one.equalities, tasks) for one in findings]
    rules = tuple(rule for equalities, _ in pruned for e in equalities for rule in e.rules)
    _replace(OPERATORS, names, _with_flags(rules, tasks, seed), folder)
    return findings, rules, sum(seconds for _, seconds in pruned)


def _replace(family: str, names: Sequence[str], new: Sequence[_StoredRule], folder: Path | None) -> None:
    """In a family's file, replace the rules of the operators in `names` by the rules `new`."""
    families, witnesses = store.families(folder), read_witnesses(family, folder)
    old = [
        _StoredRule(family, rule, entry, tuple(w for w in witnesses if w.rule == rule.name))
        for rule, entry in (store.read_family(family, folder) if family in families else ())
        if entry is not None and _operator_of(entry.origin) not in names
    ]
    ordered = sorted((*old, *new), key=lambda one: (one.entry.part != store.CORE, _operator_of(one.entry.origin)))
    earlier = [f for f in EVERY[: EVERY.index(family)] if f in families]
    before = [rule for other in earlier for rule, _ in store.read_family(other, folder)]
    renamed = name_rules([one.rule for one in ordered], before)
    _write(family, [one.renamed(rule) for one, rule in zip(ordered, renamed, strict=True)], folder)


def _operator_of(origin: str) -> str:
    """Return the name of the operator for which a rule was found. The origin "axiom softsign.slice" gives "softsign"."""
    return origin.partition(THREE)[0].rpartition(" ")[2].partition(".")[0]


# ---------------------------------------------------------------- the store


@dataclass(frozen=True)
class _StoredRule:
    """A rule of a family, the record of its proof (`entry`), and inputs that show that the rule needs a floating-point flag."""

    family: str
    rule: Rule
    entry: store.LedgerEntry
    witnesses: tuple[StoredWitness, ...]

    def renamed(self, rule: Rule) -> _StoredRule:
        """Return a copy of this stored rule in which the rule, the ledger entry and the witnesses have the name of `rule`.

        `rule` must differ from this stored rule only in its name.
        """
        witnesses = tuple(replace(w, rule=rule.name) for w in self.witnesses)
        return replace(self, rule=rule, entry=replace(self.entry, name=rule.name), witnesses=witnesses)


def _with_flags(rules: Sequence[FoundRule], tasks: Tasks, seed: int) -> list[_StoredRule]:
    """Determine the floating-point flags (like fast-math flags) that each rule needs, and return the rules to store."""
    stored: list[_StoredRule] = []
    for found, flagged in zip(rules, flag_all([one.rule for one in rules], tasks, seed), strict=True):
        entry = store.entry_of(
            found.rule,
            found.proof,
            solver=z3_solver_version(),
            origin=found.origin,
            samples=DISCOVERY.proof_sample_count,
            part=found.part,
        )
        entry = replace(entry, flags=flagged.names, flags_basis=flagged.basis)
        stored.append(_StoredRule(found.family, found.rule, entry, tuple(to_store(found.rule, w) for w in flagged.witnesses)))
    return stored


def _write(family: str, rules: Sequence[_StoredRule], folder: Path | None) -> None:
    store.write_family(family, ABOUT[family], [(one.rule, one.entry) for one in rules], folder)
    write_witnesses(family, [w for one in rules for w in one.witnesses], folder)


def _write_refuted(findings: Sequence[Findings], folder: Path | None) -> None:
    store.write_refuted([*store.load_refuted(folder).values(), *(r for one in findings for r in one.rejected)], folder)


def _pruned(equalities: Sequence[Equality], tasks: Tasks) -> tuple[list[Equality], float]:
    """If other equalities imply a core rule, move this rule to the search rules. (Core rules are a minimal set.)

    Return all equalities, and the total CPU time of all processes in seconds.
    """
    started = time.process_time()
    found, elsewhere = demote_derivable(equalities, tasks, discovery_code_version())
    return found, time.process_time() - started + (elsewhere if tasks.processes else 0.0)


def _generation(
    seed: int,
    counts: tuple[UniverseCounts, ...],
    rules: tuple[FoundRule, ...],
    findings: Sequence[Findings],
    prune: float,
    elapsed: float,
    tasks: Tasks,
) -> Generation:
    peaks = [exploration_peak_bytes(), *(c.peak_bytes for c in counts)]
    spent = {stage: sum(getattr(c, stage) for c in counts) for stage in ("enumerate", "dedupe", "verify")}
    return Generation(
        seed=seed,
        counts=counts,
        rules=rules,
        undecided=tuple(u for one in findings for u in one.undecided),
        stages={**spent, "prune": prune},
        elapsed=elapsed,
        peak_bytes=max(peaks),
        total_bytes=peaks[0] + sum(sorted(peaks[1:], reverse=True)[: tasks.processes]),
        processes=tasks.processes,
        resumed=tasks.finished.found,
    )
