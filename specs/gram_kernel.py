"""The weights (N * N, M) of flattened Gram matrices, in the form that `gram_matmul` reads. N is `rows`.

The product of rows i and j occurs twice in a Gram matrix. The first occurrence gets the sum of both weights, and the second
occurrence gets the weight 0.
"""

from __future__ import annotations

import numpy as np

from superopt.algebra.index import Tensor, number, require, same, select, tensor
from superopt.algebra.operators import Emit, apply
from superopt.algebra.terms import Extent, Term


def gram_kernel(w: Tensor, *, rows: Extent) -> Tensor:
    require(w.rank == 2, "gram_kernel takes a matrix")
    require(rows >= 1, "gram_kernel: there are rows")
    require(same(w.shape[0], rows * rows), "gram_kernel: weights for all pairs of rows")

    def at(p, m):
        i, j = p // rows, p % rows
        both = w[p, m] + select(same(i, j), number(0), w[j * rows + i, m])
        return select(j >= i, both, number(0))

    return tensor(w.shape, at)


def lower(term: Term, emit: Emit) -> str:
    rows, (w,) = term.integer("rows"), term.args
    shape = (rows, rows, w.sizes[1])
    stacked = apply("reshape", w, shape=shape)
    turned = emit("Where", np.eye(rows, dtype=np.bool_)[..., None], 0.0, emit("Transpose", stacked, perm=(1, 0, 2)))
    first = np.triu(np.ones((rows, rows), dtype=np.bool_))[..., None]
    return emit("Reshape", emit("Where", first, emit("Add", stacked, turned), 0.0), shape=w.sizes)
