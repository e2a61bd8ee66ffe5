"""Each position of an axis, repeated `times` times in a row (ONNX Resize and Upsample, nearest mode, by whole factors)."""

from __future__ import annotations

import numpy as np

from superopt.algebra.index import Axis, Tensor, require, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term

ONNX = ("Resize", "Upsample")

AXIOMS = """
    once:            repeat(x, axis=k, times=1) == x  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    twice:           repeat(repeat(x, axis=k, times=m), axis=k, times=n) == repeat(x, axis=k, times=m * n)
                     for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    exchange:        repeat(repeat(x, axis=k, times=m), axis=j, times=n) == repeat(repeat(x, axis=j, times=n), axis=k, times=m)
                     for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j < k
    stride:          stride(repeat(x, axis=k, times=m), axis=k, step=m) == x  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    stride-other:    stride(repeat(x, axis=k, times=m), axis=j, step=s) == repeat(stride(x, axis=j, step=s), axis=k, times=m)
                     for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    slice:           slice(repeat(x, axis=k, times=m), axis=k, start=a * m, stop=b * m)
                     == repeat(slice(x, axis=k, start=a, stop=b), axis=k, times=m)
                     for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    slice-other:     slice(repeat(x, axis=k, times=m), axis=j, start=a, stop=b)
                     == repeat(slice(x, axis=j, start=a, stop=b), axis=k, times=m)
                     for x[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    concat:          repeat(concat(x, y, axis=k), axis=k, times=m)
                     == concat(repeat(x, axis=k, times=m), repeat(y, axis=k, times=m), axis=k)
                     for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
    concat-other:    repeat(concat(x, y, axis=j), axis=k, times=m)
                     == concat(repeat(x, axis=k, times=m), repeat(y, axis=k, times=m), axis=j)
                     for x[2, 3, 4], y[2, 3, 4], j[-1, -2, -3, -4], k[-1, -2, -3, -4] where j != k
    transpose:       repeat(transpose(x, perm=(-1, -2)), axis=-1, times=m)
                     == transpose(repeat(x, axis=-2, times=m), perm=(-1, -2))  for x[2]
    transpose-rows:  repeat(transpose(x, perm=(-1, -2)), axis=-2, times=m)
                     == transpose(repeat(x, axis=-1, times=m), perm=(-1, -2))  for x[2]
    reverse:         reverse(repeat(x, axis=k, times=m), axis=k) == repeat(reverse(x, axis=k), axis=k, times=m)
                     for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    row:             repeat(reshape(x, shape=(1, x.shape[-1])), axis=-2, times=m)
                     == expand(x, shape=(m, x.shape[-1]), axes=(-1,))  for x[1]
    column:          repeat(reshape(x, shape=(x.shape[-1], 1)), axis=-1, times=m)
                     == expand(x, shape=(x.shape[-1], m), axes=(-2,))  for x[1]
    as-expand:       repeat(x, axis=-1, times=m) == reshape(expand(x, shape=(x.shape[-1], m), axes=(-2,)),
                                                            shape=(x.shape[-1] * m,))
                     for x[1]
    as-expand-last:  repeat(x, axis=-1, times=m)
                     == reshape(expand(x, shape=(x.shape[-2], x.shape[-1], m), axes=(-3, -2)),
                                shape=(x.shape[-2], x.shape[-1] * m))
                     for x[2]
    as-expand-rows:  repeat(x, axis=-2, times=m)
                     == reshape(expand(x, shape=(x.shape[-2], m, x.shape[-1]), axes=(-3, -1)),
                                shape=(x.shape[-2] * m, x.shape[-1]))
                     for x[2]
    expand-channel:  repeat(expand(t, shape=s, axes=(-3,)), axis=-1, times=m)
                     == expand(t, shape=(s0, s1, s2, s3 * m), axes=(-3,))  for t[1], s[4]
    expand-channel-rows: repeat(expand(t, shape=s, axes=(-3,)), axis=-2, times=m)
                     == expand(t, shape=(s0, s1, s2 * m, s3), axes=(-3,))  for t[1], s[4]
    sum:             reduce_sum(repeat(x, axis=k, times=m), axes=(k,)) == scale(reduce_sum(x, axes=(k,)), factor=m)
                     for x[2, 3, 4], k[-1, -2, -3, -4]
    mean:            reduce_mean(repeat(x, axis=k, times=m), axes=(k,)) == reduce_mean(x, axes=(k,))
                     for x[2, 3, 4], k[-1, -2, -3, -4]
    mean-image:      reduce_mean(repeat(x, axis=k, times=m), axes=(-2, -1)) == reduce_mean(x, axes=(-2, -1))
                     for x[3, 4], k[-1, -2]
    matmul-rows:     repeat(x, axis=-2, times=m) @ y == repeat(x @ y, axis=-2, times=m)  for x[2, 3, 4], y[2, 3, 4]
    matmul-columns:  x @ repeat(y, axis=-1, times=m) == repeat(x @ y, axis=-1, times=m)  for x[2, 3, 4], y[2, 3, 4]
    matmul-inner:    repeat(x, axis=-1, times=m) @ repeat(y, axis=-2, times=m) == scale(x @ y, factor=m)
                     for x[2, 3, 4], y[2, 3, 4]
    conv-batch:      conv(repeat(x, axis=-4, times=m), w, strides=s, pads=p, dilations=d, group=g)
                     == repeat(conv(x, w, strides=s, pads=p, dilations=d, group=g), axis=-4, times=m)
                     for x[4], w[4], s[2], p[4], d[2]
    conv-outputs:    conv(x, repeat(w, axis=-4, times=m), strides=s, pads=p, dilations=d)
                     == repeat(conv(x, w, strides=s, pads=p, dilations=d), axis=-3, times=m)
                     for x[4], w[4], s[2], p[4], d[2]
    pointwise:       conv(repeat(x, axis=k, times=m), w, group=g) == repeat(conv(x, w, group=g), axis=k, times=m)
                     for x[4], w[4], k[-1, -2] where w.shape[-2] == 1, w.shape[-1] == 1
    average:         avg_pool(repeat(repeat(x, axis=-2, times=m), axis=-1, times=n), kernel=(m, n), strides=(m, n),
                              pads=(0, 0, 0, 0), include_pads=i) == x
                     for x[4]
    largest:         max_pool(repeat(repeat(x, axis=-2, times=m), axis=-1, times=n), kernel=(m, n), strides=(m, n),
                              pads=(0, 0, 0, 0), dilations=(1, 1)) == x
                     for x[4]
"""

