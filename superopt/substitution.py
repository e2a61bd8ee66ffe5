"""Extents and conditions with values put in for their atoms."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from superopt.extent import (
    AllOf,
    AnyOf,
    Atom,
    Compare,
    Cond,
    Extent,
    Floor,
    Inverse,
    Size,
    conjunction,
    disjunction,
    floor_divide,
    integral,
    inverse,
    size,
)


def substitute(extent: Extent, value: Callable[[Atom], Extent | None]) -> Extent:
    """`extent` with every atom for which `value` gives one replaced by it."""
    if not isinstance(extent, Size):
        return extent
    total: Extent = 0
    for monomial, coefficient in extent.terms:
        product: Extent = coefficient
        for atom in monomial:
            product = product * _substituted_atom(atom, value)
        total = total + product
    return integral(total) if isinstance(total, Fraction) else total


def _substituted_atom(atom: Atom, value: Callable[[Atom], Extent | None]) -> Extent:
    known = value(atom)
    if known is not None:
        return known
    match atom:
        case Floor(numerator, denominator):
            return floor_divide(substitute(numerator, value), substitute(denominator, value))
        case Inverse(of):
            return inverse(substitute(of, value))
        case _:
            return size(atom)


def substitute_cond(condition: Cond, value: Callable[[Atom], Extent | None]) -> Cond:
    """`condition` with atoms replaced as in `substitute`; a bool once nothing symbolic is left."""
    match condition:
        case bool():
            return condition
        case Compare(relation, left):
            replaced = substitute(left, value)
            if isinstance(replaced, Size):
                return Compare(relation, replaced)
            return bool(replaced >= 0 if relation == ">=" else (replaced == 0) == (relation == "=="))
        case AllOf(parts):
            return conjunction(*(substitute_cond(p, value) for p in parts))
        case AnyOf(parts):
            return disjunction(*(substitute_cond(p, value) for p in parts))
