"""Summands made simpler where facts allow it: dead ones dropped, equalities in guards solved, quotients worked out, bound
indices that nothing depends on counted, positive factors taken out of maxima.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from math import gcd

from superopt.graph import Atom, Compare, Cond, Extent, Floor, Inverse, Size, Sym, at_least, atoms, inverse, size
from superopt.prove.align import linear_in, quotients, root
from superopt.prove.arithmetic import Effort, contradictory, valid
from superopt.prove.normal import Normal
from superopt.prove.sums import (
    Call,
    Candidate,
    Factor,
    Guard,
    Largest,
    Lookup,
    Sum,
    Summand,
    called,
    constant_of,
    extents_in,
    extents_of,
    mentions,
    nested,
    split_inverses,
    substitute_summand,
    times,
)

ROUNDS = 8


def one(atom: Atom, extent: Extent) -> Lookup:
    """The lookup that replaces a single atom."""
    return lambda a: extent if a == atom else None


def simplified(facts: Guard, summand: Summand, notation: Normal) -> Iterator[Summand]:
    """The summand under these facts: none where it is dead, otherwise one that equals it."""
    current = _equalities_solved(summand)
    for _ in range(ROUNDS):
        if contradictory((*facts, *current.guard)):
            return
        smaller = _quotients_known(facts, current) or _bound_split(facts, current, notation)
        if smaller is None:
            break
        current = _equalities_solved(smaller)
    current = _counted(facts, current)
    inside = (*facts, *current.guard)
    factors: list[Factor] = []
    coefficient = current.coefficient
    for factor in current.factors:
        out, inner = _factor(inside, factor, notation)
        coefficient = coefficient * out
        factors.extend(inner)
    if coefficient != 0:
        yield replace(current, coefficient=coefficient, factors=tuple(factors))


def simplified_sum(facts: Guard, value: Sum, notation: Normal) -> Sum:
    """Every summand simplified, those alike added up."""
    return collected(t for s in value for t in simplified(facts, s, notation))


def collected(value: Iterable[Summand]) -> Sum:
    """The sum with summands that differ only in their coefficient made one."""
    found: dict[Summand, Extent] = {}
    for summand in value:
        alike = replace(summand, coefficient=1, factors=tuple(sorted(summand.factors, key=repr)))
        found[alike] = found.get(alike, 0) + summand.coefficient
    return tuple(replace(s, coefficient=c) for s, c in found.items() if c != 0)


def _equalities_solved(summand: Summand) -> Summand:
    """An equality in the guard that fixes a bound index replaces the index."""
    for condition in summand.guard:
        if isinstance(condition, Compare) and condition.relation == "==":
            for k in summand.bound:
                answer = root(condition.left, k)
                if answer is not None and _unit_slope(condition.left, k):
                    rest = replace(summand, bound=tuple(b for b in summand.bound if b != k))
                    return _equalities_solved(substitute_summand(rest, one(k, answer)))
    return summand


def _unit_slope(extent: Size, unknown: Sym) -> bool:
    return any(m == (unknown,) and c in (1, -1) for m, c in extent.terms)


def _quotients_known(facts: Guard, summand: Summand) -> Summand | None:
    """A quotient that must be 0 or -1 or 1 is that."""
    inside = (*facts, *summand.guard)
    for quotient in dict.fromkeys(quotients(extents_in(summand))):
        number = quotient_value(inside, quotient)
        if number is not None:
            return substitute_summand(summand, one(quotient, number))
    return None


def quotient_value(facts: Guard, quotient: Floor) -> int | None:
    """The quotient's value where the facts leave only one of -1, 0 and 1."""
    for number in (0, 1, -1):
        effort = Effort.LINEAR if number else Effort.PRODUCTS
        rest = quotient.numerator - _product(quotient.denominator, number)
        if valid(facts, at_least(rest, 0), effort) and valid(facts, at_least(quotient.denominator - 1, rest), effort):
            return number
    return None


def _product(a: Extent, b: Extent) -> Extent:
    return a * b


