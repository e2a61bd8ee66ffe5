"""Choose the order and the grouping in which ONNX nodes combine the operands of a commutative operator."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra.evaluate import Floats, evaluate_terms
from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Term, subterms, variables
from superopt.algebra.traits import is_elementwise
from superopt.errors import ShapeError
from superopt.policy import MODEL
from superopt.protobuf.nodes import Deferred, materialize_initializer


def order_lowered_operands(term: Term, live: Sequence[Term]) -> tuple[Term, ...]:
    """Return the operands of a term in the order in which ONNX nodes combine them.

    `live` contains all terms that nodes compute.

    If the term has at most two operands, or if its operator is not commutative, the order does not change. Otherwise, if one
    operand is an elementwise function of another operand, such as `sigmoid(x)` of `x`, the pair of these two operands comes
    first. Terms in `live` that already combine some of the operands come next, starting with the term that combines the most
    operands. Each of these terms replaces the operands that the term combines. The remaining operands come last. A constant
    whose elements are equal along some axes is written as an `expand` of a smaller constant.
    """
    if not operator(term.op).commutative:
        return term.args
    operands = tuple(narrow_constant(a) if a.constant else a for a in term.args)
    if len(operands) == 2:
        return operands
    together = _with_function(operands)
    left = Counter(operands) - Counter(together)
    chosen: list[Term] = []
    for part in sorted((p for p in live if p.op == term.op and p is not term), key=lambda p: -len(p.args)):
        if not Counter(part.args) - left:
            left -= Counter(part.args)
            chosen.append(part)
    return (*together, *chosen, *left.elements())


def _with_function(operands: Sequence[Term]) -> tuple[Term, ...]:
    """Find two operands such that the second operand is an elementwise function of the first operand. If there are no such
    operands, return an empty tuple.

    An example is `x` and `sigmoid(x)` in a longer product. Runtimes can fuse two such operands if they are next to each other.
    """
    for image in (x for x in operands if not x.constant):
        below, stack = set[Term](), [a for a in image.args if is_elementwise(image)]
        while stack:
            term = stack.pop()
            if term in operands or not (term.constant or is_elementwise(term)):
                below.add(term)
            else:
                stack += term.args
        if len(below) == 1 and (argument := below.pop()) in operands:
            return argument, image
    return ()


def merge_constants(op: str, operands: Iterable[Term]) -> list[Term]:
    """Return the operands of the commutative operator `op` with all constants combined into one last operand.

    If all operands are constant, they are returned unchanged.
    """
    given = list(operands)
    others, constants = [x for x in given if not x.constant], [x for x in given if x.constant]
    if not others or not constants:
        return given
    return [*others, narrow_constant(apply(op, *constants) if len(constants) > 1 else constants[0])]


def narrow_constant(constant: Term) -> Term:
    """Return the constant as an `expand` of a smaller constant, if possible.

    For example, the sum of two constants that expand along the same axes becomes an `expand` of the sum of the smaller
    constants. If a reshape of an `expand` only adds or drops axes of size 1, the reshape becomes an `expand`. A constant
    without variables is evaluated to find the axes along which its elements are equal.
    """
    done: dict[Term, Term] = {}
    for term in subterms(constant):
        done[term] = term
        if term.op == "reshape" and done[term.args[0]].op == "expand":
            done[term] = _reshaped_expand(done[term.args[0]], term)
        elif term.args and term.op != "expand" and is_elementwise(term):
            first, *others = below = [done[a] for a in term.args]
            if first.op == "expand" and all(x.op == "expand" and x.attributes == first.attributes for x in others):
                inner = apply(term.op, *(x.args[0] for x in below), **dict(term.attributes))
                done[term] = apply("expand", inner, **dict(first.attributes))
    return _narrow_literal(done[constant]) if not variables(constant) else done[constant]


def _reshaped_expand(expanded: Term, reshaped: Term) -> Term:
    """If `reshaped` is a reshape of an `expand` and only adds or drops axes of size 1, return it as an `expand`. Otherwise,
    return it unchanged.
    """
    old, new = ([axis for axis, n in enumerate(term.shape, -term.rank) if n != 1] for term in (expanded, reshaped))
    if [expanded.shape[axis] for axis in old] != [reshaped.shape[axis] for axis in new]:
        return reshaped
    kept = [axis for axis in expanded.integers("axes") if axis in old]
    inner = apply("reshape", expanded.args[0], shape=tuple(expanded.shape[axis] for axis in kept))
    moved = dict(zip(old, new, strict=True))
    return apply("expand", inner, shape=reshaped.shape, axes=tuple(moved[axis] for axis in kept))


@functools.lru_cache(maxsize=1 << 10)
def _narrow_literal(x: Term) -> Term:
    """If the elements of a term without variables are equal along some axes, return the term as an `expand` of a smaller term.

    Otherwise, the term is returned unchanged.
    """
    fixed = all(isinstance(n, int) for n in x.shape)
    if x.op == "expand" or not fixed or not 1 < math.prod(x.sizes) <= MODEL.max_narrowed_elements:
        return x
    value = fold_literal_term(x, np.float64)
    axes = [axis for axis in range(x.rank) if (value != value.take([0], axis)).any()]
    if len(axes) == x.rank:
        return x
    inner = x
    for axis in set(range(x.rank)) - set(axes):
        inner = apply("slice", inner, axis=axis - x.rank, start=0, stop=1)
    inner = apply("reshape", inner, shape=tuple(x.sizes[axis] for axis in axes))
    return apply("expand", inner, shape=x.shape, axes=tuple(axis - x.rank for axis in axes))


def fold_literal_term(term: Term, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the value of a term without variables as an array. A number that is too large for `dtype` becomes infinite."""
    with np.errstate(all="ignore"):
        (value,) = evaluate_terms((term,), {}, lambda _: None, Floats())
        return np.asarray(value, dtype=dtype, order="C")


