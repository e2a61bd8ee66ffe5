"""Clearing of denominators: a sum is zero if it is zero after multiplication by a nonzero denominator.

A denominator is cleared only if it is known to be nonzero wherever the guard of at least one summand holds. In two cases, a
denominator is not cleared: the sum contains a step function, or a summand with the denominator has a guard condition that
another summand lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from superopt.algebra.terms import Extent, atoms, integral
from superopt.policy import PROOF
from superopt.proof.definitions.alpha import Key, collect_summands, factor_key
from superopt.proof.definitions.normal import Normal
from superopt.proof.definitions.sums import (
    ONE,
    Call,
    Factor,
    Largest,
    Power,
    Sum,
    Summand,
    factor_extents,
    mentions_index,
    single,
)


def clear_denominator(value: Sum, notation: Normal) -> Sum | None:
    """Multiply the sum by a denominator and return the result.

    The denominator is a power with a negative exponent in the sum. The base of the power contains no bound index. Return None
    if no denominator can be cleared, or if the result is too long.
    """
    if any(map(_steps, value)):
        return None
    for held in _divisors(value):
        key = factor_key(held)
        least = min(_exponent(s, key) for s in value)
        if least >= 0 or not _everywhere(value, key):
            continue
        result = [t for s in value for t in _multiplied(s, held, key, least, notation)]
        return collect_summands(result) if len(result) <= PROOF.max_cleared_summands else None
    return None


def _everywhere(value: Sum, key: Key) -> bool:
    """Return whether the base with the key `key` is known to be nonzero wherever the guard of at least one summand holds.

    Let C be the set of guard conditions of all summands that divide by the base, without conditions on bound indices. The
    result is True if the guard of every summand contains all conditions in C.
    """
    dividing = [s for s in value if _exponent(s, key) < 0]
    conditions = {c for s in dividing for c in s.guard if not any(mentions_index(c, k) for k in s.bound)}
    return all(conditions <= set(s.guard) for s in value)


def _steps(summand: Summand) -> bool:
    """Return whether the summand contains a discontinuous function."""
    return any(map(_step, summand.factors))


def _step(factor: Factor) -> bool:
    match factor:
        case Call(function, arguments):
            return function in ("zero", "positive", "choose") or any(_steps(s) for a in arguments for s in a)
        case Power(base):
            return any(map(_steps, base))
        case Largest(candidates):
            return any(_steps(s) for c in candidates for s in c.value)
        case _:
            return False


def _divisors(value: Sum) -> Iterator[Factor]:
    """Yield the bases of powers with negative exponents, except bases that depend on a bound index.

    A base that is a single factor is yielded as it is. Any other base is yielded as a power with exponent 1.
    """
    seen: set[Key] = set()
    for summand in value:
        for factor in summand.factors:
            if isinstance(factor, Power) and _is_number(factor.exponent) and factor.exponent < 0 and factor.base:
                held = _held(factor.base)
                inside = {a for e in factor_extents(held) for a in atoms(e)}
                if not inside & set(summand.bound) and factor_key(held) not in seen:
                    seen.add(factor_key(held))
                    yield held


def _held(base: Sum) -> Factor:
    match base:
        case (Summand(1, (), (), (factor,)),):
            return factor
        case _:
            return Power(base, 1)


def _exponent(summand: Summand, key: Key) -> Fraction:
    return sum((_of(f, key) for f in summand.factors), Fraction(0))


def _of(factor: Factor, key: Key) -> Fraction:
    """Return the exponent if the factor is a power of the base whose `factor_key` is `key`. Return 0 for other factors.

    The base itself has the exponent 1.
    """
    if isinstance(factor, Power) and _is_number(factor.exponent) and factor_key(_held(factor.base)) == key:
        return Fraction(factor.exponent)  # type: ignore[arg-type]
    return Fraction(factor_key(factor) == key)


def _is_number(exponent: Extent) -> bool:
    return isinstance(exponent, int | Fraction)


def _multiplied(summand: Summand, held: Factor, key: Key, least: Fraction, notation: Normal) -> Sum:
    rest = tuple(f for f in summand.factors if not _of(f, key))
    exponent = _exponent(summand, key) - least
    whole, part = divmod(exponent, 1)
    base: Sum = held.base if isinstance(held, Power) and held.exponent == 1 else single(held)
    value: Sum = (replace(summand, factors=rest),)
    for _ in range(int(whole)):
        value = notation.product(value, base)
    return notation.product(value, single(Power(base, integral(part))) if part else ONE)
