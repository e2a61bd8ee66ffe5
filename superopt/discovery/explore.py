"""The tasks of rule generation: explore a universe, examine some candidates of a large universe, or prove a definition.

A universe is a vocabulary from which terms are enumerated. A candidate is a pair of terms that may be equal. The result of a
task depends only on its arguments, so a task can run in any process and can be repeated. A task receives earlier results as
arguments and returns only new results.
"""

from __future__ import annotations

import itertools
import pickle
import resource
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from superopt.algebra.operators import clear_term_caches
from superopt.algebra.terms import variables
from superopt.discovery.candidates import Discovery, DiscoveryInput, Equality, FoundRule, UniverseCounts
from superopt.discovery.definitions import ALGORITHM, ALGORITHMS, DEFINITION, FAMILY, composite_definitions, definition_rules
from superopt.discovery.enumerate import Candidate, candidate_order, enumerate_universe, enumerated_term_size
from superopt.discovery.join import joins
from superopt.discovery.universe import Universe
from superopt.discovery.universes.elementwise import FAMILY as OPERATORS
from superopt.discovery.universes.elementwise import universes_of
from superopt.errors import InstantiationError
from superopt.partial.discover import discover_mutants
from superopt.partial.families import MUTANTS, PROGRAMS
from superopt.partial.phrase import rule_of
from superopt.policy import DISCOVERY
from superopt.proof.precondition import add_preconditions
from superopt.proof.recheck import prove_and_record
from superopt.rules import store
from superopt.rules.instances import instantiations, term_at
from superopt.rules.match import Pattern
from superopt.rules.rule import Rule, axioms
from superopt.rules.verdict import Proved, Unknown


@dataclass(frozen=True)
class Slice:
    """The candidates that one task examines. All of them belong to one universe.

    A universe is a vocabulary from which terms are enumerated. A candidate is a pair of terms that may be equal.

    Attributes:
        universe: the universe.
        settled: the pickled candidates that were decided before.
        candidates: the pickled candidates to examine.

    The candidates are pickled because most processes only forward the candidates.
    """

    universe: Universe
    settled: bytes
    candidates: bytes


@dataclass(frozen=True)
class Findings:
    """The results of one task, in the order of discovery.

    `rest` contains slices of candidates (pairs of terms) for later tasks.
    """

    counts: UniverseCounts
    equalities: tuple[Equality, ...]
    suspects: tuple[Rule, ...]
    rejected: tuple[store.Rejected, ...]
    undecided: tuple[tuple[str, str], ...]
    rest: tuple[Slice, ...] = ()
    definitions: tuple[FoundRule, ...] = ()

    @property
    def known(self) -> DiscoveryInput:
        """The proved equalities and the equalities that could not be proved, as input for later tasks."""
        return DiscoveryInput(tuple(e.rule for e in self.equalities), self.suspects)