def _bound_split(facts: Guard, summand: Summand, notation: Normal) -> Summand | None:
    """k // b for a bound index k: k becomes q * b + r with 0 <= r < b, which is one to one."""
    inner = {j for f in summand.factors for j in nested(f)}
    for quotient in quotients(extents_in(summand)):
        if inner & {*atoms(quotient.numerator), *atoms(quotient.denominator)}:
            continue
        k = linear_in(quotient.numerator, lambda a: a in summand.bound)
        if k is None or any(b in set(atoms(quotient.denominator)) for b in summand.bound):
            continue
        if not valid(facts, at_least(quotient.denominator, 1)):
            continue
        q, r = notation.fresh(), notation.fresh()
        whole, conditions = split_index(k, quotient, q, r)
        bound = tuple(b for b in summand.bound if b != k)
        moved = substitute_summand(replace(summand, bound=bound), one(k, whole))
        known = (*facts, *moved.guard, *conditions)
        conditions += tuple(quotient_range(known, q))
        return replace(moved, bound=(*bound, q, r), guard=(*moved.guard, *conditions))
    return None


def split_index(k: Sym, quotient: Floor, q: Sym, r: Sym) -> tuple[Extent, Guard]:
    """k as an expression of the quotient q and the remainder r, and what holds of r."""
    whole = _product(quotient.denominator, size(q)) + size(r) - (quotient.numerator - size(k))
    return whole, tuple(c for c in (at_least(size(r), 0), at_least(quotient.denominator - 1, size(r))) if c is not True)


def quotient_range(facts: Guard, q: Sym) -> Iterator[Cond]:
    """What follows for a quotient: that it is not negative, and what the known products bound it by."""
    lowest = at_least(size(q), 0)
    if valid(facts, lowest):
        yield lowest
    for bound in _bounding_factors(facts, q):
        claim = at_least(bound - 1, size(q))
        if valid(facts, claim):
            yield claim


def _bounding_factors(facts: Guard, q: Sym) -> list[Extent]:
    """Factors c where a product q * b stands beside a product c * b in one fact."""
    found: dict[Extent, None] = {}
    for fact in facts:
        if not isinstance(fact, Compare):
            continue
        for monomial, _ in fact.left.terms:
            if q not in monomial:
                continue
            others = [a for a in monomial if a != q]
            for other, coefficient in fact.left.terms:
                left = list(other)
                if q in other or not isinstance(coefficient, int) or any(a not in left for a in others):
                    continue
                for a in others:
                    left.remove(a)
                product: Extent = abs(coefficient)
                for a in left:
                    product = product * size(a)
                found[product] = None
    return list(found)


def _counted(facts: Guard, summand: Summand) -> Summand:
    """A bound index that no factor depends on and that runs over a whole range multiplies by the range's extent."""
    for k in summand.bound:
        if any(k in set(atoms(e)) for f in summand.factors for e in extents_of(f)) or k in set(atoms(summand.coefficient)):
            continue
        extent = _range_of(facts, summand, k)
        if extent is not None:
            guard = tuple(c for c in summand.guard if not mentions(c, k))
            bound = tuple(b for b in summand.bound if b != k)
            return _counted(facts, replace(summand, coefficient=summand.coefficient * extent, bound=bound, guard=guard))
    return summand


def _range_of(facts: Guard, summand: Summand, k: Sym) -> Extent | None:
    """How many values k has, where its guard comes down to one lower and one upper bound with something between them."""
    about = [c for c in summand.guard if mentions(c, k)]
    known = (*facts, *(c for c in summand.guard if not mentions(c, k)))
    lower = [c for c in about if _slope(c, k) == 1]
    upper = [c for c in about if _slope(c, k) == -1]
    for low, high in itertools.product(lower, upper):
        others = [c for c in about if c not in (low, high)]
        if all(valid((*known, low, high), c, Effort.PRODUCTS) for c in others):
            first, last = _bound(low, k), _bound(high, k)
            if first is not None and last is not None and valid(known, at_least(last - first + 1, 0), Effort.PRODUCTS):
                return last - first + 1
    return None


def _bound(condition: Cond, k: Sym) -> Extent | None:
    return root(condition.left, k) if isinstance(condition, Compare) else None


def _slope(condition: Cond, k: Sym) -> int:
    """1 for a condition k >= a, -1 for a condition a >= k, 0 for any other."""
    if isinstance(condition, Compare) and condition.relation == ">=":
        for monomial, coefficient in condition.left.terms:
            if monomial == (k,) and coefficient in (1, -1):
                return int(coefficient)
    return 0


# ---------------------------------------------------------------- factors


