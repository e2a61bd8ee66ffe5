"""The check that the right side of a rule is defined wherever the left side is defined.

Divisions, roots, powers and logarithms are undefined for some values. An equation between values is proved only where both
values are defined. A rule also needs a right side that is defined wherever its left side is defined. The right side is defined
where certain values in it meet demands. A demand says that a value must be nonzero, non-negative or positive. Each demand must
follow from the structure of the value, or from the demands of the left side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from superopt.algebra.terms import Extent, Inverse, Size, Sym, at_least, atoms
from superopt.proof.definitions.alpha import collect_summands, factor_key, shape, sort_summands, sum_key
from superopt.proof.definitions.arithmetic import SolverEffort, is_valid
from superopt.proof.definitions.cancel import Cancellation
from superopt.proof.definitions.functions import EXPONENTS, raise_to_power
from superopt.proof.definitions.normal import PARTIAL, Normal, has_partial_function
from superopt.proof.definitions.signs import Sign, Signs
from superopt.proof.definitions.simplify import simplify_sum
from superopt.proof.definitions.sums import Call, Factor, Guard, GuardedValue, Largest, Power, Sum, Summand, constant_of, times
from superopt.proof.denominators import denominator_factors, is_nonzero

Chosen: TypeAlias = "tuple[tuple[object, bool], ...]"
NOT_ZERO, NOT_NEGATIVE, POSITIVE, EXISTS = "not zero", "not negative", "positive", "exists"


@dataclass(frozen=True)
class DomainDemand:
    """A condition that a value must satisfy so that an expression is defined, such as "not zero" for a divisor.

    Attributes:
        kind: NOT_ZERO, NOT_NEGATIVE, POSITIVE or EXISTS. EXISTS demands that the power `value ** exponent` exists. In this
            case, the exponent is symbolic.
        chosen: Pairs (condition, outcome). Each condition is the first operand of a `where` operator, and the outcome is True
            or False. The demand applies only where every condition has the given outcome.
        candidate: The value, with bound indices and a guard (conditions on these indices). The demand applies at all values of
            the bound indices where the guard holds.
        exponent: The exponent for EXISTS. The exponent is 0 for the other kinds.
    """

    kind: str
    chosen: Chosen
    candidate: GuardedValue
    exponent: Extent = 0

    @property
    def key(self) -> object:
        """A key that is the same for demands that differ only in the names of bound indices or the order of parts."""
        return self.kind, str(self.exponent), self.chosen, factor_key(Largest((self.candidate,)))

    @property
    def value(self) -> Sum:
        """The value that must satisfy the condition."""
        return self.candidate.value


def implied_signs(facts: Guard, value: Sum, notation: Normal) -> tuple[tuple[Sum, Sign], ...]:
    """Return pairs of an expression and the sign that the expression has wherever `value` is defined.

    For example, if `value` is log(x), the result contains x with the sign POSITIVE.
    """
    if not has_partial_function(value):
        return ()
    plain = (
        d for d in domain_demands(facts, value, notation) if not d.chosen and not d.candidate.bound and not d.candidate.guard
    )
    signs = {POSITIVE: Sign.POSITIVE, NOT_NEGATIVE: Sign.NOT_NEGATIVE}
    return tuple((d.value, signs[d.kind]) for d in plain if d.kind in signs)


def is_undefined(facts: Guard, left: Sum, right: Sum, notation: Normal, divisors: Iterable[Extent] = ()) -> bool:
    """Return whether `right` may be undefined where `left` is defined.

    False means that `right` is shown to be defined wherever `left` is defined. `divisors` contains the denominators that occur
    in attributes of the right side. `facts` must state that the denominators in attributes of the left side are not zero.
    """
    open_ = [_divisor(d) for d in divisors if not is_nonzero(facts, d)]
    if not has_partial_function(right) and not open_:
        return False
    given = domain_demands(facts, left, notation)
    given += [_divisor(d, g) for g in given if g.kind in (NOT_ZERO, POSITIVE) for d in _common_factors(g.value)]
    keys = {d.key for d in given}
    wanted = [d for d in (*domain_demands(facts, right, notation), *open_) if d.key not in keys]
    if not wanted:
        return False
    known = notation.telling(notation.signs.telling(implied_signs(facts, left, notation)))
    return not all(_met(facts, d, known.signs) or _demanded(facts, d, given, known) for d in wanted)


def _divisor(extent: Extent, where: DomainDemand | None = None) -> DomainDemand:
    """Return the demand that an extent is not zero.

    If `where` is not None, the returned demand applies only where the demand `where` applies.
    """
    value: Sum = (Summand(extent),)
    if where is None:
        return DomainDemand(NOT_ZERO, (), GuardedValue((), (), value))
    return DomainDemand(NOT_ZERO, where.chosen, replace(where.candidate, value=value))


def _common_factors(value: Sum) -> Iterator[Extent]:
    """Yield the extents that divide every coefficient of the sum. The sum is zero wherever one of these extents is zero."""
    shared = [set(denominator_factors(s.coefficient)) if isinstance(s.coefficient, Size) else set() for s in value]
    yield from sorted(set.intersection(*shared), key=str) if shared else ()


def domain_demands(facts: Guard, value: Sum, notation: Normal) -> list[DomainDemand]:
    """Return the conditions under which a value is defined, such as "not zero" for a divisor in the value.

    A condition is left out if the structure of the value implies the condition. A condition on a product is split into
    conditions on the factors. A condition on a power becomes a condition on the base.
    """
    found: dict[object, DomainDemand] = {}
    for function, arguments, bound, guard, chosen in _partial_calls(value, (), (), ()):
        inside = (*facts, *guard)
        base = simplify_sum(inside, arguments[0], notation)
        exponent = constant_of(arguments[1]) if function == "power" else EXPONENTS.get(function, Fraction(-1, 2))
        if exponent is None or (isinstance(exponent, int) and exponent >= 0):
            continue
        power = raise_to_power(inside, base, exponent, notation)
        for divisor in dict.fromkeys(
            d for s in power for a in atoms(s.coefficient) if isinstance(a, Inverse) for d in denominator_factors(a.of)
        ):
            if not is_nonzero(inside, divisor):
                demand = DomainDemand(NOT_ZERO, chosen, GuardedValue(bound, guard, (Summand(divisor),)))
                found.setdefault(demand.key, demand)
        for factor in (f for s in power for f in s.factors):
            if isinstance(factor, Power):
                open_ = factor.exponent if isinstance(factor.exponent, Size) else 0
                demand = _of_magnitude(
                    DomainDemand(_kind(factor.exponent), chosen, GuardedValue(bound, guard, factor.base), open_)
                )
                if not _met(facts, demand, notation.signs):
                    found.setdefault(demand.key, demand)
    return [_strict(d, found) for d in found.values()]


def _strict(demand: DomainDemand, others: Mapping[object, DomainDemand]) -> DomainDemand:
    """Strengthen the demand (a condition on a value) if a demand in `others` says that the same value is not zero.

    The demand that the value is not negative becomes the demand that the value is positive. For a nonzero value, `value ** a`
    exists exactly where `value ** -a` exists. The demands for the exponents `a` and `-a` therefore become the same demand.
    """
    inside = replace(demand.candidate, value=_turned(sort_summands(demand.value)))
    if replace(demand, kind=NOT_ZERO, candidate=inside, exponent=0).key not in others:
        return demand
    if demand.kind == EXISTS:
        return replace(demand, exponent=max(demand.exponent, -1 * demand.exponent, key=str))
    return replace(demand, kind=POSITIVE) if demand.kind == NOT_NEGATIVE else demand


def _of_magnitude(demand: DomainDemand) -> DomainDemand:
    """Simplify a demand on an absolute value |x|: "not zero" and "positive" become the demand that x is not zero.

    All other demands are returned unchanged.
    """
    match demand.value:
        case (Summand(1, (), (), (Largest((GuardedValue((), (), a), GuardedValue((), (), b))),)),) if (
            demand.kind != NOT_NEGATIVE
        ):
            if not collect_summands(a + b) and demand.kind != EXISTS:
                return DomainDemand(NOT_ZERO, demand.chosen, replace(demand.candidate, value=_turned(sort_summands(a))))
            return demand
        case _:
            return demand


def _turned(value: Sum) -> Sum:
    """Return the sum, or the negated sum if the coefficient of the first summand is negative."""
    first = shape(value[0])[1] if value else 1
    return times(value, -1) if not isinstance(first, Size) and first < 0 else value


def _kind(exponent: Extent) -> str:
    if isinstance(exponent, int):
        return NOT_ZERO
    if isinstance(exponent, Fraction):
        return POSITIVE if exponent < 0 else NOT_NEGATIVE
    return EXISTS


def _partial_calls(
    value: Sum, bound: tuple[Sym, ...], guard: Guard, chosen: Chosen
) -> Iterator[tuple[str, tuple[Sum, ...], tuple[Sym, ...], Guard, Chosen]]:
    for summand in value:
        for factor in summand.factors:
            yield from _partial_in(factor, (*bound, *summand.bound), (*guard, *summand.guard), chosen)


def _partial_in(
    factor: Factor, bound: tuple[Sym, ...], guard: Guard, chosen: Chosen
) -> Iterator[tuple[str, tuple[Sum, ...], tuple[Sym, ...], Guard, Chosen]]:
    match factor:
        case Call("choose", (condition, then, other)):
            asked = sum_key(condition)
            yield from _partial_calls(condition, bound, guard, chosen)
            yield from _partial_calls(then, bound, guard, (*chosen, (asked, True)))
            yield from _partial_calls(other, bound, guard, (*chosen, (asked, False)))
        case Call(function, arguments):
            for argument in arguments:
                yield from _partial_calls(argument, bound, guard, chosen)
            if function in PARTIAL:
                yield function, arguments, bound, guard, chosen
        case Largest(candidates):
            for candidate in candidates:
                inside = (*bound, *candidate.bound), (*guard, *candidate.guard)
                yield from _partial_calls(candidate.value, *inside, chosen)
        case _:
            pass


def _met(facts: Guard, demand: DomainDemand, signs: Signs) -> bool:
    """Return whether the structure of a value and known signs imply `demand`, a condition on this value."""
    inside = (*facts, *demand.candidate.guard)
    sign = signs.of(inside, demand.value)
    match demand.kind:
        case "not negative":
            return bool(sign)
        case "not zero":
            if sign is Sign.POSITIVE or signs.of(inside, times(demand.value, -1)) is Sign.POSITIVE:
                return True
            number = constant_of(demand.value)
            return isinstance(number, Size) and is_nonzero(inside, number)
        case "exists" if sign and is_valid(inside, at_least(demand.exponent, 0), SolverEffort.LINEAR):
            return True
        case _:
            return sign is Sign.POSITIVE


def _demanded(facts: Guard, demand: DomainDemand, given: list[DomainDemand], notation: Normal) -> bool:
    """Return whether it is shown that `demand` holds if all demands in `given` hold.

    A demand is a condition on a value. Where a demand does not apply, the demand counts as met.
    """
    alike = [g for g in given if g.kind == POSITIVE or (g.kind == demand.kind and g.exponent == demand.exponent)]
    stronger = [g for g in alike if set(g.chosen) <= set(demand.chosen)]
    return Cancellation(notation).covered(facts, demand.candidate, [g.candidate for g in stronger])
