"""Reindexings between two products.

A reindexing writes the bound indices of one product as expressions in the bound indices of the other product. The indices in
the factors determine the reindexing: two factors are equal if both read the same element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from superopt.algebra.terms import Atom, Extent, Floor, Size, Sym, at_least, atoms, floor_divide, size, substitute
from superopt.policy import PROOF
from superopt.proof.definitions.arithmetic import is_valid
from superopt.proof.definitions.sums import Call, Factor, Guard, Largest, Lookup, Power, Read, Summand, TableElement, nested

Reindexing: TypeAlias = "dict[Sym, Extent]"
Pair: TypeAlias = "tuple[Extent, Extent]"


def lookup(reindexing: Reindexing) -> Lookup:
    """Return a function for `substitute` that replaces each index by the index's expression in the reindexing."""
    return lambda atom: reindexing.get(atom) if isinstance(atom, Sym) else None


def head(factor: Factor) -> tuple[str, ...]:
    """Return a key of a factor, such as the name of its function. Factors with different keys are never treated as equal."""
    match factor:
        case Read(name, indices):
            return "read", name, str(len(indices))
        case TableElement(shape, numbers, _):
            return "known", str(shape), *map(str, numbers)
        case Call(function, arguments):
            return "call", function, str(len(arguments))
        case Power(_, exponent):
            return "power", str(exponent)
        case Largest():
            return ("largest",)


def product_signature(factors: Iterable[Factor]) -> tuple[tuple[str, ...], ...]:
    """Return the sorted keys (see `head`) of a product's factors.

    Two products are compared only if their sorted keys are the same.
    """
    return tuple(sorted(map(head, factors)))


