"""Denominators in attributes: a term with the attribute `1 / a` or `n // a` is undefined where `a` is zero.

The right side of a rule may divide by an attribute variable only if the variable cannot be zero. The variable cannot be zero in
three cases: a condition of the rule excludes the value zero, the left side also divides by the variable, or the left side is
undefined where the variable is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from superopt.algebra.terms import (
    Cond,
    Dim,
    Extent,
    Floor,
    Inverse,
    Size,
    Term,
    at_least,
    attribute_atoms,
    negation,
    same,
    size,
)
from superopt.proof.definitions.arithmetic import is_valid
from superopt.proof.definitions.sums import Guard


def denominators(*roots: Term) -> tuple[Extent, ...]:
    """Return the denominators that occur in attributes of the terms, in a fixed order. A product is split into its factors."""
    found: dict[Extent, None] = {}
    for atom in sorted(attribute_atoms(*roots), key=str):
        if isinstance(atom, Floor | Inverse):
            found.update(dict.fromkeys(denominator_factors(atom.denominator if isinstance(atom, Floor) else atom.of)))
    return tuple(found)


def denominator_factors(extent: Extent) -> Iterator[Extent]:
    """Yield the factors of an extent, such as a denominator, except factors that are never zero.

    The extent is nonzero exactly where all yielded factors are nonzero. Reciprocals and extents of tensors are never zero. A
    sum is yielded as one factor.
    """
    if not isinstance(extent, Size) or len(extent.terms) > 1:
        yield extent
        return
    for atom in extent.terms[0][0]:
        if not isinstance(atom, Dim | Inverse):
            yield size(atom)


def nonzero(extents: Iterable[Extent]) -> Guard:
    """Return conditions which say that none of the extents is zero."""
    return tuple(c for c in (negation(same(e, 0)) for e in extents) if c is not True)


def is_nonzero(facts: Iterable[Cond], extent: Extent) -> bool:
    """Return whether the extent is shown to be nonzero under the conditions in `facts`."""
    known = tuple(facts)
    return is_valid(known, at_least(extent, 1)) or is_valid(known, negation(same(extent, 0)))
