"""Replaying steps: each is shown to be right anew, by the strongest means there is for it, or refused.

- proved: every root is exchanged for what a stored rule says it equals;
- judged: a corrected mutant equals its program at every position, by values over prime fields, up to the error bound;
- tested: the same of whole tensors with oracles in place of nonlinear functions, where no single match shows the step. What
  is in a root and in its replacement alike is any tensor there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from superopt.errors import CertificateError, Undecidable
from superopt.fusion import fusions
from superopt.graph import Term, subterms, variable, variables
from superopt.model.dimensions import FIXED, Sizing
from superopt.op import rebuild
from superopt.partial.judge import judge
from superopt.partial.oracle import Agreement, agreement
from superopt.recurrence import recurrences
from superopt.rewrite.apply import PARTLY, State, Step
from superopt.rewrite.instance import after, is_instance
from superopt.rewrite.ruleset import RuleSet
from superopt.rule import Rule, digest


class Means(Enum):
    """How a step was shown to be right."""

    PROVED = "proved"
    JUDGED = "judged"
    TESTED = "tested"


@dataclass(frozen=True)
class Shown:
    """By what means a step was shown to be right, and for how many roots; an error bound where it is not proved."""

    rule: str
    means: Means
    roots: int
    log2_error: float | None = None


@dataclass
class Replay:
    """Replays steps with the stored `rules`; `digests` are those of the rules that a certificate names.

    What was shown once of equal terms is not shown again.
    """

    rules: Sequence[Rule]
    digests: Mapping[str, str]
    seed: int = 0
    _alone: dict[str, RuleSet] = field(default_factory=dict)
    _errors: dict[tuple[Term, Term], float] = field(default_factory=dict)

    @functools.cached_property
    def _stored(self) -> Mapping[str, Rule]:
        return {rule.name: rule for rule in self.rules}

    def followed(self, state: State, steps: Sequence[Step], sizings: Sequence[Sizing] = FIXED) -> tuple[State, list[Shown]]:
        """Where the steps lead from the state, and how each was shown to be right.

        Where extents are open, what is tested is tested at the `sizings`.

        Raises:
            CertificateError: a step replaces what is not there, names no stored rule, or is not shown to be right.
        """
        shown: list[Shown] = []
        for step in steps:
            self._require_known(step.rule)
            if not step.roots and not step.replacements:
                continue
            self._require_there(step, state)
            shown.append(self._shown(step, state, sizings))
            moved = after(state, step)
            if moved is None:
                raise CertificateError(f"step {step.rule!r} leads to no well-typed terms")
            state = moved
        return state, shown

    def _require_known(self, name: str) -> None:
        if name.startswith(PARTLY) or name in fusions() or any(name == r.name for r in recurrences()):
            return
        rule = self._stored.get(name)
        if rule is None:
            raise CertificateError(f"no stored rule is called {name!r}")
        if self.digests.get(name) != digest(rule):
            raise CertificateError(f"the stored rule {name!r} is not the one of the certificate")

    def _require_there(self, step: Step, state: State) -> None:
        there = set(subterms(*state))
        if len(step.roots) != len(step.replacements) or len(set(step.roots)) < len(step.roots):
            raise CertificateError(f"step {step.rule!r} has not one replacement for each of its roots")
        for root, new in zip(step.roots, step.replacements, strict=True):
            if root not in there:
                raise CertificateError(f"step {step.rule!r} replaces {root.op}, which is not there")
            if root.shape != new.shape:
                raise CertificateError(f"step {step.rule!r} replaces {root.op} by a term of another shape")
            if root.constant:
                raise CertificateError(f"step {step.rule!r} replaces a weight")
        if not there.issuperset(variables(*step.replacements)):
            raise CertificateError(f"step {step.rule!r} reads what is not there")

    def _shown(self, step: Step, state: State, sizings: Sequence[Sizing]) -> Shown:
        count = len(step.roots)
        if step.rule.startswith(PARTLY):
            return Shown(step.rule, Means.JUDGED, count, max(self._judged(step)))
        if step.rule in self._stored:
            rules = self._alone.setdefault(step.rule, RuleSet([self._stored[step.rule]]))
            if is_instance(step, state, rules):
                return Shown(step.rule, Means.PROVED, count)
        return Shown(step.rule, Means.TESTED, count, self._tested(step, sizings))

    def _judged(self, step: Step) -> list[float]:
        """The error bounds of a corrected mutant at each root."""
        bounds: list[float] = []
        for root, new in zip(step.roots, step.replacements, strict=True):
            if _reads_others(new, root.args):
                raise CertificateError(f"step {step.rule!r} reads more than the operands of {root.op}")
            programs = Step(step.rule, (root,), (new,)).programs
            if programs not in self._errors:
                try:
                    found = judge(*programs, seed=self.seed)
                except Undecidable as error:
                    raise CertificateError(f"step {step.rule!r} cannot be judged: {error}") from error
                if found.unequal:
                    raise CertificateError(f"step {step.rule!r} is wrong at {1 - found.share} of the positions of {root.op}")
                self._errors[programs] = found.log2_error
            bounds.append(self._errors[programs])
        return bounds

    def _agreement(self, roots: State, replacements: State) -> Agreement:
        """Whether roots equal their replacements: equal pairs once, and everything as it is where that does not show it."""
        found = agreement(*zip(*_apart(roots, replacements), strict=True), seed=self.seed)
        return found if found.equal else agreement(roots, replacements, seed=self.seed)

    def _tested(self, step: Step, sizings: Sequence[Sizing]) -> float:
        """The error bound of tests over prime fields at each of the sizings."""
        bounds: list[float] = []
        for sizing in sizings:
            sides = [tuple(map(sizing.at, side)) for side in (step.roots, step.replacements)]
            try:
                found = self._agreement(*sides)
            except Undecidable as error:
                raise CertificateError(f"step {step.rule!r} matches no rule and cannot be tested: {error}") from error
            if not found.equal:
                raise CertificateError(f"step {step.rule!r} is not right: values differ")
            bounds.append(found.log2_error)
        return max(bounds)


def _apart(roots: State, replacements: State) -> list[tuple[Term, Term]]:
    """Pairs of terms of which each is equal if, and as far as it takes, each root equals its replacement.

    Variables stand for roots inside a root, in its replacement for what these are replaced by, and for the largest terms that
    are in both after that; those of one name are of one shape.
    """
    pairs: dict[tuple[Term, Term], None] = {}
    for root, new in zip(roots, replacements, strict=True):
        inside, names = {*subterms(root)} - {root}, dict[Term, Term]()
        inner = [(r, n) for r, n in zip(roots, replacements, strict=True) if r in inside and n is not new]
        told = [(r, n, variable(f"root {position} {r.shape}", r.shape)) for position, (r, n) in enumerate(inner)]
        sides = rebuild(root, {r: v for r, _, v in told}), rebuild(new, {n: v for _, n, v in told})
        there, stack = {*subterms(sides[0])} - {sides[0]}, [sides[1]]
        while stack:
            one = stack.pop()
            if one in there:
                names.setdefault(one, variable(f"part {len(names)} {one.shape}", one.shape))
            else:
                stack += one.args
        pairs[rebuild(sides[0], names), rebuild(sides[1], names)] = None
    return [*pairs]


def _reads_others(term: Term, operands: Sequence[Term]) -> bool:
    """Whether a variable is in the term elsewhere than in these operands."""
    done, stack = set(operands), [term]
    while stack:
        one = stack.pop()
        if one not in done:
            if one.is_variable:
                return True
            done.add(one)
            stack += one.args
    return False
