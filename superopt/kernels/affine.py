"""Affine index expressions over loops, with floor division: the positions at which a loop nest reads and writes.

The extents of all loops are numbers, so the range of each expression is known. A comparison with only one possible result
becomes True or False. A quotient such as `(8 * i + j) // 8` becomes `i` if `0 <= j < 8`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, order=True)
class LoopIndex:
    """The index of a loop: an integer that is at least 0 and less than `extent`."""

    name: str
    extent: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value of the index."""
        return 0, self.extent - 1

    @property
    def key(self) -> str:
        """The name of the loop, which is unique in its nest."""
        return self.name

    def loops(self) -> frozenset[LoopIndex]:
        """Return a set that contains only this loop."""
        return frozenset({self})

    def text(self, names: Mapping[LoopIndex, str]) -> str:
        """Return the index as C text. `names` maps loops to C texts.

        A loop that `names` does not contain is written as its name.
        """
        return names.get(self, self.name)


@dataclass(frozen=True)
class Quotient:
    """The quotient of an expression and a positive integer, rounded down."""

    of: IndexExpression
    by: int

    @property
    def bounds(self) -> tuple[int, int]:
        """A lower and an upper bound of the value. Both bounds are exact if the bounds of the dividend are exact."""
        low, high = self.of.bounds
        return low // self.by, high // self.by

    @property
    def key(self) -> str:
        """A text that identifies the quotient: only equal quotients have equal keys.

        In alphabetical order, keys of quotients come after keys of loops.
        """
        return f"~({self.of.key})/{self.by}"

    def loops(self) -> frozenset[LoopIndex]:
        """Return the loops on which the quotient depends."""
        return self.of.loops()

    def text(self, names: Mapping[LoopIndex, str]) -> str:
        """Return the quotient as C text. C rounds quotients towards zero, so a negative dividend needs a function."""
        inside = self.of.text(names)
        return f"({inside}) / {self.by}" if self.of.bounds[0] >= 0 else f"floor_div({inside}, {self.by})"


Atom: TypeAlias = "LoopIndex | Quotient"


