"""The elements of each matrix on and below the diagonal `offset`, and zeros elsewhere (ONNX Trilu with upper=0).

Diagonal 0 begins at the first element. If `offset` is positive, the diagonal is further right.
"""

from __future__ import annotations

import numpy as np

from superopt.algebra.index import Tensor, number, require, select, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term

ONNX = "Trilu"

AXIOMS = """
    add:          lower_triangle(x + y, offset=k) == lower_triangle(x, offset=k) + lower_triangle(y, offset=k)
                  for x[2, 3, 4], y[2, 3, 4]
    scale:        lower_triangle(scale(x, factor=a), offset=k) == scale(lower_triangle(x, offset=k), factor=a)  for x[2, 3, 4]
    mul:          lower_triangle(x * y, offset=k) == lower_triangle(x, offset=k) * y  for x[2, 3, 4], y[2, 3, 4]
    relu:         lower_triangle(relu(x), offset=k) == relu(lower_triangle(x, offset=k))  for x[2, 3, 4]
    as-mask:      lower_triangle(x, offset=k) == x * lower_triangle(ones(shape=x.shape), offset=k)  for x[2, 3, 4]
    mask-3:       lower_triangle(ones(shape=s), offset=k)
                  == expand(lower_triangle(ones(shape=(s1, s2)), offset=k), shape=s, axes=(-2, -1))
                  for s[3]
    mask-4:       lower_triangle(ones(shape=s), offset=k)
                  == expand(lower_triangle(ones(shape=(s2, s3)), offset=k), shape=s, axes=(-2, -1))
                  for s[4]
    rows:         slice(lower_triangle(x, offset=k), axis=-2, start=a, stop=b)
                  == lower_triangle(slice(x, axis=-2, start=a, stop=b), offset=k + a)
                  for x[2, 3, 4]
    columns:      slice(lower_triangle(x, offset=k), axis=-1, start=a, stop=b)
                  == lower_triangle(slice(x, axis=-1, start=a, stop=b), offset=k - a)
                  for x[2, 3, 4]
    slice:        slice(lower_triangle(x, offset=k), axis=j, start=a, stop=b)
                  == lower_triangle(slice(x, axis=j, start=a, stop=b), offset=k)
                  for x[3, 4], j[-3, -4]
    concat:       lower_triangle(concat(x, y, axis=j), offset=k)
                  == concat(lower_triangle(x, offset=k), lower_triangle(y, offset=k), axis=j)
                  for x[3, 4], y[3, 4], j[-3, -4]
    transpose:    transpose(lower_triangle(x, offset=k), perm=(-1, -2))
                  == upper_triangle(transpose(x, perm=(-1, -2)), offset=-k)
                  for x[2]
    whole:        lower_triangle(x, offset=k) + upper_triangle(x, offset=k + 1) == x  for x[2, 3, 4]
    beyond:       lower_triangle(x, offset=k) == x  for x[2, 3, 4] where k >= x.shape[-1] - 1
"""


def lower_triangle(x: Tensor, *, offset: Extent) -> Tensor:
    require(x.rank >= 2, "lower_triangle takes matrices, or tensors of them")

    def at(*position):
        *_, i, j = position
        return select(j - i <= offset, x[position], number(0))

    return tensor(x.shape, at)


def lift(node: Node) -> Term | None:
    offset = 0 if node.absent(1) else node.attribute("k")
    return apply("lower_triangle", node.operand(0), offset=offset) if node.attribute("upper", 1) == 0 else None


def lower(term: Term, emit: Emit) -> str:
    x, offset = term.args[0], term.integer("offset")
    if emit.opset >= 14:
        return emit("Trilu", x, k=offset, upper=0)
    kept = np.tril(np.ones(x.sizes[-2:], dtype=np.bool_), offset)
    return emit("Where", kept, x, 0.0)