def orders(source: Sequence[Factor], target: Sequence[Factor]) -> Iterator[tuple[int, ...]]:
    """Yield every order of the target's factors that matches the keys of the source's factors.

    In such an order, the target's factor and the source's factor at the same position have the same key (see `head`). An order
    is a tuple of positions in the target.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for position, factor in enumerate(target):
        groups.setdefault(head(factor), []).append(position)
    places: dict[tuple[str, ...], list[int]] = {}
    for position, factor in enumerate(source):
        places.setdefault(head(factor), []).append(position)
    heads = list(places)
    for choice in itertools.product(*(itertools.permutations(groups.get(h, ())) for h in heads)):
        order = [0] * len(source)
        for name, chosen in zip(heads, choice, strict=True):
            for place, position in zip(places[name], chosen, strict=True):
                order[place] = position
        yield tuple(order)


def alignments(source: Summand, target: Summand) -> Iterator[tuple[tuple[int, ...], Reindexing, Reindexing]]:
    """Yield possible alignments of two products. Each alignment is an order of the target's factors and two reindexings.

    The first reindexing writes each bound index of the target as an expression in the source's bound indices. The second
    reindexing writes each bound index of the source as an expression in the target's bound indices. The caller must check that
    the factors agree and that the two reindexings are inverse to each other.
    """
    seen = 0
    inner = {k for f in (*source.factors, *target.factors) for k in nested(f)}
    for order in orders(source.factors, target.factors):
        for pairs in pairings(source.factors, [target.factors[p] for p in order]):
            forward = solve_indices(pairs, target.bound, inner)
            backward = solve_indices([(b, a) for a, b in pairs], source.bound, inner)
            for there, back in _completed(source.bound, target.bound, forward, backward):
                yield order, there, back
                seen += 1
                if seen == PROOF.max_alignments:
                    return


def _completed(
    source: Sequence[Sym], target: Sequence[Sym], forward: Reindexing, backward: Reindexing
) -> Iterator[tuple[Reindexing, Reindexing]]:
    """Complete both reindexings in every possible way, and yield the two completed reindexings.

    Each result pairs the missing indices of the source with the missing indices of the target in a different order.
    """
    here = [k for k in source if k not in backward]
    there = [k for k in target if k not in forward]
    if len(here) != len(there):
        return
    for order in itertools.permutations(here):
        yield (
            forward | {t: size(h) for t, h in zip(there, order, strict=True)},
            backward | {h: size(t) for t, h in zip(there, order, strict=True)},
        )


def pairings(source: Sequence[Factor], target: Sequence[Factor]) -> Iterator[list[Pair]]:
    """Yield a list of index pairs for each way to pair the parts of `source` with the parts of `target`.

    If the two indices of each pair in the list are equal, the factors may be equal.
    """
    options = [list(_pairs(a, b)) for a, b in zip(source, target, strict=True)]
    for choice in itertools.product(*options):
        yield [pair for pairs in choice for pair in pairs]


def _pairs(a: Factor, b: Factor) -> Iterator[list[Pair]]:
    match a, b:
        case (Read(_, here), Read(_, there)) | (TableElement(_, _, here), TableElement(_, _, there)):
            yield list(zip(here, there, strict=True))
        case Call(_, here), Call(_, there):
            for inner in itertools.product(*(list(_inner_pairs(h, t)) for h, t in zip(here, there, strict=True))):
                yield [pair for pairs in inner for pair in pairs]
        case Power(here), Power(there):
            yield from _inner_pairs(here, there)
        case Largest(here), Largest(there):
            first = next((c.value for c in here if c.value), ())
            found = False
            for candidate in there:
                for pairs in _inner_pairs(first, candidate.value):
                    found = True
                    yield pairs
            if not found:
                yield []
        case _:
            yield []


def _inner_pairs(here: Sequence[Summand], there: Sequence[Summand]) -> Iterator[list[Pair]]:
    found = False
    for first in (s for s in here if s.factors):
        for other in there:
            if product_signature(first.factors) == product_signature(other.factors):
                for order in orders(first.factors, other.factors):
                    found = True
                    yield from pairings(first.factors, [other.factors[p] for p in order])
        break
    if not found:
        yield []


def solve_indices(pairs: Sequence[Pair], unknowns: Sequence[Sym], inner: Iterable[Sym] = ()) -> Reindexing:
    """Return values of the unknowns at which the two indices of each pair are equal. Undetermined unknowns are left out.

    Unknowns may occur only in the second index of a pair. A pair that contains a symbol of `inner` is skipped.
    """
    found: Reindexing = {}
    hidden = set(inner)
    progress = True
    while progress and len(found) < len(unknowns):
        progress = False
        open_ = {k for k in unknowns if k not in found}
        for here, there in pairs:
            present = set(atoms(substitute(there, lookup(found))))
            wanted = present & open_
            if len(wanted) != 1 or (present | set(atoms(here))) & hidden:
                continue
            unknown = next(iter(wanted))
            answer = solve_for_bound_index(substitute(there, lookup(found)) - here, unknown)
            if answer is not None:
                assert isinstance(unknown, Sym)
                found[unknown] = answer
                open_.discard(unknown)
                progress = True
    return found


def solve_for_bound_index(extent: Extent, unknown: Atom) -> Extent | None:
    """Return the value of `unknown` at which the extent is zero.

    Return None if the extent is not linear in `unknown`, or if the coefficient of `unknown` does not divide the other terms.
    """
    line = linear_in_bound_index(extent, unknown)
    if line is None:
        return None
    slope, rest = line
    if slope in (1, -1):
        return -rest * slope
    quotient = floor_divide(-rest, slope)
    return quotient if quotient * slope == -rest else None


def first_from(extent: Extent, unknown: Atom) -> Extent | None:
    """Return the least value of `unknown` at which the extent is not negative.

    Return None if the extent is not linear in `unknown`, or does not grow with `unknown`.
    """
    line = linear_in_bound_index(extent, unknown)
    if line is None or any(c < 0 for _, c in (line[0].terms if isinstance(line[0], Size) else (((), line[0]),))):
        return None
    return -floor_divide(line[1], line[0])


def linear_in_bound_index(extent: Extent, unknown: Atom) -> tuple[Extent, Extent] | None:
    """Return the coefficient of `unknown` and the sum of the other terms.

    Return None if the extent is not linear in `unknown`.
    """
    slope: Extent = 0
    rest: Extent = 0
    for monomial, coefficient in extent.terms if isinstance(extent, Size) else ():
        part = Size(((monomial, coefficient),)) if monomial else coefficient
        if unknown not in monomial:
            rest = rest + part
            continue
        others = list(monomial)
        others.remove(unknown)
        factor: Extent = coefficient
        for atom in others:
            factor = factor * size(atom)
        slope = slope + factor
    if slope == 0 or unknown in {*atoms(slope), *atoms(rest)}:
        return None
    return slope, rest


def floor_quotients(extents: Iterable[Extent]) -> Iterator[Floor]:
    """Yield every floor quotient in the extents. Examples of extents are the indices of a summand.

    A quotient comes before the quotients inside it.
    """
    for extent in extents:
        yield from (a for a in atoms(extent) if isinstance(a, Floor))


def flatten_quotients(facts: Guard, extent: Extent) -> Extent:
    """In the extent, write `a // b // c` as `a // (b * c)` if the facts are shown to imply `c >= 1`. Return the new extent."""
    for quotient in floor_quotients([extent]):
        match quotient.numerator:
            case Size(terms=(((Floor() as inner,), 1),)) if is_valid(facts, at_least(quotient.denominator, 1)):
                flat = floor_divide(inner.numerator, _times(inner.denominator, quotient.denominator))
                return flatten_quotients(facts, substitute(extent, _only(quotient, flat)))
            case _:
                pass
    return extent


def _only(atom: Atom, extent: Extent) -> Lookup:
    return lambda a: extent if a == atom else None


def _times(a: Extent, b: Extent) -> Extent:
    return a * b


def splittable_index(numerator: Extent, allowed: Callable[[Atom], bool]) -> Sym | None:
    """Return an index that can be written in terms of the quotient and the remainder of a division of `numerator`.

    The index is a term of the numerator with coefficient 1, and occurs in no further term of the numerator. `allowed` must
    return True for the index. Return None if no index has these properties.
    """
    if not isinstance(numerator, Size):
        return None
    for monomial, coefficient in numerator.terms:
        if len(monomial) == 1 and coefficient == 1 and isinstance(monomial[0], Sym) and allowed(monomial[0]):
            rest = numerator - size(monomial[0])
            if monomial[0] not in set(atoms(rest)):
                return monomial[0]
    return None
