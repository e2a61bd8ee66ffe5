"""Generation of rules: enumerate, deduplicate, verify, prune, flag and store.

Every universe is a task. Its terms are enumerated and grouped by value. An equality that two terms of one value suggest is
dropped if known rules imply it, and otherwise generalised, proved, and kept in the directions that serve a search. The results
of all tasks are merged in the order of the universes, whichever worker ran them and whenever they finished. Rules that the
other rules derive leave the core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from superopt.discovery.candidates import SAMPLES, FoundRule, UniverseCounts
from superopt.discovery.definitions import ALGORITHMS
from superopt.discovery.definitions import FAMILY as DEFINITIONS
from superopt.discovery.explore import peak_bytes
from superopt.discovery.job import code_version, define_all, explore_all, flag_all, merged, tallied
from superopt.discovery.minimal import minimal
from superopt.discovery.names import named
from superopt.discovery.universes.families import ABOUT, FAMILIES, UNIVERSES
from superopt.floating_point.flags import Flagged
from superopt.floating_point.witnesses import to_store, write_witnesses
from superopt.proof.definitions.arithmetic import version
from superopt.rules import store
from superopt.worker_pool import Finished, Tasks

EVERY = (*FAMILIES, DEFINITIONS, ALGORITHMS)


@dataclass(frozen=True)
class Generation:
    """The results of a run, universe by universe, and their cost.

    Attributes:
        stages: The processor seconds of each stage, over all processes.
        elapsed: The wall-clock seconds.
        peak_bytes: The largest memory of one process.
        total_bytes: An upper bound on the memory of all processes together.
        processes: The number of processes besides the first.
        resumed: The number of tasks whose results were already stored.

    The results do not depend on `processes` and `resumed`.
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
        """The number of rules in the minimal core."""
        return sum(found.part == store.CORE for found in self.rules)

    @property
    def search(self) -> int:
        """The number of rules derived for the search."""
        return len(self.rules) - self.core

    def of(self, family: str) -> tuple[FoundRule, ...]:
        """Return the rules of one family, in the order in which they are stored."""
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
    """Find, prove and store the rules of the families; the same seed gives the same files, wherever the tasks run.

    Families that come before a requested family are enumerated too, because their rules make others redundant. Tasks run as
    `Tasks` describes. Results of finished tasks are kept in `resume`, and read from there if an earlier run left them.

    Raises:
        StoreError: The store cannot be written.
        SchedulerError: The tasks cannot run on the scheduler, or their results cannot be stored.
    """
    started = time.perf_counter()
    last = max((FAMILIES.index(family) for family in families if family in FAMILIES), default=-1)
    universes = [u for u in UNIVERSES if FAMILIES.index(u.family) <= last]
    finished = Finished(resume)
    with Tasks(workers=workers, scheduler=scheduler, finished=finished) as tasks:
        found = explore_all(universes, tasks, seed, progress)
        composites = define_all(tasks, seed) if {DEFINITIONS, ALGORITHMS} & set(families) else ()
        pruning = time.process_time()
        equalities, elsewhere = minimal(merged(found), tasks, code_version())
        prune = time.process_time() - pruning + (elsewhere if tasks.processes else 0.0)
        rules = [rule for e in equalities for rule in e.rules] + [
            rule for findings in composites for rule in findings.definitions
        ]
        rules = [found for found in in_order(rules) if found.family in families]
        flags = flag_all([found.rule for found in rules], tasks, seed)
        processes = tasks.processes
    storing = time.process_time()
    for family in families:
        own = [(found, flagged) for found, flagged in zip(rules, flags, strict=True) if found.family == family]
        store.write_family(family, ABOUT[family], [(found.rule, _entry(found, flagged)) for found, flagged in own], folder)
        write_witnesses(family, [to_store(found.rule, w) for found, flagged in own for w in flagged.witnesses], folder)
    every = [findings for parts in (*found.values(), composites) for findings in parts]
    rejected = [r for findings in every for r in findings.rejected]
    store.write_refuted([*store.load_refuted(folder).values(), *rejected], folder)
    finished.drop_old()
    counts = (*tallied(found, equalities), *(findings.counts for findings in composites))
    peaks = [peak_bytes(), *(c.peak_bytes for c in counts)]
    spent = {stage: sum(getattr(c, stage) for c in counts) for stage in ("enumerate", "dedupe", "verify")}
    return Generation(
        seed=seed,
        counts=counts,
        rules=tuple(rules),
        undecided=tuple(u for findings in every for u in findings.undecided),
        stages={**spent, "prune": prune, "store": time.process_time() - storing},
        elapsed=time.perf_counter() - started,
        peak_bytes=max(peaks),
        total_bytes=peaks[0] + sum(sorted(peaks[1:], reverse=True)[:processes]),
        processes=processes,
        resumed=finished.found,
    )


def in_order(rules: Sequence[FoundRule]) -> list[FoundRule]:
    """Return the rules family by family, the core of each first, with unique names.

    A family's names do not depend on the families that come after it.
    """
    ordered: list[FoundRule] = []
    for family in EVERY:
        found = sorted((f for f in rules if f.family == family), key=lambda f: f.part)
        names = named([f.rule for f in found], [f.rule for f in ordered])
        ordered += [replace(f, rule=rule) for f, rule in zip(found, names, strict=True)]
    return ordered


def _entry(found: FoundRule, flagged: Flagged) -> store.LedgerEntry:
    entry = store.entry_of(found.rule, found.proof, solver=version(), origin=found.origin, samples=SAMPLES, part=found.part)
    return replace(entry, flags=flagged.names, flags_basis=flagged.basis)
