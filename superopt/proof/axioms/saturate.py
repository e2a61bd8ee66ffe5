"""Proof search: axioms are instantiated wherever they match, until both sides of an equation are known to be equal."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import VARIABLE, Term, substitute_cond, subterms
from superopt.errors import ShapeError
from superopt.policy import PROOF
from superopt.proof.axioms.closure import Closure, Given, Regrouping, egraph_attribute_values
from superopt.proof.axioms.ematch import Direction, Matcher, directions
from superopt.proof.axioms.ground import regrouping_axiom_instance, write_ground
from superopt.proof.definitions.assumptions import Assumptions
from superopt.rules.match import Binding, instantiate
from superopt.rules.rule import axioms
from superopt.rules.signature import outlines

Readings: TypeAlias = "Mapping[tuple[str, int], Sequence[Direction]]"


@dataclass(frozen=True)
class SaturationLimits:
    """Limits of a search.

    Attributes:
        rounds: The maximum number of rounds. A round matches every axiom everywhere.
        terms: The maximum number of terms in the closure.
        steps: The maximum total number of matching steps.
        growth: Limits on the cost of a new term. The cost of a term is about the number of its operators (see
            `Closure.weight`). Each entry is a pair of limits. The first number is the maximum excess over the cost of the
            replaced term. The second number is the maximum excess over the cost of the costliest term in the goals (the pairs
            of terms to be made equal). The search starts with the first pair of limits. When the current pair allows no further
            instance, the next pair applies.
    """

    rounds: int = PROOF.max_saturation_rounds
    terms: int = PROOF.max_saturation_terms
    steps: int = PROOF.max_saturation_steps
    growth: tuple[tuple[int, int], ...] = PROOF.saturation_growth_counts


@functools.cache
def axiom_directions(axiom: str) -> tuple[Direction, ...]:
    """Return the directions in which an axiom can be used as a rewrite, at each choice of its ranks.

    A `=>` axiom is used only from left to right.
    """
    law = axioms()[axiom]
    found = (d for equation in law.equations for d in directions(axiom, equation))
    return tuple(d for d in found if law.statement.arrow == "==" or d.source is d.equation.left[0])


@functools.lru_cache(maxsize=PROOF.axiom_set_cache_count)
def readings_within(operators: frozenset[str]) -> Readings:
    """Return the axioms that contain only these operators, as rewrites in each usable direction.

    The rewrites are grouped by the operator and rank of the matched side.
    """
    found: dict[tuple[str, int], list[Direction]] = {}
    for name, axiom in axioms().items():
        if operators.issuperset(axiom.operators):
            for direction in axiom_directions(name):
                found.setdefault((direction.source.op, direction.source.rank), []).append(direction)
    return found


@functools.cache
def _own_words(op: str) -> frozenset[str]:
    """Return the operators that axioms use to define the operator `op`. For `sub`, these are `add` and `scale`."""
    found: set[str] = set()
    for name, axiom in axioms().items():
        if name.partition(".")[0] == op:
            (left,), (right,) = outlines(axiom.statement.left), outlines(axiom.statement.right)
            if left.op == op and not any(a.op for a in left.args):
                found |= right.operators
    return frozenset(found)


@functools.cache
def with_defining_operators(operators: frozenset[str]) -> frozenset[str]:
    """Return the given operators and all operators that axioms use, directly or indirectly, to define them.

    For example, axioms use `add` and `scale` to define `sub`.
    """
    found = operators.union(*map(_own_words, operators))
    return found if found == operators else with_defining_operators(found)


def derive(assumptions: Assumptions, limits: SaturationLimits) -> list[str] | None:
    """Return the texts of axiom instances that imply the equation. Return None if the search fails.

    `assumptions` contains the two sides of the equation and the conditions on its sizes.
    """
    goals = tuple(zip(assumptions.left, assumptions.right, strict=True))
    own = frozenset(t.op for pair in goals for t in subterms(*pair) if not t.is_variable)
    for allowed in dict.fromkeys((own, with_defining_operators(own))):
        search = Saturation(assumptions, allowed, limits)
        if search.run(goals):
            given, regrouped = search.closure.explain(goals)
            sums = dict.fromkeys(s for step in regrouped for s in step.sums)
            return [g.text for g in reversed(given)] + [regrouping_axiom_instance(s) for s in sums if len(s.args) > 2]
    return None


class Saturation:
    """A congruence closure to which instances of laws are added. By default, the laws are the axioms.

    All operators in new terms are in the set `allowed`.
    """

    def __init__(
        self, assumptions: Assumptions, allowed: frozenset[str], limits: SaturationLimits, laws: Readings | None = None
    ) -> None:
        self.laws = readings_within(allowed) if laws is None else laws
        self.assumptions = assumptions
        self.allowed = allowed
        self.limits = limits
        sides = subterms(*assumptions.left, *assumptions.right)
        self.closure = Closure(extent for term in sides for extent in egraph_attribute_values(term))
        self.matcher = Matcher(self.closure, limits.steps)
        self.growth = self.heaviest = 0
        self._tried: set[tuple[object, ...]] = set()
        self._excess: dict[tuple[object, ...], int] = {}
        self._regrouped: set[tuple[Term, Term]] = set()

    @property
    def full(self) -> bool:
        """Whether the search has reached its limit on the number of terms or of matching steps."""
        return len(self.closure) >= self.limits.terms or self.matcher.steps < 0

    def run(self, goals: Sequence[tuple[Term, Term]]) -> bool:
        """Instantiate laws until the two terms of every goal are equal, or until a limit is reached.

        Return whether the two terms of every goal are equal.
        """
        heaviest = max(self.closure.weight(self.closure.add(term)) for pair in goals for term in pair)
        growth = iter(self.limits.growth)
        self._allow(heaviest, next(growth))
        for _ in range(self.limits.rounds):
            before = len(self.closure), len(self._tried)
            if self._reached(goals) or self._round(goals):
                return True
            if self.full:
                return False
            if (len(self.closure), len(self._tried)) == before:
                more = next(growth, None)
                if more is None:
                    return False
                self._allow(heaviest, more)
        return False

    def _allow(self, heaviest: int, growth: tuple[int, int]) -> None:
        self.growth, self.heaviest = growth[0], heaviest + growth[1]

    def _round(self, goals: Sequence[tuple[Term, Term]]) -> bool:
        """Instantiate every law wherever it matches. Return whether the two terms of every goal are now equal."""
        for direction, found in list(self._matches()):
            self._instantiate(direction, found)
            if self._reached(goals):
                return True
            if self.full:
                return False
        self._regroup()
        return self._reached(goals)

    def _reached(self, goals: Iterable[tuple[Term, Term]]) -> bool:
        return all(self.closure.equal(one, other) for one, other in goals)

    def _matches(self) -> Iterator[tuple[Direction, Binding]]:
        present = self.closure.by_operator
        ranks = {(t.op, t.rank): None for terms in present.values() for t in terms}
        for place in ranks | {(VARIABLE, rank): None for _, rank in ranks}:
            for direction in self.laws.get(place, ()):
                if direction.inner <= present.keys() and direction.target_operators <= self.allowed:
                    for found in self.matcher.matches(direction.source):
                        yield direction, found

    def _instantiate(self, direction: Direction, found: Binding) -> None:
        identity = (direction, *(self.closure.find(t) for t in found.tensors.values()), *found.symbols.items())
        if identity in self._tried or self._excess.get(identity, 0) > self.growth:
            return
        tensors = {name: self.closure.best(term) for name, term in found.tensors.items()}
        weights = {name: self.closure.weight(term) for name, term in tensors.items()}
        before, after = direction.weights(weights)
        if after > self.heaviest or after - before > self.growth:
            return
        binding = Binding(tensors, found.symbols)
        try:
            if not self.assumptions.holds(substitute_cond(direction.where, binding.value)):
                self._tried.add(identity)
                return
            source, target = instantiate(direction.source, binding), instantiate(direction.target, binding)
        except ShapeError:
            self._tried.add(identity)
            return
        after = self.closure.weight(target)
        self._excess[identity] = after - self.closure.weight(source)
        if after > self.heaviest or self._excess[identity] > self.growth:
            return
        self._tried.add(identity)
        typed = self.assumptions.typed(source) and self.assumptions.typed(target)
        if typed and self.assumptions.alike(source, target) and not self._known(source, target):
            text = write_ground(direction.axiom, direction.equation, tensors, found.symbols)
            sides = (source, target) if direction.source is direction.equation.left[0] else (target, source)
            self.closure.merge(self.closure.add(source), self.closure.add(target), Given(text, *sides))

    def _known(self, one: Term, other: Term) -> bool:
        here, there = self.closure.lookup(one), self.closure.lookup(other)
        return here is not None and here is there

    def _regroup(self) -> None:
        """Add regrouped sums and products to the closure, in two ways.

        Let d be a term that equals the sum a + b. First, if the closure contains a + b + c, then d + c is added as an equal
        term. Second, if the closure contains d + c, then a + b + c is added as an equal term. Both ways also apply to products.
        """
        for op in [name for name in self.closure.by_operator if operator(name).commutative]:
            nodes = [n for n in self.closure.by_operator[op] if self.closure.canonical(n)]
            parts = _Parts(self.closure, nodes)
            for node in nodes:
                for part in parts.of(node):
                    if not self.full and (node, part) not in self._regrouped:
                        self._contract(node, part)
                        self._expand(node, part)

    def _contract(self, node: Term, part: Term) -> None:
        if len(part.args) >= len(node.args):
            return
        rest = self._without(node, part)
        whole = self.closure.best(part)
        if rest is None or whole.op == node.op:
            return
        new = apply(node.op, whole, *rest)
        if self.closure.weight(new) > self.heaviest:
            return
        self._regrouped.add((node, part))
        self.closure.add(new)
        taken = self._removed(node.args, rest)
        pairs = (*self.closure.matched(taken, part.args), (part, whole))
        self.closure.merge(node, new, Regrouping((node, part, new), pairs))

    def _expand(self, node: Term, part: Term) -> None:
        if len(node.args) + len(part.args) - 1 > PROOF.max_saturated_summands or self.closure.equal(node, part):
            return
        whole = next((a for a in node.args if self.closure.equal(a, part)), None)
        if whole is None:
            return
        rest = list(node.args)
        rest.remove(whole)
        new = apply(node.op, part, *rest)
        if self.closure.weight(new) > self.heaviest:
            return
        self._regrouped.add((node, part))
        self.closure.add(new)
        self.closure.merge(node, new, Regrouping((node, part, new), ((whole, part),)))

    def _without(self, node: Term, part: Term) -> list[Term] | None:
        """Return the operands of `node` that remain after the operands of `part` are removed.

        For each operand of `part`, one equal operand of `node` is removed. Return None if no equal operand remains for some
        operand of `part`.
        """
        left = list(node.args)
        for operand in part.args:
            same = next((t for t in left if self.closure.equal(t, operand)), None)
            if same is None:
                return None
            left.remove(same)
        return left

    @staticmethod
    def _removed(args: Sequence[Term], rest: Sequence[Term]) -> list[Term]:
        left, removed = list(rest), []
        for term in args:
            if term in left:
                left.remove(term)
            else:
                removed.append(term)
        return removed


class _Parts:
    """A lookup table of sums (or products).

    The table has two keys for each sum: the class of terms equal to the sum, and the class of terms equal to the sum's first
    operand.
    """

    def __init__(self, closure: Closure, sums: Sequence[Term]) -> None:
        self._closure = closure
        self._sums = sums
        self._merges = -1
        self._places: dict[Term, list[int]] = {}

    def of(self, node: Term) -> Iterator[Term]:
        """Yield the sums whose first operand equals an operand of `node`, and the sums that equal an operand of `node`.

        The sums are yielded in the order of the list `sums` in `__init__`. The table is updated during the iteration, because
        classes may merge.
        """
        place = -1
        while (place := self._next(node, place)) < len(self._sums):
            yield self._sums[place]

    def _next(self, node: Term, place: int) -> int:
        if self._merges != self._closure.merges:
            self._place()
        found = [self._places.get(root, ()) for root in {self._closure.find(a) for a in node.args}]
        nexts = ((places, bisect.bisect_right(places, place)) for places in found)
        return min((places[at] for places, at in nexts if at < len(places)), default=len(self._sums))

    def _place(self) -> None:
        self._merges = self._closure.merges
        self._places = {}
        for place, part in enumerate(self._sums):
            for root in {self._closure.find(part), self._closure.find(part.args[0])}:
                self._places.setdefault(root, []).append(place)
