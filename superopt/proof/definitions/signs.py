"""Signs of values, derived from their structure and from facts about values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction

from superopt.algebra.terms import Atom, Dim, Extent, Inverse, Size, Sym, at_least, negation, same, size
from superopt.proof.definitions.alpha import Key, collect_summands, factor_key, shape
from superopt.proof.definitions.arithmetic import SolverEffort, is_valid
from superopt.proof.definitions.sums import (
    Call,
    Factor,
    Guard,
    GuardedValue,
    Largest,
    Power,
    Sum,
    Summand,
    substitute_guard,
    times,
)


class Sign(IntEnum):
    """The strongest known statement about the sign of a value. `POSITIVE` implies `NOT_NEGATIVE`."""

    UNKNOWN = 0
    NOT_NEGATIVE = 1
    POSITIVE = 2


@dataclass(frozen=True)
class Signs:
    """Known signs of values. A known sign of a value also applies to all positive multiples of the value."""

    told: tuple[tuple[frozenset[tuple[Key, Extent]], Sign], ...] = ()
    _known: dict[frozenset[tuple[Key, Extent]], Sign] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for key, sign in self.told:
            self._known[key] = max(sign, self._known.get(key, Sign.UNKNOWN))

    def telling(self, values: Iterable[tuple[Sum, Sign]]) -> Signs:
        """Return a new `Signs` that contains the known signs of this object and the signs in `values`."""
        return Signs((*self.told, *((_direction(v), sign) for v, sign in values)))

    # ------------------------------------------------------------ values

    def of(self, facts: Guard, value: Sum) -> Sign:
        """Return the sign of a sum."""
        if not value:
            return Sign.NOT_NEGATIVE
        told = self._known.get(_direction(value), Sign.UNKNOWN) if self._known else Sign.UNKNOWN
        if told is Sign.POSITIVE:
            return told
        signs = [self.of_summand(facts, s) for s in value]
        if all(signs):
            return max(told, Sign.POSITIVE if Sign.POSITIVE in signs else Sign.NOT_NEGATIVE)
        return max(told, self._of_difference(facts, value)) if len(value) == 2 else told

    def _of_difference(self, facts: Guard, value: Sum) -> Sign:
        """Return the sign of a value of the form c * (f(a) - f(b)), where f is an increasing function and c is not negative.

        The number 1 is treated as exp(0). The sign of a value of any other form is unknown.
        """
        for high, low in (value, value[::-1]):
            if high.bound or low.bound or high.guard or low.guard or high.coefficient + low.coefficient != 0:
                continue
            if not _number(facts, high.coefficient):
                continue
            a, b = _risen(high.factors), _risen(low.factors)
            if a is not None and b is not None and a[0] == b[0]:
                return min(Sign.NOT_NEGATIVE, self.of(facts, collect_summands(a[1] + times(b[1], -1))))
        return Sign.UNKNOWN

    def of_summand(self, facts: Guard, summand: Summand) -> Sign:
        """Return the sign of a summand where its guard holds.

        The sign follows from the signs of the coefficient and the factors. A factor that occurs an even number of times counts
        as not negative, even if its sign is unknown. The remaining values are the coefficient and the factors that occur an odd
        number of times. If the number of negative values among the remaining values is odd, the result is UNKNOWN.
        """
        inside = (*facts, *summand.guard)
        number = summand.coefficient
        turned = not isinstance(number, Size) and number < 0
        sign = _number(inside, -1 * number if turned else number)
        if not sign:
            return sign
        times_each = Counter(map(factor_key, summand.factors))
        for key, factor in {factor_key(f): f for f in summand.factors}.items():
            even = times_each[key] % 2 == 0
            least, down = self._either(inside, factor)
            turned ^= down and not even
            sign = min(sign, max(least, Sign.NOT_NEGATIVE) if even else least)
            if not sign:
                return sign
        if turned:
            return Sign.UNKNOWN
        return sign if _somewhere(facts, summand) else Sign.NOT_NEGATIVE

    def _either(self, facts: Guard, factor: Factor) -> tuple[Sign, bool]:
        """Return the sign of the factor or of the negated factor, and whether the factor was negated.

        If only the sign of the negated factor is known, return this sign and True.
        """
        sign = self.of_factor(facts, factor)
        if sign or not self._known:
            return sign, False
        negative = self._known.get(_direction((Summand(-1, factors=(factor,)),)), Sign.UNKNOWN)
        match factor:
            case Power(base, int() as exponent) if exponent % 2:
                negative = max(negative, self.of(facts, times(base, -1)))
            case _:
                pass
        return negative, bool(negative)

    def of_factor(self, facts: Guard, factor: Factor) -> Sign:
        """Return the sign of a factor."""
        told = self._known.get(_direction((Summand(1, factors=(factor,)),)), Sign.UNKNOWN) if self._known else Sign.UNKNOWN
        match factor:
            case Call(function, arguments):
                return max(told, self._of_call(facts, function, arguments))
            case Power(base, exponent):
                return max(told, self._of_power(facts, base, exponent))
            case Largest(candidates):
                return max(told, self._of_largest(facts, candidates))
            case _:
                return told

    def _of_call(self, facts: Guard, function: str, arguments: tuple[Sum, ...]) -> Sign:
        match function:
            case "exp":
                return Sign.POSITIVE
            case "zero" | "positive":
                return Sign.NOT_NEGATIVE
            case "erf":
                return self.of(facts, arguments[0])
            case "choose":
                return min(self.of(facts, arguments[1]), self.of(facts, arguments[2]))
            case _:
                return Sign.UNKNOWN

    def _of_power(self, facts: Guard, base: Sum, exponent: Extent) -> Sign:
        if isinstance(exponent, int) and exponent % 2 == 0:
            least = Sign.POSITIVE if exponent <= 0 else Sign.NOT_NEGATIVE
        elif isinstance(exponent, Fraction):
            least = Sign.POSITIVE if exponent < 0 else Sign.NOT_NEGATIVE
        else:
            least = Sign.UNKNOWN
        if least is Sign.POSITIVE:
            return least
        of_base = self.of(facts, base)
        if of_base and isinstance(exponent, int) and exponent < 0:
            return Sign.POSITIVE
        return max(least, of_base)

    def _of_largest(self, facts: Guard, candidates: tuple[GuardedValue, ...]) -> Sign:
        signs = [self.of((*facts, *c.guard), c.value) for c in candidates]
        always = [s for s, c in zip(signs, candidates, strict=True) if not c.bound and not c.guard]
        least = max([Sign.UNKNOWN, *always])
        if signs and all(signs):
            least = max(least, min(signs))
        plain = [c.value for c in candidates if not c.bound and not c.guard]
        if not least and any(not collect_summands(a + b) for p, a in enumerate(plain) for b in plain[p + 1 :]):
            return Sign.NOT_NEGATIVE
        return least


def _risen(factors: tuple[Factor, ...]) -> tuple[str, Sum] | None:
    """Return the name and the argument of an increasing function, such as exp, if the product is a value of this function.

    Otherwise return None. The empty product, which is 1, is treated as exp(0).
    """
    match factors:
        case ():
            return "exp", ()
        case (Call("exp" | "log" | "erf" as function, (argument,)),):
            return function, argument
        case (Power(base, exponent),) if isinstance(exponent, Fraction) and exponent > 0:
            return str(exponent), base
        case _:
            return None


def _direction(value: Sum) -> frozenset[tuple[Key, Extent]]:
    """Return a key that is the same for a sum and all positive multiples of the sum."""
    shapes = [shape(s) for s in value]
    numbers = [n for _, n in shapes if isinstance(n, int | Fraction)]
    scale = 1 / min(abs(Fraction(n)) for n in numbers) if numbers and all(numbers) else Fraction(1)
    return frozenset((key, number * scale) for key, number in shapes)


def _number(facts: Guard, number: Extent) -> Sign:
    """Return the sign of a number or size."""
    if not isinstance(number, Size):
        return Sign.POSITIVE if number > 0 else Sign.NOT_NEGATIVE if number == 0 else Sign.UNKNOWN
    if len(number.terms) == 1 and number.terms[0][1] > 0 and all(positive_atom(facts, a) for a in number.terms[0][0]):
        return Sign.POSITIVE
    return Sign.NOT_NEGATIVE if is_valid(facts, at_least(number, 0), SolverEffort.PRODUCTS) else Sign.UNKNOWN


def positive_atom(facts: Guard, atom: Atom) -> bool:
    """Return whether the facts imply that the atom (a size, an index or a reciprocal) is positive."""
    if isinstance(atom, Dim):
        return True
    below = atom.of if isinstance(atom, Inverse) else size(atom)
    if isinstance(below, Size) and len(below.terms) > 1 and not any(isinstance(a, Sym) and a.real for a in below.atoms()):
        return is_valid(facts, at_least(below, 1), SolverEffort.LINEAR)
    inside = [a for m, _ in below.terms for a in m] if isinstance(below, Size) else []
    if inside != [atom]:
        return all(positive_atom(facts, a) for a in inside)
    if isinstance(atom, Sym) and atom.real:
        return is_valid(facts, at_least(below, 0), SolverEffort.LINEAR) and is_valid(
            facts, negation(same(below, 0)), SolverEffort.LINEAR
        )
    return is_valid(facts, at_least(below, 1), SolverEffort.LINEAR)


def _somewhere(facts: Guard, summand: Summand) -> bool:
    """Return whether the summand's guard is shown to hold where all bound indices are zero."""
    first = substitute_guard(summand.guard, lambda a: 0 if a in summand.bound else None)
    return all(is_valid(facts, c, SolverEffort.LINEAR) for c in first)
