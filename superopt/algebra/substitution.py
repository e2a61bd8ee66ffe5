"""Substitute extents for atoms (dimensions, attribute variables ...) in extents and conditions, and negate conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from superopt.algebra.extent import (
    AllOf,
    AnyOf,
    Atom,
    Compare,
    Cond,
    Entry,
    Extent,
    Floor,
    Indicator,
    Inverse,
    Size,
    Term,
    at_least,
    collect,
    conjunction,
    disjunction,
    floor_divide,
    inverse,
    sides,
    size,
    terms_of,
)


def substitute(extent: Extent, value: Callable[[Atom], Extent | None]) -> Extent:
    """Return the extent with atoms (dimensions, quotients ...) replaced by the results of `value`.

    An atom for which `value` returns None is not replaced.
    """
    if not isinstance(extent, Size):
        return extent
    single = sole_atom(extent)
    if single is not None:
        whole = _replaced(single, value)
        return extent if whole is None else whole
    terms: list[Term] = []
    changed = False
    for monomial, coefficient in extent.terms:
        left: list[Atom] = []
        product: Extent = coefficient
        for atom in monomial:
            replaced = _replaced(atom, value)
            if replaced is None:
                left.append(atom)
            else:
                product = product * replaced
        if len(left) == len(monomial):
            terms.append((monomial, coefficient))
        else:
            changed = True
            terms += terms_of(product * Size(((tuple(left), 1),)) if left else product)
    return collect(terms) if changed else extent


def sole_atom(extent: Size) -> Atom | None:
    """Return the atom if the polynomial is a single atom with coefficient 1. Otherwise, return None."""
    (monomial, coefficient), *more = extent.terms
    return monomial[0] if not more and coefficient == 1 and len(monomial) == 1 else None


def _replaced(atom: Atom, value: Callable[[Atom], Extent | None]) -> Extent | None:
    """Return the extent that replaces the atom. If the atom does not change, return None.

    If `value` returns None for a compound atom, such as a quotient, the atoms inside the compound atom are replaced.
    """
    known = value(atom)
    if known is not None:
        return known
    match atom:
        case Floor(numerator, denominator):
            return floor_divide(substitute(numerator, value), substitute(denominator, value))
        case Inverse(of):
            return inverse(substitute(of, value))
        case Entry(tensor, indices, extent):
            return size(Entry(tensor, tuple(substitute(i, value) for i in indices), substitute(extent, value)))
        case Indicator(condition):
            held = substitute_cond(condition, value)
            return int(held) if isinstance(held, bool) else None if held is condition else size(Indicator(held))
        case _:
            return None


def substitute_cond(condition: Cond, value: Callable[[Atom], Extent | None]) -> Cond:
    """Return the condition with atoms replaced as in `substitute`. The result is a bool if no atoms are left."""
    match condition:
        case bool():
            return condition
        case Compare(relation, left):
            replaced = substitute(left, value)
            if isinstance(replaced, Size):
                return condition if replaced is left else Compare(relation, replaced)
            return bool(replaced >= 0 if relation == ">=" else (replaced == 0) == (relation == "=="))
        case AllOf(parts):
            return conjunction(*(substitute_cond(p, value) for p in parts))
        case AnyOf(parts):
            return disjunction(*(substitute_cond(p, value) for p in parts))


def condition_atoms(condition: Cond) -> Iterator[Atom]:
    """Yield every atom of the condition, such as dimensions and quotients, including the atoms inside quotients."""
    for side in sides(condition):
        yield from side.atoms()


def negation(condition: Cond) -> Cond:
    """Return the negation of the condition."""
    match condition:
        case bool():
            return not condition
        case Compare(">=", left):
            return at_least(-1, left)
        case Compare("==", left):
            return Compare("!=", left)
        case Compare(_, left):
            return Compare("==", left)
        case AllOf(parts):
            return disjunction(*(negation(p) for p in parts))
        case AnyOf(parts):
            return conjunction(*(negation(p) for p in parts))
