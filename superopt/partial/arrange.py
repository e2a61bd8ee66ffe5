"""Construct a weight as a term that rearranges the elements of given weights, with zeros in between.

The wanted weight is described by an array of integers. Each integer is the row-major position of an element in the given
weights. The wanted weight is a view of a given weight if each axis has a fixed stride. In a view, each position in the array is
the sum of index times stride over all axes. A view is computed by slices, reshapes and a transpose. Bands of zeros become
padding. A weight that is not a view becomes a concatenation of views.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra.operators import apply, fraction_of
from superopt.algebra.terms import Term
from superopt.partial.layout import flat, reshape_term, transpose_term, unflat
from superopt.policy import MUTANT

Array = npt.NDArray[Any]
NOTHING, NUMBER = -1, -2


@dataclass(frozen=True)
class Elements:
    """The wanted elements of a new weight. Each element is a number times an element of one of the given weights.

    Attributes:
        weights: The given weights.
        of: For each position of the new weight, the position of an element in the given weights, which are flattened and
            concatenated. The entry `NOTHING` means zero. The entry `NUMBER` means that the new element is the number in
            `factor`.
        factor: The number by which the element at each position is multiplied.
    """

    weights: tuple[Term, ...]
    of: Array
    factor: Array


def arrange_weight(wanted: Elements) -> Term | None:
    """Build a term with the elements `wanted` from the given weights. Return None if no such term is found.

    Each nonzero element is the product of an element of a weight and a factor. All nonzero elements must have one common
    factor.
    """
    live = wanted.of != NOTHING
    if not live.any():
        return None
    numbers = np.unique(wanted.factor[live])
    if len(numbers) > 1:
        return None
    term = _Arrangement(wanted.weights).of(wanted.of)
    number = Fraction(float(numbers[0])).limit_denominator(MUTANT.max_weight_denominator)
    if term is None or number == 1:
        return term
    return apply("scale", term, factor=fraction_of(float(number)))


class _Arrangement:
    """Builds new weights from parts of the given weights. `parts` counts the parts that were tried."""

    def __init__(self, weights: Sequence[Term]) -> None:
        self.weights = weights
        self.starts = np.cumsum([0, *(math.prod(w.sizes) for w in weights)])
        self.parts = 0

    def owner(self, wanted: Array) -> Array:
        """Return an array that gives, for each element position in `wanted`, the index of the weight that contains the element.

        `NOTHING` and `NUMBER`, which stand for no position, are returned unchanged.
        """
        return np.where(wanted < 0, wanted, np.searchsorted(self.starts, wanted, side="right") - 1)

    def of(self, wanted: Array) -> Term | None:
        """Return a term whose elements are the elements of the given weights at the positions `wanted`.

        Zeros along the borders become padding. Return None if no term is found, or if more than `MUTANT.max_weight_parts` parts
        would have to be tried.
        """
        live = wanted != NOTHING
        if not live.any():
            return apply("zeros", shape=wanted.shape)
        bounds = [_band(live, axis) for axis in range(wanted.ndim)]
        inner = wanted[tuple(slice(a, b) for a, b in bounds)]
        term = self._whole(inner)
        if term is None or inner.shape == wanted.shape:
            return term
        after = tuple(n - b for n, (_, b) in zip(wanted.shape, bounds, strict=True))
        return apply("pad", term, before=tuple(a for a, _ in bounds), after=after)

    def _whole(self, wanted: Array) -> Term | None:
        """Return a term with the elements `wanted`, or None if no term is found (see `of`). Along each border, some element
        must be nonzero.
        """
        self.parts += 1
        if self.parts > MUTANT.max_weight_parts:
            return None
        owners = self.owner(wanted)
        first = int(owners.flat[0])
        if first != NOTHING and (owners == first).all():
            one = apply("ones", shape=wanted.shape) if first == NUMBER else None
            one = one or view_elements(self.weights[first], wanted - self.starts[first])
            if one is not None:
                return one
        return self._spread(wanted) or self._joined(wanted, owners)

    def _spread(self, wanted: Array) -> Term | None:
        """Return a term with the elements `wanted` if equal gaps of zeros separate these elements along an axis. Otherwise,
        return None.
        """
        for axis in range(wanted.ndim):
            others = tuple(a for a in range(wanted.ndim) if a != axis)
            held = np.flatnonzero((wanted != NOTHING).any(axis=others))
            gaps = np.unique(np.diff(held))
            if len(gaps) == 1 and gaps[0] > 1 and held[0] == 0:
                inner = self.of(np.take(wanted, held, axis=axis))
                return None if inner is None else dilate_axis(inner, axis, int(gaps[0]), wanted.shape[axis])
        return None

    def _joined(self, wanted: Array, owners: Array) -> Term | None:
        """Return a concatenation along an axis that has the elements `wanted`. Return None if no concatenation is found (see
        `of`).

        Two neighbouring slices of the result belong to different parts if their elements come from different given weights. If
        all elements are from the same given weight, a new part begins where the distance between consecutive elements changes.
        """
        for axis in (a for a, n in enumerate(wanted.shape) if n > 1):
            rows = np.moveaxis(owners, axis, 0).reshape(wanted.shape[axis], -1)
            edges = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
            if not len(edges) and (rows == rows[0, 0]).all():
                steps = np.diff(np.moveaxis(wanted, axis, 0).reshape(wanted.shape[axis], -1)[:, 0])
                edges = np.flatnonzero(np.diff(steps, prepend=steps[:1])) + 1
            if not 0 < len(edges) < MUTANT.max_weight_parts:
                continue
            spans = itertools.pairwise([0, *edges.tolist(), wanted.shape[axis]])
            parts = [self.of(wanted[(slice(None),) * axis + (slice(a, b),)]) for a, b in spans]
            if None not in parts:
                return concat_parts([p for p in parts if p is not None], axis - wanted.ndim)
        return None


def _band(live: Array, axis: int) -> tuple[int, int]:
    held = np.flatnonzero(live.any(axis=tuple(a for a in range(live.ndim) if a != axis)))
    return int(held[0]), int(held[-1]) + 1


def concat_parts(parts: list[Term], axis: int) -> Term:
    """Return the concatenation of the parts along `axis`. The axis is counted from the end: -1 is the last axis."""
    result = parts[-1]
    for part in reversed(parts[:-1]):
        result = apply("concat", part, result, axis=axis)
    return result


def dilate_axis(x: Term, axis: int, step: int, extent: int) -> Term:
    """Return `x` with `step` - 1 zeros inserted after each position of an axis. The axis is then cut to the size `extent`."""
    split = (*x.sizes[: axis + 1], 1, *x.sizes[axis + 1 :])
    after = tuple(step - 1 if a == axis + 1 else 0 for a in range(len(split)))
    padded = apply("pad", reshape_term(x, split), before=(0,) * len(split), after=after)
    long = reshape_term(padded, (*x.sizes[:axis], x.sizes[axis] * step, *x.sizes[axis + 1 :]))
    return long if long.sizes[axis] == extent else apply("slice", long, axis=axis - x.rank, start=0, stop=extent)


def view_elements(x: Term, wanted: Array) -> Term | None:
    """Return a view of `x` with the elements at the row-major positions in `wanted`. Return None if there is no such view.

    A view is made by slicing `x`, and by splitting, repeating and reordering the axes of `x`.
    """
    if wanted.size == math.prod(x.sizes) and np.array_equal(wanted.reshape(-1), np.arange(wanted.size)):
        return reshape_term(x, wanted.shape)
    places = unflat(wanted, x.sizes)
    lows = [int(c.min()) for c in places]
    highs = [int(c.max()) + 1 for c in places]
    for axis, (low, high) in enumerate(zip(lows, highs, strict=True)):
        if high - low != x.sizes[axis]:
            x = apply("slice", x, axis=axis - x.rank, start=low, stop=high)
    within = flat(tuple(c - low for c, low in zip(places, lows, strict=True)), x.sizes)
    digits = _digits(within)
    if digits is None:
        return None
    moving = [d for d in digits if d.stride]
    order = sorted(moving, key=lambda d: -d.stride)
    below = [math.prod(d.extent for d in order[k:]) for k in range(len(order) + 1)]
    if below[0] != math.prod(x.sizes) or [d.stride for d in order] != below[1:]:
        return None
    small = transpose_term(reshape_term(x, tuple(d.extent for d in order)), tuple(order.index(d) for d in moving))
    return reshape_term(_repeated(small, digits), wanted.shape)


@dataclass(frozen=True)
class Digit:
    """An axis of a view: `extent` positions with a distance of `stride` elements. A stride of 0 repeats one position."""

    extent: int
    stride: int


def _digits(at: Array) -> list[Digit] | None:
    """Return the extents and strides of a view with the row-major positions `at`. Return None if there is no such view.

    In a view, the first position is 0. Each position is a sum with one summand per axis, and each summand depends only on the
    index along its axis.
    """
    lines = [np.moveaxis(at, axis, 0).reshape(n, -1)[:, 0] for axis, n in enumerate(at.shape)]
    if at.flat[0] or not np.array_equal(at, functools.reduce(np.add, np.ix_(*lines))):
        return None
    found: list[Digit] = []
    for line in lines:
        digits = _digits_of_line(line)
        if digits is None:
            return None
        found.extend(digits)
    return found


def _digits_of_line(line: Array) -> list[Digit] | None:
    if len(line) == 1:
        return []
    stride = int(line[1])
    broken = np.flatnonzero(line != stride * np.arange(len(line)))
    run = int(broken[0]) if len(broken) else len(line)
    while len(line) % run:
        run -= 1
    if run == 1:
        return None
    rows = line.reshape(-1, run)
    if (rows - rows[:, :1] != rows[0]).any():
        return None
    outer = _digits_of_line(rows[:, 0])
    return None if outer is None else [*outer, Digit(run, stride)]


def _repeated(small: Term, digits: list[Digit]) -> Term:
    """Repeat the term `small` along new axes. Each digit is an axis of a view. A digit with stride 0 becomes a new axis of the
    result, and the other digits are the existing axes of the term.
    """
    if all(d.stride for d in digits):
        return small
    axes = tuple(position - len(digits) for position, d in enumerate(digits) if d.stride)
    return apply("expand", small, shape=tuple(d.extent for d in digits), axes=axes)
