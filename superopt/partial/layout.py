"""Layouts: regroupings of a tensor's axes.

A layout is a sequence of steps. Each step moves a factor of one axis into a different axis, exchanges two axes, or adds zeros
at the end of an axis. The steps determine the resulting shape and the new position of each element. The steps also determine a
term of reshapes, transposes and pads that computes the layout. The inverse steps in reverse order undo the layout.
"""

# ruff: noqa: ARG002 (the methods are those of every step)

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term
from superopt.errors import ShapeError

Array = npt.NDArray[Any]
Coordinates: TypeAlias = "tuple[Array, ...]"


@dataclass(frozen=True)
class Fold:
    """A layout step that moves a factor `size` of the axis `source` into the axis `target`.

    Attributes:
        source: The axis that loses the factor.
        target: The axis that gains the factor.
        size: The factor.
        from_inner: Whether the factor varies fastest in the source. If so, the factor's index is the index along the source
            modulo `size`. If not, the source is divided into `size` blocks of consecutive positions, and the factor's index is
            the number of the block.
        to_inner: Whether the factor varies fastest in the target. If not, the factor varies slowest.
    """

    source: int
    target: int
    size: int
    from_inner: bool
    to_inner: bool

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape after the step.

        Raises:
            ShapeError: The factor does not divide the axis.
        """
        if shape[self.source] % self.size:
            raise ShapeError(f"the factor {self.size} does not divide the extent {shape[self.source]} of axis {self.source}")
        moved = {self.source: shape[self.source] // self.size, self.target: shape[self.target] * self.size}
        return tuple(moved.get(axis, n) for axis, n in enumerate(shape))

    def to(self, at: Coordinates, shape: Sequence[int]) -> Coordinates:
        """Return the new positions of elements that are at the positions `at` before the step. `shape` is the shape before the
        step.
        """
        source, target = at[self.source], at[self.target]
        rest = shape[self.source] // self.size
        digit, kept = (source % self.size, source // self.size) if self.from_inner else (source // rest, source % rest)
        joined = target * self.size + digit if self.to_inner else digit * shape[self.target] + target
        moved = {self.source: kept, self.target: joined}
        return tuple(moved.get(axis, c) for axis, c in enumerate(at))

    def back(self, at: Coordinates, shape: Sequence[int]) -> Coordinates:
        """Return the old positions of elements that are at the positions `at` after the step. `shape` is the shape before the
        step.
        """
        return self.inverse().to(at, self.shape(shape))

    def inverse(self) -> Fold:
        return Fold(self.target, self.source, self.size, self.to_inner, self.from_inner)

    def said(self, names: Sequence[str]) -> str:
        how = "every" if self.from_inner else "runs of"
        where = "interleaved with" if self.to_inner else "along"
        part = f"{how} {self.size} of" if self.from_inner else f"{self.size} parts of"
        return f"{part} {names[self.source]} {where} {names[self.target]}"


@dataclass(frozen=True)
class Exchange:
    """A layout step that exchanges two axes."""

    one: int
    other: int

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape after the step."""
        return tuple(shape[a] for a in self.order(len(shape)))

    def order(self, rank: int) -> list[int]:
        """Return the index of the original axis for each axis of the result."""
        moved = {self.one: self.other, self.other: self.one}
        return [moved.get(axis, axis) for axis in range(rank)]

    def to(self, at: Coordinates, shape: Sequence[int]) -> Coordinates:
        """Return the new positions of elements that are at the positions `at` before the step. `shape` is the shape before the
        step.
        """
        return tuple(at[a] for a in self.order(len(shape)))

    def back(self, at: Coordinates, shape: Sequence[int]) -> Coordinates:
        """Return the old positions of elements that are at the positions `at` after the step."""
        return self.to(at, shape)

    def said(self, names: Sequence[str]) -> str:
        return f"{names[self.one]} and {names[self.other]} exchanged"


