"""The tasks that generation is made of: a universe explored, a slice of a large one's candidates, a composite's definition.

A task is a function of its arguments alone, so it may run anywhere and again. What it returns is what it found beyond what it
was told is known.
"""

from __future__ import annotations

import pickle
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from superopt import store
from superopt.discovery import Counts, Discovery, Equality, Found, Known
from superopt.find.definitions import ALGORITHMS, FAMILY, definitions, readings
from superopt.find.enumerate import Candidate, candidate_order, enumerate_universe, term_size
from superopt.find.join import joins
from superopt.find.universe import Universe
from superopt.match import Pattern
from superopt.op import forget
from superopt.prove.precondition import completed
from superopt.prove.recheck import established
from superopt.rule import Rule
from superopt.verdict import Proved, Unknown

SMALL = 3
"""Equalities between graphs of so many operators are decided first, in all universes."""
SLICE = 4_000
"""How many of a universe's larger candidates one task examines."""


@dataclass(frozen=True)
class Slice:
    """Candidates of one universe that wait, and those that were settled before them; pickled, since they only pass through."""

    universe: Universe
    settled: bytes
    candidates: bytes


@dataclass(frozen=True)
class Findings:
    """What one task found, in the order in which it did; `rest` is left for other tasks, which need what this one found."""

    counts: Counts
    equalities: tuple[Equality, ...]
    suspects: tuple[Rule, ...]
    rejected: tuple[store.Rejected, ...]
    undecided: tuple[tuple[str, str], ...]
    rest: tuple[Slice, ...] = ()
    definitions: tuple[Found, ...] = ()

    @property
    def known(self) -> Known:
        """What tasks that come after this one build on."""
        return Known(tuple(e.rule for e in self.equalities), self.suspects)


def explored(universe: Universe, known: Sequence[Known], seed: int) -> Findings:
    """What a universe suggests is decided: small equalities first, then two outputs joined in one term.

    Larger candidates are left to tasks of their own: each slice takes its share from everywhere among them, so what the first
    finds says much of what the others would.
    """
    started = time.process_time()
    enumeration = enumerate_universe(universe, seed)
    counts = Counts(universe.family, universe.name, enumeration.built, enumeration.graphs, enumeration.classes)
    ordered = sorted(enumeration.candidates, key=candidate_order)
    small = [c for c in ordered if term_size(*c.left) <= SMALL]
    large = ordered[len(small) :]
    small.extend(joins(enumeration))
    del enumeration, ordered
    counts.enumerate = time.process_time() - started
    discovery = Discovery(seed, counts)
    discovery.learn(known)
    for candidate in small:
        discovery.examine(candidate)
    slices = -(-len(large) // SLICE)
    waiting = [large[first::slices] for first in range(slices)]
    settled = _packed(small) if waiting else b""
    return _findings(discovery, tuple(Slice(universe, settled, _packed(candidates)) for candidates in waiting))


def examined(part: Slice, known: Sequence[Known], seed: int) -> Findings:
    """What a slice of a universe's candidates suggests is decided."""
    discovery = Discovery(seed, Counts(part.universe.family, part.universe.name))
    discovery.learn(known)
    for candidate in _unpacked(part.universe, part.settled):
        discovery.kept.settle(candidate)
    for candidate in _unpacked(part.universe, part.candidates):
        discovery.examine(candidate)
    return _findings(discovery, ())


def defined(stated: str, seed: int) -> Findings:
    """The definition of a composite operator, or an algorithm, as rules, each proved."""
    started = time.process_time()
    family, origin = (FAMILY, "definition of") if stated in definitions() else (ALGORITHMS, "algorithm")
    counts = Counts(family, stated)
    found: list[Found] = []
    undecided: list[tuple[str, str]] = []
    for rule in readings(stated):
        counts.candidates += 1
        complete = completed(rule)
        verdict = established(complete, seed=seed) if complete is not None else Unknown("its conditions cannot be stated")
        if complete is not None and isinstance(verdict, Proved):
            counts.proved += 1
            if Pattern.of(complete.equations[0]).usable:
                found.append(Found(family, complete, verdict, store.CORE, f"{origin} {stated}"))
        else:
            counts.unknown += 1
            undecided.append((rule.text, str(verdict)))
    counts.kept = len(found)
    counts.verify = time.process_time() - started
    counts.peak_bytes = peak_bytes()
    return Findings(counts, (), (), (), tuple(undecided), definitions=tuple(found))


def _packed(candidates: Sequence[Candidate]) -> bytes:
    return pickle.dumps([(c.left, c.right) for c in candidates], protocol=5)


def _unpacked(universe: Universe, packed: bytes) -> list[Candidate]:
    return [Candidate(universe, left, right) for left, right in pickle.loads(packed)]


def _findings(discovery: Discovery, rest: tuple[Slice, ...]) -> Findings:
    forget()
    counts = replace(discovery.counts, peak_bytes=peak_bytes())
    return Findings(
        counts,
        tuple(discovery.equalities),
        tuple(discovery.suspects),
        tuple(discovery.rejected),
        tuple(discovery.undecided),
        rest,
    )


def peak_bytes() -> int:
    """The largest memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