def explore_universe(universe: Universe, known: Sequence[DiscoveryInput], seed: int) -> Findings:
    """Enumerate the terms over the operators and variables of `universe`, and decide which terms are equal.

    A candidate is a pair of terms that may be equal. This task examines small candidates. The task also examines candidates
    with several outputs, if one larger operation can compute these outputs together (see `joins`).

    Larger candidates are divided into slices, which later tasks examine. Each slice contains candidates of all sizes, so that
    the findings of the first slice make many candidates of the later slices redundant.
    """
    started = time.process_time()
    enumeration = enumerate_universe(universe, seed)
    counts = UniverseCounts(universe.family, universe.name, enumeration.built, enumeration.graphs, enumeration.classes)
    ordered = sorted(enumeration.candidates, key=candidate_order)
    small = [c for c in ordered if enumerated_term_size(*c.left) <= DISCOVERY.small_operator_count]
    large = ordered[len(small) :]
    small.extend(joins(enumeration))
    del enumeration, ordered
    counts.enumerate = time.process_time() - started
    discovery = Discovery(seed, counts)
    discovery.learn(known)
    for candidate in small:
        discovery.examine(candidate)
    slices = -(-len(large) // DISCOVERY.max_slice_candidates)
    waiting = [large[first::slices] for first in range(slices)]
    settled = _packed(small) if waiting else b""
    return _findings(discovery, tuple(Slice(universe, settled, _packed(candidates)) for candidates in waiting))


def examine_slice(part: Slice, known: Sequence[DiscoveryInput], seed: int) -> Findings:
    """Decide for each candidate of the slice `part` whether its terms are equal.

    A candidate is a pair of terms that may be equal. A slice is a part of a universe's large candidates.
    """
    discovery = Discovery(seed, UniverseCounts(part.universe.family, part.universe.name))
    discovery.learn(known)
    for candidate in _unpacked(part.universe, part.settled):
        discovery.kept.settle(candidate)
    for candidate in _unpacked(part.universe, part.candidates):
        discovery.examine(candidate)
    return _findings(discovery, ())


def prove_definition(stated: str, seed: int) -> Findings:
    """Prove the rules that state the definition of a composite operator, or an algorithm for an operator.

    A composite operator is defined as a term of smaller operators. `stated` is the name of the composite operator or of the
    algorithm's axiom.
    """
    family, origin = (FAMILY, "definition of") if stated in composite_definitions() else (ALGORITHMS, "algorithm")
    return prove_all(UniverseCounts(family, stated), definition_rules(stated), f"{origin} {stated}", seed)


def explore_mutants(name: str, seed: int) -> Findings:
    """Generalise the mutants of a program to rules, and prove these rules. `name` is the program's name in `PROGRAMS`.

    A program is one or a few operators. A mutant is a term that equals the program at some output positions.
    """
    (family,) = (one for one in PROGRAMS if one.name == name)
    return prove_all(UniverseCounts(MUTANTS, name), map(rule_of, discover_mutants(family, seed)), f"mutants of {name}", seed)


def prove_all(counts: UniverseCounts, rules: Iterable[Rule], origin: str, seed: int) -> Findings:
    """Try to prove each rule for all sizes. The findings contain the proved rules.

    Each proved rule includes the conditions that its right side needs.
    """
    started = time.process_time()
    found: list[FoundRule] = []
    undecided: list[tuple[str, str]] = []
    for rule in rules:
        counts.candidates += 1
        complete = add_preconditions(rule)
        verdict = (
            prove_and_record(complete, seed=seed)
            if complete is not None
            else Unknown("the conditions of the equation cannot be stated")
        )
        if complete is not None and isinstance(verdict, Proved) and not verdict.bounded:
            counts.proved += 1
            if Pattern.of(complete.equations[0]).usable:
                found.append(FoundRule(counts.family, complete, verdict, store.CORE, origin))
        else:
            counts.unknown += 1
            undecided.append((rule.text, str(verdict)))
    counts.kept = len(found)
    counts.verify = time.process_time() - started
    counts.peak_bytes = exploration_peak_bytes()
    return Findings(counts, (), (), (), tuple(undecided), definitions=tuple(found))


def explore_operator(name: str, known: Sequence[DiscoveryInput], seed: int) -> Findings:
    """Find rules about a single operator, and decide which of the operator's axioms are useful rules.

    The axioms come first, because they hold for all shapes. Then terms over the operator are enumerated, and pairs of terms
    that may be equal (candidates) are examined. A candidate is left out if the rules in `known` imply the candidate. A
    candidate that the definition of `name` implies is left out only if the definition only moves, adds and multiplies elements.
    A search replaces an operator by its definition only in this case.
    """
    started = time.process_time()
    enumerations = [enumerate_universe(universe, seed) for universe in universes_of(name)]
    counts = UniverseCounts(
        OPERATORS,
        name,
        sum(e.built for e in enumerations),
        sum(e.graphs for e in enumerations),
        sum(e.classes for e in enumerations),
        enumerate=time.process_time() - started,
    )
    directions = list(definition_rules(name)) if name in composite_definitions() else []
    opaque = name if len(directions) == 1 else ""
    folded = {(rule.statement.left, rule.statement.right) for rule in directions if opaque}
    rules = (rule for one in known for rule in one.rules)
    discovery = Discovery(seed, counts)
    new = tuple(rule for rule in rules if (rule.statement.left, rule.statement.right) not in folded)
    discovery.learn([DiscoveryInput(new)], opaque=opaque)
    for axiom in axioms().values():
        owner, _, short = axiom.name.partition(".")
        if owner == name and short != DEFINITION and short.partition("-")[0] != ALGORITHM:
            instance = _instance_of(axiom, seed)
            if instance is not None:
                discovery.examine_axiom(axiom, instance)
    for enumeration in enumerations:
        for candidate in (*sorted(enumeration.candidates, key=candidate_order), *joins(enumeration)):
            discovery.examine(candidate)
    return _findings(discovery, ())


def _instance_of(axiom: Rule, seed: int) -> Candidate | None:
    """Return an instance of the axiom at numeric sizes and at ranks near 2. Return None if no instance was found.

    Several random instances are tried, and the instance with the most different sizes is returned.
    """
    equation = min(axiom.equations, key=lambda e: sum(abs(v.rank - 2) for v in variables(*e.left, *e.right)))
    try:
        instances = list(
            itertools.islice(instantiations(equation, np.random.default_rng(seed)), DISCOVERY.axiom_instance_count)
        )
    except InstantiationError:
        return None
    instance = max(instances, key=lambda i: len({n for shape in i.shapes.values() for n in shape if n > 1}))
    left, right = (tuple(term_at(term, instance) for term in side) for side in (equation.left, equation.right))
    leaves = tuple((v,) for v in variables(*left, *right))
    return Candidate(Universe(OPERATORS, f"axiom {axiom.name}", leaves, (), (), {}), left, right)


def _packed(candidates: Sequence[Candidate]) -> bytes:
    return pickle.dumps([(c.left, c.right) for c in candidates], protocol=5)


def _unpacked(universe: Universe, packed: bytes) -> list[Candidate]:
    return [Candidate(universe, left, right) for left, right in pickle.loads(packed)]


def _findings(discovery: Discovery, rest: tuple[Slice, ...]) -> Findings:
    clear_term_caches()
    counts = replace(discovery.counts, peak_bytes=exploration_peak_bytes())
    return Findings(
        counts,
        tuple(discovery.equalities),
        tuple(discovery.suspects),
        tuple(discovery.rejected),
        tuple(discovery.undecided),
        rest,
    )


def exploration_peak_bytes() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