@dataclass(frozen=True)
class Grow:
    """A layout step that pads an axis with zeros at its end, up to the next multiple of a number."""

    axis: int
    multiple: int

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape after the step."""
        return tuple(-(-n // self.multiple) * self.multiple if axis == self.axis else n for axis, n in enumerate(shape))

    def to(self, at: Coordinates, shape: Sequence[int]) -> Coordinates:
        """Return the unchanged positions. Zeros are added only after the last element, so no position changes."""
        return at

    back = to

    def said(self, names: Sequence[str]) -> str:
        return f"{names[self.axis]} padded to a multiple of {self.multiple}"


Step: TypeAlias = "Fold | Exchange | Grow"


@dataclass(frozen=True)
class Layout:
    """A regrouping of the axes of a tensor of shape `before`, as a sequence of steps: `Fold`, `Exchange` and `Grow`."""

    before: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def after(self) -> tuple[int, ...]:
        """The shape of a tensor in this layout.

        Raises:
            ShapeError: A step cannot be applied to the shape that the earlier steps produce.
        """
        return self.shapes()[-1]

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shape before each step, and finally the resulting shape."""
        found = [self.before]
        for step in self.steps:
            found.append(step.shape(found[-1]))
        return found

    def to(self, at: Coordinates) -> Coordinates:
        """Convert positions in the original tensor to positions in this layout. The array `at[a]` contains the indices along
        axis a.
        """
        for step, shape in zip(self.steps, self.shapes(), strict=False):
            at = step.to(at, shape)
        return at

    def back(self, at: Coordinates) -> Coordinates:
        """Convert positions in this layout to positions in the original tensor. The array `at[a]` contains the indices along
        axis a.

        A layout may add zeros to an axis. For an added zero, the result is a position past the end of an original axis.
        """
        for step, shape in reversed([*zip(self.steps, self.shapes(), strict=False)]):
            at = step.back(at, shape)
        return at

    def term(self, x: Term) -> Term:
        """Return the tensor `x` in this layout.

        Consecutive folds and exchanges become at most one reshape, one transpose and one reshape.
        """
        digits = Digits(x.sizes)
        for step in self.steps:
            if isinstance(step, Grow):
                x = digits.regrouped(x)
                after = [n - old for n, old in zip(step.shape(x.sizes), x.sizes, strict=True)]
                x = apply("pad", x, before=(0,) * x.rank, after=tuple(after)) if any(after) else x
                digits = Digits(x.sizes)
            else:
                digits.move(step)
        return digits.regrouped(x)

    def undone(self, y: Term) -> Term:
        """Convert the tensor `y` from this layout to the original layout. Added zeros are cut off."""
        digits = Digits(y.sizes)
        for step, shape in reversed([*zip(self.steps, self.shapes(), strict=False)]):
            if isinstance(step, Grow):
                y = crop_term(digits.regrouped(y), shape)
                digits = Digits(y.sizes)
            else:
                digits.move(step.inverse() if isinstance(step, Fold) else step)
        return digits.regrouped(y)


