"""Sums of products, which are the normal forms of tensor elements, and operations on such sums.

A sum consists of summands. A summand is a coefficient times factors, summed over the summand's bound indices. A guard
(conditions on indices) limits the values of the bound indices. A factor is an element of a variable, an element of a table of
constants, the largest of several values, a power of a sum, or another function of sums.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from superopt.algebra.extent import parts_of, sides
from superopt.algebra.substitution import condition_atoms
from superopt.algebra.terms import (
    Atom,
    Cond,
    Extent,
    Inverse,
    Size,
    Sym,
    atoms,
    conjunction,
    inverse,
    size,
    substitute,
    substitute_cond,
)

Lookup: TypeAlias = "Callable[[Atom], Extent | None]"
Guard: TypeAlias = "tuple[Cond, ...]"
Sum: TypeAlias = "tuple[Summand, ...]"


@dataclass(frozen=True)
class Read:
    """The element of variable `name` at `indices`."""

    name: str
    indices: tuple[Extent, ...]


@dataclass(frozen=True)
class TableElement:
    """The number at `indices` in a table of constants. The table stores its numbers in row-major order."""

    shape: tuple[int, ...]
    numbers: tuple[Fraction, ...]
    indices: tuple[Extent, ...]


@dataclass(frozen=True)
class Call:
    """A nonlinear function of sums."""

    function: str
    arguments: tuple[Sum, ...]


@dataclass(frozen=True)
class Power:
    """A power of a sum, over the real numbers.

    The power of a negative base is defined only for an integer exponent, and the power of zero only for a non-negative
    exponent.
    """

    base: Sum
    exponent: Extent


@dataclass(frozen=True)
class GuardedValue:
    """A set of values: the values of the sum `value` at all choices of the indices in `bound` for which `guard` holds."""

    bound: tuple[Sym, ...]
    guard: Guard
    value: Sum


@dataclass(frozen=True)
class Largest:
    """A maximum: the largest of all values of its operands `candidates`, or minus infinity if there are no operands."""

    candidates: tuple[GuardedValue, ...]


Factor: TypeAlias = "Read | TableElement | Call | Power | Largest"


@dataclass(frozen=True)
class Summand:
    """The coefficient times all factors, summed over all values of the bound indices for which the guard holds."""

    coefficient: Extent
    bound: tuple[Sym, ...] = ()
    guard: Guard = ()
    factors: tuple[Factor, ...] = ()


ZERO: Sum = ()
ONE: Sum = (Summand(1),)


def single(*factors: Factor) -> Sum:
    """Return the product of the factors as a sum."""
    return (Summand(1, factors=factors),)


# ---------------------------------------------------------------- substitution


def substitute_guard(guard: Guard, value: Lookup) -> Guard:
    """Apply a substitution to the guard. Conditions that become true are dropped."""
    return parts_of(conjunction(*(substitute_cond(c, value) for c in guard)))


def substitute_summand(summand: Summand, value: Lookup) -> Summand:
    """Apply a substitution to the summand. A bound index is renamed only if its new value is a single symbol."""
    return Summand(
        substitute(summand.coefficient, value),
        _indices(summand.bound, value),
        substitute_guard(summand.guard, value),
        tuple(substitute_factor(f, value) for f in summand.factors),
    )


def substitute_sum(value: Sum, lookup: Lookup) -> Sum:
    """Apply a substitution to every summand of the sum."""
    return tuple(substitute_summand(s, lookup) for s in value)


def substitute_factor(factor: Factor, value: Lookup) -> Factor:
    """Apply a substitution to the factor."""
    match factor:
        case Read(name, indices):
            return Read(name, tuple(substitute(i, value) for i in indices))
        case TableElement(shape, numbers, indices):
            return TableElement(shape, numbers, tuple(substitute(i, value) for i in indices))
        case Call(function, arguments):
            return Call(function, tuple(substitute_sum(a, value) for a in arguments))
        case Power(base, exponent):
            return Power(substitute_sum(base, value), substitute(exponent, value))
        case Largest(candidates):
            return Largest(
                tuple(
                    GuardedValue(_indices(c.bound, value), substitute_guard(c.guard, value), substitute_sum(c.value, value))
                    for c in candidates
                )
            )


def _indices(bound: tuple[Sym, ...], value: Lookup) -> tuple[Sym, ...]:
    return tuple(new if isinstance(new := _symbol(value(k)), Sym) else k for k in bound)


def _symbol(extent: Extent | None) -> Atom | None:
    if isinstance(extent, Size) and len(extent.terms) == 1 and len(extent.terms[0][0]) == 1 and extent.terms[0][1] == 1:
        return extent.terms[0][0][0]
    return None


def factor_extents(factor: Factor) -> Iterator[Extent]:
    """Yield every index, exponent, coefficient and side of a condition in the factor."""
    match factor:
        case Read(_, indices) | TableElement(_, _, indices):
            yield from indices
        case Call(_, arguments):
            yield from (e for a in arguments for s in a for e in extents_in(s))
        case Power(base, exponent):
            yield exponent
            yield from (e for s in base for e in extents_in(s))
        case Largest(candidates):
            for candidate in candidates:
                yield from (e for c in candidate.guard for e in sides(c))
                yield from (e for s in candidate.value for e in extents_in(s))


def extents_in(summand: Summand) -> Iterator[Extent]:
    """Yield every coefficient, index, exponent and side of a condition in the summand."""
    yield summand.coefficient
    yield from (e for c in summand.guard for e in sides(c))
    yield from (e for f in summand.factors for e in factor_extents(f))


def mentions_index(condition: Cond, index: Sym) -> bool:
    """Return whether the index occurs in the condition.

    The condition is part of a guard, or belongs to a node of a decision tree.
    """
    return index in set(condition_atoms(condition))


def nested(factor: Factor) -> Iterator[Sym]:
    """Yield the indices that are bound inside the factor."""
    match factor:
        case Call(_, arguments):
            for summand in itertools.chain(*arguments):
                yield from bound_in(summand)
        case Power(base):
            for summand in base:
                yield from bound_in(summand)
        case Largest(candidates):
            for candidate in candidates:
                yield from candidate.bound
                yield from (k for s in candidate.value for k in bound_in(s))
        case _:
            pass


def bound_in(summand: Summand) -> Iterator[Sym]:
    """Yield the indices that are bound by the summand or inside its factors."""
    yield from summand.bound
    for factor in summand.factors:
        yield from nested(factor)


# ---------------------------------------------------------------- arithmetic


def times(value: Sum, factor: Extent) -> Sum:
    """Return the sum with every coefficient multiplied by the factor."""
    return tuple(replace(s, coefficient=s.coefficient * factor) for s in value)


def candidates_of(value: Sum) -> tuple[GuardedValue, ...]:
    """Return the operands of `value`, if `value` is a maximum. Otherwise, return `value` as the only operand of a maximum."""
    if len(value) == 1:
        match value[0]:
            case Summand(1, (), (), (Largest(candidates),)):
                return candidates
    return (GuardedValue((), (), value),)


def call_of_sums(function: str, *arguments: Sum) -> Sum:
    """Apply a function to one or more sums, and return the result as a sum.

    The functions `relu` and `larger` become a maximum. The reciprocal of a number is evaluated.
    """
    if function == "larger":
        return single(Largest(tuple(c for a in arguments for c in candidates_of(a))))
    if function == "relu":
        return single(Largest((*candidates_of(arguments[0]), GuardedValue((), (), ZERO))))
    if function == "reciprocal":
        number = constant_of(arguments[0])
        if number is not None and number != 0 and not any(isinstance(a, Sym) and a.real for a in atoms(number)):
            return (Summand(split_summand_inverses(inverse(number))),)
    return single(Call(function, arguments))


def constant_of(value: Sum) -> Extent | None:
    """Return the number or size that the sum equals. Return None if a summand has a factor, a guard or a bound index."""
    total: Extent = 0
    for summand in value:
        if summand.factors or summand.guard or summand.bound:
            return None
        total = total + summand.coefficient
    return total


def split_summand_inverses(extent: Extent) -> Extent:
    """Return the extent with each reciprocal 1 / (a * b) written as (1 / a) * (1 / b)."""

    def value(atom: Atom) -> Extent | None:
        if not isinstance(atom, Inverse) or not isinstance(atom.of, Size) or len(atom.of.terms) != 1:
            return None
        monomial, coefficient = atom.of.terms[0]
        product: Extent = inverse(coefficient)
        for factor in monomial:
            product = product * inverse(size(factor))
        return product

    return substitute(extent, value)
