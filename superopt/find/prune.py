"""Redundancy: no equality is kept that kept ones join, no direction written that serves no search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from superopt.find.effort import effort, executed, heavy
from superopt.find.enumerate import Candidate, term_size
from superopt.find.numbers import Numbered, distinct_numbers
from superopt.find.rewriter import Classes, Rewriter
from superopt.find.universe import Universe
from superopt.graph import Term, subterms, variables
from superopt.linearity import is_product
from superopt.match import Pattern
from superopt.op import rebuild
from superopt.rule import NEUTRAL, Rule
from superopt.store import CORE, SEARCH

HILL = 0.9
LOCAL = 3
DimBinding: TypeAlias = "Callable[[Term], Term | None]"


def useful(candidate: Candidate, numbered: DimBinding) -> bool:
    """Whether rewriting the candidate's left side to its right can serve a search.

    It cannot where nothing but variables or constants is on the left, where the left does not determine all variables of the
    right, where a left side is part of the right, where the sides differ in the names of variables alone, where the step both
    executes more operators and does more work, weights known or not, and where `NEUTRAL` operators or more are only rearranged,
    none of them saved.
    """
    left, right = candidate.left, candidate.right
    if all(t.is_variable or not variables(t) for t in left) or not set(variables(*right)) <= set(variables(*left)):
        return False
    if (len(left) == 1 and left[0] in subterms(*right)) or _renamed(candidate):
        return False
    before, after = ([n for t in side if (n := numbered(t)) is not None] for side in (left, right))
    if len(before) < len(left) or len(after) < len(right):
        return False
    pairs = [(effort(before, weights_known=known), effort(after, weights_known=known)) for known in (True, False)]
    if all(old == new for old, new in pairs) and NEUTRAL <= term_size(*left) <= term_size(*right):
        return False
    if any(new.operators <= old.operators or new.work < old.work for old, new in pairs):
        return True
    return len(left) > 1


def crosses(candidate: Candidate, numbered: DimBinding) -> bool:
    """Whether the right side costs less than the left, weights known, or is dearer but executes no more operators.

    The first is a step over a hill, the second a step up one. A join always counts: it gains in operators started.
    """
    before, after = ([n for t in side if (n := numbered(t)) is not None] for side in (candidate.left, candidate.right))
    old, new = effort(before, weights_known=True), effort(after, weights_known=True)
    return len(candidate.left) > 1 or new.total < old.total or new.operators <= old.operators


def shortens(candidate: Candidate, numbered: DimBinding) -> bool:
    """Whether a search gains by the step from left to right although other rules lead there, if by more steps than a few.

    It does where the step crosses or climbs a hill and has an operator that `counts`, where it takes out a constant factor, and
    where a graph of `LOCAL` operators or fewer becomes one that has or executes fewer: what a rule leaves behind is tidied by
    single steps.
    """
    if not crosses(candidate, numbered):
        return False
    before, after = ([n for t in side if (n := numbered(t)) is not None] for side in (candidate.left, candidate.right))
    if any(map(counts, (*before, *after))) or factored(before, after):
        return True
    executed = effort(after, weights_known=True).operators < effort(before, weights_known=True).operators
    fewer = executed or term_size(*candidate.right) < term_size(*candidate.left)
    return fewer and term_size(*candidate.left) <= LOCAL


def counts(term: Term) -> bool:
    """Whether an operator in the term is heavy, or looks rows up at run time: what a runtime fuses with those matters."""
    return heavy(term) or "lookup" in executed(term)


def factored(left: Sequence[Term], right: Sequence[Term]) -> bool:
    """Whether a constant factor is taken out: right is a product by a constant, left is none, by no more operators.

    Weights are known, and a constant is what no variable reaches. Products by constants in a row become one, since what is
    computed of constants alone is computed beforehand.
    """
    if len(left) != 1 or len(right) != 1 or _by_a_constant(left[0]) or not _by_a_constant(right[0]):
        return False
    old, new = (effort(side, weights_known=True) for side in (left, right))
    return new.operators <= old.operators


def _by_a_constant(term: Term) -> bool:
    """Whether the term is linear in each of two operands, one of which is constant."""
    constant = [not variables(a) for a in term.args]
    return sorted(constant) == [False, True] and is_product(term)


def _renamed(candidate: Candidate) -> bool:
    """Whether exchanging variables of one row turns the left side into the right."""
    used = variables(*candidate.left)
    rows = [[v for v in row if v in used] for row in candidate.universe.variables]
    for orders in itertools.product(*(itertools.permutations(row) for row in rows)):
        exchanged = {
            a: b for row, order in zip(rows, orders, strict=True) for a, b in zip(row, order, strict=True) if a is not b
        }
        if exchanged and tuple(rebuild(t, exchanged) for t in candidate.left) == candidate.right:
            return True
    return False


def _gains(dear: Term, cheap: Term) -> bool:
    """Whether, weights known, the cheap term executes fewer operators or costs less than `HILL` times the dear one."""
    old, new = (effort([t], weights_known=True) for t in (dear, cheap))
    return new.operators < old.operators or new.total < HILL * old.total


@dataclass
class _Place:
    """What is known about the terms of one universe."""

    sizings: tuple[Numbered, Numbered]
    classes: Classes


class Kept:
    """The equalities kept so far, and what they make of another: nothing new, a step over a hill, or news."""

    def __init__(self) -> None:
        self.rewriter = Rewriter()
        self._texts: set[str] = set()
        self._places: dict[str, _Place] = {}
        self._joins: list[Pattern] = []

    def sizings(self, universe: Universe) -> tuple[DimBinding, ...]:
        """Two ways to put numbers into a universe's terms: extents that are larger in one are smaller in the other.

        A step serves where it does at one of them.
        """
        return tuple(sizing.of for sizing in self._place(universe).sizings)

    def _place(self, universe: Universe) -> _Place:
        if universe.name not in self._places:
            one, other = (Numbered(distinct_numbers(universe, turned=turned)) for turned in (False, True))
            self._places[universe.name] = _Place((one, other), Classes())
        return self._places[universe.name]

    def add(self, rule: Rule) -> bool:
        """Keeps an equality that was proved; False if it is there already."""
        news = rule.text not in self._texts
        self._texts.add(rule.text)
        if news:
            self.rewriter.add(rule)
            self._joins += [Pattern.of(e) for e in rule.equations if len(e.left) > 1]
        return news

    def suspect(self, rule: Rule) -> None:
        """Lets an equality that could not be proved count as known, so that what it would join is not tried again."""
        self.rewriter.add(rule)

    def settle(self, candidate: Candidate) -> None:
        """The candidate's sides are one class from now on: it was found to be redundant, or decided."""
        place = self._place(candidate.universe)
        if len(candidate.left) == 1:
            left, right = map(place.sizings[0].of, candidate.left + candidate.right)
            if left is not None and right is not None:
                place.classes.merge(left, right)

    def idle(self, candidate: Candidate) -> bool:
        """Whether more than `NEUTRAL` operators are only rearranged: no side saves an operator or a tenth of the cost."""
        if len(candidate.left) > 1 or term_size(*candidate.left) <= NEUTRAL:
            return False
        for numbered in self.sizings(candidate.universe):
            sides = [n for t in (*candidate.left, *candidate.right) if (n := numbered(t)) is not None]
            if len(sides) == 2 and (_gains(*sides) or _gains(*reversed(sides))):
                return False
        return True

    def part(self, candidate: Candidate) -> str | None:
        """CORE for an equality that those kept do not join, SEARCH for one they join only over a hill, None for any other.

        A hill counts where the step saves an operator or a tenth of the cost, and where an operator is heavy or there are no
        more than `LOCAL`: between larger graphs without a heavy one hills are low, and a search climbs them by itself. What one
        operator computes as another kind of operator does is a hill as well: no step leads up it through more operators. So is
        what other operators compute for the same cost: which of them a runtime takes together with those around them, no count
        tells. So is taking out a constant factor, where no sequence of steps takes out any: to multiply the rest by ones is no
        step.
        Joining two outputs in one takes steps that no single output pays for, so such rules are for the search.
        """
        numbered = self.sizings(candidate.universe)[0]
        if len(candidate.left) > 1:
            return None if self._joined(candidate, numbered) else SEARCH
        left, right = numbered(candidate.left[0]), numbered(candidate.right[0])
        if left is None or right is None or not variables(*candidate.left):
            return None
        if not self._equal(left, right, self._place(candidate.universe).classes):
            return CORE
        hills = self._over_a_hill, self._of_another_kind, self._in_other_operators, self._takes_out_a_factor
        return SEARCH if any(is_hill(candidate) for is_hill in hills) else None

    def _over_a_hill(self, candidate: Candidate) -> bool:
        """Whether one side gains on the other at both sizings, and at one only dearer terms lead from the other to it."""
        for steps in self._directions(candidate):
            gains = all(_gains(d, c) and (heavy(d) or term_size(d) <= LOCAL) for d, c in steps)
            if gains and any(not self.rewriter.descends(d, c) for d, c in steps):
                return True
        return False

    def _takes_out_a_factor(self, candidate: Candidate) -> bool:
        """Whether one side is the other with a constant factor taken out, and at one sizing no steps take any out."""
        return any(
            all(factored([old], [new]) for old, new in steps) and not all(self._factors(old, new) for old, new in steps)
            for steps in self._directions(candidate)
        )

    def _factors(self, old: Term, new: Term) -> bool:
        """Whether steps through what is not much dearer than both take a constant factor out of the old term."""
        dearest = max(self.rewriter.cost(old), self.rewriter.cost(new))
        return self.rewriter.leads(old, dearest, lambda term: factored([old], [term]))

    def _directions(self, candidate: Candidate) -> Iterator[list[tuple[Term, Term]]]:
        """The candidate's sides at both sizings, from left to right and from right to left, where both are typed."""
        pairs = [tuple(map(sizing, candidate.left + candidate.right)) for sizing in self.sizings(candidate.universe)]
        for turned in (1, -1):
            steps = [(one, other) for one, other in (pair[::turned] for pair in pairs) if one is not None and other is not None]
            if len(steps) == len(pairs):
                yield steps

    def _of_another_kind(self, candidate: Candidate) -> bool:
        """Whether both sides execute one operator, weights known, not of one kind, and no step leads to the dear one."""
        for sizing in self.sizings(candidate.universe):
            sides = [n for t in candidate.left + candidate.right if (n := sizing(t)) is not None]
            if len(sides) < 2 or any(effort([t], weights_known=True).operators != 1 for t in sides):
                return False
            cheap, dear = sorted(sides, key=self.rewriter.cost)
            steep = cheap.op != dear.op and self.rewriter.cost(cheap) < self.rewriter.cost(dear)
            if not steep or dear in self.rewriter.steps(cheap):
                return False
        return True

    def _in_other_operators(self, candidate: Candidate) -> bool:
        """Whether both sides cost the same, weights known, an operator that `counts` on each, but are not of the same
        operators, and no step leads from one to the other.
        """
        steps = next(self._directions(candidate), [])
        return bool(steps) and all(self._is_another_way(one, other) for one, other in steps)

    def _is_another_way(self, one: Term, other: Term) -> bool:
        cost, same = (effort([term], weights_known=True) for term in (one, other))
        alike = cost == same and all(map(counts, (one, other)))
        return alike and executed(one) != executed(other) and other not in self.rewriter.steps(one)

    def _equal(self, left: Term, right: Term, classes: Classes) -> bool:
        """Whether the terms are joined: by congruence and up to three steps at the root, or by one step and normal forms."""
        goals = {classes.canonical(right)}
        around = [{classes.canonical(left)}]
        if around[0] & goals:
            return True
        around.append(self._around(left, classes))
        if around[1] & goals:
            return True
        goals |= self._around(right, classes)
        if (around[0] | around[1]) & goals:
            return True
        if any(self._around(term, classes) & goals for term in sorted(around[1], key=lambda t: t.key)):
            return True
        return self.rewriter.joins(left, right) or self.rewriter.joins_around(left, right)

    def _around(self, term: Term, classes: Classes) -> set[Term]:
        """What represents the terms that are one step at the root away."""
        return {classes.canonical(t) for t in self.rewriter.steps(term)}

    def _joined(self, candidate: Candidate, numbered: DimBinding) -> bool:
        """Whether a join that is kept computes these outputs together already, by no more operators than the candidate."""
        left, right = ([n for t in side if (n := numbered(t)) is not None] for side in (candidate.left, candidate.right))
        return any(
            match.roots == tuple(left) and term_size(*match.replacements) <= term_size(*right)
            for pattern in self._joins
            if len(pattern.left) == len(left) and pattern.left[0].rank == left[0].rank
            for match in pattern.matches(left[0], lambda op: [t for t in left[1:] if t.op == op])
        )
