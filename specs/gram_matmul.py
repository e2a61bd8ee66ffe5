"""The Gram matrices of the rows of x (B, N, K), flattened and multiplied by weights. The result has the shape (B, M).

A Gram matrix is symmetric, so only the first of two equal products is multiplied by weights. This saves half of these
multiplications. u is the `gram_kernel` of weights (N * N, M). Elements of u that belong to the second of two equal products are
not read.
"""

from __future__ import annotations

from functools import partial, reduce

import numpy as np

from superopt.algebra.index import Tensor, number, require, same, select, tensor, total
from superopt.algebra.operators import Emit, apply
from superopt.algebra.terms import Term

AXIOMS = """
    algorithm-alone: gram_matmul(x, gram_kernel(w, rows=x.shape[-2]))
                     == reshape(x @ transpose(x, perm=(-3, -1, -2)), shape=(x.shape[-3], x.shape[-2] * x.shape[-2])) @ w
                     for x[3], w[2]
    algorithm-last:  y @ slice(w, axis=-2, start=0, stop=y.shape[-1])
                     + gram_matmul(x, gram_kernel(slice(w, axis=-2, start=y.shape[-1], stop=w.shape[-2]), rows=x.shape[-2]))
                     == concat(y, reshape(x @ transpose(x, perm=(-3, -1, -2)),
                                          shape=(x.shape[-3], x.shape[-2] * x.shape[-2])), axis=-1) @ w
                     for x[3], y[2], w[2]
    algorithm-first: gram_matmul(x, gram_kernel(slice(w, axis=-2, start=0, stop=x.shape[-2] * x.shape[-2]), rows=x.shape[-2]))
                     + y @ slice(w, axis=-2, start=x.shape[-2] * x.shape[-2], stop=w.shape[-2])
                     == concat(reshape(x @ transpose(x, perm=(-3, -1, -2)),
                                       shape=(x.shape[-3], x.shape[-2] * x.shape[-2])), y, axis=-1) @ w
                     for x[3], y[2], w[2]
"""
BANDED, BANDS = 1 << 13, 4
"""The smallest number of products that are computed in bands of rows, and the number of bands. If there are fewer products, a
Gather selects single products.
"""


def gram_matmul(x: Tensor, u: Tensor) -> Tensor:
    require(x.rank == 3 and u.rank == 2, "gram_matmul takes rows of each of a batch, and a matrix")
    batch, n, depth = x.shape
    require(same(u.shape[0], n * n), "gram_matmul: weights for all pairs of rows")
    product = tensor((batch, n, n), lambda b, i, j: total(depth, lambda k: x[b, i, k] * x[b, j, k]))

    def at(b, m):
        def pair(i, j):
            return select(j >= i, product[b, i, j] * u[i * n + j, m], number(0))

        return total(n, lambda i: total(n, lambda j: pair(i, j)))

    return tensor((batch, u.shape[1]), at)


def rounding(**_: object) -> float:
    """Return 1: the rounding error is not larger than the rounding error with the whole Gram matrix."""
    return 1.0


def lower(term: Term, emit: Emit) -> str:
    x, u = term.args
    batch, n, _ = x.sizes
    height = 1 if batch * n * n < BANDED else -(-n // BANDS)
    bands = [(first, min(first + height, n)) for first in range(0, n, height)]
    if height == 1:
        kept = np.flatnonzero(np.triu(np.ones((n, n), dtype=np.bool_)))
        product = emit("MatMul", x, apply("transpose", x, perm=(-3, -1, -2)))
        products = emit("Gather", emit("Reshape", product, shape=(batch, n * n)), kept, axis=1)
    else:
        products = emit("Concat", *(_band(x, *band, emit) for band in bands), axis=1)
    return emit("MatMul", products, reduce(partial(apply, "concat", axis=-2), (_weights(u, n, *band) for band in bands)))


def _band(x: Term, first: int, last: int, emit: Emit) -> str:
    """Multiply the rows from `first` to `last - 1` by all rows from `first` on, and return the flattened products."""
    batch, n, _ = x.sizes
    rest = apply("slice", x, axis=-2, start=first, stop=n) if first else x
    rows = apply("slice", x, axis=-2, start=first, stop=last)
    product = emit("MatMul", rows, apply("transpose", rest, perm=(-3, -1, -2)))
    return emit("Reshape", product, shape=(batch, (last - first) * (n - first)))


def _weights(u: Term, n: int, first: int, last: int) -> Term:
    """Return the weights in u for the products of a band.

    A product that also occurs in an earlier row gets the weight 0.
    """
    height = last - first
    rows = apply("slice", u, axis=-2, start=first * n, stop=last * n)
    stacked = apply("transpose", apply("reshape", rows, shape=(height, n, u.sizes[1])), perm=(-1, -3, -2))
    right = apply("upper_triangle", apply("slice", stacked, axis=-1, start=first, stop=n), offset=0)
    return apply("reshape", apply("transpose", right, perm=(-2, -1, -3)), shape=(height * (n - first), u.sizes[1]))
