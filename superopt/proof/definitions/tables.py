"""Simplification of products that contain elements of constant tables.

Tables that share an index are merged by summation over the index. A table of zeros and ones can become a condition on indices.
Proofs of bilinear algorithms use these two steps. For example, the Toom-Cook algorithm has three matrices. Each matrix has one
axis that numbers the multiplications of the algorithm. The matrices are multiplied elementwise and summed over this axis. The
sum is a table with three indices: the positions in the data, the result and the weight. The table is 1 where the position in
the data is the sum of the positions in the result and the weight, and 0 elsewhere. If a condition on the indices replaces this
table, the sum of products of data and weights becomes a correlation. The table is computed in exact arithmetic, and all its
numbers are checked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from superopt.algebra.terms import Cond, Extent, Sym, at_least, atoms, same, size
from superopt.proof.definitions.arithmetic import is_valid
from superopt.proof.definitions.sums import Guard, Summand, TableElement, extents_in, mentions_index


def contract_table(facts: Guard, summand: Summand) -> Summand | None:
    """Turn a table of the summand into a guard condition, or merge several tables of the summand.

    Return the new summand, or None if neither is possible.
    """
    return _condition(facts, summand) or _multiplied_out(summand)


def _multiplied_out(summand: Summand) -> Summand | None:
    """Merge tables that share a bound index. The index must run over one whole axis of each table and occur only in these
    tables.
    """
    for k in summand.bound:
        tables = [f for f in summand.factors if isinstance(f, TableElement) and size(k) in f.indices]
        if not tables:
            continue
        others = tuple(f for f in summand.factors if f not in tables)
        extent = tables[0].shape[tables[0].indices.index(size(k))]
        about = [c for c in summand.guard if mentions_index(c, k)]
        elsewhere = [*extents_in(replace(summand, guard=(), factors=others))]
        elsewhere += [i for t in tables for i in t.indices if i != size(k)]
        if any(k in set(atoms(e)) for e in elsewhere) or set(about) != set(_range(k, extent)):
            continue
        if any(n != m for (i, n), (j, m) in itertools.product(*[[one for t in tables for one in _axes(t)]] * 2) if i == j):
            continue
        guard = tuple(c for c in summand.guard if c not in about)
        bound = tuple(b for b in summand.bound if b != k)
        return replace(summand, bound=bound, guard=guard, factors=(*others, _product(tables, size(k), extent)))
    return None


def _range(k: Sym, extent: int) -> tuple[Cond, ...]:
    """Return the conditions 0 <= k < extent. With these conditions, the index runs over a whole axis."""
    return tuple(c for c in (at_least(size(k), 0), at_least(extent - 1, size(k))) if c is not True)


def _product(tables: Sequence[TableElement], k: Extent, extent: int) -> TableElement:
    """Multiply the tables elementwise, sum over the index `k`, and return the resulting table.

    Every table must have the index `k`.
    """
    axes = {i: n for table in tables for i, n in zip(table.indices, table.shape, strict=True) if i != k}
    numbers: list[Fraction] = []
    for position in _positions(tuple(axes.values())):
        at: dict[Extent, int] = dict(zip(axes, position, strict=True))
        terms = (
            math.prod((_number(t, [{**at, k: n}[i] for i in t.indices]) for t in tables), start=Fraction(1))
            for n in range(extent)
        )
        numbers.append(sum(terms, Fraction()))
    return TableElement(tuple(axes.values()), tuple(numbers), tuple(axes))


def _condition(facts: Guard, summand: Summand) -> Summand | None:
    """Turn a table into the condition that one index is the sum of the other indices, and return the new summand.

    The table must be 1 where the condition holds and 0 elsewhere, and every index must be within its axis. Return None if no
    table has this property.
    """
    for table in summand.factors:
        if not isinstance(table, TableElement) or not all(_within(facts, summand, i, n) for i, n in _axes(table)):
            continue
        for axis in range(len(table.shape)):
            if all(_number(table, p) == (2 * p[axis] == sum(p)) for p in _positions(table.shape)):
                whole: Extent = 0
                for i in table.indices:
                    whole = whole + i
                rest = whole - table.indices[axis]
                equal = same(table.indices[axis], rest)
                factors = tuple(f for f in summand.factors if f is not table)
                if isinstance(equal, bool):
                    return replace(summand, coefficient=summand.coefficient if equal else 0, factors=factors)
                return replace(summand, guard=(*summand.guard, equal), factors=factors)
    return None


def _within(facts: Guard, summand: Summand, index: Extent, extent: int) -> bool:
    """Return whether the index is shown to be at least 0 and less than `extent`, where the summand's guard holds."""
    known = (*facts, *summand.guard)
    return all(is_valid(known, c) for c in (at_least(index, 0), at_least(extent - 1, index)) if c is not True)


def _axes(table: TableElement) -> Iterator[tuple[Extent, int]]:
    return zip(table.indices, table.shape, strict=True)


def _positions(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, shape))


def _number(table: TableElement, position: Sequence[int]) -> Fraction:
    """Return the number in the table at the position."""
    place = 0
    for n, i in zip(table.shape, position, strict=True):
        place = place * n + i
    return table.numbers[place]
