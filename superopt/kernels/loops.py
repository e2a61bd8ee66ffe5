"""Loop nests: the interpretation of index notation that turns definitions of operators into values over loop indices.

A value stands for an element of a tensor. The position of the element is an expression of loop indices. Equal values of one
nest are one object, so that the code computes each value once.
"""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any, TypeAlias

from superopt.algebra.index import Tensor
from superopt.algebra.operators import is_divided_by
from superopt.algebra.terms import Cond, Extent
from superopt.errors import ShapeError
from superopt.kernels.affine import IndexCondition, IndexExpression, LoopIndex, index

Position: TypeAlias = "IndexExpression | int"


class UnsupportedError(ShapeError):
    """There is no kernel for an island.

    Possible reasons are an operator, an element type or a size for which the generator cannot write code. Other reasons are a
    loop nest that exceeds a limit, and C code that fails to compile.
    """


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory for the elements of a tensor, in row-major order.

    Attributes:
        name: The name in the code.
        shape: The extents.
        bits: For integers (indices along an axis), the number of bits of an element. For float32 numbers, 0.
    """

    name: str
    shape: tuple[int, ...]
    bits: int = 0

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def at(self, position: Sequence[Position]) -> IndexExpression:
        """Return the offset of the element at this position."""
        flat = IndexExpression()
        for i, n in zip(position, self.shape, strict=True):
            flat = flat * n + i
        return flat


class Value:
    """A number that code computes.

    Attributes:
        kind: `read`, `number`, `index`, `select`, `sum`, `max`, `lookup`, `picked`, or the name of a function.
        data: For `read`, the buffer and the offset of the element. For `number`, the number. For `index`, the expression. For
            `select`, the condition. For `sum`, `max`, `lookup` and `picked`, the loop. For `divided`, the reciprocal of the
            divisor. For any other function, None.
        args: For `select`, the value for a true condition, and the value for a false condition. For `sum` and `max`, the
            reduced value. For `lookup` and `picked`, the position along the loop, and the value at this position. For a
            function, its arguments.
        loops: The loops on whose indices the value depends.
        table: The values that one `Tracing` has created, by their parts. `made` adds new values.
    """

    __slots__ = ("args", "data", "kind", "loops", "table")
    loops: frozenset[LoopIndex]

    def __init__(self, table: dict[object, Value], kind: str, data: Any, args: tuple[Value, ...]) -> None:
        self.table, self.kind, self.data, self.args = table, kind, data, args
        inside = frozenset[LoopIndex]().union(*(a.loops for a in args))
        if kind == "read":
            inside = data[1].loops()
        elif kind in ("index", "select"):
            inside |= data.loops()
        elif kind in (*REDUCTIONS, *LOOKUPS):
            inside -= {data}
        self.loops = inside

    def __add__(self, other: Value) -> Value:
        return made(self.table, "add", None, self, other)

    def __sub__(self, other: Value) -> Value:
        return made(self.table, "sub", None, self, other)

    def __mul__(self, other: Value) -> Value:
        return made(self.table, "mul", None, self, other)

    @property
    def is_reduction(self) -> bool:
        """Whether the value is a sum or a maximum over a loop."""
        return self.kind in REDUCTIONS

    def within(self) -> Iterator[Value]:
        """Yield the distinct values on which this value depends, and the value itself, arguments first."""
        seen: set[int] = set()
        stack = [(self, False)]
        while stack:
            value, ready = stack.pop()
            if ready:
                yield value
            elif id(value) not in seen:
                seen.add(id(value))
                stack.append((value, True))
                stack += [(a, False) for a in reversed(value.args)]


REDUCTIONS = ("sum", "max")
LOOKUPS = ("lookup", "picked")
"""Values at a computed index of a loop. A `lookup` is 0 if the index is out of range. For `picked`, the index is reduced modulo
the loop's extent.
"""
PRODUCTS = (2, 3, 4)
"""The exponents of powers that are computed as products."""
LARGEST_INDEX = 1 << 24
"""float32 represents every integer from 0 to this number."""


def made(table: dict[object, Value], kind: str, data: Any, *args: Value) -> Value:
    """Return the value in `table` with these parts. If `table` contains no value with these parts, a new value is added.

    Index notation writes the smaller of two values with `larger`. Such a term becomes the function `smaller`. A power with a
    small whole exponent becomes a product. A product with a reciprocal becomes the function `quotient`, because the reciprocal
    of a tiny number overflows. If the other factor depends on more loops, the reciprocal remains a factor, so that the
    additional loops do not compute the reciprocal again. A product with the reciprocal of a constant becomes the function
    `divided`, because the reciprocal is rounded.
    """
    if kind == "power" and args[1].kind == "number" and args[1].data in PRODUCTS:
        power = args[0]
        for _ in range(int(args[1].data) - 1):
            power = power * args[0]
        return power
    if kind == "mul" and (division := _division(*args)) is not None:
        function, data, operands = division
        return made(table, function, data, *operands)
    smaller = _smaller(kind, args)
    if smaller is not None:
        return made(table, "smaller", None, *smaller)
    key = (kind, data, *map(id, args))
    if key not in table:
        table[key] = Value(table, kind, data, args)
    return table[key]


def _division(a: Value, b: Value) -> tuple[str, Fraction | None, tuple[Value, ...]] | None:
    """Return the kind, the data and the arguments of the division that replaces a product with a reciprocal.

    Return None if no factor is the reciprocal of a constant, or a reciprocal that depends on all loops of the product.
    """
    pairs = ((b, a), (a, b))
    for factor, other in pairs:
        if factor.kind == "reciprocal" and factor.loops >= other.loops:
            return "quotient", None, (other, factor.args[0])
    for factor, other in pairs:
        if factor.kind == "number" and is_divided_by(factor.data):
            return "divided", factor.data, (other,)
    return None


def _smaller(kind: str, args: tuple[Value, ...]) -> tuple[Value, ...] | None:
    """Return `a` and `b` if the value is `0 - larger(0 - a, 0 - b)`. Otherwise, return None.

    The function `index.smaller` writes this form.
    """
    if kind == "sub" and _is_zero(args[0]) and args[1].kind == "larger":
        parts = args[1].args
        if all(p.kind == "sub" and _is_zero(p.args[0]) for p in parts):
            return tuple(p.args[1] for p in parts)
    return None


def _looked_up(summand: Value, loop: LoopIndex) -> tuple[Value, Value] | None:
    """Return the position and the value of a lookup. If the summand does not belong to a lookup, return None.

    A lookup is written as the sum over k of value * zero((position - k) * (position - k + extent)).
    """
    if summand.kind != "mul" or summand.args[1].kind != "zero" or summand.args[1].args[0].kind != "mul":
        return None
    value, (difference, shifted) = summand.args[0], summand.args[1].args[0].args
    if difference.kind != "sub" or shifted.kind != "add" or shifted.args[0] is not difference:
        return None
    (wanted, counter), extent = difference.args, shifted.args[1]
    fits = counter.kind == "index" and counter.data == index(loop) and extent.kind == "number" and extent.data == loop.extent
    return (wanted, value) if fits and loop not in wanted.loops and loop.extent <= LARGEST_INDEX else None


def _is_zero(value: Value) -> bool:
    return value.kind == "number" and value.data == 0


def reread(value: Value, old: Buffer, new: Buffer, position: Callable[[IndexExpression], IndexExpression]) -> Value:
    """Replace each read of `old` in the value by a read of `new` at the offset `position(offset)`, and return the result."""
    done: dict[int, Value] = {}
    for one in value.within():
        args = tuple(done[id(a)] for a in one.args)
        data = (new, position(one.data[1])) if one.kind == "read" and one.data[0] is old else one.data
        done[id(one)] = made(one.table, one.kind, data, *args)
    return done[id(value)]


class Tracing:
    """The interpretation of index notation that creates values over loop indices."""

    def __init__(self) -> None:
        self.table: dict[object, Value] = {}
        self._names = count()

    def loop(self, extent: int) -> LoopIndex:
        """Return a new loop."""
        return LoopIndex(f"i{next(self._names)}", extent)

    def stored(self, buffer: Buffer) -> Tensor:
        """Return the tensor whose elements are in the buffer."""
        return Tensor(buffer.shape, lambda *position: made(self.table, "read", (buffer, buffer.at(position))))

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Value]) -> Tensor:
        """Return the tensor whose element at a position is `at(*position)`."""
        return Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        """Raise `UnsupportedError` unless the condition is known to be true."""
        if condition is not True:
            raise UnsupportedError(message)

    def total(self, extent: Extent, body: Callable[[Position], Value]) -> Value:
        """Return the sum of the body over a new loop. If the sum has the form of a lookup, return the lookup instead."""
        return self._reduced("sum", extent, body)

    def maximum(self, extent: Extent, body: Callable[[Position], Value]) -> Value:
        """Return the maximum of the body over a new loop."""
        return self._reduced("max", extent, body)

    def _reduced(self, kind: str, extent: Extent, body: Callable[[Position], Value]) -> Value:
        loop = self.loop(_integer(extent))
        inside = body(index(loop))
        if kind == "sum" and (looked_up := _looked_up(inside, loop)) is not None:
            return made(self.table, "lookup", loop, *looked_up)
        return inside if loop.extent == 1 else made(self.table, kind, loop, inside)

    def select(self, condition: bool | IndexCondition, then: Value, other: Value) -> Value:
        """Return a choice between the values. If the condition is known, return the chosen value instead."""
        if isinstance(condition, IndexCondition):
            return made(self.table, "select", condition, then, other)
        return then if condition else other

    def picked(self, value: Value, extent: Extent, body: Callable[[Position], Value]) -> Value:
        """Return the body at a computed index. Raise `UnsupportedError` if float32 cannot represent all indices."""
        loop = self.loop(_integer(extent))
        if loop.extent > LARGEST_INDEX:
            raise UnsupportedError("the table of a lookup has too many rows")
        return made(self.table, "picked", loop, value, body(index(loop)))

    def call(self, function: str, *arguments: Value) -> Value:
        """Apply the function to the arguments."""
        return made(self.table, function, None, *arguments)

    def number(self, value: Any) -> Value:
        """Return a number or an index expression as a value. Raise `UnsupportedError` for a number that depends on sizes."""
        if isinstance(value, IndexExpression):
            return made(self.table, "index", value)
        if not isinstance(value, int | float | Fraction):
            raise UnsupportedError("a number depends on sizes that are not known")
        return made(self.table, "number", value if isinstance(value, Fraction) else float(value))

    def entry(self, matrix: Callable[[], Any], row: Position, column: Position) -> Value:
        """Raise `UnsupportedError`: the generator has no code for constant matrices."""
        raise UnsupportedError("the generator has no code for constant matrices")

    def lowest(self) -> Value:
        """Return minus infinity, the maximum of no values."""
        return made(self.table, "number", -math.inf)


def _integer(extent: Extent) -> int:
    if not isinstance(extent, int):
        raise UnsupportedError("a size is not known")
    return extent


@dataclass(frozen=True, eq=False)
class Nest:
    """A loop nest that computes all elements of a buffer.

    Attributes:
        target: The buffer.
        loops: The loops over the elements, the outermost first.
        offset: The offset of the element that one iteration writes.
        value: The value that one iteration writes.
    """

    target: Buffer
    loops: tuple[LoopIndex, ...]
    offset: IndexExpression
    value: Value

    @property
    def reads(self) -> list[Buffer]:
        """The buffers that the nest reads, in the order of their first use."""
        return list(dict.fromkeys(v.data[0] for v in self.value.within() if v.kind == "read"))

    @property
    def nests(self) -> tuple[Nest, ...]:
        """A tuple that contains only this nest."""
        return (self,)


@dataclass(frozen=True, eq=False)
class Steps:
    """Loop nests that run in order for each index of a loop, such as the steps of a recurrence.

    A step reads the results of earlier steps.
    """

    loop: LoopIndex
    nests: tuple[Nest, ...]
