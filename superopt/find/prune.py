"""Redundancy: no equality is kept that kept ones join, no direction written that serves no search."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from superopt.errors import ShapeError
from superopt.find.enumerate import Candidate, term_size, weight
from superopt.find.universe import WEIGHTS, Universe
from superopt.graph import (
    Attribute,
    Cond,
    Extent,
    Sym,
    Term,
    substitute,
    substitute_attribute,
    subterms,
    variable,
    variables,
)
from superopt.match import Pattern
from superopt.op import apply, operator, rebuild
from superopt.rule import Rule
from superopt.store import CORE, SEARCH

STEPS = 12
EXPANSIONS = 24
LAUNCH = 10000.0
VECTOR = 8.0
HILL = 0.9
NEUTRAL = 3
LOW_RANK = 8
Needs: TypeAlias = "tuple[tuple[str, ...], bool]"
Measure: TypeAlias = "tuple[int, int, str]"


class Numbered:
    """Terms of a universe with numbers for its symbols: what matching works on. No two extents coincide."""

    def __init__(self, symbols: Mapping[str, Extent]) -> None:
        self.symbols = symbols
        self.done: dict[Term, Term | None] = {}

    def of(self, term: Term) -> Term | None:
        """The term with numeric extents and attributes, or None where it is not typed at these numbers."""
        if term not in self.done:
            self.done[term] = self._built(term)
        return self.done[term]

    def _built(self, term: Term) -> Term | None:
        if term.is_variable:
            return variable(term.name, tuple(substitute(n, self._value) for n in term.shape))
        args = [self.of(a) for a in term.args]
        attributes: dict[str, Attribute] = {k: substitute_attribute(v, self._value) for k, v in term.attributes}
        try:
            return None if None in args else apply(term.op, *(a for a in args if a is not None), **attributes)
        except ShapeError:
            return None

    def _value(self, atom: object) -> Extent | None:
        return self.symbols.get(atom.name) if isinstance(atom, Sym) else None


def distinct_numbers(universe: Universe) -> dict[str, Extent]:
    """A number for every symbol of the universe; extents large and different, windows and low ranks small."""
    numbers: dict[str, Extent] = {}
    for position, (name, values) in enumerate(universe.ranges.items()):
        small = name[0] in "sdpeijgk" and universe.family == "convolution"
        window = 5 if name[0] == "k" else 2
        numbers[name] = values[-1] if name in "ae" else window + position % 3 if small else 101 + 13 * position
    if universe.family == "matrix" and "l" in numbers:
        numbers["l"] = LOW_RANK
    return numbers


class Rewriter:
    """Single-output equalities as ordered rewriting: a step from either side is taken where it makes a term smaller."""

    def __init__(self) -> None:
        self._patterns: dict[tuple[str, int], list[tuple[Needs, Pattern]]] = {}
        self._normal: dict[Term, Term] = {}
        self._steps: dict[Term, tuple[Term, ...]] = {}
        self._measures: dict[Term, Measure] = {}

    def add(self, rule: Rule) -> None:
        """Uses the rule from now on, in both directions."""
        for equation in rule.equations:
            if len(equation.left) == 1:
                self._direction(equation.left, equation.right, equation.where)
                self._direction(equation.right, equation.left, equation.where)
        self._normal.clear()
        self._steps.clear()

    def _direction(self, left: tuple[Term, ...], right: tuple[Term, ...], where: Cond) -> None:
        pattern = Pattern(left, right, where)
        if pattern.usable and not left[0].is_variable:
            self._patterns.setdefault((left[0].op, left[0].rank), []).append((_needs(left[0]), pattern))

    def normal(self, term: Term) -> Term:
        """The term after steps that each make it smaller, as far as `STEPS` of them lead."""
        known = self._normal.get(term)
        if known is not None:
            return known
        current = term
        for _ in range(STEPS):
            below = {a: self.normal(a) for a in current.args}
            if any(a is not b for a, b in below.items()):
                current = rebuild(current, below)
            after = min(self.steps(current), key=self._measure, default=current)
            if self._measure(after) >= self._measure(current):
                break
            current = after
        self._normal[term] = current
        return current

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
        """Terms one step away, in either direction, at the root."""
        known = self._steps.get(term)
        if known is None:
            operators = [a.op for a in term.args]
            known = self._steps[term] = tuple(
                match.replacements[0]
                for needs, pattern in self._patterns.get((term.op, term.rank), ())
                if _has(operators, needs)
                for match in pattern.matches(term, lambda _: ())
            )
        return known

    def descends(self, start: Term, goal: Term) -> bool:
        """Whether steps that never cost more than `start` lead from it to what costs no more than `goal`, weights known."""
        limit, enough = (effort([t], weights_known=True).total for t in (start, goal))
        waiting = [(limit, start.key, start)]
        seen = {start}
        for _ in range(EXPANSIONS):
            if not waiting:
                return False
            for after in self.neighbours(heapq.heappop(waiting)[2]):
                cost = effort([after], weights_known=True).total
                if cost <= enough:
                    return True
                if after not in seen and cost <= limit:
                    seen.add(after)
                    heapq.heappush(waiting, (cost, after.key, after))
        return False

    def _measure(self, term: Term) -> Measure:
        known = self._measures.get(term)
        if known is None:
            parts = subterms(term)
            known = self._measures[term] = (sum(map(weight, parts)), sum(len(t.args) for t in parts), term.key)
        return known


def _needs(root: Term) -> Needs:
    """What a pattern's root asks of the operands' operators: each in its place, or anywhere under a sum or product."""
    asked = tuple("" if a.is_variable else a.op for a in root.args)
    return tuple(o for o in asked if o) if operator(root.op).commutative else asked, operator(root.op).commutative


def _has(operators: Sequence[str], needs: Needs) -> bool:
    asked, anywhere = needs
    if anywhere:
        return all(o in operators for o in asked)
    return all(not a or a == o for a, o in zip(asked, operators, strict=True))


# ---------------------------------------------------------------- directions


@dataclass(frozen=True)
class Effort:
    """What a graph costs at run time: operators executed, and arithmetic plus traffic in arbitrary units."""

    operators: int
    work: float

    @property
    def total(self) -> float:
        """Both in one number: starting an operator costs as much as moving `LAUNCH` elements."""
        return self.work + LAUNCH * self.operators


def effort(roots: Sequence[Term], *, weights_known: bool) -> Effort:
    """The cost of numeric terms; with `weights_known`, what depends on weights alone is free."""
    operators, work = 0, 0.0
    free: set[Term] = set()
    for term in subterms(*roots):
        known = weights_known and term.is_variable and term.name in WEIGHTS
        if known or (not term.is_variable and all(a in free for a in term.args)):
            free.add(term)
        elif not term.is_variable and term.op not in ("expand", "reshape"):
            operators += 1
            work += _work(term)
    return Effort(operators, work)


def _work(term: Term) -> float:
    moved = sum((_elements(t) for t in (term, *term.args)), 0.0)
    if term.op not in ("matmul", "conv"):
        return moved
    summed = _elements(term.args[1]) / float(term.args[1].shape[-1 if term.op == "matmul" else 0])  # type: ignore[arg-type]
    return moved + _elements(term) * summed / VECTOR


def _elements(term: Term) -> float:
    count = 1.0
    for extent in term.shape:
        count *= float(extent)  # type: ignore[arg-type]
    return count


def useful(candidate: Candidate, numbered: Callable[[Term], Term | None]) -> bool:
    """Whether rewriting the candidate's left side to its right can serve a search.

    It cannot where nothing but variables or constants is on the left, where the left does not determine all variables of the
    right, where a left side is part of the right, where the sides differ in the names of variables alone, where the step both
    executes more operators and does more work, weights known or not, and where `NEUTRAL` operators or more are only rearranged.
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
    if all(old == new for old, new in pairs) and term_size(*left) >= NEUTRAL:
        return False
    if any(new.operators <= old.operators or new.work < old.work for old, new in pairs):
        return True
    return len(left) > 1


