"""Find expressions for a number that varies with sizes: sums, products and quotients of other numbers.

A draw assigns an integer to each symbolic size (`superopt.partial.sizes`). The value of a number is known at several draws. A
column holds these values, with one value for each draw. An expression fits a column if its value at each draw equals the value
of the column at this draw. Expressions with fewer operations come first. The caller must confirm an expression at other draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from superopt.algebra.extent import Extent, floor_divide, inverse
from superopt.policy import MUTANT

Array = npt.NDArray[Any]
Value = TypeVar("Value", Array, Extent)
"""Either an expression over sizes, or an array of its values at several draws."""
NUMBERS = (1, 2)


class Operation(Protocol):
    """An arithmetic operation on two expressions over sizes, or on the arrays of their values."""

    def __call__(self, a: Value, b: Value, /) -> Value: ...


def _sum(a: Value, b: Value) -> Value:
    return a + b


def _difference(a: Value, b: Value) -> Value:
    return a - b


def _product(a: Value, b: Value) -> Value:
    return a * b


def _quotient(a: Value, b: Value) -> Value:
    if isinstance(a, np.ndarray):
        return a // b
    return floor_divide(a, b)


def _rounded_up(a: Value, b: Value) -> Value:
    return _quotient(a + b - 1, b)


PLAIN: tuple[Operation, ...] = (_product, _sum, _difference, _quotient, _rounded_up)
COMMUTATIVE = (_product, _sum)


@dataclass(frozen=True)
class NamedNumber:
    """An expression over symbolic sizes, and its values for several choices of the sizes."""

    extent: Extent
    column: tuple[int, ...]


class Expressions:
    """All expressions that apply at most `operations` arithmetic operations to the expressions `known` and the numbers 1 and 2.
    The values of each expression are recorded for several choices of sizes.
    """

    def __init__(self, known: Sequence[NamedNumber], operations: int) -> None:
        count = len(known[0].column)
        self.operations = operations
        self.base = [*known, *(NamedNumber(n, (n,) * count) for n in NUMBERS)]
        self._columns = np.array([k.column for k in self.base], dtype=np.int64)
        self._levels = [self._columns]
        self._made: list[list[tuple[Operation, int, int] | None]] = [[None] * len(self.base)]

    def fitting(self, column: Sequence[int]) -> Iterator[Extent]:
        """Yield expressions whose values are the numbers in `column`, with fewer operations first.

        `column` has one number for each choice of sizes. If all numbers are equal, this number is yielded first.
        """
        wanted = np.array(column, dtype=np.int64)
        if (wanted == wanted[0]).all():
            yield int(wanted[0])
        found = 0
        for level in range(self.operations + 1):
            if level == len(self._levels):
                self._grow()
            for row in np.flatnonzero((self._levels[level] == wanted).all(axis=1)):
                yield self._extent(level, int(row))
                found += 1
                if found == MUTANT.max_fits:
                    return

    def _extent(self, level: int, row: int) -> Extent:
        made = self._made[level][row]
        if made is None:
            return self.base[row].extent
        operation, one, other = made
        return operation(self._extent(level - 1, one), self.base[other].extent)

    def _grow(self) -> None:
        """Add the expressions with one more operation than the longest expressions so far.

        Each new expression applies one operation to two operands. The first operand is one of the longest expressions, and the
        second operand is an expression without operations.
        """
        last, columns = self._levels[-1], self._columns
        found: list[Array] = []
        made: list[tuple[Operation, int, int] | None] = []
        for operation in PLAIN:
            with np.errstate(divide="ignore"):
                table = operation(last[:, None, :], columns[None, :, :])
            divides = operation in (_quotient, _rounded_up)
            sound = ((table >= 0) & (table < MUTANT.max_fitted_value)).all(axis=-1) & (
                (columns > 0).all(axis=-1) | (not divides)
            )
            rows = np.argwhere(sound)
            if operation in COMMUTATIVE and len(self._levels) == 1:
                rows = rows[rows[:, 0] <= rows[:, 1]]
            found.append(table[rows[:, 0], rows[:, 1]])
            made += [(operation, int(a), int(b)) for a, b in rows]
        self._levels.append(np.concatenate(found))
        self._made.append(made)


def reals(expressions: Expressions, column: Sequence[int | Fraction]) -> Iterator[Extent]:
    """Yield expressions whose values are the rational numbers in `column`, with fewer operations first.

    `column` has one number for each choice of sizes. Expressions are yielded only if all numbers are equal, if all numbers are
    integers, or if all numbers are reciprocals of integers.
    """
    if all(n == column[0] for n in column):
        yield column[0]
    if all(Fraction(n).denominator == 1 for n in column):
        yield from expressions.fitting([int(n) for n in column])
    elif all(Fraction(n).numerator == 1 for n in column):
        yield from map(inverse, expressions.fitting([Fraction(n).denominator for n in column]))