@dataclass(frozen=True, eq=False)
class IndexExpression:
    """A constant integer plus integer multiples of loop indices and of quotients.

    The class supports `+` and `-`, `*` by an integer, and `//` and `%` by a positive integer. `<`, `<=`, `>` and `>=` return a
    bool or an `IndexCondition`. `==` of two expressions compares their terms and their constants, and returns a bool. `==` of
    an expression and an integer compares the values, and returns a bool or an `IndexCondition`.
    """

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __eq__(self, other: object) -> Any:
        if isinstance(other, int):
            return (self >= other) & (self <= other)
        return isinstance(other, IndexExpression) and self.terms == other.terms and self.constant == other.constant

    def __hash__(self) -> int:
        return hash((self.terms, self.constant))

    @property
    def key(self) -> str:
        """A text that identifies the expression: only equal expressions have equal keys."""
        return "+".join([*(f"{n}*{atom.key}" for atom, n in self.terms), str(self.constant)])

    @property
    def bounds(self) -> tuple[int, int]:
        """A lower and an upper bound of the value. Both bounds are exact if each loop occurs once."""
        low = high = self.constant
        for atom, n in self.terms:
            ends = [n * end for end in atom.bounds]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def loops(self) -> frozenset[LoopIndex]:
        """Return the loops on which the expression depends."""
        return frozenset().union(*(atom.loops() for atom, _ in self.terms))

    def step(self, loop: LoopIndex) -> int | None:
        """Return by how much the value grows when the index of the loop grows by 1.

        Return None if a quotient depends on the loop.
        """
        if any(isinstance(atom, Quotient) and loop in atom.loops() for atom, _ in self.terms):
            return None
        return next((n for atom, n in self.terms if atom == loop), 0)

    def substituted(self, values: Mapping[LoopIndex, IndexExpression]) -> IndexExpression:
        """Replace each loop that is a key of `values` by the loop's expression, and return the result."""
        if not values or not any(loop in values for loop in self.loops()):
            return self
        total = IndexExpression((), self.constant)
        for atom, n in self.terms:
            if isinstance(atom, LoopIndex):
                total += values.get(atom, index(atom)) * n
            else:
                total += atom.of.substituted(values) // atom.by * n
        return total

    def text(self, names: Mapping[LoopIndex, str]) -> str:
        """Return the expression as C text."""
        parts = [atom.text(names) if n == 1 else f"{atom.text(names)} * {n}" for atom, n in self.terms]
        return " + ".join([*parts, *([str(self.constant)] if self.constant or not parts else [])])

    def __add__(self, other: object) -> IndexExpression:
        if isinstance(other, int):
            return IndexExpression(self.terms, self.constant + other)
        return _sum([(self, 1), (other, 1)]) if isinstance(other, IndexExpression) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> IndexExpression:
        return self * -1

    def __sub__(self, other: object) -> IndexExpression:
        if isinstance(other, int):
            return self + -other
        return _sum([(self, 1), (other, -1)]) if isinstance(other, IndexExpression) else NotImplemented

    def __rsub__(self, other: int) -> IndexExpression:
        return -self + other

    def __mul__(self, factor: object) -> IndexExpression:
        if isinstance(factor, IndexExpression) and not factor.terms:
            factor = factor.constant
        if not isinstance(factor, int):
            return NotImplemented
        terms = tuple((atom, n * factor) for atom, n in self.terms) if factor else ()
        return IndexExpression(terms, self.constant * factor)

    __rmul__ = __mul__

    def __floordiv__(self, by: int) -> IndexExpression:
        """Divide the expression by a positive integer, and round down.

        Terms that are multiples of the divisor are divided exactly.
        """
        whole = IndexExpression(tuple((a, n // by) for a, n in self.terms if not n % by), self.constant // by)
        rest = IndexExpression(tuple((a, n) for a, n in self.terms if n % by), self.constant % by)
        low, high = rest.bounds
        if low // by == high // by:
            return whole + low // by
        common = math.gcd(by, *(n for _, n in rest.terms))
        rest = IndexExpression(tuple((a, n // common) for a, n in rest.terms), rest.constant // common)
        return whole + (index(Quotient(rest, by // common)) if by != common else rest)

    def __mod__(self, by: int) -> IndexExpression:
        return self - self // by * by

    def __ge__(self, other: IndexExpression | int) -> bool | IndexCondition:
        return _nonnegative(self - other)

    def __gt__(self, other: IndexExpression | int) -> bool | IndexCondition:
        return _nonnegative(self - other - 1)

    def __le__(self, other: IndexExpression | int) -> bool | IndexCondition:
        return _nonnegative(-self + other)

    def __lt__(self, other: IndexExpression | int) -> bool | IndexCondition:
        return _nonnegative(-self + other - 1)


def index(atom: Atom) -> IndexExpression:
    """Return the loop index or quotient as an expression. The index of a loop with one iteration is 0."""
    return IndexExpression() if isinstance(atom, LoopIndex) and atom.extent == 1 else IndexExpression(((atom, 1),))


def _sum(parts: Iterable[tuple[IndexExpression, int]]) -> IndexExpression:
    counts: dict[Atom, int] = {}
    constant = 0
    for part, factor in parts:
        constant += part.constant * factor
        for atom, n in part.terms:
            counts[atom] = counts.get(atom, 0) + n * factor
    terms = sorted(((atom, n) for atom, n in counts.items() if n), key=lambda term: term[0].key)
    return IndexExpression(tuple(terms), constant)


@dataclass(frozen=True)
class IndexCondition:
    """The condition that each expression in `parts` is at least 0."""

    parts: tuple[IndexExpression, ...]

    def __and__(self, other: object) -> bool | IndexCondition:
        if isinstance(other, bool):
            return self if other else False
        return (
            IndexCondition(tuple(dict.fromkeys((*self.parts, *other.parts))))
            if isinstance(other, IndexCondition)
            else NotImplemented
        )

    __rand__ = __and__

    def loops(self) -> frozenset[LoopIndex]:
        """Return the loops on which the condition depends."""
        return frozenset().union(*(part.loops() for part in self.parts))

    def substituted(self, values: Mapping[LoopIndex, IndexExpression]) -> bool | IndexCondition:
        """Replace each loop that is a key of `values` by the loop's expression, and return the result."""
        held: bool | IndexCondition = True
        for part in self.parts:
            held = _nonnegative(part.substituted(values)) & held
        return held

    def text(self, names: Mapping[LoopIndex, str]) -> str:
        """Return the condition as C text."""
        return " && ".join(f"{part.text(names)} >= 0" for part in self.parts)


def _nonnegative(expression: IndexExpression) -> bool | IndexCondition:
    low, high = expression.bounds
    return True if low >= 0 else False if high < 0 else IndexCondition((expression,))
