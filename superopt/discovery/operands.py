"""Choose representatives as the operands of a new operator. The new term must have a given count of operators.

A representative stands for all enumerated terms of equal value. Each combination of operands is a row of numbers that identify
representatives. In a row of three operands, at least one operand is a variable or constant, or every operand has exactly one
operator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from superopt.discovery.table import Flags, Ints, Table
from superopt.policy import DISCOVERY


def rows_of(table: Table, arity: int, level: int) -> Iterator[Ints]:
    """Yield rows of `arity` operands. If a new operator is applied to the operands of a row, the result is a term with `level`
    operators.

    A row holds the numbers that identify the operands. Each pair of operands is yielded in only one order. Each triple of
    operands is yielded in every order.
    """
    if arity == 1:
        numbers = np.arange(len(table))
        yield numbers[_reached(table, table.runs, table.weighs, table.weights == 1) == level][:, None]
    elif arity == 2:
        yield from _pairs(table, level)
    else:
        yield from _triples(table, level)


def _reached(table: Table, runs: Ints, weighs: Ints, weights: Flags) -> Ints:
    """For each row of operands, return the level of a term that applies a new operator to these operands.

    The level states how many of the term's operators count towards the limit on operators.

    Args:
        table: the table of the terms.
        runs: for each row, how many operators in the operands are executed at run time.
        weighs: for each row, how many operators in the operands depend only on weights.
        weights: for each row, whether the new operator depends only on weights.
    """
    return table.level_of(runs + ~weights, weighs + weights)


def _kept(table: Table, rows: Ints, level: int) -> Ints:
    """Return the rows for which a new operator, applied to the operands in the row, makes a term with `level` operators."""
    if not len(rows):
        return rows
    runs, weighs = table.count(table.inside(rows))
    weights = (table.weights[rows] == 1).all(axis=1)
    found: Ints = rows[_reached(table, runs, weighs, weights) == level]
    return found


def _groups(table: Table) -> list[tuple[int, int, bool, Ints]]:
    """Group the representatives by their operator counts. A representative stands for all terms of equal value.

    A group is a tuple of four entries. The first two entries are the count of operators that are executed at run time, and the
    count of operators that depend only on weights. The third entry is True if the representatives depend only on weights. The
    last entry contains the numbers that identify the representatives.
    """
    keys = np.stack([table.runs, table.weighs, table.weights], axis=1)
    kinds, which = np.unique(keys, axis=0, return_inverse=True)
    which = which.reshape(-1)
    return [(int(r), int(w), bool(o), np.flatnonzero(which == n)) for n, (r, w, o) in enumerate(kinds)]


def _pairs(table: Table, level: int) -> Iterator[Ints]:
    """Yield pairs of operands. If a new operator is applied to a pair, the result is a term with `level` operators.

    In a pair, the term with the larger number comes first. Pairs without a common operator are yielded first, followed by pairs
    of a term and a part of this term. All remaining pairs with a common operator are yielded last.
    """
    for (r, w, o, some), (s, x, p, others) in itertools.combinations_with_replacement(_groups(table), 2):
        both = np.array([o and p])
        if _reached(table, np.array([r + s]), np.array([w + x]), both)[0] == level:
            yield from _disjoint(table, some, others, level, alone=r + w == 0 or s + x == 0)
    yield _kept(table, _inside(table), level)
    yield _kept(table, _sharing(table, level), level)


def _disjoint(table: Table, some: Ints, others: Ints, level: int, *, alone: bool) -> Iterator[Ints]:
    """Yield each pair of a term in `some` and a term in `others` if the two terms have no common operator.

    A term is given by the number that identifies it. The flag `alone` must be True if one of the arrays `some` and `others`
    contains only variables and constants.
    """
    step = max(1, DISCOVERY.max_operand_rows // max(len(others), 1))
    for first in range(0, len(some), step):
        one, other = np.meshgrid(some[first : first + step], others, indexing="ij")
        rows = np.stack([np.maximum(one, other).ravel(), np.minimum(one, other).ravel()], axis=1)
        if some is others:
            rows = rows[(one >= other).ravel()]
        rows = rows[rows[:, 0] != rows[:, 1]] if not alone else rows
        yield rows if alone else _kept(table, rows, level)


def _inside(table: Table) -> Ints:
    """Return a pair for each term of the table and each operator in the term's graph. The root is one of the operators."""
    owner, column = np.nonzero(table.nodes >= 0)
    return np.stack([owner, table.nodes[owner, column]], axis=1)


def _sharing(table: Table, level: int) -> Ints:
    """Return pairs of terms that have a common operator. No term is part of the term with which it is paired."""
    small = np.flatnonzero((table.level <= level - 2) & (table.runs + table.weighs >= 2))
    owner, column = np.nonzero(table.nodes[small] >= 0)
    shared, owner = table.nodes[small][owner, column], small[owner]
    order = np.argsort(shared, kind="stable")
    shared, owner = shared[order], owner[order]
    edges = np.flatnonzero(np.diff(shared)) + 1
    found = [np.empty((0, 2), dtype=np.int64)]
    for members in np.split(owner, edges):
        one, other = np.meshgrid(members, members, indexing="ij")
        pairs = np.stack([one.ravel(), other.ravel()], axis=1)[(one > other).ravel()]
        found.append(_kept(table, pairs, level))
    rows = np.unique(np.concatenate(found), axis=0)
    inside = (table.nodes[rows[:, 0]] == rows[:, 1:]).any(axis=1) | (table.nodes[rows[:, 1]] == rows[:, :1]).any(axis=1)
    return np.asarray(rows[~inside])


def _triples(table: Table, level: int) -> Iterator[Ints]:
    leaves = np.flatnonzero(table.runs + table.weighs == 0)
    pairs = np.concatenate([np.empty((0, 2), dtype=np.int64), *_pairs(table, level)])
    single = np.flatnonzero(table.runs + table.weighs == 1)
    for leaf in leaves:
        unordered = np.concatenate([pairs, np.full((len(pairs), 1), leaf)], axis=1)
        yield _everywhere(table, unordered, level)
    grid = np.stack(np.meshgrid(single, single, single, indexing="ij"), axis=-1).reshape(-1, 3)
    yield _everywhere(table, grid[(grid[:, 0] > grid[:, 1]) & (grid[:, 1] > grid[:, 2])], level)


def _everywhere(table: Table, rows: Ints, level: int) -> Ints:
    """Return every order of each row of three operands, without duplicates.

    A row is kept only if a new operator, applied to the operands in the row, makes a term with `level` operators.
    """
    turned = np.concatenate([rows[:, list(order)] for order in itertools.permutations(range(3))])
    return _kept(table, np.unique(turned, axis=0), level)
