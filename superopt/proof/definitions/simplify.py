"""Simplification of summands under facts (conditions on sizes and indices).

Summands with contradictory guards are dropped. Equalities in guards are solved, quotients are evaluated, and positive factors
are moved out of maxima. If no factor depends on a bound index, the index is removed, and the summand is multiplied by the count
of the index's values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from superopt.algebra.extent import terms_of
from superopt.algebra.terms import Atom, Compare, Cond, Extent, Floor, Inverse, Size, Sym, at_least, atoms, floor_divide, size
from superopt.policy import PROOF
from superopt.proof.definitions.align import (
    flatten_quotients,
    floor_quotients,
    linear_in_bound_index,
    solve_for_bound_index,
    splittable_index,
)
from superopt.proof.definitions.alpha import collect_summands
from superopt.proof.definitions.arithmetic import SolverEffort, is_contradictory, is_valid
from superopt.proof.definitions.functions import apply_function, merge_factors, raise_to_power
from superopt.proof.definitions.maxima import largest
from superopt.proof.definitions.normal import Normal
from superopt.proof.definitions.products import is_integer_lemma_product
from superopt.proof.definitions.sums import (
    Call,
    Factor,
    Guard,
    Largest,
    Lookup,
    Power,
    Read,
    Sum,
    Summand,
    extents_in,
    factor_extents,
    mentions_index,
    nested,
    single,
    substitute_summand,
)
from superopt.proof.definitions.tables import contract_table


def summand_atom_lookup(atom: Atom, extent: Extent) -> Lookup:
    """Return a lookup for `substitute` that replaces `atom` by `extent` and keeps all other atoms."""
    return lambda a: extent if a == atom else None


def simplify_summand(facts: Guard, summand: Summand, notation: Normal) -> Iterator[Summand]:
    """Simplify a summand under the conditions in `facts`. Yield summands whose sum equals the given summand.

    Nothing is yielded if the summand is shown to be zero, for example because its guard is contradictory.
    """
    notation.spend(1)
    current = _equalities_solved(summand)
    for _ in range(PROOF.max_simplification_rounds):
        if current.guard and is_contradictory((*facts, *current.guard)):
            return
        smaller = contract_table(facts, current) or _quotients_known(facts, current) or _bound_split(facts, current, notation)
        if smaller is None:
            break
        current = _equalities_solved(smaller)
    current = _counted(facts, current)
    inside = (*facts, *current.guard)
    plain = [f for f in current.factors if isinstance(f, Read)]
    value: Sum = (replace(current, factors=tuple(plain)),)
    for factor in current.factors:
        if not isinstance(factor, Read):
            value = notation.product(value, simplify_factor(inside, factor, notation))
    for found in value:
        for one_power_each in merge_factors(inside, found, notation):
            if one_power_each.coefficient != 0:
                yield one_power_each


def simplify_sum(facts: Guard, value: Sum, notation: Normal) -> Sum:
    """Simplify every summand and collect like terms.

    Like terms differ only in a constant factor, the names of bound indices or the order of parts.
    """
    return collect_summands(t for s in value for t in simplify_summand(facts, s, notation))


def _equalities_solved(summand: Summand) -> Summand:
    """Solve equalities in the summand's guard for bound indices, and substitute the solutions for these indices."""
    for condition in summand.guard:
        if isinstance(condition, Compare) and condition.relation == "==":
            for k in summand.bound:
                answer = solve_for_bound_index(condition.left, k)
                if answer is not None and _unit_slope(condition.left, k):
                    rest = replace(summand, bound=tuple(b for b in summand.bound if b != k))
                    return _equalities_solved(substitute_summand(rest, summand_atom_lookup(k, answer)))
    return summand


def _unit_slope(extent: Size, unknown: Sym) -> bool:
    return any(m == (unknown,) and c in (1, -1) for m, c in extent.terms)


def _quotients_known(facts: Guard, summand: Summand) -> Summand | None:
    """Flatten a nested quotient, or evaluate a quotient that is known to be -1, 0 or 1. Return None if no quotient changes."""
    inside = (*facts, *summand.guard)
    for quotient in dict.fromkeys(floor_quotients(extents_in(summand))):
        flat = flatten_quotients(inside, size(quotient))
        if flat != size(quotient):
            return substitute_summand(summand, summand_atom_lookup(quotient, flat))
        number = quotient_value(inside, quotient)
        if number is not None:
            return substitute_summand(summand, summand_atom_lookup(quotient, number))
    return None


