"""Decide whether the two terms of a candidate are equal. A candidate is a pair of terms that may be equal.

Each candidate is generalised, tested and proved. A proved equality can be used in two directions. Each direction that is useful
in a search becomes a rule.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from superopt.algebra.terms import Extent
from superopt.discovery.definitions import composite_definitions
from superopt.discovery.enumerate import Candidate
from superopt.discovery.generalise import general_rules, specialise_sides
from superopt.discovery.phrase import phrase_converse
from superopt.discovery.prune import KeptEqualities, crosses_hill, is_pruned_variable_exchange, is_shortcut, is_useful
from superopt.errors import InstantiationError
from superopt.notation.parsing import Equation
from superopt.policy import DISCOVERY
from superopt.proof.precondition import add_preconditions
from superopt.proof.recheck import prove_and_record
from superopt.proof.sample import instantiations, mismatch, mismatch_at
from superopt.rules import store
from superopt.rules.match import Pattern
from superopt.rules.rule import Rule, digest
from superopt.rules.verdict import Proved, Refuted, Unknown, Verdict


@dataclass
class UniverseCounts:
    """The counts of one universe (a vocabulary from which terms are enumerated).

    A candidate is a pair of terms that may be equal.

    Attributes:
        built: The count of built terms.
        graphs: The count of graphs that the terms stand for. An argument of a term stands for all terms whose value equals the
            value of the argument.
        idle: The count of candidates that only rearrange many operators, and whose sides have similar costs.
        kept: The count of kept rules. One equality can give several rules, such as one rule for each direction.
        enumerate, dedupe, verify: The CPU times of three phases, in seconds: enumerating terms, finding redundant candidates,
            and testing and proving equalities.
        peak_bytes: The peak memory, in bytes, of the largest process that worked on the universe.
    """

    family: str
    universe: str
    built: int = 0
    graphs: int = 0
    classes: int = 0
    candidates: int = 0
    idle: int = 0
    redundant: int = 0
    proved: int = 0
    refuted: int = 0
    unknown: int = 0
    kept: int = 0
    enumerate: float = 0.0
    dedupe: float = 0.0
    verify: float = 0.0
    peak_bytes: int = 0

    @property
    def seconds(self) -> float:
        """The total CPU time, in seconds."""
        return self.enumerate + self.dedupe + self.verify


@dataclass(frozen=True)
class FoundRule:
    """A proved rule with its proof.

    `part` is CORE or SEARCH. A SEARCH rule follows from CORE rules, and lets a search take one step instead of several.
    `shortens` is True if the rule helps a search even if other rules imply the rule.
    """

    family: str
    rule: Rule
    proof: Proved
    part: str
    origin: str
    shortens: bool = True


@dataclass(frozen=True)
class Equality:
    """A proved equality as a rule from left to right. `rules` contains the directions that are useful in a search."""

    candidate: Candidate
    rule: Rule
    part: str
    rules: tuple[FoundRule, ...]

    def demoted(self) -> Equality:
        """Return a copy of the equality. The copy is marked as a search rule (SEARCH).

        Callers use this method if other equalities imply the equality. The copy contains only rules that still help a search in
        this case (see `FoundRule.shortens`).
        """
        rules = tuple(replace(r, part=store.SEARCH) for r in self.rules if r.shortens)
        return replace(self, part=store.SEARCH, rules=rules)


@dataclass(frozen=True)
class DiscoveryInput:
    """Earlier results for a discovery task: `rules` are proved equalities, and `suspects` are equalities that could not be
    proved.
    """

    rules: tuple[Rule, ...] = ()
    suspects: tuple[Rule, ...] = ()


@dataclass
class Discovery:
    """The results for one universe (a vocabulary from which terms are enumerated).

    The class also implements the interface `ConditionJudge`, which tests equations on random inputs.
    """

    seed: int
    counts: UniverseCounts
    kept: KeptEqualities = field(default_factory=KeptEqualities)
    equalities: list[Equality] = field(default_factory=list)
    suspects: list[Rule] = field(default_factory=list)
    rejected: list[store.Rejected] = field(default_factory=list)
    undecided: list[tuple[str, str]] = field(default_factory=list)
    _seen: dict[Equation, tuple[int, bool]] = field(default_factory=dict)

    def learn(self, known: Iterable[DiscoveryInput], *, opaque: str = "") -> None:
        """Add the equalities in `known`, and the definitions of all composite operators except the operator `opaque`.

        After this call, a pair of terms is redundant if the added equalities imply that the two terms are equal.
        """
        for name, rule in composite_definitions().items():
            if name != opaque:
                self.kept.add(rule)
        for one in known:
            for rule in one.rules:
                self.kept.add(rule)
            for rule in one.suspects:
                self.kept.suspect(rule)

    def examine(self, candidate: Candidate) -> None:
        """Test a pair of terms that may be equal, and try to prove their equality.

        The pair is skipped in two cases: the pair only rearranges operators, or earlier equalities imply that the terms are
        equal.
        """
        counts = self.counts
        counts.candidates += 1
        started = time.process_time()
        if self.kept.idle(candidate):
            counts.idle += 1
            counts.dedupe += time.process_time() - started
            return
        part = self.kept.part(candidate)
        asked = time.process_time()
        counts.dedupe += asked - started
        if part is None:
            counts.redundant += 1
        else:
            verdict = self._decide(candidate, part)
            counts.verify += time.process_time() - asked
            if isinstance(verdict, Refuted):
                counts.refuted += 1
                return
            counts.proved += isinstance(verdict, Proved)
            counts.unknown += isinstance(verdict, Unknown)
        self.kept.settle(candidate)

    def _decide(self, candidate: Candidate, part: str) -> Verdict:
        """Try to prove that the candidate's terms are equal, and return the verdict.

        There may be several rules that state the equality for many sizes and ranks, and that pass random tests. The provers try
        these rules one after the other. The first proved rule is recorded. A direction of this rule (left to right, or right to
        left) is kept if the direction is useful in a search.
        """
        self._seen.clear()
        verdict: Verdict = Unknown("the equation cannot be stated with independent extents")
        for rule in general_rules((candidate.left, candidate.right), self, widen=True, rows=candidate.universe.variables):
            complete = add_preconditions(rule)
            verdict = (
                Unknown("the conditions of the equation cannot be stated") if complete is None else self._verdict(complete)
            )
            if complete is not None and isinstance(verdict, Proved):
                if self.kept.add(complete):
                    self._keep(candidate, rule, complete, verdict, part)
                return verdict
            self.kept.suspect(rule)
            self.suspects.append(rule)
        if isinstance(verdict, Unknown):
            self.undecided.append((repr(candidate.left), str(verdict)))
        return verdict

    def examine_axiom(self, axiom: Rule, candidate: Candidate) -> None:
        """Decide whether an axiom is useful in a search. The decision is based on `candidate`, which is an instance of the
        axiom.

        A direction of the axiom is kept as a rule if the direction is useful in a search. The rule is proved again, with the
        conditions under which its right side is well typed.
        """
        counts = self.counts
        counts.candidates += 1
        started = time.process_time()
        part = self.kept.part(candidate)
        asked = time.process_time()
        counts.dedupe += asked - started
        if part is None:
            counts.redundant += 1
            return
        rules: list[FoundRule] = []
        stated = axiom.statement
        sides = (stated.left, stated.right), (stated.right, stated.left)
        directions = candidate, replace(candidate, left=candidate.right, right=candidate.left)
        for (left, right), direction in zip(sides, directions, strict=True):
            rule = Rule("", replace(stated, name="", left=left, right=right, arrow="=>"))
            if self._serves(direction, part) and (found := self._usable(rule)) is not None:
                shortens = self._shortens(direction)
                rules.append(FoundRule(candidate.universe.family, *found, part, f"axiom {axiom.name}", shortens))
        counts.verify += time.process_time() - asked
        self.kept.settle(candidate)
        if rules and not is_pruned_variable_exchange(rules[0].rule) and self.kept.add(rules[0].rule):
            counts.proved += 1
            counts.kept += len(rules)
            self.equalities.append(Equality(candidate, rules[0].rule, part, tuple(rules)))

    def _keep(self, candidate: Candidate, rule: Rule, complete: Rule, proof: Proved, part: str) -> None:
        """Record a proved equality, with the directions that are useful in a search.

        The rule `complete` consists of the rule `rule` and the conditions under which the right side is well typed. The
        argument `proof` is the proof of the rule `complete`. If `part` is SEARCH, a direction must also lower the run-time cost
        or add no operator (see `crosses_hill`).
        """
        universe = candidate.universe
        if is_pruned_variable_exchange(complete):
            return
        found = FoundRule(universe.family, complete, proof, part, f"enumerated in {universe.name}")
        rules: list[FoundRule] = []
        if self._serves(candidate, part) and Pattern.of(complete.equations[0]).usable:
            rules.append(replace(found, shortens=self._shortens(candidate)))
        turned = replace(candidate, left=candidate.right, right=candidate.left)
        if len(candidate.left) == 1 and self._serves(turned, part):
            for other, verdict in self._backwards(turned, rule):
                rules.append(replace(found, rule=other, proof=verdict, shortens=self._shortens(turned)))
        self.equalities.append(Equality(candidate, complete, part, tuple(rules)))
        self.counts.kept += len(rules)

    def _serves(self, candidate: Candidate, part: str) -> bool:
        sizings = self.kept.sizings(candidate.universe)
        serves = any(is_useful(candidate, numbered) for numbered in sizings)
        return serves and (part == store.CORE or all(crosses_hill(candidate, numbered) for numbered in sizings))

    def _shortens(self, candidate: Candidate) -> bool:
        return any(is_shortcut(candidate, numbered) for numbered in self.kept.sizings(candidate.universe))

    def _backwards(self, turned: Candidate, rule: Rule) -> Iterator[tuple[Rule, Proved]]:
        """Yield proved rules that rewrite the right side of `rule` to its left side.

        The argument `rule` was generalised from an enumerated pair of terms. The argument `turned` is this pair with the left
        and right terms exchanged. Several rules are tried, and only the first rule that can be proved is yielded. The first
        rule has only the conditions on shapes that its own sides need. If `rule` has conditions on shapes, the second rule
        keeps all of them. All further rules are generalised again from the terms in `turned`. If no rule can be proved, the
        method tries rules for the special values in `turned.universe.instances`. All of these rules that can be proved are
        yielded.
        """
        for other in self._turned(turned, rule):
            if (found := self._usable(other)) is not None:
                yield found
                return
        for instance in turned.universe.instances:
            sides = specialise_sides((turned.left, turned.right), instance)
            for special in general_rules(sides, self, widen=False):
                if (found := self._usable(special)) is not None:
                    yield found

    def _usable(self, rule: Rule) -> tuple[Rule, Proved] | None:
        """Return a pair of the completed rule and its proof. The completed rule also has the conditions under which its right
        side is well typed.

        Returns None if the rule cannot be proved, or if a match of the left side does not determine the right side.
        """
        complete = add_preconditions(rule)
        if complete is None or not Pattern.of(complete.equations[0]).usable:
            return None
        verdict = self._verdict(complete)
        return (complete, verdict) if isinstance(verdict, Proved) else None

    def _turned(self, turned: Candidate, rule: Rule) -> Iterator[Rule]:
        """Yield unproved rules that rewrite the right side of `rule` to its left side. The caller proves the rules.

        The argument `rule` was generalised from an enumerated pair of terms. The argument `turned` is this pair with the left
        and right terms exchanged. Rules that are generalised again from this pair come last. These last rules are yielded only
        if the new left side does not determine all attributes of the new right side.
        """
        for anew in dict.fromkeys((True, not any(".shape" in c for c in rule.statement.where))):
            yield phrase_converse(rule, anew=anew)
        if not Pattern.of(phrase_converse(rule).equations[0]).usable:
            yield from general_rules((turned.left, turned.right), self, widen=True, rows=turned.universe.variables)

    def _verdict(self, rule: Rule) -> Verdict:
        """Test the rule on random instances, try to prove it, and return the verdict. A proof is checked a second time."""
        for equation in rule.equations:
            try:
                counterexample = mismatch(
                    equation, instances=max(2, DISCOVERY.proof_sample_count // len(rule.equations)), seed=self.seed
                )
            except InstantiationError as error:
                return Unknown(str(error))
            if counterexample is not None:
                self.rejected.append(store.Rejected(digest(rule), str(rule.statement), counterexample))
                return Refuted(counterexample)
        try:
            return prove_and_record(rule, seed=self.seed)
        except (ArithmeticError, AssertionError, LookupError, RecursionError, TypeError, ValueError) as error:
            return Unknown(f"the prover failed: {type(error).__name__}: {error}")

    def plausible(self, equations: Sequence[Equation]) -> bool:
        """Return whether the sides of each equation agree on a few random instances. See `ConditionJudge`."""
        each = max(2, DISCOVERY.quick_sample_count // len(equations))
        return all(self._agrees(e, each) for e in equations)

    def _agrees(self, equation: Equation, instances: int) -> bool:
        known, agrees = self._seen.get(equation, (0, True))
        if agrees and known < instances:
            try:
                agrees = mismatch(equation, instances=instances, seed=self.seed + 1) is None
            except InstantiationError:
                agrees = False
            self._seen[equation] = instances, agrees
        return agrees

    def outcomes(self, equation: Equation) -> list[tuple[Mapping[str, Extent], bool]]:
        """Test the equation at random values of its attribute variables. Return pairs (values, whether the two sides agree).

        This method is part of the interface `ConditionJudge`.
        """
        found = itertools.islice(instantiations(equation, np.random.default_rng(self.seed + 2)), DISCOVERY.outcome_sample_count)
        try:
            return [(i.attributes, mismatch_at(equation, i, self.seed + n) is None) for n, i in enumerate(found)]
        except InstantiationError:
            return []

    def completed(self, rule: Rule) -> Rule | None:
        """Return the rule with further conditions. Under these conditions, the right side of the rule is well typed.

        This method is part of the interface `ConditionJudge`.
        """
        return add_preconditions(rule)
