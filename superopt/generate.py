"""FLOW 1, on one page: enumerate -> dedupe -> verify -> prune -> store.

Terms are enumerated universe by universe and grouped by value; what two terms of one value suggest is dropped if rules already
kept say it, generalised, proved, and kept in the directions that serve a search.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from superopt import store
from superopt.errors import InstantiationError
from superopt.find.enumerate import Candidate, candidate_order, enumerate_universe
from superopt.find.families import FAMILIES, UNIVERSES
from superopt.find.generalise import general_rules, specialised
from superopt.find.join import joins
from superopt.find.names import named
from superopt.find.phrase import backwards
from superopt.find.prune import Kept, crosses, useful
from superopt.find.universe import Universe
from superopt.match import Pattern
from superopt.prove.arithmetic import version
from superopt.prove.precondition import completed
from superopt.prove.sample import mismatch
from superopt.prove.verify import prove
from superopt.rule import Rule, digest
from superopt.text import Equation
from superopt.verdict import Proved, Refuted, Unknown, Verdict

SAMPLES = 24
QUICK_SAMPLES = 12
ABOUT = {
    "matrix": "Rules between elementwise operators, matrix products, pieces of tensors and reductions.",
    "convolution": "Rules about convolutions, pools, channels and the layout of images.",
}


@dataclass
class Counts:
    """What became of one universe. `graphs` is what its terms stand for, `kept` counts rules, one direction each."""

    family: str
    universe: str
    built: int = 0
    graphs: int = 0
    classes: int = 0
    candidates: int = 0
    redundant: int = 0
    proved: int = 0
    refuted: int = 0
    unknown: int = 0
    kept: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Found:
    """A rule that was proved: how, and whether it is part of the core or derived for the search."""

    family: str
    rule: Rule
    proof: Proved
    part: str
    origin: str


@dataclass(frozen=True)
class Generation:
    """What a run found, universe by universe; `seconds` of processor time and the peak of the process's memory, in bytes."""

    seed: int
    counts: tuple[Counts, ...]
    rules: tuple[Found, ...]
    undecided: tuple[tuple[str, str], ...]
    seconds: float
    peak_bytes: int

    def of(self, family: str) -> tuple[Found, ...]:
        """The rules of one family, in the order in which they are stored."""
        return tuple(found for found in self.rules if found.family == family)


