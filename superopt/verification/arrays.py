"""Evaluation of terms on float64 arrays.

Numpy functions compute the operators whose definitions are slow. All other operators are computed by their definitions in
specs/. The tests compare each numpy function with the definition of the operator.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra.evaluate import Floats, evaluate_operator
from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Atom, Attribute, Dim, Extent, Size, Term, substitute_attribute, subterms, variable
from superopt.errors import ShapeError
from superopt.policy import VERIFY
from superopt.rules.work import total_work
from superopt.speclib.composite import unfolded

Array = npt.NDArray[Any]


class UndecidedError(ShapeError):
    """Raised when a term takes too long to evaluate, or has an unknown size."""


def evaluate_certificate_terms(
    roots: Sequence[Term],
    arrays: Mapping[str, Array],
    sizes: Mapping[Atom, int] | None = None,
    dtype: npt.DTypeLike = np.float64,
    changed: Callable[[Array], Array] = lambda array: array,
) -> list[Array]:
    """Return the value of each term, with every intermediate value rounded to `dtype`.

    Args:
        roots: The terms.
        arrays: The array of each variable, by the variable's name.
        sizes: Sizes of dynamic dimensions. The shapes of the arrays give the remaining sizes.
        dtype: The type of all values.
        changed: A function that changes the result of each operator, for example as a rounding error does.

    Raises:
        ShapeError: The arrays do not have the shapes in the terms, or an operator is not defined for the arrays.
        UndecidedError: An operator takes too long. Or the arrays and `sizes` do not determine a size.
    """
    symbols = certificate_dimension_sizes([t for t in subterms(*roots) if t.is_variable], arrays, sizes or {})
    known: dict[Term, Array] = {}
    with np.errstate(all="ignore"):
        for term in subterms(*roots):
            if term.is_variable:
                known[term] = np.asarray(arrays[term.name], dtype=dtype)
            else:
                attributes = {name: substitute_attribute(value, symbols) for name, value in term.attributes}
                result = apply_certificate_operator(term.op, [known[a] for a in term.args], attributes)
                known[term] = changed(np.asarray(result, dtype=dtype))
    return [known[root] for root in roots]


def certificate_dimension_sizes(
    variables: Sequence[Term], arrays: Mapping[str, Array], sizes: Mapping[Atom, int]
) -> Callable[[Atom], Extent | None]:
    """Return a function from dynamic dimensions to their sizes.

    The sizes come from `sizes` and from the shapes of the variables' arrays.

    Raises:
        ShapeError: An array and its variable differ in rank or in an extent. Or a dimension has two different sizes.
        UndecidedError: An extent is an expression that contains an unknown size.
    """
    found = dict(sizes)
    for term in variables:
        shape = np.shape(arrays[term.name])
        if len(shape) != term.rank:
            raise ShapeError(f"variable {term.name} has rank {len(shape)}, but rank {term.rank} in the certificate")
        for extent, number in zip(term.shape, shape, strict=True):
            atom = _bare(extent)
            if atom is not None and found.setdefault(atom, number) != number:
                raise ShapeError(f"dimension {atom} has size {found[atom]} in one place and {number} in another")
    for term in variables:
        for place, (extent, number) in enumerate(zip(term.shape, np.shape(arrays[term.name]), strict=True)):
            here = substitute_attribute(extent, found.get)
            if not isinstance(here, int):
                raise UndecidedError(
                    f"axis {place} of {term.name} has size {extent}, which contains a dimension of unknown size"
                )
            if here != number:
                raise ShapeError(f"axis {place} of {term.name} has size {number}, but size {extent} in the certificate")
    return found.get


def _bare(extent: Extent) -> Atom | None:
    """If the extent (the size of an axis) is a single dimension, return this dimension. Otherwise, return None."""
    if isinstance(extent, Size) and len(extent.terms) == 1:
        (monomial, coefficient), *_ = extent.terms
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Dim):
            return monomial[0]
    return None


def apply_certificate_operator(op: str, arrays: Sequence[Array], attributes: Mapping[str, Attribute]) -> Array:
    """Apply an operator in a term of a certificate to arrays.

    Raises:
        ShapeError: The operator is not defined for the arrays.
        UndecidedError: The operator takes too long.
    """
    leaves = [variable(f"operand {n}", tuple(a.shape)) for n, a in enumerate(arrays)]
    term = apply(op, *leaves, **attributes)  # checks shapes and attributes
    if op in NUMPY:
        return np.asarray(NUMPY[op](*arrays, **dict(term.attributes)))
    body = unfolded(term) if arrays else None
    if body is not None:
        return evaluate_certificate_terms([body], {leaf.name: array for leaf, array in zip(leaves, arrays, strict=True)})[0]
    if total_work([term]).flops > VERIFY.max_definition_operations:
        raise UndecidedError(f"the operator {op} takes too long to evaluate")
    if operator(op).commutative:
        whole = functools.partial(evaluate_operator, op, attributes={}, domain=Floats())
        return np.asarray(functools.reduce(lambda a, b: whole((a, b)), arrays))
    return evaluate_operator(op, tuple(arrays), dict(term.attributes), Floats())


# ---------------------------------------------------------------- operators in numpy


def _windows(
    x: Array, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], fill: float
) -> list[list[Array]]:
    """Return a nested list with one array for each element of a two-dimensional kernel.

    The outer list has one list for each row of the kernel. The kernel moves over the padded images. The array of a kernel
    element contains the pixels that lie under this kernel element, one pixel for each position of the kernel.

    Args:
        x: The images, with two leading axes.
        kernel: The height and width of the kernel.
        strides: The steps between positions of the kernel.
        pads: The pads at the top, at the left, at the bottom and at the right, in this order.
        dilations: The distances between neighbouring elements of the kernel.
        fill: The value of the pads.
    """
    padded = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=fill)
    reach = [dilations[a] * (kernel[a] - 1) + 1 for a in (0, 1)]
    counts = [(padded.shape[2 + a] - reach[a]) // strides[a] + 1 for a in (0, 1)]

    def tap(u: int, v: int) -> Array:
        rows, columns = u * dilations[0], v * dilations[1]
        ends = rows + strides[0] * (counts[0] - 1) + 1, columns + strides[1] * (counts[1] - 1) + 1
        return padded[:, :, rows : ends[0] : strides[0], columns : ends[1] : strides[1]]

    return [[tap(u, v) for v in range(kernel[1])] for u in range(kernel[0])]


def _conv(x: Array, w: Array, *, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], group: int) -> Array:
    features, depth, rows, columns = w.shape
    taps = _windows(x, (rows, columns), strides, pads, dilations, 0.0)
    n, _, height, width = taps[0][0].shape
    result = np.zeros((n, group, features // group, height * width))
    for u, v in itertools.product(range(rows), range(columns)):
        image = taps[u][v].reshape(n, group, depth, height * width)
        result += np.matmul(w[:, :, u, v].reshape(group, features // group, depth), image)
    return result.reshape(n, features, height, width)


def _max_pool(
    x: Array, *, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> Array:
    taps = _windows(x, kernel, strides, pads, dilations, -np.inf)
    return np.asarray(functools.reduce(np.maximum, [tap for row in taps for tap in row]))


def _reduction(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, *, axes: np.asarray(function(x, axis=axes))


def _slice(x: Array, *, axis: int, start: int = 0, stop: int) -> Array:
    return np.moveaxis(np.moveaxis(x, axis, 0)[start:stop], 0, axis)


def _expand(x: Array, *, shape: Sequence[int], axes: Sequence[int]) -> Array:
    whole = [shape[a] if a in axes else 1 for a in range(-len(shape), 0)]
    return np.broadcast_to(x.reshape(whole), shape)


NUMPY: dict[str, Callable[..., Array]] = {
    "add": lambda *xs: functools.reduce(np.add, xs),
    "mul": lambda *xs: functools.reduce(np.multiply, xs),
    "maximum": lambda *xs: functools.reduce(np.maximum, xs),
    "minimum": lambda *xs: functools.reduce(np.minimum, xs),
    "sub": np.subtract,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1.0 / x,
    "relu": lambda x: np.maximum(x, 0.0),
    "scale": lambda x, *, factor: x * float(factor),
    "matmul": np.matmul,
    "conv": _conv,
    "max_pool": _max_pool,
    "reduce_sum": _reduction(np.sum),
    "reduce_mean": _reduction(np.mean),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_sum_square": lambda x, *, axes: np.sum(x * x, axis=axes),
    "reshape": lambda x, *, shape: x.reshape(shape),
    "transpose": lambda x, *, perm: x.transpose([a % x.ndim for a in perm]),
    "concat": lambda x, y, *, axis: np.concatenate((x, y), axis=axis),
    "slice": _slice,
    "expand": _expand,
    "pad": lambda x, *, before, after: np.pad(x, list(zip(before, after, strict=True))),
}
"""Numpy functions that compute operators from the operands and the attributes, by the name of the operator."""
