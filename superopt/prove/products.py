"""Consequences of inequalities between products: what linear arithmetic cannot see by itself, written out for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from superopt.extent import atoms_of
from superopt.graph import Atom, Compare, Cond, Dim, Extent, Floor, Size, at_least, atoms, negation, size

Monomial: TypeAlias = "tuple[Atom, ...]"
Contradict: TypeAlias = "Callable[[tuple[Cond, ...]], bool]"
SHORT = 4


def consequences(conditions: Sequence[Cond], contradict: Contradict) -> list[Cond]:
    """Conditions that follow: products of two, multiples by positive extents, and quotients by positive unknowns.

    Only products that the conditions already speak of are made. `contradict` tells whether conditions exclude each other.
    """
    plain = [c for c in (*conditions, *_roundings(conditions, contradict)) if isinstance(c, Compare) and c.relation != "!="]
    spoken = {m for c in plain for m, _ in c.left.terms if len(m) > 1}
    if not spoken:
        return []
    factors = {a for m in spoken for a in m}
    short = [c for c in plain if len(c.left.terms) <= SHORT and factors & set(c.left.atoms())]
    found = dict.fromkeys([*_scaled(short, spoken), *_multiplied(short, spoken), *_divided(plain, contradict)])
    return [c for c in found if c is not True and c not in conditions]


def rounding(quotient: Floor) -> tuple[Cond, Cond]:
    """What makes a quotient the rounded one: 0 <= numerator - denominator * quotient < denominator."""
    rest = quotient.numerator - _product(quotient.denominator, size(quotient))
    return at_least(rest, 0), at_least(quotient.denominator - 1, rest)


def _roundings(conditions: Sequence[Cond], contradict: Contradict) -> Iterator[Cond]:
    """The rounding of each quotient whose denominator is positive."""
    for quotient in dict.fromkeys(a for c in conditions for a in atoms_of(c) if isinstance(a, Floor)):
        positive = at_least(quotient.denominator, 1)
        if positive is True or positive in conditions or contradict((*conditions, negation(positive))):
            yield from rounding(quotient)


def _scaled(conditions: Sequence[Compare], spoken: set[Monomial]) -> Iterator[Cond]:
    """Conditions times products of extents, which are positive."""
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
    """Conditions times each other."""
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


def _divided(conditions: Sequence[Compare], contradict: Contradict) -> Iterator[Cond]:
    """a >= 1 from p * a + b >= 0 where b < 0 < p, and a >= 0 where b < p."""
    for condition in conditions:
        if condition.relation != ">=":
            continue
        for factor in sorted({a for m in _products(condition.left) for a in m}, key=str):
            whole, rest = _quotient(condition.left, factor)
            about = {factor, *atoms(rest)}
            bounds = tuple(c for c in conditions if c != condition and set(c.left.atoms()) <= about)
            least = _least_quotient(factor, rest, bounds, contradict)
            if least is not None:
                yield at_least(whole, least)


def _quotient(extent: Size, factor: Atom) -> tuple[Extent, Extent]:
    """a and b of extent = factor * a + b, what stands alone left in b."""
    whole: Extent = 0
    rest: Extent = 0
    for monomial, coefficient in extent.terms:
        left = _without(monomial, (factor,))
        if left:
            whole = whole + Size(((left, coefficient),))
        else:
            rest = rest + (Size(((monomial, coefficient),)) if monomial else coefficient)
    return whole, rest


def _least_quotient(factor: Atom, rest: Extent, bounds: tuple[Cond, ...], contradict: Contradict) -> int | None:
    """The least a with factor * a + rest >= 0, if the bounds settle that."""

    def follows(claim: Cond) -> bool:
        return claim if isinstance(claim, bool) else contradict((*bounds, negation(claim)))

    if not follows(at_least(size(factor), 1)):
        return None
    return 1 if follows(at_least(-1, rest)) else 0 if follows(at_least(size(factor) - 1, rest)) else None


def _product(a: Extent, b: Extent) -> Extent:
    return a * b


def _products(extent: Size) -> set[Monomial]:
    return {m for m, _ in extent.terms if len(m) > 1}


def _without(product: Monomial, factor: Monomial) -> Monomial:
    """The product divided by the factor; empty where it does not divide it."""
    left = list(product)
    for atom in factor:
        if atom not in left:
            return ()
        left.remove(atom)
    return tuple(left)
