"""Decide whether given equalities imply that two terms with numeric extents are equal.

The operands of an enumerated term represent classes of equal terms, and equalities between operands were decided earlier. Most
equalities therefore follow from congruence and one rewriting step at the root of a term. Congruence and root steps are tried
first. If these steps do not show that the terms are equal, normal forms are compared.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from superopt.algebra.linearity import is_product
from superopt.algebra.operators import apply, operator, replace_subterms
from superopt.algebra.terms import VARIABLE, Cond, Term, operator_count, subterms, variables
from superopt.discovery.effort import Effort, effort
from superopt.discovery.enumerate import weight
from superopt.discovery.universe import WEIGHTS
from superopt.errors import ShapeError
from superopt.policy import DISCOVERY
from superopt.rules.match import Pattern
from superopt.rules.rule import Rule

Place: TypeAlias = "tuple[int, str]"


class Classes:
    """Equivalence classes of terms, closed under congruence: equal operands give equal terms."""

    def __init__(self) -> None:
        self._parents: dict[Term, Term] = {}

    def merge(self, term: Term, representative: Term) -> None:
        """Record that the two terms are equal."""
        one, other = self.canonical(term), self.canonical(representative)
        if one is not other:
            self._parents[one] = other

    def canonical(self, term: Term) -> Term:
        """Return the term with every part replaced by the term that represents the part's class of equal terms.

        If `merge` recorded that two terms are equal, their canonical terms are equal.
        """
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
        """Shorten the sum `term`. In each step, two operands are replaced by the single term that represents their sum.

        Two operands are replaced only if the term that represents their sum is not a sum itself. For example, if the variable
        `d` represents `a + b`, the sum `a + b + c` becomes `d + c`. Terms of other commutative operators are treated like sums.
        """
        if 2 < len(term.args) <= DISCOVERY.max_rewritten_summands:
            for i, j in itertools.combinations(range(len(term.args)), 2):
                whole = self._root(apply(term.op, term.args[i], term.args[j]))
                if whole.op != term.op:
                    rest = (a for position, a in enumerate(term.args) if position not in (i, j))
                    return self._contracted(apply(term.op, whole, *rest))
        return term


@dataclass(frozen=True)
class DirectedEquation:
    """An equation that is used only from left to right, under the condition `where`."""

    left: Term
    right: Term
    where: Cond

    @cached_property
    def pattern(self) -> Pattern:
        """The equation prepared for matching."""
        return Pattern((self.left,), (self.right,), self.where)

    @cached_property
    def place(self) -> Place | None:
        """The position and operator of the left side's first operand that is not a variable.

        The value is None if all operands are variables. If the left side's root operator is commutative, the position is -1,
        which stands for any position.
        """
        anywhere = operator(self.left.op).commutative
        return next(((-1 if anywhere else i, a.op) for i, a in enumerate(self.left.args) if a.op != VARIABLE), None)


@dataclass
class EquationIndex:
    """Equations whose left sides have the same root operator and rank, divided into groups.

    All equations of one group have the same `DirectedEquation.place`. The place consists of a position and an operator. A term
    can match only if its operand at this position has this operator as its root. Each group lists its equations in the order in
    which the equations were added.
    """

    count: int = 0
    places: dict[Place | None, tuple[list[int], list[DirectedEquation]]] = field(default_factory=dict)

    def add(self, reading: DirectedEquation) -> None:
        numbers, readings = self.places.setdefault(reading.place, ([], []))
        numbers.append(self.count)
        readings.append(reading)
        self.count += 1

    def fitting(self, term: Term, since: int) -> Iterator[Pattern]:
        """Yield the patterns of the equations that may match the term. Equations are numbered in the order in which they were
        added. Equations with a number less than `since` are skipped.
        """
        commutative = operator(term.op).commutative
        own: dict[Place | None, None] = {None: None}
        own.update(dict.fromkeys((-1 if commutative else i, a.op) for i, a in enumerate(term.args)))
        for place in own:
            if place in self.places:
                numbers, readings = self.places[place]
                for reading in readings[bisect_left(numbers, since) :]:
                    if rewriter_may_match(reading.left, term, root=True):
                        yield reading.pattern


def rewriter_may_match(pattern: Term, term: Term, *, root: bool = False) -> bool:
    """Return whether the term has the pattern's operators at the same positions. Sizes and attributes are ignored.

    Operands of a commutative operator may be in any order. If `root` is True and the root operator is commutative, the term may
    have more operands than the pattern.
    """
    if pattern.op == VARIABLE:
        return len(pattern.shape) == len(term.shape)
    if pattern.op != term.op:
        return False
    if operator(pattern.op).commutative:
        few = len(pattern.args) > len(term.args) if root else len(pattern.args) > len(term.args) or not term.args
        return not few and all(p.op == VARIABLE or any(rewriter_may_match(p, a) for a in term.args) for p in pattern.args)
    return all(rewriter_may_match(p, a) for p, a in zip(pattern.args, term.args, strict=True))


def size_of(term: Term) -> tuple[int, int, str]:
    """Return a sort key for terms. A term with fewer operators has a smaller key."""
    parts = subterms(term)
    return sum(map(weight, parts)), sum(len(t.args) for t in parts), term.key


class Spread:
    """A measure of terms. The measure decreases if a product is distributed over a sum, or if a difference is written as a sum.

    The measure of a term is computed from the measures of its operands:

    - for a variable or constant, 2,
    - for an operator with one operand, three times the operand's measure,
    - for an operator with several operands that is linear in each operand, the product of the operands' measures,
    - for any other commutative operator, the sum of the operands' measures, plus one for each operand after the first,
    - for any other operator, the measure of the first operand, plus three times the measure of each further operand, plus two
      for each further operand.

    If two terms have the same measure, the names of their operators are compared alphabetically.
    """

    def __init__(self) -> None:
        self._known: dict[Term, tuple[int, tuple[str, ...], str]] = {}
        self._products: dict[str, bool] = {}

    def of(self, term: Term) -> tuple[int, tuple[str, ...], str]:
        """Return a sort key of a term with numeric extents: its measure, the names of its operators, and the term's key.

        The docstring of the class describes the measure.
        """
        known = self._known.get(term)
        if known is None:
            below = [self.of(a) for a in term.args]
            names = (term.op, *(name for _, inner, _ in below for name in inner))
            known = self._known[term] = self._value(term, [value for value, _, _ in below]), names, term.key
        return known

    def _value(self, term: Term, below: list[int]) -> int:
        match below:
            case []:
                return 2
            case [one]:
                return 3 * one
            case [first, *others]:
                if self._multiplies(term):
                    return math.prod(below)
                alike = operator(term.op).commutative
                return first + sum(others if alike else (3 * n + 1 for n in others)) + len(others)
        raise AssertionError

    def _multiplies(self, term: Term) -> bool:
        if term.op not in self._products:
            self._products[term.op] = is_product(term)
        return self._products[term.op]


class OrderedRewriting:
    """Rewrites terms by at most `DISCOVERY.max_rewriting_steps` steps. Each step lowers a given measure of the term."""

    def __init__(self, rewriter: Rewriter, measure: Callable[[Term], tuple[object, ...]]) -> None:
        self._rewriter, self._measure = rewriter, measure
        self._known: dict[Term, tuple[Term, int]] = {}

    def of(self, term: Term) -> Term:
        """Return the term after greedy rewriting. Each step is chosen so that its result has the lowest possible measure.

        Operands are rewritten first. Rewriting stops if no step lowers the measure.
        """
        known, version = self._known.get(term, (term, -1))
        if version == self._rewriter.version:
            return known
        result = self._smallest(term) if known is term else self.of(known)
        self._known[term] = result, self._rewriter.version
        return result

    def _smallest(self, term: Term) -> Term:
        for _ in range(DISCOVERY.max_rewriting_steps):
            below = {a: self.of(a) for a in term.args}
            if any(a is not b for a, b in below.items()):
                term = replace_subterms(term, below)
            after = min(self._rewriter.steps(term), key=self._measure, default=term)
            if self._measure(after) >= self._measure(term) or operator_count(after) > DISCOVERY.max_rewritten_operators:
                break
            term = after
        return term


class Rewriter:
    """Equalities with one output, used as rewriting steps in both directions.

    A term has two normal forms. The form `small` has few operators. In the form `spread`, products are distributed over sums.
    """

    def __init__(self) -> None:
        self.version = 0
        self.small = OrderedRewriting(self, functools.cache(size_of))
        self.spread = OrderedRewriting(self, Spread().of)
        self._rows: dict[tuple[str, int], EquationIndex] = {}
        self._steps: dict[Term, tuple[tuple[Term, ...], int]] = {}
        self._efforts: dict[Term, tuple[Effort, Effort]] = {}

    def add(self, rule: Rule) -> None:
        """Add a rule, which is then used in both directions."""
        for equation in rule.equations:
            if len(equation.left) == 1:
                self._direction(equation.left[0], equation.right[0], equation.where)
                self._direction(equation.right[0], equation.left[0], equation.where)
        self.version += 1

    def _direction(self, left: Term, right: Term, where: Cond) -> None:
        if left.args and Pattern((left,), (right,), where).usable:
            self._rows.setdefault((left.op, left.rank), EquationIndex()).add(DirectedEquation(left, right, where))

    def joins(self, left: Term, right: Term) -> bool:
        """Return whether the two terms have equal normal forms `small` or equal normal forms `spread`."""
        return any(normal.of(left) is normal.of(right) for normal in (self.small, self.spread))

    def joins_around(self, left: Term, right: Term) -> bool:
        """Return whether the normal forms of the two terms become equal after at most one step in each term.

        A step applies one equality once, to any part of a term. The normal forms with few operators (`small`) are used.
        """
        normal = self.small.of
        goal_left, goal_right = normal(left), normal(right)
        if goal_left is goal_right:
            return True
        around_left = {normal(t) for t in self.neighbours(left)}
        if goal_right in around_left:
            return True
        around_right = {normal(t) for t in self.neighbours(right)}
        return goal_left in around_right or bool(around_left & around_right)

    def neighbours(self, term: Term, takes: Callable[[Term, Term], bool] = lambda *_: True) -> Iterator[Term]:
        """Yield each term that results if one equality is applied once, in either direction, to any part of `term`.

        A part is replaced only if `takes(part, replacement)` returns True.
        """
        for part in subterms(term):
            for after in self.steps(part):
                if not takes(part, after):
                    continue
                try:
                    yield after if part is term else replace_subterms(term, {part: after})
                except ShapeError:
                    continue

    def steps(self, term: Term) -> tuple[Term, ...]:
        """Return the terms that result if one equality is applied once, in either direction, at the root of `term`.

        The result is cached. If rules are added later, only the added rules are tried for a cached term.
        """
        row = self._rows.get((term.op, term.rank))
        if row is None or len(term.args) > DISCOVERY.max_rewritten_summands:
            return ()
        known, since = self._steps.get(term, ((), 0))
        if since < row.count:
            found = (m.replacements[0] for pattern in row.fitting(term, since) for m in pattern.matches(term, lambda _: ()))
            known = tuple(dict.fromkeys((*known, *found)))
            self._steps[term] = known, row.count
        return known

    def descends(self, start: Term, goal: Term) -> bool:
        """Return whether rewriting steps lead from the term `start` to a term that costs at most as much as `goal`.

        Every intermediate term costs at most `DISCOVERY.max_climb_factor` times as much as `start`. The cost is the run-time
        cost. Terms that depend only on weights cost nothing.
        """
        enough = self.cost(goal)
        return self.leads(start, self.cost(start), lambda term: self.cost(term) <= enough)

    def leads(self, start: Term, dearest: float, arrived: Callable[[Term], bool]) -> bool:
        """Return whether rewriting steps lead from the term `start` to a term for which `arrived` returns True.

        No intermediate term costs more than the product of the cost `dearest` and `DISCOVERY.max_climb_factor`. If one step at
        the root of `start` is enough, this step may apply any equality. In a longer sequence, only steps that a search for a
        cheaper model would take are allowed.
        """
        limit = DISCOVERY.max_climb_factor * dearest
        if any(map(arrived, self.steps(start))):
            return True
        waiting = [(limit, start.key, start)]
        seen = {start}
        for _ in range(DISCOVERY.max_rewriting_expansions):
            if not waiting:
                return False
            for after in self.neighbours(heapq.heappop(waiting)[2], self._serves):
                if arrived(after):
                    return True
                cost = self.cost(after)
                if after not in seen and cost <= limit:
                    seen.add(after)
                    heapq.heappush(waiting, (cost, after.key, after))
        return False

    def cost(self, term: Term) -> float:
        """Return the term's run-time cost, in units of moving one element. Terms that depend only on weights cost nothing."""
        return self._effort(term)[0].total

    def _effort(self, term: Term) -> tuple[Effort, Effort]:
        """Return two run-time costs of the term.

        The first cost leaves out the parts that depend only on weights, and the second cost includes them.
        """
        known = self._efforts.get(term)
        if known is None:
            known = self._efforts[term] = effort([term], weights_known=True), effort([term], weights_known=False)
        return known

    def _serves(self, part: Term, after: Term) -> bool:
        """Return whether a search for a cheaper model would replace the term `part` by the term `after`.

        A search replaces a term if the replacement saves work or adds no operator. Terms that depend only on weights are not
        replaced.
        """
        names = [v.name for v in variables(part)]
        if names and WEIGHTS.issuperset(names):
            return False
        pairs = zip(self._effort(part), self._effort(after), strict=True)
        return any(new.operators <= old.operators or new.work < old.work for old, new in pairs)
