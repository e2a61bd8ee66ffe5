"""Recognize convolutions in the elements that a program reads. A convolution reads a window that slides with the output
position.

A sample lists, at chosen output positions, the elements of the data that are read and the factor of each element. A form is an
operator that reads these elements of the data, possibly in a different layout. `superopt.partial.arrange` then computes the
weight of the operator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term
from superopt.partial.layout import Coordinates, Layout, crop_term, flat
from superopt.policy import MUTANT

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """The elements that a program reads at chosen output positions.

    At each position, the program is a sum of products. The factors of a product are a number, an element of the data, and
    optionally an element of a weight.

    Attributes:
        y: The output positions, as one array per axis.
        x: The position of each product's data element, as one array of shape (products, positions) per axis.
        of: The position of each product's weight element in the flattened weights, encoded as in `arrange.Elements`.
        factor: The number in each product, encoded as in `arrange.Elements`.
        seen: A flag for each array entry: whether the entry is a product.
    """

    y: Coordinates
    x: Coordinates
    of: Array
    factor: Array
    seen: Array

    def through(self, before: Layout, after: Layout) -> Sample:
        """Return the sample with data positions converted to the layout `before` and output positions converted to the layout
        `after`.
        """
        return replace(self, x=before.to(self.x), y=after.to(self.y))

    def thinned(self, count: int) -> Sample:
        """Return the sample with only about `count` of the products at each position: the first product, the last product, and
        products chosen at random.
        """
        deep = len(self.seen)
        if deep <= count:
            return self
        kept = np.unique([0, deep - 1, *np.random.default_rng(count).choice(deep, count, replace=False)])
        return Sample(self.y, tuple(c[kept] for c in self.x), self.of[kept], self.factor[kept], self.seen[kept])


class Form(Protocol):
    """An operator with two operands: the data, and a weight. The elements of the weight are not determined yet."""

    @property
    def weight_shape(self) -> tuple[int, ...]: ...

    @property
    def own(self) -> tuple[int, ...]:
        """The output axes along which different positions use different elements of the weight."""

    @property
    def flops(self) -> int: ...

    def places(self, sample: Sample) -> Array:
        """Return the row-major position of the weight element that each product uses, as an array of shape (products,
        positions).

        `sample` holds the products that a program sums at some output positions.
        """

    def term(self, x: Term, weight: Term) -> Term:
        """Return the operator applied to the data `x` and the weight. The result has the output's shape."""

    def said(self) -> str: ...


@dataclass(frozen=True)
class WindowAxis:
    """The stride, padding, dilation and size of a sliding window along one axis. `taps` is the number of positions in the
    window.
    """

    stride: int
    before: int
    after: int
    dilation: int
    taps: int


@dataclass(frozen=True)
class Convolution:
    """A convolution of data of shape `x_shape` (N, C, H, W). The output has the shape `y_shape` (N, F, H, W). If the result of
    the convolution is larger, the result is cut to this shape.
    """

    x_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    group: int
    rows: WindowAxis
    columns: WindowAxis

    own = (1,)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return self.y_shape[1], self.x_shape[1] // self.group, self.rows.taps, self.columns.taps

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.y_shape) * math.prod(self.weight_shape[1:])

    def places(self, sample: Sample) -> Array:
        channel = sample.y[1]
        taps = [
            (sample.x[2 + k] - (axis.stride * sample.y[2 + k] - axis.before)) // axis.dilation
            for k, axis in enumerate((self.rows, self.columns))
        ]
        depth = sample.x[1] - channel // (self.y_shape[1] // self.group) * self.weight_shape[1]
        return flat((np.broadcast_to(channel, depth.shape), depth, *taps), self.weight_shape)

    def term(self, x: Term, weight: Term) -> Term:
        pads = (self.rows.before, self.columns.before, self.rows.after, self.columns.after)
        strides, dilations = (self.rows.stride, self.columns.stride), (self.rows.dilation, self.columns.dilation)
        result = apply("conv", x, weight, strides=strides, pads=pads, dilations=dilations, group=self.group)
        return crop_term(result, self.y_shape)

    def said(self) -> str:
        size = f"{self.rows.taps}x{self.columns.taps}"
        stride = f", stride {self.rows.stride}x{self.columns.stride}" if self.rows.stride * self.columns.stride > 1 else ""
        dilation = f", dilation {self.rows.dilation}x{self.columns.dilation}"
        dilated = dilation if self.rows.dilation * self.columns.dilation > 1 else ""
        return f"convolution {size}{stride}{dilated}{f', {self.group} groups' if self.group > 1 else ''}"


