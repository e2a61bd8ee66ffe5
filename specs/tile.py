"""A tensor, repeated `times` times as a whole along an axis (ONNX Tile).

A node that repeats several axes is lifted to one `tile` for each axis. Nested tiles are lowered to one node again.
"""

from __future__ import annotations

from superopt.algebra.index import Axis, Tensor, require, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term

ONNX = "Tile"

AXIOMS = """
    once:            tile(x, axis=k, times=1) == x  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    more:            tile(x, axis=k, times=m + 1) == concat(x, tile(x, axis=k, times=m), axis=k)
                     for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    join:            concat(tile(x, axis=k, times=m), tile(x, axis=k, times=n), axis=k) == tile(x, axis=k, times=m + n)
                     for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    double:          concat(x, x, axis=k) == tile(x, axis=k, times=2)  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    twice:           tile(tile(x, axis=k, times=m), axis=k, times=n) == tile(x, axis=k, times=m * n)
                     for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    exchange:        tile(tile(x, axis=k, times=m), axis=j, times=n) == tile(tile(x, axis=j, times=n), axis=k, times=m)
                     for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    slice-first:     slice(tile(x, axis=k, times=m), axis=k, start=a, stop=b) == slice(x, axis=k, start=a, stop=b)
                     for x[1, 2, 3, 4], k[-1, -2, -3, -4] where b <= x.shape[k]
    slice-other:     slice(tile(x, axis=k, times=m), axis=j, start=a, stop=b)
                     == tile(slice(x, axis=j, start=a, stop=b), axis=k, times=m)
                     for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    concat-other:    tile(concat(x, y, axis=j), axis=k, times=m)
                     == concat(tile(x, axis=k, times=m), tile(y, axis=k, times=m), axis=j)
                     for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    transpose:       tile(transpose(x, perm=(-1, -2)), axis=-1, times=m)
                     == transpose(tile(x, axis=-2, times=m), perm=(-1, -2))  for x[2]
    transpose-rows:  tile(transpose(x, perm=(-1, -2)), axis=-2, times=m)
                     == transpose(tile(x, axis=-1, times=m), perm=(-1, -2))  for x[2]
    row:             tile(reshape(x, shape=(1, x.shape[-1])), axis=-2, times=m) == expand(x, shape=(m, x.shape[-1]), axes=(-1,))
                     for x[1]
    column:          tile(reshape(x, shape=(x.shape[-1], 1)), axis=-1, times=m) == expand(x, shape=(x.shape[-1], m), axes=(-2,))
                     for x[1]
    as-expand:       tile(x, axis=-1, times=m)
                     == reshape(expand(x, shape=(x.shape[-2], m, x.shape[-1]), axes=(-3, -1)),
                                shape=(x.shape[-2], m * x.shape[-1]))
                     for x[2]
    as-expand-rows:  tile(x, axis=-2, times=m)
                     == reshape(expand(x, shape=(m, x.shape[-2], x.shape[-1]), axes=(-2, -1)),
                                shape=(m * x.shape[-2], x.shape[-1]))
                     for x[2]
    sum:             reduce_sum(tile(x, axis=k, times=m), axes=(k,)) == scale(reduce_sum(x, axes=(k,)), factor=m)
                     for x[2, 3, 4], k[-1, -2, -3, -4]
    mean:            reduce_mean(tile(x, axis=k, times=m), axes=(k,)) == reduce_mean(x, axes=(k,))
                     for x[2, 3, 4], k[-1, -2, -3, -4]
    matmul-rows:     tile(x, axis=-2, times=m) @ y == tile(x @ y, axis=-2, times=m)  for x[2, 3, 4], y[2, 3, 4]
    matmul-columns:  x @ tile(y, axis=-1, times=m) == tile(x @ y, axis=-1, times=m)  for x[2, 3, 4], y[2, 3, 4]
    matmul-inner:    tile(x, axis=-1, times=m) @ tile(y, axis=-2, times=m) == scale(x @ y, factor=m)
                     for x[2, 3, 4], y[2, 3, 4]
    conv-batch:      conv(tile(x, axis=-4, times=m), w, strides=s, pads=p, dilations=d, group=g)
                     == tile(conv(x, w, strides=s, pads=p, dilations=d, group=g), axis=-4, times=m)
                     for x[4], w[4], s[2], p[4], d[2]
    conv-outputs:    conv(x, tile(w, axis=-4, times=m), strides=s, pads=p, dilations=d)
                     == tile(conv(x, w, strides=s, pads=p, dilations=d), axis=-3, times=m)
                     for x[4], w[4], s[2], p[4], d[2]
"""


def tile(x: Tensor, *, axis: Axis, times: Extent) -> Tensor:
    require(times >= 1, "tile: at least once")
    axes = range(-x.rank, 0)
    n = x.shape[axis]
    shape = tuple(n * times if a == axis else x.shape[a] for a in axes)
    return tensor(shape, lambda *i: x[tuple(v % n if a == axis else v for a, v in zip(axes, i, strict=True))])


def lift(node: Node) -> Term | None:
    x = node.operand(0)
    for axis, times in enumerate(node.attribute("repeats")):
        x = apply("tile", x, axis=axis, times=times) if times != 1 else x
    return x


def lower(term: Term, emit: Emit) -> str:
    repeats = [1] * term.rank
    while term.op == "tile":
        repeats[term.integer("axis")] *= term.integer("times")
        term = term.args[0]
    return emit("Tile", term, repeats=tuple(repeats))
