"""Conditions on extents that hold by arithmetic alone, whatever the extents are."""

from __future__ import annotations

from superopt.extent import AllOf, AnyOf, Atom, Compare, Cond, Dim, Extent, Floor, Inverse, Size, size
from superopt.integers import prove
from superopt.substitution import substitute


def certain(condition: Cond) -> bool:
    """Whether the condition holds whatever the extents of tensors, at least 1, are; False where that is not proved."""
    return _is_plain(condition) or prove(condition)


def _is_plain(condition: Cond) -> bool:
    """Whether the signs of the terms show it."""
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
    """Whether the polynomial has no negative coefficient where each extent is 1 and what it is more than that."""
    above = substitute(extent, lambda atom: size(atom) + 1 if isinstance(atom, Dim) else None)
    if not isinstance(above, Size):
        return above >= 0
    return all(number >= 0 and all(map(_positive, atoms)) for atoms, number in above.terms)


def _positive(atom: Atom) -> bool:
    """Whether the atom is at least 0, where an extent stands for what it is more than 1."""
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
