"""Equalities between numeric terms as known ones imply them: by congruence, by a step at the root, by ordered rewriting.

A term is built over representatives, and what its operands are equal to was settled before. So most equalities are one step of
a known rule at the root away, with congruence on both sides of it; that is looked at first, and rewriting to normal forms only
where it does not lead to the goal.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from superopt.errors import ShapeError
from superopt.find.effort import effort
from superopt.find.enumerate import weight
from superopt.graph import VARIABLE, Cond, Term, subterms
from superopt.match import Pattern
from superopt.op import apply, operator, rebuild
from superopt.rule import Rule

STEPS = 12
EXPANSIONS = 24
SUMMANDS = 6
Measure: TypeAlias = "tuple[int, int, str]"
Place: TypeAlias = "tuple[int, str]"


class Classes:
    """Terms that are known to be equal, closed under congruence."""

    def __init__(self) -> None:
        self._parents: dict[Term, Term] = {}

    def merge(self, term: Term, representative: Term) -> None:
        """The terms are equal from now on."""
        one, other = self.canonical(term), self.canonical(representative)
        if one is not other:
            self._parents[one] = other

    def canonical(self, term: Term) -> Term:
        """The term with every part replaced by what represents its class; equal for terms that congruence makes equal."""
        if term.args:
            args = tuple(self.canonical(a) for a in term.args)
            if any(a is not b for a, b in zip(args, term.args, strict=True)):
                term = apply(term.op, *args, **dict(term.attributes))
            if len(term.args) > 2 and operator(term.op).commutative:
                term = self._contracted(term)
        return self._root(term)

    def _root(self, term: Term) -> Term:
        while (parent := self._parents.get(term)) is not None:
            term = parent
        return term

    def _contracted(self, term: Term) -> Term:
        """A sum of which no two operands together are known to equal something else."""
        if 2 < len(term.args) <= SUMMANDS:
            for i, j in itertools.combinations(range(len(term.args)), 2):
                whole = self._root(apply(term.op, term.args[i], term.args[j]))
                if whole.op != term.op:
                    rest = (a for position, a in enumerate(term.args) if position not in (i, j))
                    return self._contracted(apply(term.op, whole, *rest))
        return term


@dataclass(frozen=True)
class Reading:
    """An equation in one direction. It is prepared for matching when it is first tried."""

    left: Term
    right: Term
    where: Cond

    @cached_property
    def pattern(self) -> Pattern:
        """The equation prepared for matching."""
        return Pattern((self.left,), (self.right,), self.where)

    @cached_property
    def place(self) -> Place | None:
        """An operand that is no variable, by its position (-1 under a sum or product: anywhere) and its operator."""
        anywhere = operator(self.left.op).commutative
        return next(((-1 if anywhere else i, a.op) for i, a in enumerate(self.left.args) if a.op != VARIABLE), None)


@dataclass
class Row:
    """The readings for one operator and rank at the root, by a place that a term must have, in the order they were added."""

    count: int = 0
    places: dict[Place | None, tuple[list[int], list[Reading]]] = field(default_factory=dict)

    def add(self, reading: Reading) -> None:
        numbers, readings = self.places.setdefault(reading.place, ([], []))
        numbers.append(self.count)
        readings.append(reading)
        self.count += 1

    def fitting(self, term: Term, since: int) -> Iterator[Pattern]:
        """Patterns that may match the term, of those added since so many were there."""
        commutative = operator(term.op).commutative
        own: dict[Place | None, None] = {None: None}
        own.update(dict.fromkeys((-1 if commutative else i, a.op) for i, a in enumerate(term.args)))
        for place in own:
            if place in self.places:
                numbers, readings = self.places[place]
                for reading in readings[bisect_left(numbers, since) :]:
                    if fits(reading.left, term, root=True):
                        yield reading.pattern


def fits(pattern: Term, term: Term, *, root: bool = False) -> bool:
    """Whether the operators of a pattern stand in the term where it asks for them; sums may have more operands at the root."""
    if pattern.op == VARIABLE:
        return len(pattern.shape) == len(term.shape)
    if pattern.op != term.op:
        return False
    if operator(pattern.op).commutative:
        few = len(pattern.args) > len(term.args) if root else len(pattern.args) > len(term.args) or not term.args
        return not few and all(p.op == VARIABLE or any(fits(p, a) for a in term.args) for p in pattern.args)
    return all(fits(p, a) for p, a in zip(pattern.args, term.args, strict=True))


class Rewriter:
    """Single-output equalities as rewriting steps, and as ordered rewriting: steps that each make a term smaller."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], Row] = {}
        self._version = 0
        self._normal: dict[Term, tuple[Term, int]] = {}
        self._steps: dict[Term, tuple[tuple[Term, ...], int]] = {}
        self._measures: dict[Term, Measure] = {}
        self._efforts: dict[Term, float] = {}

    def add(self, rule: Rule) -> None:
        """Uses the rule from now on, in both directions."""
        for equation in rule.equations:
            if len(equation.left) == 1:
                self._direction(equation.left[0], equation.right[0], equation.where)
                self._direction(equation.right[0], equation.left[0], equation.where)
        self._version += 1

    def _direction(self, left: Term, right: Term, where: Cond) -> None:
        if left.args and Pattern((left,), (right,), where).usable:
            self._rows.setdefault((left.op, left.rank), Row()).add(Reading(left, right, where))

    def normal(self, term: Term) -> Term:
        """The term after steps that each make it smaller, as far as `STEPS` of them lead."""
        known, version = self._normal.get(term, (term, -1))
        if version == self._version:
            return known
        result = self._smallest(term) if known is term else self.normal(known)
        self._normal[term] = result, self._version
        return result

    def _smallest(self, term: Term) -> Term:
        for _ in range(STEPS):
            below = {a: self.normal(a) for a in term.args}
            if any(a is not b for a, b in below.items()):
                term = rebuild(term, below)
            after = min(self.steps(term), key=self._measure, default=term)
            if self._measure(after) >= self._measure(term):
                break
            term = after
        return term

    def joins(self, left: Term, right: Term) -> bool:
        """Whether both terms have one normal form."""
        return self.normal(left) is self.normal(right)

    def joins_around(self, left: Term, right: Term) -> bool:
        """Whether one step anywhere in either term, in either direction, leads to terms that join."""
        goal_left, goal_right = self.normal(left), self.normal(right)
        if goal_left is goal_right:
            return True
        around_left = {self.normal(t) for t in self.neighbours(left)}
        if goal_right in around_left:
            return True
        around_right = {self.normal(t) for t in self.neighbours(right)}
        return goal_left in around_right or bool(around_left & around_right)

    def neighbours(self, term: Term) -> Iterator[Term]:
        """Terms one step away, in either direction, anywhere in the term."""
        for part in subterms(term):
            for after in self.steps(part):
                try:
                    yield after if part is term else rebuild(term, {part: after})
                except ShapeError:
                    continue

    def steps(self, term: Term) -> tuple[Term, ...]:
        """Terms one step away, in either direction, at the root; what is known of them is kept and added to."""
        row = self._rows.get((term.op, term.rank))
        if row is None:
            return ()
        known, since = self._steps.get(term, ((), 0))
        if since < row.count:
            found = (m.replacements[0] for pattern in row.fitting(term, since) for m in pattern.matches(term, lambda _: ()))
            known = tuple(dict.fromkeys((*known, *found)))
            self._steps[term] = known, row.count
        return known

    def descends(self, start: Term, goal: Term) -> bool:
        """Whether steps that never cost more than `start` lead from it to what costs no more than `goal`, weights known."""
        limit, enough = self.cost(start), self.cost(goal)
        if any(self.cost(after) <= enough for after in self.steps(start)):
            return True
        waiting = [(limit, start.key, start)]
        seen = {start}
        for _ in range(EXPANSIONS):
            if not waiting:
                return False
            for after in self.neighbours(heapq.heappop(waiting)[2]):
                cost = self.cost(after)
                if cost <= enough:
                    return True
                if after not in seen and cost <= limit:
                    seen.add(after)
                    heapq.heappush(waiting, (cost, after.key, after))
        return False

    def cost(self, term: Term) -> float:
        """The term's effort once weights are known."""
        known = self._efforts.get(term)
        if known is None:
            known = self._efforts[term] = effort([term], weights_known=True).total
        return known

    def _measure(self, term: Term) -> Measure:
        known = self._measures.get(term)
        if known is None:
            parts = subterms(term)
            known = self._measures[term] = (sum(map(weight, parts)), sum(len(t.args) for t in parts), term.key)
        return known