def generate(
    *,
    seed: int = 0,
    families: Sequence[str] = FAMILIES,
    folder: Path | None = None,
    progress: Callable[[Counts], None] = lambda _: None,
) -> Generation:
    """Finds, proves and stores the rules of the families; the same seed gives the same files.

    Families that come before one of those asked for are enumerated too, since their rules make others redundant.

    Raises:
        StoreError: the store cannot be written.
    """
    started = time.process_time()
    run = _Run(seed)
    last = max(FAMILIES.index(family) for family in families)
    for universe in (u for u in UNIVERSES if FAMILIES.index(u.family) <= last):
        progress(run.explore(universe))
    rules = tuple(run.named(family) for family in families)
    for family, found in zip(families, rules, strict=True):
        entries = [
            (f.rule, store.entry_of(f.rule, f.proof, solver=version(), origin=f.origin, samples=SAMPLES, part=f.part))
            for f in found
        ]
        store.write_family(family, ABOUT[family], entries, folder)
    store.write_refuted([*store.load_refuted(folder).values(), *run.rejected], folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    everything = tuple(f for found in rules for f in found)
    return Generation(seed, tuple(run.counts), everything, tuple(run.undecided), time.process_time() - started, peak)


@dataclass
class _Run:
    """The state of one generation: what is kept, and what is counted."""

    seed: int
    kept: Kept = field(default_factory=Kept)
    found: list[Found] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
    rejected: list[store.Rejected] = field(default_factory=list)
    undecided: list[tuple[str, str]] = field(default_factory=list)

    def explore(self, universe: Universe) -> Counts:
        """Everything one universe suggests, decided."""
        started = time.process_time()
        enumeration = enumerate_universe(universe, self.seed)
        candidates = [*sorted(enumeration.candidates, key=candidate_order), *joins(enumeration)]
        counts = Counts(universe.family, universe.name, enumeration.built, enumeration.graphs, len(enumeration.representatives))
        counts.candidates = len(candidates)
        for candidate in candidates:
            part = self.kept.part(candidate)
            if part is None:
                counts.redundant += 1
            else:
                self._decide(candidate, part, counts)
        counts.seconds = time.process_time() - started
        self.counts.append(counts)
        return counts

    def _decide(self, candidate: Candidate, part: str, counts: Counts) -> None:
        """Proves the most general form that can be proved, and keeps it where it serves a search."""
        verdict: Verdict = Unknown("it cannot be stated over independent extents")
        for rule in general_rules((candidate.left, candidate.right), self, widen=candidate.universe.family == "matrix"):
            complete = completed(rule)
            verdict = Unknown("its conditions cannot be stated") if complete is None else self._verdict(complete)
            if complete is not None and isinstance(verdict, Proved):
                counts.proved += 1
                if self.kept.add(complete):
                    counts.kept += self._keep(candidate, rule, complete, verdict, part)
                return
            self.kept.suspect(rule)
        if isinstance(verdict, Refuted):
            counts.refuted += 1
        else:
            counts.unknown += 1
            self.undecided.append((repr(candidate.left), str(verdict)))

    def _keep(self, candidate: Candidate, rule: Rule, complete: Rule, proof: Proved, part: str) -> int:
        """Keeps the directions that serve a search, of a hill those that cross or climb it; how many they are."""
        family, origin = candidate.universe.family, f"enumerated in {candidate.universe.name}"
        before = len(self.found)
        if self._serves(candidate, part) and Pattern.of(complete.equations[0]).usable:
            self.found.append(Found(family, complete, proof, part, origin))
        turned = replace(candidate, left=candidate.right, right=candidate.left)
        if len(candidate.left) == 1 and self._serves(turned, part):
            for other in self._backwards(turned, rule):
                verdict = self._verdict(other)
                if isinstance(verdict, Proved):
                    self.found.append(Found(family, other, verdict, part, origin))
        return len(self.found) - before

    def _serves(self, candidate: Candidate, part: str) -> bool:
        numbered = self.kept.numbered(candidate.universe)
        return useful(candidate, numbered) and (part == store.CORE or crosses(candidate, numbered))

    def _backwards(self, turned: Candidate, rule: Rule) -> Iterator[Rule]:
        """The rule from right to left; at the universe's instances where the new left side leaves attributes open."""
        other = completed(backwards(rule))
        if other is not None and Pattern.of(other.equations[0]).usable:
            yield other
            return
        for instance in turned.universe.instances:
            sides = specialised((turned.left, turned.right), instance)
            for special in general_rules(sides, self, widen=False):
                complete = completed(special)
                if complete is not None and Pattern.of(complete.equations[0]).usable:
                    yield complete

    def _verdict(self, rule: Rule) -> Verdict:
        """The proof's verdict, after sampling: what random instantiations refute is not tried."""
        for equation in rule.equations:
            try:
                counterexample = mismatch(equation, instances=max(2, SAMPLES // len(rule.equations)), seed=self.seed)
            except InstantiationError as error:
                return Unknown(str(error))
            if counterexample is not None:
                self.rejected.append(store.Rejected(digest(rule), str(rule.statement), counterexample))
                return Refuted(counterexample)
        return prove(rule, seed=self.seed)

    def plausible(self, equations: Sequence[Equation]) -> bool:
        """Whether a few random instantiations agree; the `Judge` of `general_rules`."""
        try:
            each = max(2, QUICK_SAMPLES // len(equations))
            return all(mismatch(e, instances=each, seed=self.seed + 1) is None for e in equations)
        except InstantiationError:
            return False

    def completed(self, rule: Rule) -> Rule | None:
        """The rule with the conditions that its right side needs; the `Judge` of `general_rules`."""
        return completed(rule)

    def named(self, family: str) -> tuple[Found, ...]:
        """The family's rules, core first, each under a name of its own."""
        found = sorted((f for f in self.found if f.family == family), key=lambda f: f.part)
        return tuple(replace(f, rule=rule) for f, rule in zip(found, named([f.rule for f in found]), strict=True))
