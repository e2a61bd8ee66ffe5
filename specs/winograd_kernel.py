"""The weights (F, C, KH, KW) of a convolution in the form that `winograd` reads, for the products of Toom-Cook's algorithm.

The result is (PH, PW, F, C), where PH = tile[0] + KH - 1 and PW = tile[1] + KW - 1 are the numbers of products along the axes.
"""

from __future__ import annotations

import math

import numpy as np

from superopt.algebra.bilinear import ToomCook
from superopt.algebra.index import Extents, Tensor, entry, require, tensor, total
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Term

EXACT = "quotient"


def winograd_kernel(w: Tensor, *, tile: Extents) -> Tensor:
    require(w.rank == 4 and len(tile) == 2, "winograd_kernel takes a kernel of rank 4, and the extents of a tile")
    for extent in tile:
        require(extent >= 1, "winograd_kernel: a tile is not empty")
    f, c, rows, columns = w.shape
    down, across = ToomCook(tile[0], rows), ToomCook(tile[1], columns)

    def at(u, v, o, k):
        def tap(i, j):
            return entry(down.kernel, u, i) * (entry(across.kernel, v, j) * w[o, k, i, j])

        return total(rows, lambda i: total(columns, lambda j: tap(i, j)))

    return tensor((down.products, across.products, f, c), at)


def lower(term: Term, emit: Emit) -> str:
    f, c, *taps = term.args[0].sizes
    down, across = (
        np.array(ToomCook(m, r).kernel(), dtype=np.float64) for m, r in zip(term.integers("tile"), taps, strict=True)
    )
    taps_last = emit("Reshape", *term.args, shape=(f * c, math.prod(taps)))
    products = emit("MatMul", np.kron(down, across), emit("Transpose", taps_last, perm=(1, 0)))
    return emit("Reshape", products, shape=term.sizes)
