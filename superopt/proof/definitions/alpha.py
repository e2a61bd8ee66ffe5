"""Equality of sums up to the names of bound indices and the order of parts (alpha equivalence).

Two summands are alike if they differ only in the names of bound indices, the order of parts and the constant factor.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from superopt.algebra.extent import sides
from superopt.algebra.terms import Extent, Size, Sym, atoms, integral, size, substitute, substitute_cond
from superopt.policy import PROOF
from superopt.proof.definitions.sums import (
    Call,
    Factor,
    Guard,
    GuardedValue,
    Largest,
    Lookup,
    Power,
    Read,
    Sum,
    Summand,
    TableElement,
    bound_in,
)

BLIND = size(Sym("_"))
Key: TypeAlias = "tuple[str, ...]"


@functools.lru_cache(maxsize=PROOF.alpha_cache_count)
def shape(summand: Summand) -> tuple[Key, Extent]:
    """Return two values: a key of the summand, and the summand's constant factor (a number or a size).

    The key is the same for summands that differ only in the constant factor, the names of bound indices or the order of parts.
    """
    bound = tuple(dict.fromkeys(bound_in(summand)))
    number, coefficient = _apart(summand.coefficient, summand.bound)
    names = _renaming(bound, summand) if bound else _kept
    inside = replace(summand, coefficient=coefficient)
    return (_summand(inside, names),), number


@functools.lru_cache(maxsize=PROOF.alpha_cache_count)
def factor_key(factor: Factor) -> Key:
    """Return a key that is the same for factors that differ only in names of bound indices and the order of parts."""
    return shape(Summand(1, factors=(factor,)))[0]


def sum_key(value: Sum) -> frozenset[tuple[Key, Extent]]:
    """Return a key that is the same for sums that differ only in names of bound indices and the order of parts."""
    return frozenset(map(shape, value))


def collect_summands(value: Iterable[Summand]) -> Sum:
    """Add up the summands that differ only in a constant factor, the names of bound indices and the order of parts."""
    found: dict[Key, tuple[Summand, Extent]] = {}
    for summand in value:
        alike, number = shape(summand)
        first, before = found.get(alike, (summand, 0))
        found[alike] = first, before + number
    return tuple(s if n == shape(s)[1] else _numbered(s, n) for s, n in found.values() if n != 0)


def sort_summands(value: Sum) -> Sum:
    """Return the sum with its summands in an order that does not depend on the names of bound indices."""
    return tuple(sorted(value, key=shape_text))


def shape_text(summand: Summand) -> str:
    """Return a text by which summands are sorted. The text does not depend on the names of bound indices."""
    return "".join(shape(summand)[0])


def _numbered(summand: Summand, number: Extent) -> Summand:
    return replace(summand, coefficient=_apart(summand.coefficient, summand.bound)[1] * number)


def _apart(coefficient: Extent, bound: tuple[Sym, ...]) -> tuple[Extent, Extent]:
    """Split a coefficient into a constant and a second factor, which is 1 if the coefficient has no bound index."""
    if not isinstance(coefficient, Size) or not set(bound) & set(atoms(coefficient)):
        return coefficient, 1
    leading = Fraction(coefficient.terms[-1][1])
    return integral(leading), coefficient * integral(1 / leading)


# ---------------------------------------------------------------- texts


def _kept(extent: Extent) -> str:
    return str(extent)


def _renaming(bound: tuple[Sym, ...], summand: Summand) -> _Names:
    """Return new names for the bound indices, numbered by first occurrence. Unused indices get the last numbers."""
    among = set(bound)
    blind = _Names(dict.fromkeys(bound, BLIND))
    seen: dict[Sym, None] = {}
    for extent in _in_order(summand, blind):
        if isinstance(extent, Size):
            seen.update((a, None) for a in extent.atoms() if isinstance(a, Sym) and a in among)
    order = [*seen, *(k for k in bound if k not in seen)]
    return _Names({k: size(Sym(f"b.{position}")) for position, k in enumerate(order)})


class _Names:
    """A function that returns an extent as text, with new names for some symbols."""

    def __init__(self, names: dict[Sym, Size]) -> None:
        self.names = names
        self.lookup: Lookup = lambda a: names.get(a) if isinstance(a, Sym) else None

    def __call__(self, extent: Extent) -> str:
        return str(substitute(extent, self.lookup))


def _guard(guard: Guard, names: _Names | None) -> str:
    shown = guard if names is None else [substitute_cond(c, names.lookup) for c in guard]
    return " and ".join(dict.fromkeys(sorted(map(str, shown))))


def _summand(summand: Summand, names: object) -> str:
    own = names if isinstance(names, _Names) else None
    factors = sorted(_factor(f, names) for f in summand.factors)
    return (
        f"{_extent(summand.coefficient, own)}|{_bound(summand.bound, own)}|{_guard(summand.guard, own)}|{' * '.join(factors)}"
    )


def _bound(bound: tuple[Sym, ...], names: _Names | None) -> str:
    return " ".join(sorted(_extent(size(k), names) for k in bound))


def _extent(extent: Extent, names: _Names | None) -> str:
    return str(extent) if names is None else names(extent)


def _sum(value: Sum, names: object) -> str:
    return " + ".join(sorted(_summand(s, names) for s in value))


def _candidate(candidate: GuardedValue, names: object) -> str:
    own = names if isinstance(names, _Names) else None
    return f"{_bound(candidate.bound, own)}|{_guard(candidate.guard, own)}|{_sum(candidate.value, names)}"


def _factor(factor: Factor, names: object) -> str:
    own = names if isinstance(names, _Names) else None
    match factor:
        case Read(name, indices):
            return f"{name}[{', '.join(_extent(i, own) for i in indices)}]"
        case TableElement(shape, numbers, indices):
            table = f"{'x'.join(map(str, shape))}: {' '.join(map(str, numbers))}"
            return f"({table})[{', '.join(_extent(i, own) for i in indices)}]"
        case Call(function, arguments):
            return f"{function}({'; '.join(_sum(a, names) for a in arguments)})"
        case Power(base, exponent):
            return f"({_sum(base, names)})**({_extent(exponent, own)})"
        case Largest(candidates):
            return f"largest({'; '.join(sorted(_candidate(c, names) for c in candidates))})"


def _in_order(summand: Summand, blind: _Names) -> Iterator[Extent]:
    """Yield every extent of the summand in an order that does not depend on the names of bound indices."""
    yield summand.coefficient
    for factor in sorted(summand.factors, key=lambda f: _factor(f, blind)):
        yield from _extents(factor, blind)
    for condition in sorted(summand.guard, key=lambda c: _guard((c,), blind)):
        yield from sides(condition)


def _extents(factor: Factor, blind: _Names) -> Iterator[Extent]:
    match factor:
        case Read(_, indices) | TableElement(_, _, indices):
            yield from indices
        case Call(_, arguments):
            for argument in arguments:
                yield from _of_sum(argument, blind)
        case Power(base, exponent):
            yield from _of_sum(base, blind)
            yield exponent
        case Largest(candidates):
            for candidate in sorted(candidates, key=lambda c: _candidate(c, blind)):
                yield from _of_sum(candidate.value, blind)
                for condition in sorted(candidate.guard, key=lambda c: _guard((c,), blind)):
                    yield from sides(condition)


def _of_sum(value: Sum, blind: _Names) -> Iterator[Extent]:
    for summand in sorted(value, key=lambda s: _summand(s, blind)):
        yield from _in_order(summand, blind)
