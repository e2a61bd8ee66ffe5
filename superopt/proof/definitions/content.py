"""The content of a sum: a common divisor of all summands.

The content is a product of a number, sizes, factors and an exponential.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import gcd

from superopt.algebra.terms import Extent, Size, at_least, atoms, integral, inverse, size
from superopt.proof.definitions.alpha import Key, collect_summands, factor_key, shape, sort_summands
from superopt.proof.definitions.arithmetic import SolverEffort, is_valid
from superopt.proof.definitions.signs import Sign, Signs, positive_atom
from superopt.proof.definitions.sums import (
    Call,
    Factor,
    Guard,
    Sum,
    Summand,
    extents_in,
    factor_extents,
    split_summand_inverses,
    times,
)


def common_content(facts: Guard, values: Sequence[Summand], least: Sign, signs: Signs) -> Summand:
    """Return a common divisor of the summands: the product of a number, sizes, factors and an exponential.

    If `least` is POSITIVE, all sizes and factors in the divisor are known to be positive. If `least` is NOT_NEGATIVE, all sizes
    and factors in the divisor are known to be non-negative. No factor or exponent in the divisor contains a bound index.
    """
    if not values:
        return Summand(1)
    number = number_content(facts, [s.coefficient for s in values], least)
    common: list[Factor] = []
    shared = Counter(map(factor_key, values[0].factors))
    for other in values[1:]:
        shared &= Counter(map(factor_key, other.factors))
    for factor in values[0].factors:
        key = factor_key(factor)
        exponential = isinstance(factor, Call) and factor.function == "exp"
        if shared[key] and not exponential and _free(factor, values[0]) and signs.of_factor(facts, factor) >= least:
            common.append(factor)
            shared[key] -= 1
    exponent = _common_exponent(values)
    if exponent:
        common.append(Call("exp", (exponent,)))
    return Summand(number, factors=tuple(common))


def divided(value: Sum, by: Summand) -> Sum:
    """Divide the sum by a common divisor of its summands, as returned by `common_content`."""
    return tuple(_quotient(s, by) for s in value)


def number_content(facts: Guard, coefficients: Sequence[Extent], least: Sign = Sign.POSITIVE) -> Extent:
    """Return a common divisor of all coefficients: the greatest common divisor of their numbers, times their common sizes.

    If `least` is POSITIVE, only sizes that are known to be positive are used. If `least` is NOT_NEGATIVE, sizes that are known
    to be non-negative are also used.
    """
    terms = [t for c in coefficients for t in (c.terms if isinstance(c, Size) else (((), c),))]
    shared = Counter(terms[0][0])
    for monomial, _ in terms[1:]:
        shared &= Counter(monomial)
    numbers = [abs(Fraction(c)) for _, c in terms]
    common = 1
    for n in numbers:
        common = common * n.denominator // gcd(common, n.denominator)
    content: Extent = integral(Fraction(gcd(*(n.numerator for n in numbers)), common))
    for atom in shared.elements():
        if positive_atom(facts, atom) or (
            least is not Sign.POSITIVE and is_valid(facts, at_least(size(atom), 0), SolverEffort.LINEAR)
        ):
            content = content * size(atom)
    return content


def _free(factor: Factor, summand: Summand) -> bool:
    return not summand.bound or not set(summand.bound) & {a for e in factor_extents(factor) for a in atoms(e)}


def _common_exponent(values: Sequence[Summand]) -> Sum:
    """Return the terms that the exponents of all exponentials share, such as `a` for `exp(a + b) + exp(a + c)`.

    The result is the empty sum if a summand has no exponential. Terms that contain bound indices are left out.
    """
    shared: dict[tuple[Key, Extent], Summand] | None = None
    for summand in values:
        exponent = next((f.arguments[0] for f in summand.factors if isinstance(f, Call) and f.function == "exp"), ())
        free = {
            shape(t): t
            for t in exponent
            if not summand.bound or not set(summand.bound) & {a for e in extents_in(t) for a in atoms(e)}
        }
        shared = free if shared is None else {key: t for key, t in shared.items() if key in free}
    return sort_summands(tuple((shared or {}).values()))


def _quotient(summand: Summand, by: Summand) -> Summand:
    left = list(summand.factors)
    for factor in by.factors:
        match factor:
            case Call("exp", (shared,)):
                place = next(p for p, f in enumerate(left) if isinstance(f, Call) and f.function == "exp")
                whole = left.pop(place)
                assert isinstance(whole, Call)
                rest = collect_summands(whole.arguments[0] + times(shared, -1))
                left += [Call("exp", (sort_summands(rest),))] if rest else []
            case _:
                key = factor_key(factor)
                left.pop(next(p for p, f in enumerate(left) if factor_key(f) == key))
    number = (
        summand.coefficient if by.coefficient == 1 else summand.coefficient * split_summand_inverses(inverse(by.coefficient))
    )
    return replace(summand, coefficient=number, factors=tuple(left))
