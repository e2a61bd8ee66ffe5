"""A test that proves conditions on extents for all sizes."""

from __future__ import annotations

from superopt.algebra.extent import AllOf, AnyOf, Atom, Compare, Cond, Dim, Extent, Floor, Inverse, Size, size
from superopt.algebra.integers import prove
from superopt.algebra.substitution import substitute


def is_tautology(condition: Cond) -> bool:
    """Return whether the condition is proved for all sizes, where every dimension is at least 1."""
    return _is_plain(condition) or prove(condition)


def _is_plain(condition: Cond) -> bool:
    """Return whether the signs of the coefficients prove the condition (see `_at_least_zero`)."""
    match condition:
        case bool():
            return condition
        case Compare(">=", left):
            return _at_least_zero(left)
        case Compare("!=", left):
            return _at_least_zero(left - 1) or _at_least_zero(-left - 1)
        case AllOf(parts):
            return all(map(_is_plain, parts))
        case AnyOf(parts):
            return any(map(_is_plain, parts))
        case _:
            return False


def _at_least_zero(extent: Extent) -> bool:
    """Return whether the signs of the coefficients prove that the polynomial is at least 0.

    A dimension n is at least 1, so n = m + 1 for an integer m that is at least 0. This sum is substituted for each dimension.
    After the substitution, the polynomial is at least 0 if no coefficient is negative and no atom can be negative.
    """
    above = substitute(extent, lambda atom: size(atom) + 1 if isinstance(atom, Dim) else None)
    if not isinstance(above, Size):
        return above >= 0
    return all(number >= 0 and all(map(_positive, atoms)) for atoms, number in above.terms)


def _positive(atom: Atom) -> bool:
    """Return whether the atom is proved to be at least 0, given that every dimension is at least 0."""
    match atom:
        case Dim():
            return True
        case Floor(numerator, denominator):
            return _not_negative(numerator) and isinstance(denominator, int) and denominator > 0
        case Inverse(of):
            return _not_negative(of)
        case _:
            return False


def _not_negative(extent: Extent) -> bool:
    if not isinstance(extent, Size):
        return extent >= 0
    return all(number >= 0 and all(map(_positive, atoms)) for atoms, number in extent.terms)
