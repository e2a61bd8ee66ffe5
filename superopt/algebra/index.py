"""Index notation: the language in which specs/ defines operators, and the interface of interpretations of this language.

A definition is a Python function over `Tensor`s. The function returns a `Tensor`: a shape, and the value at each position. The
active interpretation decides what indices, sizes and values are: numbers and arrays in an evaluation, and symbols in a proof.
The interpretation `Shapes` computes shapes without values.

Indices support `+ - * // %`, the comparisons `< <= > >=`, and `same(i, j)` for equality. Conditions support `&`. Values support
`+ - *`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

from superopt.algebra.bilinear import Matrix
from superopt.algebra.terms import Cond, Extent, same
from superopt.errors import ShapeError

__all__ = [
    "Axes",
    "Axis",
    "Extents",
    "Index",
    "Interpretation",
    "Real",
    "Shapes",
    "Tensor",
    "Value",
    "call",
    "entry",
    "inside",
    "interpreted",
    "larger",
    "lowest",
    "maximum",
    "number",
    "picked",
    "require",
    "same",
    "select",
    "smaller",
    "tensor",
    "total",
]

Index: TypeAlias = Any
Value: TypeAlias = Any
Condition: TypeAlias = Any
Axis: TypeAlias = int
Axes: TypeAlias = "tuple[int, ...]"
Extents: TypeAlias = "tuple[Extent, ...]"
Real: TypeAlias = "Extent"


class Tensor:
    """A shape, and the value at each position in the shape: `x[i, j]` is the value at (i, j)."""

    __slots__ = ("at", "data", "shape")

    def __init__(self, shape: Extents, at: Callable[..., Value], data: Any = None) -> None:
        self.shape = tuple(shape)
        self.at = at
        self.data = data

    def __getitem__(self, position: tuple[Index, ...] | Index) -> Value:
        return self.at(*position) if isinstance(position, tuple) else self.at(position)

    @property
    def rank(self) -> int:
        return len(self.shape)


class Interpretation(Protocol):
    """The interface of an interpretation: an implementation of each function of index notation."""

    def tensor(self, shape: Extents, at: Callable[..., Value]) -> Tensor: ...

    def require(self, condition: Cond, message: str) -> None: ...

    def total(self, extent: Extent, body: Callable[[Index], Value]) -> Value: ...

    def maximum(self, extent: Extent, body: Callable[[Index], Value]) -> Value: ...

    def select(self, condition: Condition, then: Value, other: Value) -> Value: ...

    def picked(self, value: Value, extent: Extent, body: Callable[[Index], Value]) -> Value: ...

    def call(self, function: str, *arguments: Value) -> Value: ...

    def number(self, value: Real | Index) -> Value: ...

    def entry(self, matrix: Callable[[], Matrix], row: Index, column: Index) -> Value: ...

    def lowest(self) -> Value: ...


class Shapes:
    """The interpretation of index notation that computes the shapes of results and collects conditions on sizes, but computes
    no values.
    """

    def __init__(self) -> None:
        self.conditions: list[Cond] = []

    def tensor(self, shape: Extents, at: Callable[..., Value]) -> Tensor:
        return Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        if condition is False:
            raise ShapeError(message)
        if condition is not True:
            self.conditions.append(condition)

    def total(self, extent: Extent, body: Callable[[Index], Value]) -> Value:
        raise NotImplementedError

    maximum = total

    def select(self, condition: Condition, then: Value, other: Value) -> Value:
        raise NotImplementedError

    def picked(self, value: Value, extent: Extent, body: Callable[[Index], Value]) -> Value:
        raise NotImplementedError

    def call(self, function: str, *arguments: Value) -> Value:
        raise NotImplementedError

    def number(self, value: Real | Index) -> Value:
        raise NotImplementedError

    def entry(self, matrix: Callable[[], Matrix], row: Index, column: Index) -> Value:
        raise NotImplementedError

    def lowest(self) -> Value:
        raise NotImplementedError


_current: ContextVar[Interpretation] = ContextVar("interpretation")


@contextmanager
def interpreted(interpretation: Interpretation) -> Iterator[None]:
    """Make `interpretation` the active interpretation of index notation while the context is open."""
    token = _current.set(interpretation)
    try:
        yield
    finally:
        _current.reset(token)


def tensor(shape: Extents, at: Callable[..., Value]) -> Tensor:
    """Return the tensor of this shape whose value at position (i, j, ...) is `at(i, j, ...)`."""
    return _current.get().tensor(shape, at)


def require(condition: Cond, message: str) -> None:
    """Declare that the operator is defined only where `condition` holds."""
    _current.get().require(condition, message)


def total(extent: Extent, body: Callable[[Index], Value]) -> Value:
    """Return the sum of `body(k)` for `0 <= k < extent`."""
    return _current.get().total(extent, body)


def maximum(extent: Extent, body: Callable[[Index], Value]) -> Value:
    """Return the maximum of `body(k)` for `0 <= k < extent`."""
    return _current.get().maximum(extent, body)


def select(condition: Condition, then: Value, other: Value) -> Value:
    """Return the value `then` where the condition on indices holds, and the value `other` elsewhere.

    The value that is not selected may read out of bounds.
    """
    return _current.get().select(condition, then, other)


def picked(value: Value, extent: Extent, body: Callable[[Index], Value]) -> Value:
    """Return `body(k)` for the index `k = floor(value) % extent`. For example, the value -1 selects the last position."""
    return _current.get().picked(value, extent, body)


def call(function: str, *arguments: Value) -> Value:
    """Apply a nonlinear function to the arguments. `function` is a key of `evaluate.FUNCTIONS`."""
    return _current.get().call(function, *arguments)


def larger(a: Value, b: Value) -> Value:
    """Return the larger of two values."""
    return call("larger", a, b)


def smaller(a: Value, b: Value) -> Value:
    """Return the smaller of two values."""
    zero = number(0)
    return zero - larger(zero - a, zero - b)


def number(value: Real | Index) -> Value:
    """Convert a number or an index to a value."""
    return _current.get().number(value)


def entry(matrix: Callable[[], Matrix], row: Index, column: Index) -> Value:
    """Return the entry of a constant matrix at this row and column. `matrix` is called only if values are computed."""
    return _current.get().entry(matrix, row, column)


def lowest() -> Value:
    """Return minus infinity, the identity element of the maximum."""
    return _current.get().lowest()


def inside(index: Index, extent: Extent) -> Condition:
    """Return the condition `0 <= index < extent`."""
    return (index >= 0) & (index < extent)
