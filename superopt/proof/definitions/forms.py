"""Recognizers for special forms of sums and numbers."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import isqrt

from superopt.algebra.terms import Extent, Size, integral
from superopt.policy import PROOF
from superopt.proof.definitions.alpha import collect_summands, factor_key, shape, sort_summands
from superopt.proof.definitions.sums import Call, GuardedValue, Largest, Sum, Summand, times


def is_single_factor(base: Sum) -> bool:
    """Return whether the sum consists of a single factor, without a coefficient, a guard or bound indices."""
    return len(base) == 1 and base[0].coefficient == 1 and not base[0].bound and not base[0].guard and len(base[0].factors) == 1


def is_indicator(value: Sum) -> bool:
    """Return whether the sum contains only step functions, and is 0 or 1 for every combination of their values."""
    if any(s.bound or s.guard or isinstance(s.coefficient, Size) for s in value):
        return False
    if not all(isinstance(f, Call) and f.function in ("zero", "positive") for s in value for f in s.factors):
        return False
    names = list(dict.fromkeys(factor_key(f) for s in value for f in s.factors))
    if len(names) > PROOF.max_indicator_names:
        return False
    for chosen in itertools.product((0, 1), repeat=len(names)):
        at = dict(zip(names, chosen, strict=True))
        total: Extent = 0
        for summand in value:
            total = total + summand.coefficient * min([1, *(at[factor_key(f)] for f in summand.factors)])
        if total not in (0, 1):
            return False
    return True


def canonical_power_exponent(exponent: Extent) -> Extent:
    return integral(exponent) if isinstance(exponent, Fraction) else exponent


def canonical_rational_power(number: Extent, exponent: Extent) -> Extent | None:
    """Return `number ** exponent` if the exponent is a half-integer and the result is rational. Otherwise, return None."""
    if not isinstance(number, int | Fraction) or not isinstance(exponent, Fraction) or exponent.denominator != 2 or number <= 0:
        return None
    value = Fraction(number)
    above, below = isqrt(value.numerator), isqrt(value.denominator)
    if above * above != value.numerator or below * below != value.denominator:
        return None
    return integral(Fraction(above, below) ** exponent.numerator)


def one_plus_exp_argument(value: Sum) -> Sum | None:
    """Return v if the sum is 1 + exp(v). Otherwise, return None."""
    if len(value) != 2:
        return None
    first, second = value
    match first, second:
        case Summand(1, (), (), ()), Summand(1, (), (), (Call("exp", (exponent,)),)):
            return exponent
        case _:
            return None


def negated_abs_argument(value: Sum) -> Sum | None:
    """Return v if the sum is -|v|. Otherwise, return None."""
    match value:
        case (Summand(number, (), (), (Largest((GuardedValue((), (), a), GuardedValue((), (), b))),)),) if not collect_summands(
            a + b
        ):
            if isinstance(number, int | Fraction) and number < 0:
                inside = sort_summands(a)
                return times(inside, number if leading_coefficient(inside) < 0 else -number)
            return None
        case _:
            return None


def leading_coefficient(value: Sum) -> Extent:
    """Return the constant factor of the sum's first summand.

    If the constant factor is a polynomial of sizes, return the coefficient of the polynomial's last term instead.
    """
    number = shape(value[0])[1]
    return number.terms[-1][1] if isinstance(number, Size) else number
