"""Evaluation of terms on numpy arrays, from the definitions in specs/: float64, or exactly modulo a prime.

Exactness in float64: integers and quotients by small counts are held without error for the sizes that fingerprints and
tests use (below 2**53 after clearing denominators), and order is kept, so relu and maxima are right. Modulo a prime, sums,
products and divisions are exact for any size, and maxima and other functions raise `NotExactError`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt import index
from superopt.errors import NotExactError, ShapeError
from superopt.graph import Atom, Attribute, Cond, Extent, Term, substitute_attribute, subterms
from superopt.op import defined, operator

Array = npt.NDArray[Any]
PRIME = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Residues:
    """An array of integers modulo PRIME, with ring arithmetic."""

    array: npt.NDArray[np.int64]

    def __add__(self, other: Residues) -> Residues:
        return Residues((self.array + other.array) % PRIME)

    def __sub__(self, other: Residues) -> Residues:
        return Residues((self.array - other.array) % PRIME)

    def __mul__(self, other: Residues) -> Residues:
        return Residues(self.array * other.array % PRIME)


class Floats:
    """float64 arithmetic."""

    def read(self, array: Array) -> Any:
        return array

    def array(self, value: Any) -> Array:
        return np.asarray(value)

    def wrap(self, array: Array) -> Any:
        return array

    def sum(self, array: Array) -> Array:
        return np.asarray(array.sum(axis=0))

    def max(self, array: Array) -> Array:
        return np.asarray(array.max(axis=0))

    def number(self, value: Any) -> Any:
        return np.asarray(value, dtype=np.float64) if isinstance(value, np.ndarray) else np.float64(value)

    def lowest(self) -> Any:
        return np.float64(-np.inf)

    def call(self, function: str, *arrays: Array) -> Array:
        return FUNCTIONS[function](*arrays)


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
    "choose": lambda c, v, w: np.asarray(np.where(c != 0, v, w)),
}


class Modular:
    """Arithmetic modulo PRIME."""

    def read(self, array: Array) -> Any:
        return Residues(array)

    def array(self, value: Any) -> Array:
        return np.asarray(value.array)

    def wrap(self, array: Array) -> Any:
        return Residues(array)

    def sum(self, array: Array) -> Array:
        return np.asarray(array.sum(axis=0) % PRIME)

    def max(self, array: Array) -> Array:  # noqa: ARG002
        raise NotExactError("a maximum has no meaning modulo a prime")

    def number(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return Residues(value.astype(np.int64) % PRIME)
        fraction = Fraction(value)
        return Residues(np.int64(fraction.numerator * pow(fraction.denominator, -1, PRIME) % PRIME))  # type: ignore[arg-type]

    def lowest(self) -> Any:
        raise NotExactError("minus infinity has no meaning modulo a prime")

    def call(self, function: str, *arrays: Array) -> Array:
        if function != "reciprocal":
            raise NotExactError(f"{function} has no meaning modulo a prime")
        (array,) = arrays
        inverses = {int(v): pow(int(v), -1, PRIME) for v in np.unique(array)}
        return np.asarray(np.vectorize(inverses.__getitem__, otypes=[np.int64])(array))


class Grid:
    """The interpretation on whole index grids: an index is an integer array, a value an array of the domain.

    Output indices occupy the trailing axes and every summation variable adds an axis in front, so numpy's broadcasting aligns
    them.
    """

    def __init__(self, domain: Floats | Modular) -> None:
        self.domain = domain
        self.depth = 0

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Any]) -> index.Tensor:
        extents = tuple(int(n) for n in shape)  # type: ignore[arg-type]
        outer, self.depth = self.depth, len(extents)
        try:
            value = self.domain.array(at(*_grids(extents)))
        finally:
            self.depth = outer
        return self.leaf(np.broadcast_to(value, extents))

    def leaf(self, data: Array) -> index.Tensor:
        """A tensor that holds `data`; positions out of bounds read some element, for `select` to discard."""
        limits = data.shape

        def at(*position: Any) -> Any:
            clipped = tuple(np.clip(i, 0, n - 1) for i, n in zip(position, limits, strict=True))
            return self.domain.read(data[clipped])

        return index.Tensor(limits, at, data)

    def require(self, condition: Cond, message: str) -> None:
        if not condition:
            raise ShapeError(message)

    def _reduced(
        self, extent: Extent, body: Callable[[Any], Any], reduce: Callable[[Array], Array], alone: Callable[[Any], Any]
    ) -> Any:
        outer = self.depth
        self.depth = outer + 1
        try:
            grid = np.arange(int(extent)).reshape((-1,) + (1,) * outer)  # type: ignore[arg-type]
            value = body(grid)
            array = self.domain.array(value)
        finally:
            self.depth = outer
        return self.domain.wrap(reduce(array)) if array.ndim == outer + 1 else alone(value)

    def total(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return self._reduced(extent, body, self.domain.sum, lambda value: value * self.domain.number(extent))

    def maximum(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return self._reduced(extent, body, self.domain.max, lambda value: value)

    def select(self, condition: Any, then: Any, other: Any) -> Any:
        return self.domain.wrap(np.where(condition, self.domain.array(then), self.domain.array(other)))

    def call(self, function: str, *arguments: Any) -> Any:
        return self.domain.wrap(self.domain.call(function, *map(self.domain.array, arguments)))

    def number(self, value: Any) -> Any:
        return self.domain.number(value)

    def lowest(self) -> Any:
        return self.domain.lowest()


@functools.lru_cache(maxsize=4096)
def _grids(extents: tuple[int, ...]) -> tuple[Array, ...]:
    rank = len(extents)
    return tuple(np.arange(n).reshape((1,) * a + (-1,) + (1,) * (rank - 1 - a)) for a, n in enumerate(extents))


def evaluate_operator(
    name: str, arrays: tuple[Array, ...], attributes: Mapping[str, Attribute], domain: Floats | Modular
) -> Array:
    """The operator's definition on arrays, with numeric attributes.

    Raises:
        ShapeError: it is not defined for these shapes. NotExactError: the domain cannot express it.
    """
    grid = Grid(domain)
    operands = [grid.leaf(a) for a in arrays]
    with index.interpreted(grid):
        result = defined(operator(name), operands, attributes)
    return np.asarray(result.data)


def evaluate(
    roots: tuple[Term, ...],
    arrays: Mapping[str, Array],
    symbols: Callable[[Atom], Extent | None],
    domain: Floats | Modular,
    cache: dict[Term, Array] | None = None,
) -> tuple[Array, ...]:
    """The terms' values, given each variable's array and a number for every atom in their attributes.

    Raises:
        ShapeError: a term is not defined at these sizes. NotExactError: the domain cannot express an operator.
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