def _factor(facts: Guard, factor: Factor, notation: Normal) -> tuple[Extent, tuple[Factor, ...]]:
    """The factor as a coefficient and simpler factors."""
    match factor:
        case Call(function, arguments):
            inner = tuple(simplified_sum(facts, a, notation) for a in arguments)
            if len(inner) > 1:
                return 1, (Call(function, inner),)
            number = constant_of(_guards_dropped(facts, inner[0]))
            if number is not None:
                return _only(called(function, (Summand(number),) if number != 0 else ()))
            return 1, (Call(function, inner),)
        case Largest(candidates):
            return _largest(facts, candidates, notation)
        case _:
            return 1, (factor,)


def _only(value: Sum) -> tuple[Extent, tuple[Factor, ...]]:
    return (value[0].coefficient, value[0].factors) if value else (0, ())


def _guards_dropped(facts: Guard, value: Sum) -> Sum:
    return tuple(replace(s, guard=()) if not s.bound and all(valid(facts, c) for c in s.guard) else s for s in value)


def _largest(facts: Guard, candidates: tuple[Candidate, ...], notation: Normal) -> tuple[Extent, tuple[Factor, ...]]:
    """Maxima of maxima made one, and what all candidates are positive multiples of taken out."""
    flat: list[Candidate] = []
    for candidate in candidates:
        inside = (*facts, *candidate.guard)
        if contradictory(inside):
            continue
        value = _guards_dropped(inside, simplified_sum(inside, candidate.value, notation))
        flat += [
            Candidate((*candidate.bound, *inner.bound), (*candidate.guard, *inner.guard), inner.value)
            for inner in _candidates(inside, value)
        ]
    if len(flat) == 1 and not flat[0].bound and not flat[0].guard and len(flat[0].value) == 1:
        only = flat[0].value[0]
        if not only.bound and not only.guard:
            return only.coefficient, only.factors
    content = _content(facts, [s.coefficient for c in flat for s in c.value])
    if content != 1:
        flat = [replace(c, value=times(c.value, split_inverses(inverse(content)))) for c in flat]
    return content, (Largest(tuple(flat)),)


def _candidates(facts: Guard, value: Sum) -> tuple[Candidate, ...]:
    """The candidates of a maximum that may stand multiplied by something that is not negative, or the value alone."""
    match value:
        case (Summand(coefficient, (), (), (Largest(inner),)),) if valid(facts, at_least(coefficient, 0)):
            return tuple(replace(c, value=times(c.value, coefficient)) for c in inner)
        case _:
            return (Candidate((), (), value),)


def _content(facts: Guard, coefficients: list[Extent]) -> Extent:
    """The largest positive number and product of positive sizes that divides all coefficients."""
    if not coefficients:
        return 1
    terms = [t for c in coefficients for t in (c.terms if isinstance(c, Size) else (((), c),))]
    shared = list(terms[0][0])
    for monomial, _ in terms[1:]:
        left = list(monomial)
        kept = []
        for atom in shared:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        shared = kept
    numbers = [abs(Fraction(c)) for _, c in terms]
    content: Extent = Fraction(gcd(*(n.numerator for n in numbers)), 1) / _common([n.denominator for n in numbers])
    for atom in shared:
        positive = at_least(atom.of, 1) if isinstance(atom, Inverse) else at_least(size(atom), 0)
        if valid(facts, positive):
            content = content * size(atom)
    return content


def _common(denominators: list[int]) -> int:
    common = 1
    for d in denominators:
        common = common * d // gcd(common, d)
    return common


def vanishes(facts: Guard, coefficient: Extent, effort: Effort = Effort.NONLINEAR) -> bool:
    """Whether the coefficient is zero, fractions cleared."""
    current = coefficient
    while isinstance(current, Size):
        under = next((a for m, _ in current.terms for a in m if isinstance(a, Inverse)), None)
        if under is None:
            return valid(facts, Compare("==", current), effort)
        current = _cleared(current, under)
    return current == 0


def _cleared(extent: Size, under: Inverse) -> Extent:
    """The extent times what `under` is one over, as often as it occurs in one product."""
    power = max(m.count(under) for m, _ in extent.terms)
    total: Extent = 0
    for monomial, coefficient in extent.terms:
        rest: Extent = coefficient
        for atom in monomial:
            if atom != under:
                rest = rest * size(atom)
        for _ in range(power - monomial.count(under)):
            rest = rest * under.of
        total = total + rest
    return total
