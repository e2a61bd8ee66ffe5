"""Recognize matrix products from the elements that a program reads. Each axis of the data either corresponds to an output axis
or is summed over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term
from superopt.partial.forms import Form, Sample, is_consistent
from superopt.partial.layout import flat, reshape_term, transpose_term

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class MatrixProduct:
    """A matrix product of data and a weight. The data's axes are grouped into batch axes, row axes and inner axes.

    Attributes:
        x_shape: The shape of the data.
        y_shape: The shape of the output.
        batch: The batch axes, as pairs of a data axis and the corresponding output axis.
        rows: The row axes, as pairs of a data axis and the corresponding output axis.
        inner: The data axes that are summed over.
        free: The output axes that come only from the weight.
        left: Whether the data is the left factor.
        heads: Whether the weight also has the batch axes. Otherwise, all batches use the same weight.
    """

    x_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    batch: tuple[tuple[int, int], ...]
    rows: tuple[tuple[int, int], ...]
    inner: tuple[int, ...]
    free: tuple[int, ...]
    left: bool
    heads: bool

    @property
    def own(self) -> tuple[int, ...]:
        return (*(b for _, b in self.batch if self.heads), *self.free)

    @property
    def _extents(self) -> tuple[int, int, int, int]:
        """The extents of the batch, the rows, the inner axis and the columns of the matrix product."""
        batch, rows = (math.prod(self.x_shape[a] for a, _ in pairs) for pairs in (self.batch, self.rows))
        return batch, rows, math.prod(self.x_shape[a] for a in self.inner), math.prod(self.y_shape[b] for b in self.free)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        batch, _, inner, free = self._extents
        matrix = (inner, free) if self.left else (free, inner)
        return (batch, *matrix) if self.heads else matrix

    @property
    def flops(self) -> int:
        return 2 * math.prod(self._extents)

    def places(self, sample: Sample) -> Array:
        inner = flat(tuple(sample.x[a] for a in self.inner), [self.x_shape[a] for a in self.inner])
        free = flat(tuple(sample.y[b] for b in self.free), [self.y_shape[b] for b in self.free])
        batch = flat(tuple(sample.y[b] for _, b in self.batch), [self.y_shape[b] for _, b in self.batch])
        matrix = (inner, free) if self.left else (free, inner)
        at = (batch, *matrix) if self.heads else matrix
        return flat(tuple(np.broadcast_to(c, sample.seen.shape) for c in at), self.weight_shape)

    def term(self, x: Term, weight: Term) -> Term:
        batch, rows, inner, _ = self._extents
        lead = (batch,) if self.batch else ()
        heads, carried = [a for a, _ in self.batch], [a for a, _ in self.rows]
        order = [*heads, *carried, *self.inner] if self.left else [*heads, *self.inner, *carried]
        kept = sorted(order)
        moved = transpose_term(reshape_term(x, tuple(self.x_shape[a] for a in kept)), tuple(kept.index(a) for a in order))
        data = reshape_term(moved, (*lead, rows, inner) if self.left else (*lead, inner, rows))
        result = apply("matmul", data, weight) if self.left else apply("matmul", weight, data)
        of_y = [b for _, b in self.batch]
        matrix = [[b for _, b in self.rows], list(self.free)]
        of_y += [b for axes in (matrix if self.left else reversed(matrix)) for b in axes]
        split = reshape_term(result, tuple(self.y_shape[b] for b in of_y))
        return reshape_term(transpose_term(split, tuple(of_y.index(b) for b in sorted(of_y))), self.y_shape)

    def said(self) -> str:
        kind = "matrix product" if not self.batch else "batched matrix product"
        return kind if self.left else f"{kind} with the data on the right"


def products(sample: Sample, x_shape: Sequence[int], y_shape: Sequence[int]) -> Iterator[Form]:
    """Yield the matrix products that read the same elements as the program: first with the data as the left factor, then with
    the data as the right factor.

    `sample` holds the elements that the program reads at some output positions. Nothing is yielded if no axis is summed over.
    The weight has batch axes only if a common weight for the whole batch contradicts the sample.
    """
    carried = _carried(sample, x_shape, y_shape)
    inner = tuple(a for a, n in enumerate(x_shape) if n > 1 and a not in carried)
    free = tuple(b for b, n in enumerate(y_shape) if n > 1 and b not in carried.values())
    if not inner:
        return
    shapes = tuple(x_shape), tuple(y_shape)
    pairs = tuple(sorted(carried.items()))
    heads = _heads(MatrixProduct(*shapes, (), pairs, inner, free, left=True, heads=False), sample)
    if heads is None:
        return
    rows = tuple(p for p in pairs if p not in heads)
    for left in (True, False):
        yield MatrixProduct(*shapes, heads, rows, inner, free, left, heads=bool(heads))
    ahead = tuple(p for p in pairs if p[0] < min(inner))
    if not heads and ahead and len(ahead) < len(pairs):
        yield MatrixProduct(*shapes, ahead, tuple(p for p in pairs if p not in ahead), inner, free, left=False, heads=False)


def _carried(sample: Sample, x_shape: Sequence[int], y_shape: Sequence[int]) -> dict[int, int]:
    """Return a mapping from data axes to output axes. For each pair of axes, all reads of the sample have equal positions along
    the data axis and the output axis.
    """
    found: dict[int, int] = {}
    for a, n in enumerate(x_shape):
        for b, m in enumerate(y_shape):
            if n == m > 1 and b not in found.values() and not np.where(sample.seen, sample.x[a] - sample.y[b], 0).any():
                found[a] = b
                break
    return found


def _heads(form: MatrixProduct, sample: Sample) -> tuple[tuple[int, int], ...] | None:
    """Return the batch axes of the matrix product as pairs of a data axis and an output axis.

    The weight varies along the batch axes. With these axes, the product must match `sample`, which holds the elements that the
    program reads at some output positions. Three kinds of choices are tried: no axis, each row axis of `form` individually, and
    all row axes together. Return None if no choice matches.
    """
    for some in ((), *((pair,) for pair in form.rows), form.rows):
        others = tuple(p for p in form.rows if p not in some)
        tried = MatrixProduct(form.x_shape, form.y_shape, some, others, form.inner, form.free, form.left, bool(some))
        if is_consistent(tried, sample):
            return some
    return None