def uniform_constant_operand(x: Term) -> Term | None:
    """Return a term of rank 0 that equals every element of the term `x`.

    The term `x` must be `ones`, `zeros`, or a multiple (`scale`) of `ones` or `zeros`. For any other term, the result is None.
    """
    scales: list[Term] = []
    while x.op == "scale":
        scales.append(x)
        (x,) = x.args
    if x.op not in ("ones", "zeros"):
        return None
    inner = apply(x.op, shape=())
    for scale in reversed(scales):
        inner = apply(scale.op, inner, **dict(scale.attributes))
    return inner


def tilings(live: Iterable[Term]) -> dict[Term, tuple[Term, ...]]:
    """Find slices that a Split can compute. Return a mapping from each of these slices to the tuple of all slices that the same
    Split computes.

    One Split computes all slices of one operand along one axis, ordered by position. These slices must cover the axis without
    overlap. Any other slice is left out.
    """
    groups: dict[tuple[Term, int], list[Term]] = {}
    for term in live:
        if term.op == "slice":
            groups.setdefault((term.args[0], term.integer("axis")), []).append(term)
    tiled: dict[Term, tuple[Term, ...]] = {}
    for (x, axis), slices in groups.items():
        slices.sort(key=lambda s: s.integer("start"))
        stops = [s.integer("stop") for s in slices]
        if [0, *stops[:-1]] == [s.integer("start") for s in slices] and stops[-1] == x.sizes[axis]:
            tiled.update(dict.fromkeys(slices, tuple(slices)))
    return tiled


def positions(given: npt.NDArray[Any] | Deferred, extent: int) -> npt.NDArray[np.int64]:
    """Return the axis positions in an array as nonnegative integers. `extent` is the extent of the axis.

    Negative positions, which count from the end of the axis, are converted.

    Raises:
        ShapeError: a number in the array is not a position on the axis, or the array's type cannot represent every position.
    """
    array = materialize_initializer(given)
    exact = array.dtype.kind == "i" or extent * np.finfo(array.dtype).eps <= 1
    whole = np.trunc(array)
    if not exact or (whole < -extent).any() or (whole >= extent).any():
        raise ShapeError(f"some indices are not valid positions on an axis of extent {extent}")
    return np.asarray(whole % extent, dtype=np.int64)
