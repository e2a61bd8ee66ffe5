"""Tests of whether a sum is zero. Summands with equal products of elements cancel where their index domains overlap.

A summand is summed over a domain: the values of its bound indices. Two summands overlap where a reindexing maps points of the
first domain to points of the second domain, and the inverse reindexing maps these points back. The reindexing is therefore a
bijection on the overlap. The coefficients of the summands are added on the overlap. Outside the overlap, the summands stay
unchanged. The domains need not be equal: a sum over n + m elements cancels against the sums over the first n and the last m
elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from superopt.algebra.extent import parts_of, sides
from superopt.algebra.terms import Cond, Extent, Sym, atoms, conjunction, negation, same, size, substitute
from superopt.policy import PROOF
from superopt.proof.definitions.align import (
    Reindexing,
    alignments,
    first_from,
    lookup,
    orders,
    pairings,
    product_signature,
    solve_indices,
)
from superopt.proof.definitions.alpha import collect_summands, factor_key
from superopt.proof.definitions.arithmetic import SolverEffort, is_contradictory, is_valid
from superopt.proof.definitions.cases import replace_read, sign_cases
from superopt.proof.definitions.clearing import clear_denominator
from superopt.proof.definitions.normal import Normal
from superopt.proof.definitions.signs import Sign
from superopt.proof.definitions.simplify import simplify_sum, simplify_summand, vanishes
from superopt.proof.definitions.sums import (
    Call,
    Factor,
    Guard,
    GuardedValue,
    Largest,
    Power,
    Read,
    Sum,
    Summand,
    TableElement,
    bound_in,
    substitute_factor,
    substitute_guard,
    substitute_sum,
    substitute_summand,
    times,
)
from superopt.proof.definitions.values import zero_where


@dataclass(frozen=True)
class Merged:
    """The result of merging two summands.

    Attributes:
        common: The sum of both summands on the overlap of their index domains. `common` is empty if this sum is zero.
        left: The part of the first summand outside the overlap.
        right: The part of the second summand outside the overlap.
    """

    common: Sum
    left: Sum
    right: Sum

    @property
    def all(self) -> Sum:
        return self.common + self.left + self.right


@dataclass
class Budget:
    """The number of steps that a proof may still take. A step is a visit of a sum or a comparison of two summands."""

    steps: int = PROOF.max_cancel_steps

    def spend(self, steps: int = 1) -> bool:
        """Subtract the steps from the budget and return whether the budget was sufficient."""
        self.steps -= steps
        return self.steps >= 0


@dataclass
class Cancellation:
    """The state of one proof that a sum is zero.

    Attributes:
        told: Pairs of a value and its sign in the current case of a case split.
        depth: The nesting depth of proof steps. The counted steps are case splits, cleared denominators and common summations.
        remainder: The summands that did not cancel in the sum that was tested last. `remainder` is empty if this sum was shown
            to be zero.
    """

    notation: Normal
    budget: Budget = field(default_factory=Budget)
    told: tuple[tuple[Sum, Sign], ...] = ()
    depth: int = 0
    remainder: Sum = ()
    _largest: dict[tuple[Guard, Largest, Largest], bool] = field(default_factory=dict)

    def zero(self, facts: Guard, value: Sum) -> bool:
        """Return whether the sum is shown to be zero under the facts (conditions on sizes and indices)."""
        value = collect_summands(value)
        if not value:
            return True
        if not self.budget.spend():
            return False
        open_ = self._open(facts, value)
        found = not open_ or self._further(facts, open_)
        self.remainder = () if found else open_
        return found

    def _open(self, facts: Guard, value: Sum) -> Sum:
        """Simplify a sum and return the summands that do not cancel."""
        alive = simplify_sum(facts, value, self.notation)
        open_ = [s for s in alive if not vanishes((*facts, *s.guard), s.coefficient, SolverEffort.LINEAR)]
        for whole in (True, False):
            for _ in range(PROOF.max_merges):
                merged = self._first_merge(facts, open_, whole=whole) if open_ else None
                if merged is None:
                    break
                open_ = merged
        return tuple(open_)

    def _further(self, facts: Guard, open_: Sum) -> bool:
        """Return whether the sum is shown to be zero by clearing a denominator, by a case split or by a common summation."""
        if self.depth > PROOF.max_cancel_depth:
            return False
        product = clear_denominator(open_, self.notation)
        if product is not None:
            return self._deeper().zero(facts, product)
        if self._by_cases(facts, open_):
            return True
        return self._under_one_sum(facts, open_)

    def _deeper(self, notation: Normal | None = None, told: tuple[tuple[Sum, Sign], ...] = ()) -> Cancellation:
        return Cancellation(notation or self.notation, self.budget, self.told + told, self.depth + 1)

    def _by_cases(self, facts: Guard, value: Sum) -> bool:
        """Return whether the sum is shown to be zero in each case of a split on signs.

        If no further split is possible, Z3 tests the sum under the signs of the current case.
        """
        possible = sign_cases(value, self.notation)
        if possible is None:
            return bool(self.told) and zero_where(facts, self.told, value, self.notation)
        for case in possible:
            notation = self.notation.telling(self.notation.signs.telling(case.told))
            here = value if case.replaced is None else replace_read(value, case.replaced, case.by, notation)
            if not self._deeper(notation, case.told).zero(facts, here):
                return False
        return True

    def _under_one_sum(self, facts: Guard, value: Sum) -> bool:
        """Split the summands into two groups, and return whether the sum of each group is shown to be zero.

        Let s be the first summand that has bound indices. The first group consists of all summands whose bound indices have the
        same ranges as the bound indices of s. For each choice of the indices, the terms of the first group must add up to zero.
        The second group consists of the remaining summands. The sum of the second group must be zero.
        """
        first = next((s for s in value if s.bound), None)
        if first is None:
            return False
        bodies: list[Summand] = []
        others: list[Summand] = []
        for summand in value:
            body = self._body(first, summand)
            (others if body is None else bodies).append(summand if body is None else body)
        if len(bodies) < 2 or not self.budget.spend(len(bodies)):
            return False
        inside = (*facts, *first.guard)
        return self._deeper().zero(inside, tuple(bodies)) and (not others or self._deeper().zero(facts, tuple(others)))

    def _body(self, first: Summand, other: Summand) -> Summand | None:
        """Return the summand `other` without its summation. Its bound indices are renamed to the bound indices of `first`.

        Return None if the indices of the two summands have different ranges.
        """
        if len(other.bound) != len(first.bound) or len(first.bound) > PROOF.max_bound_indices:
            return None
        if other is first:
            return replace(first, bound=(), guard=())
        other = self.notation.renamed(other)
        for order in itertools.permutations(first.bound):
            moved = lookup({k: size(b) for k, b in zip(other.bound, order, strict=True)})
            if set(substitute_guard(other.guard, moved)) == set(first.guard):
                return substitute_summand(replace(other, bound=(), guard=()), moved)
        return None

    def _first_merge(self, facts: Guard, open_: Sequence[Summand], *, whole: bool) -> list[Summand] | None:
        for position, s in enumerate(open_):
            for other in range(position + 1, len(open_)):
                t = open_[other]
                if product_signature(s.factors) != product_signature(t.factors) or not self.budget.spend():
                    continue
                merged = self.merge(facts, s, t, whole=whole)
                if merged is not None:
                    rest = [r for p, r in enumerate(open_) if p not in (position, other)]
                    return [*rest, *merged.all]
        return None

    def merge(self, facts: Guard, s: Summand, t: Summand, *, whole: bool) -> Merged | None:
        """Add the two summands on the overlap of their index domains, and return the result.

        Return None if no overlap was found, or if `whole` is True and a part of a summand is outside the overlap.
        """
        t = self.notation.apart(t, s)
        for order, there, back in alignments(s, t):
            carried, returned = lookup(there), lookup(back)
            both = (*substitute_guard(t.guard, carried), *_back_again(s.bound, there, back))
            inside = (*facts, *s.guard, *both)
            if False in both or is_contradictory(inside):
                continue
            factors = [substitute_factor(t.factors[p], carried) for p in order]
            if not all(self.same_factor(inside, a, b) for a, b in zip(s.factors, factors, strict=True)):
                continue
            of_t = (*substitute_guard(s.guard, returned), *_back_again(t.bound, back, there))
            left, right = self._outside(facts, s, both), self._outside(facts, t, of_t)
            if whole and (left or right):
                continue
            coefficient = s.coefficient + substitute(t.coefficient, carried)
            guard = (*s.guard, *both) if left else s.guard
            common = () if vanishes(inside, coefficient) else (replace(s, coefficient=coefficient, guard=guard),)
            return Merged(common, left, right)
        return None

    def _outside(self, facts: Guard, summand: Summand, guard: Guard) -> Sum:
        """Return the part of the summand where the guard does not hold."""
        known = (*facts, *summand.guard)
        open_ = [c for c in guard if not is_valid(known, c)]
        if not open_:
            return ()
        beyond = replace(summand, guard=(*summand.guard, *parts_of(negation(conjunction(*open_)))))
        return tuple(simplify_summand(facts, beyond, self.notation))

    # ------------------------------------------------------------ factors

    def same_factor(self, facts: Guard, a: Factor, b: Factor) -> bool:
        """Return whether two factors with the same key (see `head`) are shown to be equal under the conditions in `facts`."""
        match a, b:
            case (Read(_, here), Read(_, there)) | (TableElement(_, _, here), TableElement(_, _, there)):
                return all(is_valid(facts, same(i, j), SolverEffort.PRODUCTS) for i, j in zip(here, there, strict=True))
            case Call(_, here), Call(_, there):
                return all(self._quietly(facts, h + times(t, -1)) for h, t in zip(here, there, strict=True))
            case Power(here, exponent), Power(there, other):
                return exponent == other and self._quietly(facts, here + times(there, -1))
            case Largest(), Largest():
                return factor_key(a) == factor_key(b) or (self._covers(facts, a, b) and self._covers(facts, b, a))
            case _:
                return False

    def _quietly(self, facts: Guard, value: Sum) -> bool:
        kept = self.remainder
        found = self.zero(facts, value)
        self.remainder = kept
        return found

    def _covers(self, facts: Guard, these: Largest, those: Largest) -> bool:
        """Return whether all operands of one maximum are shown to be operands of another maximum.

        The first maximum is the argument `these`, and the second is the argument `those`. Operands are compared wherever their
        guards hold.
        """
        key = (facts, these, those)
        known = self._largest.get(key)
        if known is None:
            known = all(self.covered(facts, c, those.candidates) for c in these.candidates)
            self._largest[key] = known
        return known

    def covered(self, facts: Guard, candidate: GuardedValue, others: Sequence[GuardedValue]) -> bool:
        """Return whether `candidate` is shown to equal an operand in `others` wherever the guard of `candidate` holds.

        `candidate` and `others` are operands of maxima. `candidate` may equal one operand in a part of its domain, and a
        different operand in another part.
        """
        open_: Guard = (*facts, *candidate.guard)
        if is_contradictory(open_):
            return True
        for other in map(self.notation.renamed_candidate, others):
            for there in self._witnesses(candidate, other):
                carried = lookup(there)
                guard = substitute_guard(other.guard, carried)
                inside = (*open_, *guard)
                if False in guard or is_contradictory(inside):
                    continue
                value = substitute_sum(other.value, carried)
                if self._quietly(inside, candidate.value + times(value, -1)):
                    open_ = (*open_, *parts_of(negation(conjunction(*guard))))
                    if is_contradictory(open_, SolverEffort.NONLINEAR):
                        return True
        return False

    def _witnesses(self, candidate: GuardedValue, other: GuardedValue) -> Iterator[Reindexing]:
        """Yield choices of values for the bound indices of the operand `other`.

        With these values, `other` can equal `candidate`. Both are operands of maxima. If `other` uses a bound index to select a
        tensor element, the value of this index is chosen so that both operands read the same element. The remaining bound
        indices get the least values that the guard of `other` allows.
        """
        inner = {k for s in (*candidate.value, *other.value) for k in bound_in(s)}
        readings: list[Reindexing] = [{}]
        if candidate.value and other.value:
            first, factors = candidate.value[0], other.value
            readings = [
                solve_indices(pairs, other.bound, inner)
                for s in factors
                if product_signature(s.factors) == product_signature(first.factors)
                for pairs in pairings(first.factors, _ordered(first.factors, s.factors))
            ]
        seen = 0
        for reading in readings:
            for witness in _ends(other, reading, other.bound):
                yield witness
                seen += 1
                if seen == PROOF.max_witnesses:
                    return


def _ordered(source: Sequence[Factor], target: Sequence[Factor]) -> list[Factor]:
    order = next(orders(source, target))
    return [target[p] for p in order]


def _ends(candidate: GuardedValue, reading: Reindexing, bound: Sequence[Sym]) -> Iterator[Reindexing]:
    """Complete a reindexing, and yield the results.

    The argument `reading` is a reindexing that may lack values for some of the indices in `bound`. A missing index gets the
    least value that a guard condition of the maximum's operand `candidate` allows. If two conditions have different least
    values, both values are tried.
    """
    k = next((k for k in bound if k not in reading), None)
    if k is None:
        yield reading
        return
    ends: dict[Extent, None] = {}
    for condition in substitute_guard(candidate.guard, lookup(reading)):
        for side in sides(condition):
            end = first_from(side, k)
            if end is not None and not set(atoms(end)) & set(bound):
                ends[end] = None
    for end in ends:
        yield from _ends(candidate, reading | {k: end}, bound)


def _back_again(bound: Sequence[Sym], there: Reindexing, back: Reindexing) -> Guard:
    """Return the conditions under which the reindexing `back` is the inverse of the reindexing `there`.

    There is one condition for each index k in `bound`: after the substitution `there`, the expression `back[k]` equals k.
    """
    conditions: list[Cond] = [same(substitute(back[k], lookup(there)), size(k)) for k in bound]
    return tuple(c for c in conditions if c is not True)
