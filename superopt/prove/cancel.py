"""Whether a sum is zero: summands that are the same product over the same elements cancel, wherever they overlap.

Two summands overlap where an element of one is carried to an element of the other and back; there their coefficients add up and
what is left of either stays. So the reindexing is a bijection by construction, between domains that need not be equal: a sum
over n + m elements meets the sums over the first n and the last m.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from superopt.extent import parts_of, sides
from superopt.graph import Cond, Extent, Sym, atoms, conjunction, negation, same, size, substitute
from superopt.prove.align import Reindexing, alignments, first_from, lookup, orders, pairings, signature, solve_indices
from superopt.prove.arithmetic import Effort, contradictory, valid
from superopt.prove.normal import Normal
from superopt.prove.simplify import simplified, simplified_sum, vanishes
from superopt.prove.sums import (
    Call,
    Candidate,
    Factor,
    Guard,
    Largest,
    Read,
    Sum,
    Summand,
    bound_in,
    substitute_factor,
    substitute_guard,
    substitute_sum,
    times,
)

MOST_MERGES = 200
MOST_WITNESSES = 16


@dataclass(frozen=True)
class Merged:
    """What two summands became: their common part if it does not vanish, and what is left of each."""

    common: Sum
    left: Sum
    right: Sum

    @property
    def all(self) -> Sum:
        return self.common + self.left + self.right


@dataclass
class Cancellation:
    """The work of one proof; `remainder` is what stood in the way when a sum was not found to be zero."""

    notation: Normal
    remainder: Sum = ()
    _largest: dict[tuple[Guard, Largest, Largest], bool] = field(default_factory=dict)

    def zero(self, facts: Guard, value: Sum) -> bool:
        """Whether the sum is zero under the facts; False also where that was not found out."""
        alive = simplified_sum(facts, value, self.notation)
        open_ = [s for s in alive if not vanishes((*facts, *s.guard), s.coefficient, Effort.LINEAR)]
        for whole in (True, False):
            for _ in range(MOST_MERGES):
                if not open_:
                    return True
                merged = self._first_merge(facts, open_, whole=whole)
                if merged is None:
                    break
                open_ = merged
        self.remainder = tuple(open_)
        return not open_

    def _first_merge(self, facts: Guard, open_: list[Summand], *, whole: bool) -> list[Summand] | None:
        for position, s in enumerate(open_):
            for other in range(position + 1, len(open_)):
                t = open_[other]
                if signature(s.factors) != signature(t.factors):
                    continue
                merged = self.merge(facts, s, t, whole=whole)
                if merged is not None:
                    rest = [r for p, r in enumerate(open_) if p not in (position, other)]
                    return [*rest, *merged.all]
        return None

    def merge(self, facts: Guard, s: Summand, t: Summand, *, whole: bool) -> Merged | None:
        """The two summands with their overlap added up; None where no overlap was found (or no complete one, if `whole`)."""
        t = self.notation.apart(t, s)
        for order, there, back in alignments(s, t):
            carried, returned = lookup(there), lookup(back)
            both = (*substitute_guard(t.guard, carried), *_back_again(s.bound, there, back))
            inside = (*facts, *s.guard, *both)
            if False in both or contradictory(inside):
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
        """What is left of the summand where the guard does not hold."""
        known = (*facts, *summand.guard)
        open_ = [c for c in guard if not valid(known, c)]
        if not open_:
            return ()
        beyond = replace(summand, guard=(*summand.guard, *parts_of(negation(conjunction(*open_)))))
        return tuple(simplified(facts, beyond, self.notation))

    # ------------------------------------------------------------ factors

    def same_factor(self, facts: Guard, a: Factor, b: Factor) -> bool:
        """Whether the factors are equal under the facts."""
        match a, b:
            case Read(_, here), Read(_, there):
                return all(valid(facts, same(i, j), Effort.PRODUCTS) for i, j in zip(here, there, strict=True))
            case Call(_, here), Call(_, there):
                return all(self._quietly(facts, h + times(t, -1)) for h, t in zip(here, there, strict=True))
            case Largest(), Largest():
                return a == b or (self._covers(facts, a, b) and self._covers(facts, b, a))
            case _:
                return False

    def _quietly(self, facts: Guard, value: Sum) -> bool:
        kept = self.remainder
        found = self.zero(facts, value)
        self.remainder = kept
        return found

    def _covers(self, facts: Guard, these: Largest, those: Largest) -> bool:
        """Whether every candidate of the first is, wherever it stands, the value of a candidate of the second."""
        key = (facts, these, those)
        known = self._largest.get(key)
        if known is None:
            known = all(self._covered(facts, c, those.candidates) for c in these.candidates)
            self._largest[key] = known
        return known

    def _covered(self, facts: Guard, candidate: Candidate, others: Sequence[Candidate]) -> bool:
        open_: Guard = (*facts, *candidate.guard)
        if contradictory(open_):
            return True
        for other in map(self.notation.renamed_candidate, others):
            for there in self._witnesses(candidate, other):
                carried = lookup(there)
                guard = substitute_guard(other.guard, carried)
                inside = (*open_, *guard)
                if False in guard or contradictory(inside):
                    continue
                value = substitute_sum(other.value, carried)
                if self._quietly(inside, candidate.value + times(value, -1)):
                    open_ = (*open_, *parts_of(negation(conjunction(*guard))))
                    if contradictory(open_, Effort.NONLINEAR):
                        return True
        return False

    def _witnesses(self, candidate: Candidate, other: Candidate) -> Iterator[Reindexing]:
        """Values for the other candidate's bound indices: those its reads ask for, the first its guard allows for the rest."""
        inner = {k for s in (*candidate.value, *other.value) for k in bound_in(s)}
        readings: list[Reindexing] = [{}]
        if candidate.value and other.value:
            first, factors = candidate.value[0], other.value
            readings = [
                solve_indices(pairs, other.bound, inner)
                for s in factors
                if signature(s.factors) == signature(first.factors)
                for pairs in pairings(first.factors, _ordered(first.factors, s.factors))
            ]
        seen = 0
        for reading in readings:
            for witness in _ends(other, reading, other.bound):
                yield witness
                seen += 1
                if seen == MOST_WITNESSES:
                    return


def _ordered(source: Sequence[Factor], target: Sequence[Factor]) -> list[Factor]:
    order = next(orders(source, target))
    return [target[p] for p in order]


def _ends(candidate: Candidate, reading: Reindexing, bound: Sequence[Sym]) -> Iterator[Reindexing]:
    """The reading, completed with every first value that a condition of the guard allows for the indices it leaves open."""
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
    """That each bound index, carried over and back, is itself."""
    conditions: list[Cond] = [same(substitute(back[k], lookup(there)), size(k)) for k in bound]
    return tuple(c for c in conditions if c is not True)
