"""Every `step`-th position of an axis, from the first position on (ONNX Slice with a step).

`slice` lifts and lowers the nodes.
"""

from __future__ import annotations

from superopt.algebra.index import Axis, Tensor, require, tensor
from superopt.algebra.operators import Emit, operator
from superopt.algebra.terms import Extent, Term

AXIOMS = """
    one:             stride(x, axis=k, step=1) == x  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    twice:           stride(stride(x, axis=k, step=a), axis=k, step=b) == stride(x, axis=k, step=a * b)
                     for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    exchange:        stride(stride(x, axis=k, step=a), axis=j, step=b) == stride(stride(x, axis=j, step=b), axis=k, step=a)
                     for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    slice-inside:    slice(stride(x, axis=k, step=s), axis=k, start=a, stop=b)
                     == stride(slice(x, axis=k, start=s * a, stop=s * (b - 1) + 1), axis=k, step=s)
                     for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice-other:     slice(stride(x, axis=k, step=s), axis=j, start=a, stop=b)
                     == stride(slice(x, axis=j, start=a, stop=b), axis=k, step=s)
                     for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    concat-other:    stride(concat(x, y, axis=j), axis=k, step=s)
                     == concat(stride(x, axis=k, step=s), stride(y, axis=k, step=s), axis=j)
                     for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    concat-whole:    stride(concat(x, y, axis=k), axis=k, step=s)
                     == concat(stride(x, axis=k, step=s), stride(y, axis=k, step=s), axis=k)
                     for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4] where x.shape[k] % s == 0
    transpose:       stride(transpose(x, perm=(-1, -2)), axis=-1, step=s)
                     == transpose(stride(x, axis=-2, step=s), perm=(-1, -2))  for x[2]
    transpose-rows:  stride(transpose(x, perm=(-1, -2)), axis=-2, step=s)
                     == transpose(stride(x, axis=-1, step=s), perm=(-1, -2))  for x[2]
    expand-channel:  stride(expand(t, shape=z, axes=(-3,)), axis=k, step=s)
                     == expand(t, shape=stride(expand(t, shape=z, axes=(-3,)), axis=k, step=s).shape, axes=(-3,))
                     for t[1], z[4], k[-1, -2, -4]
    matmul-rows:     stride(x @ y, axis=-2, step=s) == stride(x, axis=-2, step=s) @ y  for x[2, 3, 4], y[2, 3, 4]
    matmul-columns:  stride(x @ y, axis=-1, step=s) == x @ stride(y, axis=-1, step=s)  for x[2, 3, 4], y[2, 3, 4]
    conv-batch:      stride(conv(x, w, strides=s, pads=p, dilations=d, group=g), axis=-4, step=a)
                     == conv(stride(x, axis=-4, step=a), w, strides=s, pads=p, dilations=d, group=g)
                     for x[4], w[4], s[2], p[4], d[2]
    conv-outputs:    stride(conv(x, w, strides=s, pads=p, dilations=d), axis=-3, step=a)
                     == conv(x, stride(w, axis=-4, step=a), strides=s, pads=p, dilations=d)
                     for x[4], w[4], s[2], p[4], d[2]
    conv-rows:       stride(conv(x, w, strides=s, pads=p, dilations=d, group=g), axis=-2, step=a)
                     == conv(x, w, strides=(a * s0, s1), pads=p, dilations=d, group=g)
                     for x[4], w[4], s[2], p[4], d[2]
    conv-columns:    stride(conv(x, w, strides=s, pads=p, dilations=d, group=g), axis=-1, step=a)
                     == conv(x, w, strides=(s0, a * s1), pads=p, dilations=d, group=g)
                     for x[4], w[4], s[2], p[4], d[2]
    pointwise-rows:  conv(stride(x, axis=-2, step=a), w, strides=s, group=g)
                     == conv(x, w, strides=(a * s0, s1), group=g)
                     for x[4], w[4], s[2] where w.shape[-2] == 1, w.shape[-1] == 1
    pointwise-columns: conv(stride(x, axis=-1, step=a), w, strides=s, group=g)
                     == conv(x, w, strides=(s0, a * s1), group=g)
                     for x[4], w[4], s[2] where w.shape[-2] == 1, w.shape[-1] == 1
    average-rows:    stride(avg_pool(x, kernel=k, strides=s, pads=p, include_pads=i), axis=-2, step=a)
                     == avg_pool(x, kernel=k, strides=(a * s0, s1), pads=p, include_pads=i)
                     for x[4], k[2], s[2], p[4]
    average-columns: stride(avg_pool(x, kernel=k, strides=s, pads=p, include_pads=i), axis=-1, step=a)
                     == avg_pool(x, kernel=k, strides=(s0, a * s1), pads=p, include_pads=i)
                     for x[4], k[2], s[2], p[4]
    largest-rows:    stride(max_pool(x, kernel=k, strides=s, pads=p, dilations=d), axis=-2, step=a)
                     == max_pool(x, kernel=k, strides=(a * s0, s1), pads=p, dilations=d)
                     for x[4], k[2], s[2], p[4], d[2]
    largest-columns: stride(max_pool(x, kernel=k, strides=s, pads=p, dilations=d), axis=-1, step=a)
                     == max_pool(x, kernel=k, strides=(s0, a * s1), pads=p, dilations=d)
                     for x[4], k[2], s[2], p[4], d[2]
"""


def stride(x: Tensor, *, axis: Axis, step: Extent) -> Tensor:
    require(step >= 1, "stride: the step is positive")
    axes = range(-x.rank, 0)
    shape = tuple((x.shape[a] - 1) // step + 1 if a == axis else x.shape[a] for a in axes)
    return tensor(shape, lambda *i: x[tuple(v * step if a == axis else v for a, v in zip(axes, i, strict=True))])


def lower(term: Term, emit: Emit) -> str:
    cut = operator("slice").lower
    assert cut is not None
    return cut(term, emit)
