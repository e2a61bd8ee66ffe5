"""Express a program at chosen output positions as a sum of products of the elements that the program reads.

Operator definitions are interpreted with arrays of integers as indices. The last axis of an index array enumerates the chosen
output positions. Every summation adds an axis in front. A value is a sum of products. Each product is a number times elements
of variables.
"""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from superopt.algebra import index
from superopt.algebra.operators import interpret
from superopt.algebra.terms import Cond, Extent, Size, Term
from superopt.errors import Undecidable
from superopt.partial.reading import expand_program_composites

Array = npt.NDArray[Any]
Coordinates: TypeAlias = "tuple[Array, ...]"


@dataclass(frozen=True)
class ElementProduct:
    """A product of a number and elements of variables, for each chosen output position and each combination of summation
    indices.

    All arrays broadcast to one shape. The last axis of this shape enumerates the chosen output positions.

    Attributes:
        coefficient: The number.
        seen: An array of flags with an entry for each position and each combination of summation indices. A flag says whether
            the product is part of the sum.
        factors: Pairs of a variable and the position at which the variable is read. A position has one array per axis of the
            variable.
    """

    coefficient: Array | float
    seen: Array | bool = True
    factors: tuple[tuple[Term, Coordinates], ...] = ()

    def arrays(self) -> list[Array]:
        return [np.asarray(self.coefficient), np.asarray(self.seen), *(c for _, at in self.factors for c in at)]


@dataclass(frozen=True)
class SummedProducts:
    """A value at chosen output positions: the sum of all `products`.

    The last axis of a product's arrays enumerates the output positions, and each further axis enumerates the values of a
    summation index. The value is the sum over all axes except the last.
    """

    products: tuple[ElementProduct, ...]

    @property
    def is_number(self) -> bool:
        return not any(p.factors for p in self.products)

    def __add__(self, other: SummedProducts) -> SummedProducts:
        return SummedProducts(self.products + other.products)

    def __sub__(self, other: SummedProducts) -> SummedProducts:
        return self + SummedProducts(tuple(replace(p, coefficient=-p.coefficient) for p in other.products))

    def __mul__(self, other: SummedProducts) -> SummedProducts:
        return SummedProducts(
            tuple(
                ElementProduct(a.coefficient * b.coefficient, a.seen & b.seen, a.factors + b.factors)
                for a in self.products
                for b in other.products
            )
        )

    def only(self, condition: Array | bool) -> SummedProducts:
        """Return the value where the condition holds, and zero elsewhere."""
        if condition is True:
            return self
        return SummedProducts(tuple(replace(p, seen=p.seen & condition) for p in self.products))

    def value(self) -> Array | int:
        """Return the sum of the products' numbers. The products must not have elements of variables as factors."""
        return sum(np.where(p.seen, p.coefficient, 0.0) for p in self.products)


class _Products:
    """The interpretation of index notation in which every summation has its own array axis.

    An index is an array of integers and a value is a `SummedProducts`.
    """

    def __init__(self) -> None:
        self.depth = 1

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., SummedProducts]) -> index.Tensor:
        return index.Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        """Do nothing: terms are already well typed."""

    def total(self, extent: Extent, body: Callable[[Array], SummedProducts]) -> SummedProducts:
        assert isinstance(extent, int)
        axis = self.depth
        self.depth += 1
        value = body(np.arange(extent).reshape((-1,) + (1,) * axis))
        return (
            _counted(value, extent, axis)
            if value.is_number
            else SummedProducts(tuple(_along(p, extent, axis) for p in value.products))
        )

    def maximum(self, extent: Extent, body: Callable[[Array], SummedProducts]) -> SummedProducts:
        raise Undecidable("a maximum of elements is not a polynomial in the inputs")

    def select(self, condition: Array | np.bool_ | bool, then: SummedProducts, other: SummedProducts) -> SummedProducts:
        if isinstance(condition, bool | np.bool_):
            return then if condition else other
        return then.only(condition) + other.only(~condition)

    def picked(self, value: SummedProducts, extent: Extent, body: Callable[[Array], SummedProducts]) -> SummedProducts:
        raise Undecidable("an element whose position is read at run time is not a polynomial in the inputs")

    def call(self, function: str, *arguments: SummedProducts) -> SummedProducts:
        if function != "reciprocal" or not arguments[0].is_number:
            raise Undecidable(f"the function {function} of input elements is not a polynomial in the inputs")
        value = np.asarray(arguments[0].value(), dtype=np.float64)
        return SummedProducts((ElementProduct(np.divide(1.0, value, out=np.zeros_like(value), where=value != 0)),))

    def number(self, value: Array | Extent) -> SummedProducts:
        assert not isinstance(value, Size)
        coefficient = value.astype(np.float64) if isinstance(value, np.ndarray) else float(value)
        return SummedProducts(() if isinstance(coefficient, float) and not coefficient else (ElementProduct(coefficient),))

    def entry(self, matrix: object, row: object, column: object) -> SummedProducts:
        raise Undecidable("an entry of a constant table is read at a position that depends on the output position")

    def lowest(self) -> SummedProducts:
        raise Undecidable("the program uses minus infinity as a constant, so it is not a polynomial in the inputs")