def quotient_value(facts: Guard, quotient: Floor) -> int | None:
    """Return the quotient's value if the facts imply that it is -1, 0 or 1. Otherwise return None."""
    for number in (0, 1, -1):
        effort = SolverEffort.LINEAR if number else SolverEffort.PRODUCTS
        rest = quotient.numerator - _product(quotient.denominator, number)
        if is_valid(facts, at_least(rest, 0), effort) and is_valid(facts, at_least(quotient.denominator - 1, rest), effort):
            return number
    return None


def quotient_without_remainder(facts: Guard, quotient: Floor) -> Extent | None:
    """Write `(a * d + r) // (b * d)` as `a // b` if the facts imply `b >= 1` and `0 <= r < d`. Otherwise return None.

    The numbers a and b are integers. The number d is an unknown in the denominator, which is a product.
    """
    if not isinstance(quotient.denominator, Size) or len(quotient.denominator.terms) > 1:
        return None
    for factor in dict.fromkeys(atoms(quotient.denominator)):
        line = linear_in_bound_index(quotient.numerator, factor)
        others = floor_divide(quotient.denominator, size(factor))
        if line is None or isinstance(others, int) or not (_is_integer(line[0]) and _is_integer(others)):
            continue
        multiple, remainder = line
        needed = at_least(remainder, 0), at_least(size(factor) - 1, remainder), at_least(others, 1)
        if all(is_valid(facts, condition, SolverEffort.LINEAR) for condition in needed):
            return floor_divide(multiple, others)
    return None


def _is_integer(extent: Extent) -> bool:
    return all(isinstance(c, int) and is_integer_lemma_product(m) for m, c in terms_of(extent))


def _product(a: Extent, b: Extent) -> Extent:
    return a * b


def _bound_split(facts: Guard, summand: Summand, notation: Normal) -> Summand | None:
    """Substitute q * b + r, where 0 <= r < b, for a bound index k that occurs in a quotient such as k // b.

    The new bound indices q and r replace k: each value of k corresponds to exactly one pair (q, r). Return None if the summand
    contains no quotient like k // b.
    """
    inner = {j for f in summand.factors for j in nested(f)}
    for quotient in floor_quotients(extents_in(summand)):
        if inner & {*atoms(quotient.numerator), *atoms(quotient.denominator)}:
            continue
        k = splittable_index(quotient.numerator, lambda a: a in summand.bound)
        if k is None or any(b in set(atoms(quotient.denominator)) for b in summand.bound):
            continue
        if not is_valid(facts, at_least(quotient.denominator, 1)):
            continue
        q, r = notation.fresh(), notation.fresh()
        whole, conditions = split_index(k, quotient, q, r)
        bound = tuple(b for b in summand.bound if b != k)
        moved = substitute_summand(replace(summand, bound=bound), summand_atom_lookup(k, whole))
        known = (*facts, *moved.guard, *conditions)
        conditions += tuple(quotient_range(known, q))
        return replace(moved, bound=(*bound, q, r), guard=(*moved.guard, *conditions))
    return None


def split_index(k: Sym, quotient: Floor, q: Sym, r: Sym) -> tuple[Extent, Guard]:
    """Return an expression for k in the new indices q (quotient) and r (remainder), and the bounds of r as conditions."""
    whole = _product(quotient.denominator, size(q)) + size(r) - (quotient.numerator - size(k))
    return whole, tuple(c for c in (at_least(size(r), 0), at_least(quotient.denominator - 1, size(r))) if c is not True)


def quotient_range(facts: Guard, q: Sym) -> Iterator[Cond]:
    """Yield bounds that the facts imply for the quotient q.

    The bounds are `q >= 0`, and upper bounds that follow from facts about products.
    """
    lowest = at_least(size(q), 0)
    if is_valid(facts, lowest):
        yield lowest
    for fact, bound, under in _bounding_factors(facts, q):
        claim = at_least(bound - 1, size(q))
        if is_valid(facts, claim) or _is_below(facts, fact, (bound - size(q)) * under, under):
            yield claim


def _is_below(facts: Guard, fact: Compare, difference: Extent, under: Extent) -> bool:
    """Return whether the fact implies that an index q is less than a bound. `difference` is `(bound - q) * under`.

    The fact states that the extent `fact.left` is not negative. If `difference` is greater than `fact.left`, then `difference`
    is positive. If `difference` and `under` are positive, then `bound - q` is positive.
    """
    left_over = at_least(difference - fact.left, 1)
    return is_valid(facts, left_over, SolverEffort.LINEAR) and is_valid(facts, at_least(under, 1), SolverEffort.PRODUCTS)


