"""Consequences of inequalities that contain products.

These consequences help linear arithmetic, which treats each product as an unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from superopt.algebra.extent import sides
from superopt.algebra.substitution import condition_atoms
from superopt.algebra.terms import Atom, Compare, Cond, Dim, Extent, Floor, Inverse, Size, Sym, at_least, atoms, size
from superopt.policy import PROOF

Monomial: TypeAlias = "tuple[Atom, ...]"


def consequences(conditions: Sequence[Cond]) -> list[Cond]:
    """Return consequences that linear arithmetic alone does not derive from the conditions.

    The result contains products of two conditions, conditions multiplied by positive extents, and conditions divided by
    positive unknowns. In a product of two conditions, every product of unknowns must occur in `conditions`. In a condition
    multiplied by extents, every product of unknowns must occur in `conditions` or be a product of extents.
    """
    plain = [c for c in (*conditions, *_roundings(conditions)) if isinstance(c, Compare) and c.relation != "!="]
    spoken = {m for c in plain for m, _ in c.left.terms if len(m) > 1}
    if not spoken:
        return []
    factors = {a for m in spoken for a in m}
    short = [c for c in plain if len(c.left.terms) <= PROOF.max_short_terms and factors & set(c.left.atoms())]
    found = dict.fromkeys([*_scaled(short, spoken), *_multiplied(short, spoken), *_divided(plain)])
    return [c for c in found if c is not True and c not in conditions]


def is_integer_lemma_condition(condition: Cond) -> bool:
    """Return whether the condition compares only integers. The negation of `a >= 0` is then `a <= -1`."""
    return all(isinstance(c, int) and is_integer_lemma_product(m) for side in sides(condition) for m, c in side.terms)


def is_integer_lemma_product(monomial: Monomial) -> bool:
    """Return whether the product is an integer: no factor is a reciprocal or a real attribute variable."""
    return not any(isinstance(a, Inverse) or (isinstance(a, Sym) and a.real) for a in monomial)


def floor_bounds(quotient: Floor) -> tuple[Cond, Cond]:
    """Return the two inequalities that define a floor quotient: 0 <= numerator - denominator * quotient < denominator."""
    rest = quotient.numerator - _product(quotient.denominator, size(quotient))
    return at_least(rest, 0), at_least(quotient.denominator - 1, rest)


def _roundings(conditions: Sequence[Cond]) -> Iterator[Cond]:
    """Yield, for each floor quotient with a positive denominator, the two inequalities that define the quotient."""
    known = [c for c in conditions if isinstance(c, Compare) and c.relation != "!="]
    for quotient in dict.fromkeys(a for c in conditions for a in condition_atoms(c) if isinstance(a, Floor)):
        if _adds_up(quotient.denominator - 1, known):
            yield from floor_bounds(quotient)


def _scaled(conditions: Sequence[Compare], spoken: set[Monomial]) -> Iterator[Cond]:
    """Multiply conditions by products of extents, which are positive, and yield the results.

    The argument `spoken` contains the products of unknowns that occur in the conditions. A result is left out if it contains a
    product that is neither in `spoken` nor a product of extents.
    """
    for condition in conditions:
        scales = {
            rest
            for monomial, _ in condition.left.terms
            for product in spoken
            if (rest := _without(product, monomial)) and all(isinstance(a, Dim) for a in rest)
        }
        for scale in sorted(scales):
            grown = _product(condition.left, Size(((scale, 1),)))
            if isinstance(grown, Size) and all(m in spoken or all(isinstance(a, Dim) for a in m) for m in _products(grown)):
                yield Compare(condition.relation, grown)


def _multiplied(conditions: Sequence[Compare], spoken: set[Monomial]) -> Iterator[Cond]:
    """Multiply pairs of conditions and yield the products, such as `a * b >= 0` for `a >= 0` and `b >= 0`.

    The argument `spoken` contains products of unknowns. A result is left out if it contains a product of unknowns that is not
    in `spoken`.
    """
    for position, one in enumerate(conditions):
        for other in conditions[position:]:
            if _lead(one.left.terms[-1][0], other.left.terms[-1][0]) not in spoken:
                continue
            product = _product(one.left, other.left)
            if isinstance(product, Size) and _products(product) <= spoken:
                yield Compare("==" if "==" in (one.relation, other.relation) else ">=", product)


@functools.lru_cache(maxsize=50_000)
def _lead(a: Monomial, b: Monomial) -> Monomial:
    product = _product(Size(((a, 1),)), Size(((b, 1),)))
    return product.terms[0][0] if isinstance(product, Size) else ()


def _divided(conditions: Sequence[Compare]) -> Iterator[Cond]:
    """Divide conditions by positive unknowns and yield the results. The conditions contain only integers.

    From p * a + b >= 0 with p > 0, it follows that a >= 1 if b < 0, and that a >= 0 if b < p. Each result is divided again in
    the same way.
    """
    about = [(c, frozenset(c.left.atoms())) for c in conditions if c.relation == ">=" and is_integer_lemma_condition(c)]
    left = [condition for condition, _ in about]
    while left:
        condition = left.pop(0)
        for factor in sorted({a for m in _products(condition.left) for a in m}, key=str):
            whole, rest = _quotient(condition.left, factor)
            within = {factor, *atoms(rest)}
            bounds = [c for c, named in about if named <= within and c != condition]
            if not _adds_up(size(factor) - 1, bounds):
                continue
            if _adds_up(-1 - rest, bounds):
                follows = at_least(whole, 1)
            elif _adds_up(size(factor) - 1 - rest, bounds):
                follows = at_least(whole, 0)
            else:
                continue
            yield follows
            if isinstance(follows, Compare):
                left.append(follows)


def _adds_up(extent: Extent, bounds: Sequence[Compare], depth: int = PROOF.max_added_bounds) -> bool:
    """Return whether the extent is shown to be a sum of non-negative parts.

    Each part is a non-negative number, a positive multiple of `n - 1` for an extent n of a variable, or a positive multiple of
    the left side of a condition in `bounds`.
    """
    if not isinstance(extent, Size):
        return extent >= 0
    monomial, coefficient = extent.terms[-1]
    if len(monomial) == 1 and isinstance(monomial[0], Dim) and coefficient > 0:
        rest = extent - coefficient * (size(monomial[0]) - 1)
        if _adds_up(rest, bounds, depth):
            return True
    if not monomial or depth == 0:
        return False
    useful = (
        (bound.left, coefficient // slope)
        for bound in bounds
        for other, slope in bound.left.terms
        if other == monomial and slope * coefficient > 0 and coefficient % slope == 0
    )
    return any(_adds_up(extent - times * left, bounds, depth - 1) for left, times in useful)


def _quotient(extent: Size, factor: Atom) -> tuple[Extent, Extent]:
    """Return the pair (a, b) for which the extent is `factor * a + b`.

    A term that is a number times `factor` belongs to b.
    """
    whole: Extent = 0
    rest: Extent = 0
    for monomial, coefficient in extent.terms:
        left = _without(monomial, (factor,))
        if left:
            whole = whole + Size(((left, coefficient),))
        else:
            rest = rest + (Size(((monomial, coefficient),)) if monomial else coefficient)
    return whole, rest


def _product(a: Extent, b: Extent) -> Extent:
    return a * b


def _products(extent: Size) -> set[Monomial]:
    return {m for m, _ in extent.terms if len(m) > 1}


def _without(product: Monomial, factor: Monomial) -> Monomial:
    """Divide the product by the factor. Return () if the factor does not divide the product."""
    left = list(product)
    for atom in factor:
        if atom not in left:
            return ()
        left.remove(atom)
    return tuple(left)