CENTRED = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"}


def repeat(x: Tensor, *, axis: Axis, times: Extent) -> Tensor:
    require(times >= 1, "repeat: at least once")
    axes = range(-x.rank, 0)
    shape = tuple(x.shape[a] * times if a == axis else x.shape[a] for a in axes)
    return tensor(shape, lambda *i: x[tuple(v // times if a == axis else v for a, v in zip(axes, i, strict=True))])


def lift(node: Node) -> Term | None:
    x, factors = node.operand(0), _factors(node)
    if factors is None:
        return None
    if x.rank >= 2 and max(factors[:-2], default=1) == 1 and min(factors[-2:]) > 1:
        return apply("upsample", x, rows=factors[-2], columns=factors[-1])
    for axis, times in enumerate(factors):
        x = apply("repeat", x, axis=axis, times=times) if times != 1 else x
    return x


def _factors(node: Node) -> tuple[int, ...] | None:
    """Return the factor by which each axis is repeated.

    Return None if the node does not repeat positions by whole factors.
    """
    sizes = node.operand(0).sizes
    if node.attribute("mode", "nearest") != "nearest" or node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes = [a % len(sizes) for a in node.attribute("axes", range(len(sizes)))]
    scales, wanted = node.attribute("scales", ()), node.attribute("sizes", ())
    by = [w / sizes[a] for a, w in zip(axes, wanted, strict=True)] if wanted else list(scales)
    if len(by) != len(axes) or any(f % 1 != 0 or f < 1 for f in by):
        return None
    given = dict(zip(axes, map(int, by), strict=True))
    return tuple(given.get(a, 1) for a in range(len(sizes))) if _repeats(node, max(given.values(), default=1)) else None


def _repeats(node: Node, largest: int) -> bool:
    """Return whether position i of the result is position i // f of the operand, for all factors f up to `largest`."""
    if node.op_type == "Upsample" or node.opset < 11:
        return True
    place, rounding = node.attribute("coordinate_transformation_mode", "half_pixel"), node.attribute("nearest_mode", "")
    match rounding or "round_prefer_floor":
        case "floor":
            return largest == 1 or place in ("asymmetric", "tf_half_pixel_for_nn")
        case "round_prefer_floor":
            return place in CENTRED or (place == "asymmetric" and largest <= 2)
        case "round_prefer_ceil":
            return place in CENTRED
        case _:
            return False


def lower(term: Term, emit: Emit) -> str:
    scales = np.ones(term.rank, np.float32)
    while term.op in ("repeat", "upsample"):
        if term.op == "repeat":
            scales[term.integer("axis")] *= term.integer("times")
        else:
            scales[-2:] *= (term.integer("rows"), term.integer("columns"))
        term = term.args[0]
    if emit.opset >= 11:
        roi = None if emit.opset >= 13 else np.zeros(0, np.float32)
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return emit("Resize", term, roi, scales, mode="nearest", **modes)
    if emit.opset >= 9:
        return emit("Resize" if emit.opset == 10 else "Upsample", term, scales, mode="nearest")
    return emit("Upsample", term, mode="nearest", scales=tuple(map(float, scales)))