def _bounding_factors(facts: Guard, q: Sym) -> list[tuple[Compare, Extent, Extent]]:
    """Return all triples (fact, c, b) such that the fact contains the products q * b and c * b.

    In each triple, c may be a bound of q.
    """
    found: dict[tuple[Compare, Extent, Extent], None] = {}
    for fact in facts:
        if not isinstance(fact, Compare):
            continue
        for monomial, _ in fact.left.terms:
            if q not in monomial:
                continue
            others = [a for a in monomial if a != q]
            for other, coefficient in fact.left.terms:
                left = list(other)
                if q in other or not isinstance(coefficient, int) or any(left.count(a) < others.count(a) for a in others):
                    continue
                for a in others:
                    left.remove(a)
                found[fact, _product_of(left, abs(coefficient)), _product_of(others)] = None
    return list(found)


def _product_of(factors: Iterable[Atom], coefficient: int = 1) -> Extent:
    product: Extent = coefficient
    for a in factors:
        product = product * size(a)
    return product


def _counted(facts: Guard, summand: Summand) -> Summand:
    """Remove a bound index on which no factor depends, and multiply the summand by the number of the index's values.

    The summand stays unchanged if the values do not form a range.
    """
    for k in summand.bound:
        if any(k in set(atoms(e)) for f in summand.factors for e in factor_extents(f)) or k in set(atoms(summand.coefficient)):
            continue
        extent = _range_of(facts, summand, k)
        if extent is not None:
            guard = tuple(c for c in summand.guard if not mentions_index(c, k))
            bound = tuple(b for b in summand.bound if b != k)
            return _counted(facts, replace(summand, coefficient=summand.coefficient * extent, bound=bound, guard=guard))
    return summand


def _range_of(facts: Guard, summand: Summand, k: Sym) -> Extent | None:
    """Return the number of values that the guard allows for k, or None if the values are not known to form a range.

    The values form a range if the guard's conditions on k follow from one lower and one upper bound.
    """
    about = [c for c in summand.guard if mentions_index(c, k)]
    known = (*facts, *(c for c in summand.guard if not mentions_index(c, k)))
    lower = [c for c in about if _slope(c, k) == 1]
    upper = [c for c in about if _slope(c, k) == -1]
    for low, high in itertools.product(lower, upper):
        others = [c for c in about if c not in (low, high)]
        if all(is_valid((*known, low, high), c, SolverEffort.PRODUCTS) for c in others):
            first, last = _bound(low, k), _bound(high, k)
            if first is not None and last is not None and is_valid(known, at_least(last - first + 1, 0), SolverEffort.PRODUCTS):
                return last - first + 1
    return None


def _bound(condition: Cond, k: Sym) -> Extent | None:
    return solve_for_bound_index(condition.left, k) if isinstance(condition, Compare) else None


def _slope(condition: Cond, k: Sym) -> int:
    """Return 1 for a condition k >= a, -1 for a condition a >= k, and 0 for any other condition."""
    if isinstance(condition, Compare) and condition.relation == ">=":
        for monomial, coefficient in condition.left.terms:
            if monomial == (k,) and coefficient in (1, -1):
                return int(coefficient)
    return 0


# ---------------------------------------------------------------- factors


def simplify_factor(facts: Guard, factor: Factor, notation: Normal) -> Sum:
    """Simplify the factor under the conditions in `facts`, and return the result as a sum."""
    match factor:
        case Call(function, arguments):
            inner = [_guards_dropped(facts, simplify_sum(facts, a, notation)) for a in arguments]
            value = apply_function(facts, function, inner, notation)
            return simplify_sum(facts, value, notation) if function == "log" and len(value) > 1 else value
        case Power(base, exponent):
            return raise_to_power(facts, _guards_dropped(facts, simplify_sum(facts, base, notation)), exponent, notation)
        case Largest(candidates):
            inside = [(*facts, *c.guard) for c in candidates]
            alive = [
                replace(c, value=_guards_dropped(known, simplify_sum(known, c.value, notation)))
                for c, known in zip(candidates, inside, strict=True)
                if not (c.guard and is_contradictory(known))
            ]
            return largest(facts, alive, notation)
        case _:
            return single(factor)


def _guards_dropped(facts: Guard, value: Sum) -> Sum:
    return tuple(
        replace(s, guard=()) if s.guard and not s.bound and all(is_valid(facts, c) for c in s.guard) else s for s in value
    )


def vanishes(facts: Guard, coefficient: Extent, effort: SolverEffort = SolverEffort.NONLINEAR) -> bool:
    """Return whether the coefficient is shown to be zero under the conditions in `facts`. Denominators are cleared first."""
    current = coefficient
    while isinstance(current, Size):
        under = next((a for m, _ in current.terms for a in m if isinstance(a, Inverse)), None)
        if under is None:
            return is_valid(facts, Compare("==", current), effort)
        current = _cleared(current, under)
    return current == 0


def _cleared(extent: Size, under: Inverse) -> Extent:
    """Multiply the extent by a power of d that removes the reciprocal 1 / d. `under` is this reciprocal."""
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
