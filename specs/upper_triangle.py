"""The elements of each matrix on and above the diagonal `offset`, and zeros elsewhere (ONNX Trilu with upper=1).

Diagonal 0 begins at the first element. If `offset` is positive, the diagonal is further right.
"""

from __future__ import annotations

import numpy as np

from superopt.algebra.index import Tensor, number, require, select, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term

ONNX = "Trilu"

AXIOMS = """
    add:          upper_triangle(x + y, offset=k) == upper_triangle(x, offset=k) + upper_triangle(y, offset=k)
                  for x[2, 3, 4], y[2, 3, 4]
    scale:        upper_triangle(scale(x, factor=a), offset=k) == scale(upper_triangle(x, offset=k), factor=a)  for x[2, 3, 4]
    mul:          upper_triangle(x * y, offset=k) == upper_triangle(x, offset=k) * y  for x[2, 3, 4], y[2, 3, 4]
    relu:         upper_triangle(relu(x), offset=k) == relu(upper_triangle(x, offset=k))  for x[2, 3, 4]
    as-mask:      upper_triangle(x, offset=k) == x * upper_triangle(ones(shape=x.shape), offset=k)  for x[2, 3, 4]
    mask-3:       upper_triangle(ones(shape=s), offset=k)
                  == expand(upper_triangle(ones(shape=(s1, s2)), offset=k), shape=s, axes=(-2, -1))
                  for s[3]
    mask-4:       upper_triangle(ones(shape=s), offset=k)
                  == expand(upper_triangle(ones(shape=(s2, s3)), offset=k), shape=s, axes=(-2, -1))
                  for s[4]
    rows:         slice(upper_triangle(x, offset=k), axis=-2, start=a, stop=b)
                  == upper_triangle(slice(x, axis=-2, start=a, stop=b), offset=k + a)
                  for x[2, 3, 4]
    columns:      slice(upper_triangle(x, offset=k), axis=-1, start=a, stop=b)
                  == upper_triangle(slice(x, axis=-1, start=a, stop=b), offset=k - a)
                  for x[2, 3, 4]
    slice:        slice(upper_triangle(x, offset=k), axis=j, start=a, stop=b)
                  == upper_triangle(slice(x, axis=j, start=a, stop=b), offset=k)
                  for x[3, 4], j[-3, -4]
    concat:       upper_triangle(concat(x, y, axis=j), offset=k)
                  == concat(upper_triangle(x, offset=k), upper_triangle(y, offset=k), axis=j)
                  for x[3, 4], y[3, 4], j[-3, -4]
    transpose:    transpose(upper_triangle(x, offset=k), perm=(-1, -2))
                  == lower_triangle(transpose(x, perm=(-1, -2)), offset=-k)
                  for x[2]
    beyond:       upper_triangle(x, offset=k) == x  for x[2, 3, 4] where k <= 1 - x.shape[-2]
"""


def upper_triangle(x: Tensor, *, offset: Extent) -> Tensor:
    require(x.rank >= 2, "upper_triangle takes matrices, or tensors of them")

    def at(*position):
        *_, i, j = position
        return select(j - i >= offset, x[position], number(0))

    return tensor(x.shape, at)


def lift(node: Node) -> Term | None:
    offset = 0 if node.absent(1) else node.attribute("k")
    return apply("upper_triangle", node.operand(0), offset=offset) if node.attribute("upper", 1) == 1 else None


def lower(term: Term, emit: Emit) -> str:
    x, offset = term.args[0], term.integer("offset")
    if emit.opset >= 14:
        return emit("Trilu", x, k=offset, upper=1)
    kept = np.triu(np.ones(x.sizes[-2:], dtype=np.bool_), offset)
    return emit("Where", kept, x, 0.0)
