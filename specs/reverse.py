"""x in the opposite order along an axis (ONNX Slice with step -1). `slice` lifts and lowers the nodes."""

from __future__ import annotations

from superopt.algebra.index import Axis, Tensor, tensor
from superopt.algebra.operators import Emit, operator
from superopt.algebra.terms import Term

AXIOMS = """
    twice:           reverse(reverse(x, axis=k), axis=k) == x  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    exchange:        reverse(reverse(x, axis=k), axis=j) == reverse(reverse(x, axis=j), axis=k)
                     for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    slice:           slice(reverse(x, axis=k), axis=k, start=a, stop=b)
                     == reverse(slice(x, axis=k, start=x.shape[k] - b, stop=x.shape[k] - a), axis=k)
                     for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice-other:     slice(reverse(x, axis=k), axis=j, start=a, stop=b) == reverse(slice(x, axis=j, start=a, stop=b), axis=k)
                     for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    stride-other:    stride(reverse(x, axis=k), axis=j, step=s) == reverse(stride(x, axis=j, step=s), axis=k)
                     for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    concat:          reverse(concat(x, y, axis=k), axis=k) == concat(reverse(y, axis=k), reverse(x, axis=k), axis=k)
                     for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    concat-other:    reverse(concat(x, y, axis=j), axis=k) == concat(reverse(x, axis=k), reverse(y, axis=k), axis=j)
                     for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    transpose:       reverse(transpose(x, perm=(-1, -2)), axis=-1) == transpose(reverse(x, axis=-2), perm=(-1, -2))  for x[2]
    transpose-rows:  reverse(transpose(x, perm=(-1, -2)), axis=-2) == transpose(reverse(x, axis=-1), perm=(-1, -2))  for x[2]
    expand-channel:  reverse(expand(t, shape=s, axes=(-3,)), axis=k) == expand(t, shape=s, axes=(-3,))
                     for t[1], s[4], k[-1, -2, -4]
    unit:            reverse(x, axis=k) == x  for x[1, 2, 3, 4], k[-1, -2, -3, -4] where x.shape[k] == 1
    sum:             reduce_sum(reverse(x, axis=k), axes=(k,)) == reduce_sum(x, axes=(k,))  for x[2, 3, 4], k[-1, -2, -3, -4]
    mean:            reduce_mean(reverse(x, axis=k), axes=(k,)) == reduce_mean(x, axes=(k,))  for x[2, 3, 4], k[-1, -2, -3, -4]
    matmul-rows:     reverse(x @ y, axis=-2) == reverse(x, axis=-2) @ y  for x[2, 3, 4], y[2, 3, 4]
    matmul-columns:  reverse(x @ y, axis=-1) == x @ reverse(y, axis=-1)  for x[2, 3, 4], y[2, 3, 4]
    matmul-inner:    reverse(x, axis=-1) @ reverse(y, axis=-2) == x @ y  for x[2, 3, 4], y[2, 3, 4]
    conv-batch:      reverse(conv(x, w, strides=s, pads=p, dilations=d, group=g), axis=-4)
                     == conv(reverse(x, axis=-4), w, strides=s, pads=p, dilations=d, group=g)
                     for x[4], w[4], s[2], p[4], d[2]
    conv-outputs:    reverse(conv(x, w, strides=s, pads=p, dilations=d), axis=-3)
                     == conv(x, reverse(w, axis=-4), strides=s, pads=p, dilations=d)
                     for x[4], w[4], s[2], p[4], d[2]
    conv-inputs:     conv(reverse(x, axis=-3), reverse(w, axis=-3), strides=s, pads=p, dilations=d)
                     == conv(x, w, strides=s, pads=p, dilations=d)
                     for x[4], w[4], s[2], p[4], d[2]
    conv-rows:       reverse(conv(x, w, strides=(1, s), pads=p, dilations=d, group=g), axis=-2)
                     == conv(reverse(x, axis=-2), reverse(w, axis=-2), strides=(1, s), pads=(p2, p1, p0, p3), dilations=d,
                             group=g)
                     for x[4], w[4], p[4], d[2]
    conv-columns:    reverse(conv(x, w, strides=(s, 1), pads=p, dilations=d, group=g), axis=-1)
                     == conv(reverse(x, axis=-1), reverse(w, axis=-1), strides=(s, 1), pads=(p0, p3, p2, p1), dilations=d,
                             group=g)
                     for x[4], w[4], p[4], d[2]
"""


def reverse(x: Tensor, *, axis: Axis) -> Tensor:
    axes = range(-x.rank, 0)
    last = x.shape[axis] - 1
    return tensor(x.shape, lambda *i: x[tuple(last - v if a == axis else v for a, v in zip(axes, i, strict=True))])


def lower(term: Term, emit: Emit) -> str:
    cut = operator("slice").lower
    assert cut is not None
    return cut(term, emit)
