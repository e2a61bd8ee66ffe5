"""Denominators cleared: a sum that is zero is so when multiplied by what it is divided by, which is not zero where it divides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from superopt.graph import Extent, atoms, integral
from superopt.prove.alpha import Key, collected, factor_key
from superopt.prove.normal import Normal
from superopt.prove.sums import ONE, Factor, Power, Sum, Summand, extents_of, single

MOST_SUMMANDS = 60


def cleared(value: Sum, notation: Normal) -> Sum | None:
    """The sum times the power of a base by which it is divided; None where it is divided by nothing, or grows too long.

    A base that depends on a bound index stays.
    """
    for held in _divisors(value):
        key = factor_key(held)
        least = min(_exponent(s, held, key) for s in value)
        if least >= 0:
            continue
        result = [t for s in value for t in _multiplied(s, held, key, least, notation)]
        return collected(result) if len(result) <= MOST_SUMMANDS else None
    return None


def _divisors(value: Sum) -> Iterator[Factor]:
    """What powers with negative exponents are of: a factor, or a sum held as its first power."""
    seen: set[Key] = set()
    for summand in value:
        for factor in summand.factors:
            if isinstance(factor, Power) and _is_number(factor.exponent) and factor.exponent < 0 and factor.base:
                held = _held(factor.base)
                inside = {a for e in extents_of(held) for a in atoms(e)}
                if not inside & set(summand.bound) and factor_key(held) not in seen:
                    seen.add(factor_key(held))
                    yield held


def _held(base: Sum) -> Factor:
    match base:
        case (Summand(1, (), (), (factor,)),):
            return factor
        case _:
            return Power(base, 1)


def _exponent(summand: Summand, held: Factor, key: Key) -> Fraction:
    return sum((_of(f, key) for f in summand.factors), Fraction(0))


def _of(factor: Factor, key: Key) -> Fraction:
    """The exponent to which the factor is what is held, 0 where it is something else."""
    if isinstance(factor, Power) and _is_number(factor.exponent) and factor_key(_held(factor.base)) == key:
        return Fraction(factor.exponent)  # type: ignore[arg-type]
    return Fraction(factor_key(factor) == key)


def _is_number(exponent: Extent) -> bool:
    return isinstance(exponent, int | Fraction)


def _multiplied(summand: Summand, held: Factor, key: Key, least: Fraction, notation: Normal) -> Sum:
    rest = tuple(f for f in summand.factors if not _of(f, key))
    exponent = _exponent(summand, held, key) - least
    whole, part = divmod(exponent, 1)
    base: Sum = held.base if isinstance(held, Power) and held.exponent == 1 else single(held)
    value: Sum = (replace(summand, factors=rest),)
    for _ in range(int(whole)):
        value = notation.product(value, base)
    return notation.product(value, single(Power(base, integral(part))) if part else ONE)

