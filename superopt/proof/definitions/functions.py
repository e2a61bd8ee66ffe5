"""Simplification of functions: each function of simplified sums is rewritten to a canonical form.

The canonical form has the function's value wherever the function is defined. The canonical form may also be defined where the
function is undefined. For example, the canonical form of `x * (1 / x)` is 1. `superopt.proof.domains` therefore checks
separately where the sides of a rule are defined. Roots and reciprocals are written as powers. Factors are moved out of a
power's base where possible. If a base is a sum of exponentials whose exponents share terms, an exponential of the shared terms
is moved out of the base.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from superopt.algebra.terms import Extent, Inverse, Size, inverse, size
from superopt.policy import PROOF
from superopt.proof.definitions.alpha import Key, collect_summands, factor_key, sort_summands
from superopt.proof.definitions.content import common_content, divided
from superopt.proof.definitions.forms import (
    canonical_power_exponent,
    canonical_rational_power,
    is_indicator,
    is_single_factor,
    leading_coefficient,
    negated_abs_argument,
    one_plus_exp_argument,
)
from superopt.proof.definitions.normal import Normal
from superopt.proof.definitions.signs import Sign, positive_atom
from superopt.proof.definitions.sums import (
    ONE,
    ZERO,
    Call,
    Factor,
    Guard,
    GuardedValue,
    Largest,
    Power,
    Sum,
    Summand,
    constant_of,
    single,
    split_summand_inverses,
    times,
)

EXPONENTS: dict[str, Extent] = {"reciprocal": -1, "sqrt": Fraction(1, 2), "rsqrt": Fraction(-1, 2)}


def apply_function(facts: Guard, function: str, arguments: Sequence[Sum], notation: Normal) -> Sum:
    """Return the function applied to these sums, simplified under the conditions in `facts`."""
    known = _Functions(facts, notation)
    first = arguments[0]
    match function:
        case "reciprocal" | "sqrt" | "rsqrt":
            return known.power(first, EXPONENTS[function])
        case "power":
            exponent = constant_of(arguments[1])
            return single(Call(function, tuple(arguments))) if exponent is None else known.power(first, exponent)
        case "exp":
            return known.exp(first)
        case "log":
            return known.log(first)
        case "erf":
            return known.erf(first)
        case "zero":
            return known.zero(first)
        case "positive":
            return known.positive(first)
        case "choose":
            return known.choose(*arguments)
        case _:
            return single(Call(function, tuple(arguments)))


def raise_to_power(facts: Guard, base: Sum, exponent: Extent, notation: Normal) -> Sum:
    """Return `base ** exponent`, simplified under the conditions in `facts`."""
    return _Functions(facts, notation).power(base, exponent)


def merge_factors(facts: Guard, summand: Summand, notation: Normal) -> Sum:
    """Merge the factors of a product.

    The result contains at most one power of each base, at most one exponential, and no step function twice.
    """
    return _Functions(facts, notation).merged(summand)


class _Functions:
    def __init__(self, facts: Guard, notation: Normal) -> None:
        self.facts = facts
        self.notation = notation
        self.signs = notation.signs

    def product(self, values: Iterable[Sum]) -> Sum:
        result = ONE
        for value in values:
            result = self.notation.product(result, value)
        return collect_summands(t for s in result for t in self.merged(s))

    # ------------------------------------------------------------ powers

    def power(self, base: Sum, exponent: Extent) -> Sum:
        if exponent == 0:
            return ONE
        if exponent == 1:
            return base
        if isinstance(exponent, int) and 2 <= exponent <= PROOF.max_expanded_exponent:
            return self.product([base] * exponent)
        number = constant_of(base)
        if number is not None:
            return self.number_power(number, exponent)
        if len(base) == 1 and not base[0].bound and not base[0].guard:
            return self.monomial_power(base[0], exponent)
        whole = isinstance(exponent, int)
        common = common_content(self.facts, base, Sign.POSITIVE, self.signs)
        rest = sort_summands(divided(base, common))
        if whole and rest and leading_coefficient(rest) < 0:
            common, rest = replace(common, coefficient=-1 * common.coefficient), times(rest, -1)
        if common == Summand(1):
            return single(Power(rest, exponent))
        return self.product([self.monomial_power(common, exponent), single(Power(rest, exponent))])

    def number_power(self, number: Extent, exponent: Extent) -> Sum:
        """Return a power of a number or size."""
        if number == 1:
            return ONE
        if number == 0 and isinstance(exponent, int | Fraction) and exponent > 0:
            return ZERO
        if number == 0:
            return single(Power(ZERO, exponent))
        if isinstance(exponent, int):
            result: Extent = 1
            for _ in range(abs(exponent)):
                result = result * (number if exponent > 0 else split_summand_inverses(inverse(number)))
            return (Summand(result),)
        exact = canonical_rational_power(number, exponent)
        if exact is not None:
            return (Summand(exact),)
        if (
            isinstance(number, Size)
            and len(number.terms) == 1
            and all(positive_atom(self.facts, a) for a in number.terms[0][0])
        ):
            monomial, coefficient = number.terms[0]
            parts = [self.number_power(coefficient, exponent)] if coefficient != 1 else []
            for atom in monomial:
                inverted = isinstance(atom, Inverse)
                below, to = (atom.of, -1 * exponent) if isinstance(atom, Inverse) else (size(atom), exponent)
                parts.append(single(Power((Summand(below),), to)) if inverted or len(monomial) > 1 or coefficient != 1 else ONE)
            if len(monomial) > 1 or coefficient != 1 or isinstance(monomial[0], Inverse):
                return self.product(parts)
        return single(Power((Summand(number),), exponent))

    def monomial_power(self, summand: Summand, exponent: Extent) -> Sum:
        """Return a power of a product.

        The power of a factor becomes a separate factor if this power is known to be defined.
        """
        counts = Counter(map(factor_key, summand.factors))
        factors = {factor_key(f): f for f in summand.factors}
        if isinstance(exponent, int):
            parts = [self.number_power(summand.coefficient, exponent)]
            return self.product(parts + [self.factor_power(factors[k], n * exponent) for k, n in counts.items()])
        least = {key: self.signs.of_factor(self.facts, f) for key, f in factors.items()}
        falling = isinstance(exponent, Fraction) and exponent < 0
        sign = self.signs.of_summand(self.facts, Summand(summand.coefficient))
        odd = [key for key, n in counts.items() if n % 2 and not least[key]]
        every = sign and not odd
        taken: list[Sum] = []
        left: list[Factor] = []
        for key, count in counts.items():
            if least[key] is Sign.POSITIVE or ((every or falling) and least[key]):
                taken.append(self.factor_power(factors[key], count * exponent))
            elif count % 2 == 0 and (every or falling):
                taken.append(self.power(self.magnitude(single(factors[key])), count * exponent))
            else:
                left += [factors[key]] * count
        number = summand.coefficient
        if sign is Sign.POSITIVE:
            taken.append(self.number_power(number, exponent))
            number = 1
        elif isinstance(number, int | Fraction) and number < 0:
            taken.append(self.number_power(-number, exponent))
            number = -1
        if not left and number == 1:
            return self.product(taken)
        if len(left) == 1 and number == 1:
            return self.product([*taken, self.factor_power(left[0], exponent)])
        return self.product([*taken, single(Power((Summand(number, factors=tuple(left)),), exponent))])

    def factor_power(self, factor: Factor, exponent: Extent) -> Sum:
        match factor:
            case Power(base, inner):
                if isinstance(inner, int) and not isinstance(exponent, int) and inner % 2 == 0:
                    return self.power(self.magnitude(base), inner * exponent)
                odd = isinstance(inner, int | Fraction) or isinstance(exponent, int)
                if odd or self.signs.of(self.facts, base):
                    return self.power(base, canonical_power_exponent(inner * exponent))
            case Call("exp", (argument,)):
                return self.exp(times(argument, exponent))
            case Call("zero" | "positive", _) if isinstance(exponent, int | Fraction) and exponent > 0:
                return single(factor)
            case _:
                pass
        if exponent == 1:
            return single(factor)
        if isinstance(exponent, int) and exponent > 1:
            return (Summand(1, factors=(factor,) * exponent),)
        return single(Power(single(factor), exponent))

    def magnitude(self, value: Sum) -> Sum:
        """Return the absolute value."""
        if self.signs.of(self.facts, value):
            return value
        negative = times(value, -1)
        if self.signs.of(self.facts, negative):
            return negative
        return single(Largest((GuardedValue((), (), value), GuardedValue((), (), negative))))

    # ------------------------------------------------------------ exponentials, logarithms, steps

    def exp(self, value: Sum) -> Sum:
        parts: list[Sum] = []
        rest: list[Summand] = []
        for summand in value:
            match summand:
                case Summand(coefficient, (), (), (Call("log", (argument,)),)):
                    parts.append(self.power(argument, coefficient))
                case _:
                    rest.append(summand)
        if rest:
            parts.append(single(Call("exp", (sort_summands(collect_summands(rest)),))))
        return parts[0] if len(parts) == 1 else self.product(parts)

    def log(self, value: Sum) -> Sum:
        if constant_of(value) == 1:
            return ZERO
        if len(value) != 1 or value[0].bound or value[0].guard:
            common = common_content(self.facts, value, Sign.POSITIVE, self.signs)
            rest = sort_summands(divided(value, common))
            return (ZERO if common == Summand(1) else self.log((common,))) + self.log_of_sum(rest)
        summand = value[0]
        counts = Counter(map(factor_key, summand.factors))
        factors = {factor_key(f): f for f in summand.factors}
        found: Sum = ()
        left: list[Factor] = []
        for key, count in counts.items():
            if self.signs.of_factor(self.facts, factors[key]) is Sign.POSITIVE or len(counts) == 1 == summand.coefficient:
                found += (
                    times(self.factor_log(factors[key]), count)
                    if count % 2
                    else times(self.factor_log_even(factors[key]), count)
                )
            elif count % 2 == 0:
                found += times(self.factor_log_even(factors[key]), count)
            else:
                left += [factors[key]] * count
        number = summand.coefficient
        if number != 1 and self.signs.of_summand(self.facts, Summand(number)) is Sign.POSITIVE:
            found += single(Call("log", ((Summand(number),),)))
            number = 1
        if len(left) == 1 and number == 1:
            return collect_summands(found + self.factor_log(left[0]))
        if not left and number == 1:
            return collect_summands(found)
        return collect_summands(found + single(Call("log", ((Summand(number, factors=tuple(left)),),))))

    def log_of_sum(self, value: Sum) -> Sum:
        """Return the logarithm of a sum whose summands have no common divisor.

        If v has a positive leading coefficient, log(1 + exp(-v)) becomes log(1 + exp(v)) - v.
        """
        exponent = one_plus_exp_argument(value)
        if exponent is None:
            return single(Call("log", (value,)))
        inside = negated_abs_argument(exponent)
        if inside is not None:
            relu = single(Largest((GuardedValue((), (), inside), GuardedValue((), (), ZERO))))
            return self.log_of_sum((Summand(1), *single(Call("exp", (sort_summands(inside),))))) + times(relu, -1)
        if leading_coefficient(exponent) < 0:
            opposite = times(exponent, -1)
            return single(Call("log", ((Summand(1), *single(Call("exp", (opposite,)))),))) + exponent
        return single(Call("log", (value,)))

    def factor_log(self, factor: Factor) -> Sum:
        """Return the logarithm of a factor. The factor must be positive wherever the factor is defined."""
        match factor:
            case Call("exp", (argument,)):
                return argument
            case Power(base, exponent) if not (isinstance(exponent, int) and exponent % 2 == 0):
                return times(self.log(base), exponent)
            case Power(base, exponent):
                return times(self.log(self.magnitude(base)), exponent)
            case _:
                return single(Call("log", (single(factor),)))

    def factor_log_even(self, factor: Factor) -> Sum:
        if self.signs.of_factor(self.facts, factor):
            return self.factor_log(factor)
        return self.log(self.magnitude(single(factor)))

    def erf(self, value: Sum) -> Sum:
        if not value:
            return ZERO
        value = sort_summands(value)
        if leading_coefficient(value) < 0:
            return times(single(Call("erf", (times(value, -1),))), -1)
        return single(Call("erf", (value,)))

    def zero(self, value: Sum) -> Sum:
        number = constant_of(value)
        if isinstance(number, int | Fraction | float):
            return ONE if number == 0 else ZERO
        signs = [self.signs.of(self.facts, side) for side in (value, times(value, -1))]
        if Sign.POSITIVE in signs:
            return ZERO
        if all(signs):
            return ONE
        if is_indicator(value):
            return collect_summands((Summand(1), *times(value, -1)))
        rest = sort_summands(divided(value, common_content(self.facts, value, Sign.POSITIVE, self.signs)))
        rest = times(rest, -1) if leading_coefficient(rest) < 0 else rest
        if is_indicator(rest):
            return collect_summands((Summand(1), *times(rest, -1)))
        return single(Call("zero", (rest,)))

    def positive(self, value: Sum) -> Sum:
        number = constant_of(value)
        if isinstance(number, int | Fraction | float):
            return ONE if number > 0 else ZERO
        if self.signs.of(self.facts, value) is Sign.POSITIVE:
            return ONE
        if self.signs.of(self.facts, times(value, -1)):
            return ZERO
        if is_indicator(value):
            return value
        rest = sort_summands(divided(value, common_content(self.facts, value, Sign.POSITIVE, self.signs)))
        if is_indicator(rest):
            return rest
        return single(Call("positive", (rest,)))

    def choose(self, condition: Sum, then: Sum, other: Sum) -> Sum:
        off = self.zero(condition)
        chosen = self.notation.product(off, other + times(then, -1))
        return collect_summands(t for s in then + chosen for t in self.merged(s))

    # ------------------------------------------------------------ products

    def merged(self, summand: Summand) -> Sum:
        """Return the product with at most one power of each base, at most one exponential, and no step function twice."""
        exponents: list[Sum] = []
        powers: dict[Key, tuple[Factor, Extent]] = {}
        others: list[Factor] = []
        seen: set[Key] = set()
        for factor in summand.factors:
            key = factor_key(factor)
            match factor:
                case Call("exp", (argument,)):
                    exponents.append(argument)
                case Power(base, exponent):
                    alone = base[0].factors[0] if is_single_factor(base) else None
                    held = Power(base, 1) if alone is None else alone
                    known = powers.get(factor_key(held), (held, 0))
                    powers[factor_key(held)] = held, known[1] + exponent
                case Call("zero" | "positive", _) if key in seen:
                    pass
                case _:
                    others.append(factor)
            seen.add(key)
        if len(exponents) <= 1 and not powers:
            plain = [Call("exp", (e,)) for e in exponents]
            kept = tuple(others) + tuple(plain)
            return (summand,) if len(kept) == len(summand.factors) else (replace(summand, factors=kept),)
        plainly: list[Factor] = []
        for factor in others:
            key = factor_key(factor)
            if key in powers:
                powers[key] = powers[key][0], powers[key][1] + 1
            else:
                plainly.append(factor)
        value: Sum = (replace(summand, factors=tuple(plainly)),)
        if exponents:
            total = collect_summands(s for e in exponents for s in e)
            value = self.notation.product(value, single(Call("exp", (sort_summands(total),))) if total else ONE)
        for held, exponent in powers.values():
            value = self.notation.product(value, self.held_power(held, canonical_power_exponent(exponent)))
        return value

    def held_power(self, held: Factor, exponent: Extent) -> Sum:
        """Return a power of a factor. If the factor is `sum ** 1`, return a power of the sum."""
        base = held.base if isinstance(held, Power) and held.exponent == 1 else single(held)
        if exponent == 0:
            return ONE
        if isinstance(exponent, int) and exponent > 0:
            result = ONE
            for _ in range(exponent):
                result = self.notation.product(result, base)
            return result
        return single(Power(base, exponent))
