"""Evaluation of terms on numpy arrays, by the definitions in specs/.

Values are float64 numbers, or the exact numbers of `superopt.algebra.exact.Fields`. In float64, sums, products and choices are
exact if the values are halves of small integers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from superopt.algebra import index
from superopt.algebra.bilinear import Matrix
from superopt.algebra.operators import interpret_operator, operator
from superopt.algebra.terms import Atom, Attribute, Cond, Extent, Term, substitute_attribute, subterms
from superopt.errors import ShapeError

Array = npt.NDArray[Any]


class Domain(Protocol):
    """The arithmetic in which the definitions of operators are evaluated.

    An array of values has one axis for each index, and then `tail` further axes, such as a batch axis.
    """

    @property
    def tail(self) -> int: ...

    def read(self, array: Array) -> Any:
        """Convert an array to a value of the domain."""

    def array(self, value: Any) -> Array:
        """Convert a value of the domain to an array."""

    def ndim(self, value: Any) -> int: ...

    def sum(self, value: Any) -> Any:
        """Return the sum over the first axis."""

    def max(self, value: Any) -> Any:
        """Return the maximum over the first axis."""

    def select(self, condition: Any, then: Any, other: Any) -> Any: ...

    def number(self, value: Any) -> Any: ...

    def lowest(self) -> Any: ...

    def call(self, function: str, *values: Any) -> Any: ...


class Floats:
    """float64 arithmetic. An array has `tail` batch axes after the axes of the indices."""

    def __init__(self, tail: int = 0) -> None:
        self.tail = tail

    def read(self, array: Array) -> Any:
        return array

    def array(self, value: Any) -> Array:
        return np.asarray(value)

    def ndim(self, value: Any) -> int:
        return np.ndim(value)

    def sum(self, value: Any) -> Any:
        return np.asarray(value.sum(axis=0))

    def max(self, value: Any) -> Any:
        return np.asarray(value.max(axis=0))

    def select(self, condition: Any, then: Any, other: Any) -> Any:
        return np.where(np.asarray(condition)[(..., *(None,) * self.tail)], then, other)

    def number(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.astype(np.float64)[(..., *(None,) * self.tail)]
        return np.float64(value)

    def lowest(self) -> Any:
        return np.float64(-np.inf)

    def call(self, function: str, *values: Any) -> Any:
        return FUNCTIONS[function](*map(np.asarray, values))


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "relu": lambda v: np.maximum(v, 0.0),
    "larger": np.maximum,
    "rsqrt": lambda v: 1.0 / np.sqrt(v),
    "reciprocal": lambda v: 1.0 / v,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "power": np.power,
    "positive": lambda v: np.where(v > 0, 1.0, 0.0),
    "zero": lambda v: np.where(v == 0, 1.0, 0.0),
    "position": lambda v, n: np.mod(np.floor(v), n),
    "choose": lambda c, v, w: np.asarray(np.where(c != 0, v, w)),
}


class Grid:
    """The interpretation of index notation that evaluates a tensor at all positions at once.

    An index is an integer array, and a value is an array of the domain. An array has one axis for each output index, followed
    by the `tail` axes of the domain. Each summation index adds an axis in front, so that numpy's broadcasting aligns the
    indices.
    """

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.depth = 0

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Any]) -> index.Tensor:
        extents = tuple(int(n) for n in shape)  # type: ignore[arg-type]
        outer, self.depth = self.depth, len(extents)
        try:
            value = self.domain.array(at(*_grids(extents)))
        finally:
            self.depth = outer
        tail = value.shape[max(value.ndim - self.domain.tail, 0) :] if value.ndim else ()
        own = tail if len(tail) == self.domain.tail else (1,) * self.domain.tail
        return self.leaf(np.broadcast_to(value, (*extents, *own)))

    def leaf(self, data: Array) -> index.Tensor:
        """Return a tensor with the elements `data`.

        At a position out of bounds, the tensor returns an arbitrary element. `select` discards such elements.
        """
        limits = data.shape[: data.ndim - self.domain.tail]

        def at(*position: Any) -> Any:
            clipped = tuple(np.clip(i, 0, n - 1) for i, n in zip(position, limits, strict=True))
            return self.domain.read(data[clipped])

        return index.Tensor(limits, at, data)

    def require(self, condition: Cond, message: str) -> None:
        if not condition:
            raise ShapeError(message)

    def _reduced(
        self, extent: Extent, body: Callable[[Any], Any], reduce: Callable[[Any], Any], alone: Callable[[Any], Any]
    ) -> Any:
        outer = self.depth
        self.depth = outer + 1
        try:
            value = body(np.arange(int(extent)).reshape((-1,) + (1,) * outer))  # type: ignore[arg-type]
        finally:
            self.depth = outer
        return reduce(value) if self.domain.ndim(value) == outer + 1 + self.domain.tail else alone(value)

    def total(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return self._reduced(extent, body, self.domain.sum, lambda value: value * self.domain.number(extent))

    def maximum(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return self._reduced(extent, body, self.domain.max, lambda value: value)

    def select(self, condition: Any, then: Any, other: Any) -> Any:
        return self.domain.select(condition, then, other)

    def picked(self, value: Any, extent: Extent, body: Callable[[Any], Any]) -> Any:
        """Evaluate `body(k)` for `0 <= k < extent`, and return the result for `k = floor(value) % extent`."""
        position = self.call("position", value, self.number(extent))
        result = body(0)
        for k in range(1, int(extent)):  # type: ignore[arg-type]
            result = self.call("choose", self.call("zero", position - self.number(k)), body(k), result)
        return result

    def call(self, function: str, *arguments: Any) -> Any:
        return self.domain.call(function, *arguments)

    def number(self, value: Any) -> Any:
        return self.domain.number(value)

    def entry(self, matrix: Callable[[], Matrix], row: Any, column: Any) -> Any:
        whole, denominator = _over_one_denominator(matrix())
        return self.number(np.asarray(whole[row, column])) * self.number(Fraction(1, denominator))

    def lowest(self) -> Any:
        return self.domain.lowest()


@functools.lru_cache(maxsize=256)
def _over_one_denominator(matrix: Matrix) -> tuple[Array, int]:
    """Return a pair of an integer matrix and a denominator. The integer matrix divided by the denominator equals `matrix`."""
    denominator = math.lcm(*(number.denominator for row in matrix for number in row))
    return np.array([[int(number * denominator) for number in row] for row in matrix]), denominator


@functools.lru_cache(maxsize=4096)
def _grids(extents: tuple[int, ...]) -> tuple[Array, ...]:
    rank = len(extents)
    return tuple(np.arange(n).reshape((1,) * a + (-1,) + (1,) * (rank - 1 - a)) for a, n in enumerate(extents))


def evaluate_operator(name: str, arrays: tuple[Array, ...], attributes: Mapping[str, Attribute], domain: Domain) -> Array:
    """Evaluate the operator's definition on arrays, and return the result. The attributes must be numbers.

    Raises:
        ShapeError: The operator is not defined for these shapes.
    """
    grid = Grid(domain)
    operands = [grid.leaf(a) for a in arrays]
    with index.interpreted(grid):
        result = interpret_operator(operator(name), operands, attributes)
    return np.asarray(result.data)


def evaluate_terms(
    roots: tuple[Term, ...],
    arrays: Mapping[str, Array],
    symbols: Callable[[Atom], Extent | None],
    domain: Domain,
    cache: dict[Term, Array] | None = None,
) -> tuple[Array, ...]:
    """Return the values of the terms.

    Args:
        roots: The terms.
        arrays: The value of each variable, by name.
        symbols: A function that returns a number for every symbol (dimension or attribute variable) in the terms' attributes.
        domain: The arithmetic.
        cache: Known values of terms. New values are added to this mapping.

    Raises:
        ShapeError: A term is not defined at these sizes.
    """
    known: dict[Term, Array] = {} if cache is None else cache
    for term in subterms(*roots):
        if term not in known:
            if term.is_variable:
                known[term] = arrays[term.name]
            else:
                attributes = {k: substitute_attribute(v, symbols) for k, v in term.attributes}
                known[term] = evaluate_operator(term.op, tuple(known[a] for a in term.args), attributes, domain)
    return tuple(known[r] for r in roots)
