"""Comparison of two tensors at one symbolic position that stands for all positions."""

from __future__ import annotations

import contextlib
from typing import TypeAlias

from superopt.algebra import index
from superopt.algebra.terms import Extent, Floor, Sym, at_least, atoms, same, size
from superopt.policy import PROOF
from superopt.proof.definitions.align import flatten_quotients, floor_quotients, splittable_index
from superopt.proof.definitions.alpha import collect_summands
from superopt.proof.definitions.arithmetic import is_valid
from superopt.proof.definitions.cancel import Cancellation
from superopt.proof.definitions.normal import Normal, TooLongError, flatten_tree
from superopt.proof.definitions.pointwise import pointwise_zero
from superopt.proof.definitions.simplify import quotient_range, quotient_value, quotient_without_remainder, split_index
from superopt.proof.definitions.simplify import summand_atom_lookup as single_atom
from superopt.proof.definitions.sums import Guard, Sum, bound_in, extents_in, substitute_guard, substitute_sum, times
from superopt.proof.denominators import nonzero
from superopt.proof.domains import implied_signs, is_undefined

Divisors: TypeAlias = tuple[tuple[Extent, ...], tuple[Extent, ...]]
NO_DIVISORS: Divisors = ((), ())


class TensorComparison:
    """Comparison of symbolic tensors under facts (conditions on sizes).

    `remainder` contains the summands that did not cancel in the last failed comparison.
    """

    def __init__(self, notation: Normal, facts: Guard) -> None:
        self.notation = notation
        self.facts = facts
        self.remainder: Sum = ()

    def difference(
        self, left: index.Tensor, right: index.Tensor, *, both_ways: bool = False, divisors: Divisors = NO_DIVISORS
    ) -> str | None:
        """Return None if the tensors are shown to be equal in shape and elements. Otherwise return the reason for failure.

        The right tensor must be defined wherever the left tensor is defined. With `both_ways`, the left tensor must also be
        defined wherever the right tensor is defined. `divisors` contains, for each side, the denominators that occur in the
        side's attributes.
        """
        for axis, (here, there) in enumerate(zip(left.shape, right.shape, strict=True)):
            if not is_valid(self.facts, same(flatten_quotients(self.facts, here), flatten_quotients(self.facts, there))):
                return f"the extents {here} and {there} of axis {axis} are not shown to be equal"
        position = tuple(self.notation.fresh("i") for _ in left.shape)
        facts = self.facts
        for i, extent in zip(position, left.shape, strict=True):
            facts += tuple(c for c in (at_least(size(i), 0), at_least(extent - 1, size(i))) if c is not True)
        at = tuple(0 if extent == 1 else size(i) for i, extent in zip(position, left.shape, strict=True))
        with index.interpreted(self.notation):
            one, other = flatten_tree(left[at].tree), flatten_tree(right[at].tree)
        left_divisors, right_divisors = divisors
        if is_undefined((*facts, *nonzero(left_divisors)), one, other, self.notation, right_divisors):
            return "the right side is not shown to be defined wherever the left side is"
        if both_ways and is_undefined((*facts, *nonzero(right_divisors)), other, one, self.notation, left_divisors):
            return "the left side is not shown to be defined wherever the right side is"
        value = collect_summands(one + times(other, -1))
        if pointwise_zero(facts, value):
            return None
        signs = implied_signs(facts, value, self.notation)
        whole = self._split(facts, value, set(position))
        cancellation = Cancellation(self.notation.telling(self.notation.signs.telling(signs)), told=signs)
        if cancellation.zero(*whole):
            return None
        self.remainder = cancellation.remainder
        with contextlib.suppress(TooLongError):
            split = self._split(facts, value, set(position), short=True)
            if split != whole and Cancellation(cancellation.notation, told=signs).zero(*split):
                return None
        return f"{len(self.remainder)} summands of the difference of the two sides do not cancel"

    def _split(self, facts: Guard, value: Sum, position: set[Sym], *, short: bool = False) -> tuple[Guard, Sum]:
        """Substitute q * b + r, where 0 <= r < b, for each position index i that occurs in a quotient such as i // b.

        Every integer i can be written in this form. With `short`, quotients are simplified before each substitution. Return the
        facts, extended by the bounds of q and r, and the new sum.
        """
        for _ in range(PROOF.max_compared_splits):
            value = _with_short_quotients(facts, value) if short else value
            found = self._splittable(facts, value, position)
            if found is None:
                break
            quotient, i = found
            q, r = self.notation.fresh("i"), self.notation.fresh("i")
            whole, remainder = split_index(i, quotient, q, r)
            facts = (*substitute_guard(facts, single_atom(i, whole)), *remainder)
            facts += tuple(quotient_range(facts, q))
            value = substitute_sum(value, single_atom(i, whole))
            position = (position - {i}) | {q, r}
        return facts, value

    def _splittable(self, facts: Guard, value: Sum, position: set[Sym]) -> tuple[Floor, Sym] | None:
        bound = {k for s in value for k in bound_in(s)}
        for quotient in dict.fromkeys(floor_quotients(e for s in value for e in extents_in(s))):
            if bound & {*atoms(quotient.numerator), *atoms(quotient.denominator)}:
                continue
            i = splittable_index(quotient.numerator, lambda a: a in position)
            if i is None or set(atoms(quotient.denominator)) & position or quotient_value(facts, quotient) is not None:
                continue
            if is_valid(facts, at_least(quotient.denominator, 1)):
                return quotient, i
        return None


def _with_short_quotients(facts: Guard, value: Sum) -> Sum:
    """Evaluate quotients that are -1, 0 or 1, and remove remainders that do not change a quotient."""
    for quotient in dict.fromkeys(floor_quotients(e for s in value for e in extents_in(s))):
        number = quotient_value(facts, quotient)
        shorter = quotient_without_remainder(facts, quotient) if number is None else number
        if shorter is not None:
            return _with_short_quotients(facts, substitute_sum(value, single_atom(quotient, shorter)))
    return value