@dataclass
class Digits:
    """The digits (factors of the axes) of a tensor, and the order of the digits. Layout steps split axes into digits and
    reorder the digits.

    Attributes:
        shape: The original shape.
        extents: The extent of each digit.
        source: The digits of each original axis.
        target: The digits of each current axis.
    """

    shape: tuple[int, ...]
    extents: list[int] = field(default_factory=list)
    source: list[list[int]] = field(default_factory=list)
    target: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.extents = list(self.shape)
        self.source = [[axis] for axis in range(len(self.shape))]
        self.target = [[axis] for axis in range(len(self.shape))]

    def move(self, step: Fold | Exchange) -> None:
        """Reorder the digits, which are factors of axes, as the layout step does.

        Raises:
            ShapeError: The factor of a fold cannot be split off the digits of its axis.
        """
        if isinstance(step, Exchange):
            self.target = [self.target[a] for a in step.order(len(self.target))]
            return
        taken = self._taken(step.source, step.size, step.from_inner)
        goal = self.target[step.target]
        self.target[step.target] = [*goal, *taken] if step.to_inner else [*taken, *goal]

    def _taken(self, axis: int, size: int, inner: bool) -> list[int]:
        """Remove digits (factors of an axis) with a total extent of `size` from an axis, and return these digits.

        The digits are removed from the end of the axis if `inner` is True, otherwise from the beginning.
        """
        taken: list[int] = []
        while size > 1:
            digit = self.target[axis][-1 if inner else 0]
            extent = self.extents[digit]
            if size % extent:
                digit = self._split(digit, size, inner)
            size //= self.extents[digit]
            self.target[axis].remove(digit)
            taken = [digit, *taken] if inner else [*taken, digit]
        return taken

    def _split(self, digit: int, size: int, inner: bool) -> int:
        """Split a digit (a factor of an axis) in two, and return the part with extent `size`.

        If `inner` is True, the returned part is the fast part, whose index varies fastest along the axis. Otherwise, the slow
        part is returned.
        """
        extent = self.extents[digit]
        if extent % size:
            raise ShapeError(f"the factor {size} does not divide {extent}, the extent of a part of an axis")
        new = len(self.extents)
        self.extents.append(size if inner else extent // size)
        self.extents[digit] = extent // size if inner else size
        for axes in (self.source, self.target):
            for axis in axes:
                if digit in axis:
                    axis.insert(axis.index(digit) + 1, new)
        return new if inner else digit

    def regrouped(self, x: Term) -> Term:
        """Return the tensor with the digits (factors of its axes) in their current order."""
        order = [d for axis in self.source for d in axis if self.extents[d] > 1]
        wanted = [d for axis in self.target for d in axis if self.extents[d] > 1]
        shape = tuple(math.prod(self.extents[d] for d in axis) for axis in self.target)
        if order == wanted:
            return reshape_term(x, shape)
        return self._transposed(x, *_together(order, wanted), shape)

    def _transposed(self, x: Term, order: list[tuple[int, ...]], wanted: list[tuple[int, ...]], shape: tuple[int, ...]) -> Term:
        extents = [math.prod(self.extents[d] for d in run) for run in order]
        perm = tuple(order.index(run) for run in wanted)
        return reshape_term(transpose_term(reshape_term(x, tuple(extents)), perm), shape)


def _together(order: Sequence[int], wanted: Sequence[int]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Merge digits (factors of axes) that are adjacent in both orders. Return the merged digits in both orders."""
    follows = dict(itertools.pairwise(wanted))
    runs: list[tuple[int, ...]] = []
    for digit in order:
        if runs and follows.get(runs[-1][-1]) == digit:
            runs[-1] = (*runs[-1], digit)
        else:
            runs.append((digit,))
    first = {run[0]: run for run in runs}
    return [*runs], [first[d] for d in wanted if d in first]


def reshape_term(x: Term, shape: tuple[int, ...]) -> Term:
    """Return `x` reshaped to `shape`. The row-major order of the elements is kept. Nested reshapes are merged."""
    while x.op == "reshape":
        x = x.args[0]
    return x if x.shape == shape else apply("reshape", x, shape=shape)


def transpose_term(x: Term, perm: tuple[int, ...]) -> Term:
    """Return `x` with its axes permuted: axis i of the result is axis perm[i] of `x`, counted from the front.

    Nested transposes are merged. A transpose that only moves axes of size 1 becomes a reshape. A transpose that moves nothing
    is dropped.
    """
    if x.op == "transpose":
        inner = x.integers("perm")
        x, perm = x.args[0], tuple(inner[p] % x.rank for p in perm)
    if perm == tuple(range(x.rank)):
        return x
    kept = [a for a in perm if x.sizes[a] > 1]
    if kept == sorted(kept):
        return reshape_term(x, tuple(x.sizes[a] for a in perm))
    return apply("transpose", x, perm=tuple(p - x.rank for p in perm))


def crop_term(x: Term, shape: Sequence[int]) -> Term:
    """Return the first shape[i] positions along every axis i of `x`."""
    for axis, n in enumerate(shape):
        if x.sizes[axis] != n:
            x = apply("slice", x, axis=axis - x.rank, start=0, stop=n)
    return x


def flat(at: Coordinates, shape: Sequence[int]) -> Array:
    """Return the row-major positions of the coordinates `at` in a tensor of this shape."""
    found: Array = np.zeros(1, dtype=np.int64)
    for c, n in zip(at, shape, strict=True):
        found = found * n + c
    return found


def unflat(at: Array, shape: Sequence[int]) -> Coordinates:
    """Convert row-major positions in a tensor of this shape to coordinates. The result has one array of indices per axis."""
    found: list[Array] = []
    for n in reversed(shape):
        found.append(at % n)
        at = at // n
    return tuple(reversed(found))
