"""What becomes of an equality that two terms of one value suggest: generalised, sampled, proved, kept in useful directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from superopt import store
from superopt.errors import InstantiationError
from superopt.find.enumerate import Candidate
from superopt.find.generalise import general_rules, specialised
from superopt.find.names import named
from superopt.find.phrase import backwards
from superopt.find.prune import Kept, crosses, useful
from superopt.match import Pattern
from superopt.prove.precondition import completed
from superopt.prove.sample import mismatch
from superopt.prove.verify import prove
from superopt.rule import Rule, digest
from superopt.text import Equation
from superopt.verdict import Proved, Refuted, Unknown, Verdict

SAMPLES = 24
QUICK_SAMPLES = 12


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


@dataclass
class Discovery:
    """The rules found so far, and what decides about the next equality; the `Judge` of `general_rules` too."""

    seed: int
    kept: Kept = field(default_factory=Kept)
    found: list[Found] = field(default_factory=list)
    directions: dict[str, range] = field(default_factory=dict)
    rejected: list[store.Rejected] = field(default_factory=list)
    undecided: list[tuple[str, str]] = field(default_factory=list)

    def decide(self, candidate: Candidate, part: str, counts: Counts) -> None:
        """Proves the most general form that can be proved, and keeps it where it serves a search."""
        verdict: Verdict = Unknown("it cannot be stated over independent extents")
        for rule in general_rules((candidate.left, candidate.right), self, widen=candidate.universe.family == "matrix"):
            complete = completed(rule)
            verdict = Unknown("its conditions cannot be stated") if complete is None else self._verdict(complete)
            if complete is not None and isinstance(verdict, Proved):
                counts.proved += 1
                if self.kept.add(candidate, complete, part):
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
        self.directions[complete.text] = range(before, len(self.found))
        return len(self.found) - before

    def settle(self) -> None:
        """The core is minimal: what the rest of it derives after all is for the search."""
        for rule in self.kept.derivable():
            for position in self.directions[rule.text]:
                self.found[position] = replace(self.found[position], part=store.SEARCH)

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