def crosses(candidate: Candidate, numbered: Callable[[Term], Term | None]) -> bool:
    """Whether the right side costs less than the left, weights known, or is dearer but executes no more operators.

    The first is a step over a hill, the second a step up one. A join always counts: it gains in operators started.
    """
    before, after = ([n for t in side if (n := numbered(t)) is not None] for side in (candidate.left, candidate.right))
    old, new = effort(before, weights_known=True), effort(after, weights_known=True)
    return len(candidate.left) > 1 or new.total < old.total or new.operators <= old.operators


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


# ---------------------------------------------------------------- what is kept


class Kept:
    """The equalities kept so far, and what they make of another: nothing new, a step over a hill, or news."""

    def __init__(self) -> None:
        self.rewriter = Rewriter()
        self._texts: set[str] = set()
        self._numbered: dict[str, Numbered] = {}
        self._joins: list[Pattern] = []
        self._core: list[tuple[Candidate, Rule]] = []

    def numbered(self, universe: Universe) -> Callable[[Term], Term | None]:
        """Numbers for the universe's symbols, put into its terms."""
        if universe.name not in self._numbered:
            self._numbered[universe.name] = Numbered(distinct_numbers(universe))
        return self._numbered[universe.name].of

    def add(self, candidate: Candidate, rule: Rule, part: str) -> bool:
        """Keeps an equality that was proved; False if it is there already."""
        news = rule.text not in self._texts
        self._texts.add(rule.text)
        if news:
            self.rewriter.add(rule)
            self._joins += [Pattern.of(e) for e in rule.equations if len(e.left) > 1]
            if part == CORE:
                self._core.append((candidate, rule))
        return news

    def suspect(self, rule: Rule) -> None:
        """Lets an equality that could not be proved count as known, so that what it would join is not tried again."""
        self.rewriter.add(rule)

    def part(self, candidate: Candidate) -> str | None:
        """CORE for an equality that those kept do not join, SEARCH for one they join only over a hill, None for any other.

        Joining two outputs in one takes steps that no single output pays for, so such rules are for the search.
        """
        numbered = self.numbered(candidate.universe)
        if len(candidate.left) > 1:
            return None if self._joined([n for t in candidate.left if (n := numbered(t)) is not None]) else SEARCH
        left, right = numbered(candidate.left[0]), numbered(candidate.right[0])
        if left is None or right is None or not variables(*candidate.left):
            return None
        if not self.rewriter.joins(left, right) and not self.rewriter.joins_around(left, right):
            return CORE
        costs = [effort([t], weights_known=True).total for t in (left, right)]
        if min(costs) >= HILL * max(costs):
            return None
        dear, cheap = (left, right) if costs[0] > costs[1] else (right, left)
        return None if self.rewriter.descends(dear, cheap) else SEARCH

    def derivable(self) -> list[Rule]:
        """Core equalities that the rest of the core joins after all, the latest first; each is left out for those after it."""
        core, found = list(self._core), list[Rule]()
        for candidate, rule in reversed(self._core):
            others = Rewriter()
            for _, other in core:
                if other is not rule:
                    others.add(other)
            left, right = (self.numbered(candidate.universe)(t) for t in (candidate.left[0], candidate.right[0]))
            if left is not None and right is not None and others.joins_around(left, right):
                core.remove((candidate, rule))
                found.append(rule)
        return found

    def _joined(self, left: Sequence[Term]) -> bool:
        """Whether a join that is kept computes these outputs together already."""
        return any(
            match.roots == tuple(left)
            for pattern in self._joins
            if len(pattern.left) == len(left) and pattern.left[0].rank == left[0].rank
            for match in pattern.matches(left[0], lambda op: [t for t in left[1:] if t.op == op])
        )
