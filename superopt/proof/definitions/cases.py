"""Case splits. One kind of split depends on which of two values is larger. The second kind depends on the sign of a step
function's argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from superopt.algebra.terms import Size, Sym, atoms, inverse
from superopt.proof.definitions.alpha import collect_summands, factor_key
from superopt.proof.definitions.normal import Normal
from superopt.proof.definitions.signs import Sign
from superopt.proof.definitions.sums import (
    Call,
    Factor,
    GuardedValue,
    Largest,
    Power,
    Read,
    Sum,
    Summand,
    TableElement,
    extents_in,
    factor_extents,
    single,
    split_summand_inverses,
    times,
)


@dataclass(frozen=True)
class SignCase:
    """One case of a case split.

    Attributes:
        told: Pairs of a value and its sign in this case.
        replaced: A tensor element whose value is known in this case. None if no element has a known value.
        by: The value of the tensor element `replaced`, as a sum. The sum is empty if `replaced` is None, or if the value of
            `replaced` is zero.
    """

    told: tuple[tuple[Sum, Sign], ...]
    replaced: Read | None = None
    by: Sum = ()


def sign_cases(value: Sum, notation: Normal) -> tuple[SignCase, ...] | None:
    """Return a case split that simplifies the first maximum or step function in the value.

    At least one of the cases always holds. Return None if the value contains no maximum or step function that can be split.
    """
    pivot = next(_pivots(value, frozenset()), None)
    if pivot is None:
        return None
    function, difference = pivot[0], _upright(pivot[1], notation)
    opposite = times(difference, -1)
    match function:
        case "zero":
            equal = SignCase(((difference, Sign.NOT_NEGATIVE), (opposite, Sign.NOT_NEGATIVE)), *_solved(difference))
            return equal, SignCase(((difference, Sign.POSITIVE),)), SignCase(((opposite, Sign.POSITIVE),))
        case "positive":
            return SignCase(((difference, Sign.POSITIVE),)), SignCase(((opposite, Sign.NOT_NEGATIVE),))
        case _:
            return SignCase(((difference, Sign.NOT_NEGATIVE),)), SignCase(((opposite, Sign.NOT_NEGATIVE),))


def _upright(value: Sum, notation: Normal) -> Sum:
    """Return a simpler sum that has the same sign as the value wherever the value is not 0.

    In a product, 1 / x becomes x. A sum over an index becomes x if every term of this sum is x times a non-negative factor.
    """
    if len(value) != 1 or isinstance(value[0].coefficient, Size):
        return value
    (summand,) = value
    inside = [f for f in summand.factors if set(summand.bound) & {a for e in factor_extents(f) for a in atoms(e)}]
    if (summand.bound or summand.guard) and not all(notation.signs.of_factor((), f) for f in inside):
        return value
    result: Sum = (Summand(summand.coefficient),)
    for factor in (f for f in summand.factors if f not in inside):
        odd = isinstance(factor, Power) and isinstance(factor.exponent, int) and factor.exponent % 2 == 1
        result = notation.product(result, factor.base if odd and isinstance(factor, Power) else single(factor))
    return result


def _pivots(value: Sum, hidden: frozenset[Sym]) -> Iterator[tuple[str, Sum]]:
    """Yield the name and the argument of each maximum and step function in the value. Inner functions come first.

    For a maximum, the argument is the difference of two of its operands. A case split on the sign of the argument simplifies
    the function. A function is left out if its argument depends on a bound index.
    """
    for summand in value:
        for factor in summand.factors:
            yield from _inside(factor, hidden | set(summand.bound))


def _inside(factor: Factor, hidden: frozenset[Sym]) -> Iterator[tuple[str, Sum]]:
    match factor:
        case Call(function, arguments):
            for argument in arguments:
                yield from _pivots(argument, hidden)
            if function in ("zero", "positive") and _free(arguments[0], hidden):
                yield function, arguments[0]
        case Power(base):
            yield from _pivots(base, hidden)
        case Largest(candidates):
            for candidate in candidates:
                yield from _pivots(candidate.value, hidden | set(candidate.bound))
            plain = [c.value for c in candidates if not c.bound and not c.guard and _free(c.value, hidden)]
            if len(plain) >= 2:
                yield "larger", collect_summands(plain[0] + times(plain[1], -1))
        case _:
            pass


def _free(value: Sum, hidden: frozenset[Sym]) -> bool:
    return not hidden or not hidden & {a for s in value for e in extents_in(s) for a in atoms(e)}


def _solved(value: Sum) -> tuple[Read, Sum] | tuple[()]:
    """Return a tensor element in which the sum is linear, and the value of the element at which the sum is zero.

    Return () if the sum is not linear in any element.
    """
    for summand in value:
        match summand:
            case Summand(int() as number, (), (), (Read() as read,)):
                rest = tuple(s for s in value if s is not summand)
                if not any(_reads(s, read) for s in rest):
                    return read, times(rest, split_summand_inverses(inverse(-number)))
            case _:
                pass
    return ()


def _reads(summand: Summand, read: Read) -> bool:
    return any(_mentions(f, read) for f in summand.factors)


def _mentions(factor: Factor, read: Read) -> bool:
    match factor:
        case Read(name, _):
            return name == read.name
        case TableElement():
            return False
        case Call(_, arguments):
            return any(_reads(s, read) for a in arguments for s in a)
        case Power(base):
            return any(_reads(s, read) for s in base)
        case Largest(candidates):
            return any(_reads(s, read) for c in candidates for s in c.value)


# ---------------------------------------------------------------- replacing a read


def replace_read(value: Sum, read: Read, by: Sum, notation: Normal) -> Sum:
    """Return the sum with every occurrence of the tensor element `read` replaced by the sum `by`."""
    return tuple(t for s in value for t in _replaced(s, read, by, notation))


def _replaced(summand: Summand, read: Read, by: Sum, notation: Normal) -> Iterable[Summand]:
    if not _reads(summand, read):
        return (summand,)
    result: Sum = (replace(summand, factors=()),)
    for factor in summand.factors:
        result = notation.product(result, _factor(factor, read, by, notation))
    return result


def _factor(factor: Factor, read: Read, by: Sum, notation: Normal) -> Sum:
    match factor:
        case Read():
            return by if factor_key(factor) == factor_key(read) else single(factor)
        case TableElement():
            return single(factor)
        case Call(function, arguments):
            return single(Call(function, tuple(replace_read(a, read, by, notation) for a in arguments)))
        case Power(base, exponent):
            return single(Power(replace_read(base, read, by, notation), exponent))
        case Largest(candidates):
            inside = (GuardedValue(c.bound, c.guard, replace_read(c.value, read, by, notation)) for c in candidates)
            return single(Largest(tuple(inside)))