def _counted(value: SummedProducts, extent: int, axis: int) -> SummedProducts:
    """Return the sum of `value` over one array axis, which belongs to a summation index. The products in `value` must be
    numbers without variables.
    """
    numbers = np.asarray(value.value(), dtype=np.float64)
    along = numbers.ndim > axis and numbers.shape[-axis - 1] == extent
    summed = numbers.sum(axis=-axis - 1, keepdims=True) if along else numbers * extent
    return SummedProducts((ElementProduct(summed),))


def _along(product: ElementProduct, extent: int, axis: int) -> ElementProduct:
    """Broadcast the array `seen` along the array axis of a summation, and return the product with the new array. The axis is
    added even if nothing in the product depends on the summation index.
    """
    shape = np.broadcast_shapes(np.shape(product.seen), (extent,) + (1,) * axis)
    return replace(product, seen=np.broadcast_to(product.seen, shape))


@dataclass(frozen=True)
class Reads:
    """Products that a program sums at chosen output positions. All of the products multiply elements of the same variables. All
    arrays have the shape (products, positions).

    Attributes:
        variables: The variables that are multiplied.
        at: For each variable, the positions at which the variable is read: one array per axis of the variable.
        coefficient: The numeric factor of each product.
        seen: A flag for each array entry: whether the entry is a product. Entries of the other arrays have no meaning where the
            flag is False.
    """

    variables: tuple[Term, ...]
    at: tuple[Coordinates, ...]
    coefficient: Array
    seen: Array


def product_reads(program: Term, positions: tuple[Array, ...]) -> tuple[Reads, ...]:
    """Return the products that the program sums at the given output positions. Products of the same variables form one group.

    `positions` has one array of indices per output axis.

    Raises:
        Undecidable: The program is not a polynomial in its variables.
    """
    interpretation = _Products()
    with index.interpreted(interpretation):
        value: SummedProducts = _tensor(expand_program_composites(program)).at(*positions)
    return tuple(_flattened(product, len(positions[0])) for product in value.products)


def _flattened(product: ElementProduct, count: int) -> Reads:
    shape = np.broadcast_shapes((count,), *(a.shape for a in product.arrays()))
    return Reads(
        tuple(v for v, _ in product.factors),
        tuple(tuple(np.broadcast_to(c, shape).reshape(-1, count) for c in at) for _, at in product.factors),
        np.broadcast_to(np.asarray(product.coefficient, dtype=np.float64), shape).reshape(-1, count),
        np.broadcast_to(product.seen, shape).reshape(-1, count),
    )


def _tensor(term: Term) -> index.Tensor:
    """Return the term in index notation. Each of its elements is a sum of products of the variables' elements."""
    if term.is_variable:
        return index.Tensor(term.shape, functools.partial(_element, term))
    return interpret(term, [_tensor(a) for a in term.args])


def _element(variable: Term, *position: Array | int) -> SummedProducts:
    at = tuple(np.asarray(i, dtype=np.int32).reshape(np.shape(i) or (1,)) for i in position)
    return SummedProducts((ElementProduct(1.0, factors=((variable, at),)),))
