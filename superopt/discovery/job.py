"""Explore many universes in tasks, and combine the results of the tasks. A task may wait for earlier tasks. The results of all
tasks are cached.

A universe is a vocabulary of operators and variables, from which terms are enumerated.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

from superopt.algebra.operators import registry
from superopt.algebra.terms import Term
from superopt.discovery.candidates import DiscoveryInput, Equality, UniverseCounts
from superopt.discovery.definitions import algorithm_axioms, composite_definitions
from superopt.discovery.explore import (
    Findings,
    Slice,
    examine_slice,
    explore_mutants,
    explore_operator,
    explore_universe,
    prove_definition,
)
from superopt.discovery.join import THREE
from superopt.discovery.prune import KeptEqualities
from superopt.discovery.universe import Universe
from superopt.discovery.universe_order import foundations
from superopt.floating_point.flags import RuleFlags, flags_of
from superopt.partial.families import MUTANTS, PROGRAMS
from superopt.proof.definitions.arithmetic import z3_solver_version
from superopt.rules import store
from superopt.rules.rule import Rule, digest
from superopt.worker_pool import Tasks, task_key

APART = frozenset({"cli", "flows", "model", "protobuf", "report", "runtime", "search"})
"""The packages of superopt that no task uses."""


def explore_all(
    universes: Sequence[Universe], tasks: Tasks, seed: int, progress: Callable[[UniverseCounts], None]
) -> dict[str, tuple[Findings, ...]]:
    """Enumerate the terms of all universes and decide which terms are equal.

    Returns a mapping from the name of each universe to the findings of its tasks.

    A universe is a vocabulary of operators and variables. A candidate is a pair of terms that may be equal. The first task of a
    universe enumerates the terms and examines the small candidates. For each universe, `foundations` lists some of the earlier
    universes. The first task of the universe waits for the first tasks of the listed universes, and receives their findings.
    Later tasks examine slices (parts) of the larger candidates. Every later task waits for the first tasks of all universes,
    and receives the findings of these first tasks. The tasks of the second and later slices of a universe also wait for the
    task of the first slice, and receive the findings of that task.
    """
    before, stated = foundations(universes), {u.name: u for u in universes}
    keys: dict[str, str] = {}
    for universe in universes:
        keys[universe.name] = task_key(
            discovery_code_version(), seed, universe_text(universe), *(keys[name] for name in before[universe.name])
        )
    every = task_key(*keys.values())
    found: dict[str, dict[int, Findings]] = {}
    slices: dict[str, tuple[Slice, ...]] = {}
    started: set[str] = set()

    def start() -> None:
        for name, universe in stated.items():
            if name not in started and all(other in found for other in before[name]):
                started.add(name)
                known = [found[other][0].known for other in before[name]]
                tasks.start(f"{name}/0", keys[name], explore_universe, universe, known, seed, urgent=True)

    def start_slices(name: str, first: int, last: int | None) -> None:
        told = [found[other][0].known for other in stated]
        told += [one.known for number, one in sorted(found[name].items()) if number]
        for position, part in list(enumerate(slices[name], 1))[first:last]:
            key = task_key(every, name, position)
            tasks.start(f"{name}/{position}", key, examine_slice, part, told, seed, urgent=position == 1)

    start()
    for task, findings in tasks.results(Findings):
        name, _, number = task.rpartition("/")
        found.setdefault(name, {})[int(number)] = findings
        if number == "0":
            slices[name] = findings.rest
            found[name][0] = replace(findings, rest=())
            start()
            for other in stated if len(slices) == len(stated) else ():
                start_slices(other, 0, 1)
        elif number == "1":
            start_slices(name, 1, None)
        progress(findings.counts)
    return {name: tuple(f for _, f in sorted(found[name].items())) for name in stated}


def define_all(tasks: Tasks, seed: int, names: Sequence[str] | None = None) -> tuple[Findings, ...]:
    """Prove rules that state definitions of composite operators, and rules that state algorithms. Return the findings in
    alphabetical order of the operators and algorithms.

    A composite operator is defined as a term of smaller operators. An algorithm is a different way to compute an operator. If
    `names` is given, only rules about the operators with these names are proved.
    """
    every = (*composite_definitions(), *algorithm_axioms())
    for stated in every if names is None else (one for one in every if one.partition(".")[0] in names):
        tasks.start(stated, task_key(discovery_code_version(), seed, stated), prove_definition, stated, seed)
    return tuple(findings for _, findings in sorted(tasks.results(Findings), key=lambda named: named[0]))


def generalise_all(tasks: Tasks, seed: int) -> tuple[Findings, ...]:
    """Generalise the mutants of each program to rules, and prove the rules. Each program has its own task.

    Return the findings in the order of `PROGRAMS`. A program is one or a few operators. A mutant is a term that equals the
    program at some output positions.
    """
    for family in PROGRAMS:
        tasks.start(
            family.name, task_key(discovery_code_version(), seed, MUTANTS, family.name), explore_mutants, family.name, seed
        )
    found = dict(tasks.results(Findings))
    return tuple(found[family.name] for family in PROGRAMS)


def explore_operators(
    names: Sequence[str], known: Sequence[Rule], tasks: Tasks, seed: int, progress: Callable[[UniverseCounts], None]
) -> tuple[Findings, ...]:
    """Search for rules about each single operator in `names`. Return the findings in alphabetical order of the operators.

    A rule is left out if the rules in `known` imply the rule.
    """
    base = task_key(discovery_code_version(), seed, *map(digest, known))
    for name in names:
        tasks.start(name, task_key(base, name), explore_operator, name, [DiscoveryInput(tuple(known))], seed)
    found: dict[str, Findings] = {}
    for task, findings in tasks.results(Findings):
        found[task] = findings
        progress(findings.counts)
    return tuple(findings for _, findings in sorted(found.items()))


def flag_all(rules: Sequence[Rule], tasks: Tasks, seed: int) -> list[RuleFlags]:
    """Find the floating-point flags that each discovered rule needs, in one task for each rule. Return a list with an entry for
    each rule: the flags, and inputs that show why each flag is needed.

    A flag states that the rule makes an assumption about floating-point values, or that the rule changes the rounding.
    """
    for number, rule in enumerate(rules):
        tasks.start(str(number), task_key(discovery_code_version(), seed, "flags", rule.text), flags_of, rule, seed)
    found = {int(number): flagged for number, flagged in tasks.results(RuleFlags)}
    return [found[number] for number in range(len(rules))]


def merge_findings(found: Mapping[str, Sequence[Findings]]) -> list[Equality]:
    """Return the equalities that the tasks of all universes found.

    An equality is left out if earlier equalities imply the equality. A universe is a vocabulary of operators and variables. The
    first task of a universe examines small pairs of terms. The result lists the equalities from first tasks before the
    equalities from later tasks.
    """
    kept = KeptEqualities()
    for rule in composite_definitions().values():
        kept.add(rule)
    equalities: list[Equality] = []
    first, rest = [parts[:1] for parts in found.values()], [parts[1:] for parts in found.values()]
    for findings in (one for parts in (*first, *rest) for one in parts):
        for equality in findings.equalities:
            part = kept.part(equality.candidate)
            if part is not None and kept.add(equality.rule):
                equalities.append(equality.demoted() if part == store.SEARCH and equality.part == store.CORE else equality)
            kept.settle(equality.candidate)
        for rule in findings.suspects:
            kept.suspect(rule)
    return equalities


def final_counts(found: Mapping[str, Sequence[Findings]], equalities: Sequence[Equality]) -> list[UniverseCounts]:
    """Return the final counts of each universe (a vocabulary of operators and variables).

    An equality that was also found in an earlier universe is counted as redundant.
    """
    counts: list[UniverseCounts] = []
    for name, parts in found.items():
        total = sum_universe_counts([findings.counts for findings in parts])
        own = [e for e in equalities if e.candidate.universe.name.partition(THREE)[0] == name]
        said = total.proved - sum(len(findings.equalities) for findings in parts)
        proved = said + len(own)
        redundant = total.redundant + total.proved - proved
        counts.append(replace(total, proved=proved, redundant=redundant, kept=sum(len(e.rules) for e in own)))
    return counts


def sum_universe_counts(parts: Sequence[UniverseCounts]) -> UniverseCounts:
    """Add the counts that the tasks of one universe report.

    A universe is a vocabulary of operators and variables. The peak memory is not added. The result contains the largest peak
    memory of a task.
    """
    first = parts[0]
    total = UniverseCounts(first.family, first.universe, peak_bytes=max(p.peak_bytes for p in parts))
    for name in (f.name for f in fields(first) if f.name not in ("family", "universe", "peak_bytes")):
        setattr(total, name, sum(getattr(p, name) for p in parts))
    return total


# ---------------------------------------------------------------- keys


def universe_text(value: object) -> str:
    """Return a text that identifies the content of `value`, which is a universe or a part of a universe.

    A universe is a vocabulary of operators and variables.
    """
    match value:
        case Term():
            return value.key
        case tuple() | list():
            return f"({', '.join(map(universe_text, value))})"
        case Mapping():
            return f"{{{', '.join(f'{k}: {universe_text(v)}' for k, v in value.items())}}}"
        case _ if is_dataclass(value):
            return f"({', '.join(f'{f.name}={universe_text(getattr(value, f.name))}' for f in fields(value))})"
        case _:
            return f"{type(value).__name__} {value}"


@functools.cache
def discovery_code_version() -> str:
    """Return a hash of the code and definitions on which discovery results depend.

    The hash covers the definitions in specs/, the modules of superopt and the version of Z3. The packages in `APART` are left
    out. Modules that list universes (vocabularies for enumeration) are left out too.
    """
    package = Path(__file__).resolve().parents[1]
    stating = {
        Path(str(module.__file__)).resolve()
        for name, module in list(sys.modules.items())
        if name.startswith("superopt.discovery.") and any(isinstance(v, Universe) for v in vars(module).values())
    }
    resting = [
        path
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in APART and path not in stating
    ]
    code = (hashlib.sha256(path.read_bytes()).hexdigest() for path in resting)
    return task_key(z3_solver_version(), *(spec.digest for spec in registry().values()), *code)