def convolutions(sample: Sample, x_shape: Sequence[int], y_shape: Sequence[int]) -> Iterator[Form]:
    """Yield convolutions that read the same elements as a program: first with as many groups as possible, then with one group.
    `sample` holds the elements that the program reads at some output positions.
    """
    if len(x_shape) != 4 or len(y_shape) != 4 or x_shape[0] != y_shape[0]:
        return
    if (np.where(sample.seen, sample.x[0] - sample.y[0], 0) != 0).any():
        return
    axes = [_sliding(sample, axis, x_shape[axis], y_shape[axis]) for axis in (2, 3)]
    rows, columns = axes
    if rows is None or columns is None:
        return
    for group in _groups(sample, x_shape[1], y_shape[1]):
        yield Convolution(tuple(x_shape), tuple(y_shape), group, rows, columns)


def _groups(sample: Sample, channels: int, features: int) -> Iterator[int]:
    """Yield the numbers of groups to try for a convolution. The last number is 1. A number above 1 may come first. This number
    is the largest number of groups for which each output channel reads only data channels of its own group.
    """
    common = math.gcd(channels, features)
    for group in (g for g in range(common, 1, -1) if common % g == 0):
        if not np.where(sample.seen, sample.x[1] // (channels // group) - sample.y[1] // (features // group), 0).any():
            yield group
            break
    yield 1


def _sliding(sample: Sample, axis: int, extent: int, wanted: int) -> WindowAxis | None:
    """Find a window that slides along an axis and reads the positions in `sample`. Return None if there is no such window.

    `sample` holds the elements that a program reads at some output positions. The end of the axis is padded so that the output
    has the extent `wanted`.
    """
    big = np.iinfo(sample.x[axis].dtype).max
    low = np.where(sample.seen, sample.x[axis], big).min(axis=0)
    live = low != big
    if not live.any():
        return None
    at, low = sample.y[axis][live], low[live]
    one, other = int(at.argmin()), int(at.argmax())
    apart = int(at[other] - at[one])
    stride = round(int(low[other] - low[one]) / apart) if apart else 1
    if stride < 1:
        return None
    offsets = (sample.x[axis] - stride * sample.y[axis])[sample.seen]
    before = max(0, -int(offsets.min()))
    taps = offsets + before
    span = int(taps.max())
    dilation = int(np.gcd.reduce(taps)) or 1
    after = stride * (wanted - 1) + span + 1 - extent - before
    if span >= max(MUTANT.max_window_positions, 1) or after < -span - stride * wanted:
        return None
    return WindowAxis(stride, before, max(0, after), dilation, span // dilation + 1)


def is_consistent(form: Form, sample: Sample) -> bool:
    """Return whether the form, with a suitable weight, sums exactly the products in `sample`. The sample holds the products
    that a program sums at some output positions.

    The result is False if two products need different values of the same weight element, if a product needs an element outside
    the weight, or if the weight would be too large.
    """
    places = form.places(sample)[sample.seen]
    size = math.prod(form.weight_shape)
    if size > MUTANT.max_weight_elements or not len(places) or places.min() < 0 or places.max() >= size:
        return False
    if size > MUTANT.sparse_weight_factor * len(places):
        places = np.unique(places, return_inverse=True)[1]
        size = len(places)
    for wanted in (sample.of[sample.seen], sample.factor[sample.seen].astype(np.float32)):
        last = np.empty(size, dtype=wanted.dtype)
        last[places] = wanted
        if (last[places] != wanted).any():
            return False
    return True
