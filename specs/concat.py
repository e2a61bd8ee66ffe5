"""Concatenation of two tensors along an axis (ONNX Concat).

More than two operands become nested concatenations: concat(x, concat(y, z)).
"""

from __future__ import annotations

from functools import reduce

from superopt.algebra.index import Axis, Tensor, require, same, select, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

ONNX = "Concat"

AXIOMS = """
    associativity:    concat(concat(x, y, axis=k), z, axis=k) == concat(x, concat(y, z, axis=k), axis=k)
                      for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4], k[-1, -2, -3, -4]
    exchange:         concat(concat(x, y, axis=k), concat(z, w, axis=k), axis=j)
                      == concat(concat(x, z, axis=j), concat(y, w, axis=j), axis=k)
                      for x[2, 3, 4], y[2, 3, 4], z[2, 3, 4], w[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    slice-first:      slice(concat(x, y, axis=k), axis=k, start=0, stop=x.shape[k]) == x
                      for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice-second:     slice(concat(x, y, axis=k), axis=k, start=x.shape[k], stop=x.shape[k] + y.shape[k]) == y
                      for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice-in-first:   slice(concat(x, y, axis=k), axis=k, start=a, stop=b) == slice(x, axis=k, start=a, stop=b)
                      for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4] where b <= x.shape[k]
    slice-in-second:  slice(concat(x, y, axis=k), axis=k, start=a, stop=b)
                      == slice(y, axis=k, start=a - x.shape[k], stop=b - x.shape[k])
                      for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4] where a >= x.shape[k]
    slice-across:     slice(concat(x, y, axis=k), axis=k, start=a, stop=b)
                      == concat(slice(x, axis=k, start=a, stop=x.shape[k]),
                                slice(y, axis=k, start=0, stop=b - x.shape[k]), axis=k)
                      for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4] where a < x.shape[k], b > x.shape[k]
    slice-other:      slice(concat(x, y, axis=k), axis=j, start=a, stop=b)
                      == concat(slice(x, axis=j, start=a, stop=b), slice(y, axis=j, start=a, stop=b), axis=k)
                      for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    join:             concat(slice(x, axis=k, start=a, stop=b), slice(x, axis=k, start=b, stop=c), axis=k)
                      == slice(x, axis=k, start=a, stop=c)
                      for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    transpose:        transpose(concat(x, y, axis=-1), perm=(-1, -2))
                      == concat(transpose(x, perm=(-1, -2)), transpose(y, perm=(-1, -2)), axis=-2)  for x[2], y[2]
    transpose-rows:   transpose(concat(x, y, axis=-2), perm=(-1, -2))
                      == concat(transpose(x, perm=(-1, -2)), transpose(y, perm=(-1, -2)), axis=-1)  for x[2], y[2]
    transpose-3-top:  transpose(concat(x, y, axis=i), perm=(i, j, k))
                      == concat(transpose(x, perm=(i, j, k)), transpose(y, perm=(i, j, k)), axis=-3)
                      for x[3], y[3], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    transpose-3-mid:  transpose(concat(x, y, axis=j), perm=(i, j, k))
                      == concat(transpose(x, perm=(i, j, k)), transpose(y, perm=(i, j, k)), axis=-2)
                      for x[3], y[3], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    transpose-3-last: transpose(concat(x, y, axis=k), perm=(i, j, k))
                      == concat(transpose(x, perm=(i, j, k)), transpose(y, perm=(i, j, k)), axis=-1)
                      for x[3], y[3], i[-1, -2, -3], j[-1, -2, -3], k[-1, -2, -3]
    flatten-inner:    reshape(concat(x, y, axis=-2), shape=(x.shape[-3], (x.shape[-2] + y.shape[-2]) * x.shape[-1]))
                      == concat(reshape(x, shape=(x.shape[-3], x.shape[-2] * x.shape[-1])),
                                reshape(y, shape=(x.shape[-3], y.shape[-2] * x.shape[-1])), axis=-1)
                      for x[3], y[3]
    flatten-outer:    reshape(concat(x, y, axis=-3), shape=((x.shape[-3] + y.shape[-3]) * x.shape[-2], x.shape[-1]))
                      == concat(reshape(x, shape=(x.shape[-3] * x.shape[-2], x.shape[-1])),
                                reshape(y, shape=(y.shape[-3] * x.shape[-2], x.shape[-1])), axis=-2)
                      for x[3], y[3]
    flatten-image:    reshape(concat(x, y, axis=-3),
                              shape=(x.shape[-4], (x.shape[-3] + y.shape[-3]) * x.shape[-2] * x.shape[-1]))
                      == concat(reshape(x, shape=(x.shape[-4], x.shape[-3] * x.shape[-2] * x.shape[-1])),
                                reshape(y, shape=(x.shape[-4], y.shape[-3] * x.shape[-2] * x.shape[-1])), axis=-1)
                      for x[4], y[4]
    row-outer:        reshape(concat(x, y, axis=-3), shape=(x.shape[-3] + y.shape[-3], x.shape[-2], 1, x.shape[-1]))
                      == concat(reshape(x, shape=(x.shape[-3], x.shape[-2], 1, x.shape[-1])),
                                reshape(y, shape=(y.shape[-3], x.shape[-2], 1, x.shape[-1])), axis=-4)
                      for x[3], y[3]
    row-channels:     reshape(concat(x, y, axis=-2), shape=(x.shape[-3], x.shape[-2] + y.shape[-2], 1, x.shape[-1]))
                      == concat(reshape(x, shape=(x.shape[-3], x.shape[-2], 1, x.shape[-1])),
                                reshape(y, shape=(x.shape[-3], y.shape[-2], 1, x.shape[-1])), axis=-3)
                      for x[3], y[3]
    row-dropped-outer: reshape(concat(x, y, axis=-4), shape=(x.shape[-4] + y.shape[-4], x.shape[-3], x.shape[-1]))
                      == concat(reshape(x, shape=(x.shape[-4], x.shape[-3], x.shape[-1])),
                                reshape(y, shape=(y.shape[-4], x.shape[-3], x.shape[-1])), axis=-3)
                      for x[4], y[4] where x.shape[-2] == 1
    row-dropped-channels: reshape(concat(x, y, axis=-3), shape=(x.shape[-4], x.shape[-3] + y.shape[-3], x.shape[-1]))
                      == concat(reshape(x, shape=(x.shape[-4], x.shape[-3], x.shape[-1])),
                                reshape(y, shape=(x.shape[-4], y.shape[-3], x.shape[-1])), axis=-2)
                      for x[4], y[4] where x.shape[-2] == 1
"""


def concat(x: Tensor, y: Tensor, *, axis: Axis) -> Tensor:
    require(x.rank == y.rank, "concat: ranks agree")
    for a in range(-x.rank, 0):
        if a != axis:
            require(same(x.shape[a], y.shape[a]), "concat: the other axes agree")
    n = x.shape[axis]
    shape = tuple(n + y.shape[axis] if a == axis else x.shape[a] for a in range(-x.rank, 0))

    def at(*i):
        shifted = tuple(v - n if a == axis else v for a, v in zip(range(-x.rank, 0), i, strict=True))
        return select(i[axis] < n, x[i], y[shifted])

    return tensor(shape, at)


def lift(node: Node) -> Term | None:
    axis = node.attribute("axis")
    operands = [node.operand(position) for position in range(len(node.inputs))]
    return reduce(lambda rest, x: apply("concat", x, rest, axis=axis), reversed(operands))


def lower(term: Term, emit: Emit) -> str:
    return emit("Concat", *emit.nested(term), axis=term.integer("axis") + term.rank)
