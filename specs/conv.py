"""Two-dimensional cross-correlation (ONNX Conv without bias): x is (N, C, H, W), w is (F, C / group, KH, KW)."""

from __future__ import annotations

from superopt.algebra.index import Extents, Tensor, inside, number, require, same, select, tensor, total
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Extent, Term

AXIOMS = """
    linear-kernel:  conv(x, v + w, strides=s, pads=p, dilations=d, group=g)
                    == conv(x, v, strides=s, pads=p, dilations=d, group=g) + conv(x, w, strides=s, pads=p, dilations=d, group=g)
                    for x[4], v[4], w[4], s[2], p[4], d[2]
    linear-input:   conv(x + y, w, strides=s, pads=p, dilations=d, group=g)
                    == conv(x, w, strides=s, pads=p, dilations=d, group=g) + conv(y, w, strides=s, pads=p, dilations=d, group=g)
                    for x[4], y[4], w[4], s[2], p[4], d[2]
    scale-kernel:   conv(x, scale(w, factor=a), strides=s, pads=p, dilations=d, group=g)
                    == scale(conv(x, w, strides=s, pads=p, dilations=d, group=g), factor=a)
                    for x[4], w[4], s[2], p[4], d[2]
    scale-input:    conv(scale(x, factor=a), w, strides=s, pads=p, dilations=d, group=g)
                    == scale(conv(x, w, strides=s, pads=p, dilations=d, group=g), factor=a)
                    for x[4], w[4], s[2], p[4], d[2]
    concat-batch:   conv(concat(x, y, axis=-4), w, strides=s, pads=p, dilations=d, group=g)
                    == concat(conv(x, w, strides=s, pads=p, dilations=d, group=g),
                              conv(y, w, strides=s, pads=p, dilations=d, group=g), axis=-4)
                    for x[4], y[4], w[4], s[2], p[4], d[2]
    concat-output:  conv(x, concat(v, w, axis=-4), strides=s, pads=p, dilations=d)
                    == concat(conv(x, v, strides=s, pads=p, dilations=d), conv(x, w, strides=s, pads=p, dilations=d), axis=-3)
                    for x[4], v[4], w[4], s[2], p[4], d[2]
    concat-input:   conv(concat(x, y, axis=-3), concat(v, w, axis=-3), strides=s, pads=p, dilations=d)
                    == conv(x, v, strides=s, pads=p, dilations=d) + conv(y, w, strides=s, pads=p, dilations=d)
                    for x[4], y[4], v[4], w[4], s[2], p[4], d[2]
    concat-groups:  conv(concat(x, y, axis=-3), concat(v, w, axis=-4), strides=s, pads=p, dilations=d, group=g + h)
                    == concat(conv(x, v, strides=s, pads=p, dilations=d, group=g),
                              conv(y, w, strides=s, pads=p, dilations=d, group=h), axis=-3)
                    for x[4], y[4], v[4], w[4], s[2], p[4], d[2] where v.shape[-4] // g == w.shape[-4] // h
    slice-batch:    slice(conv(x, w, strides=s, pads=p, dilations=d, group=g), axis=-4, start=a, stop=b)
                    == conv(slice(x, axis=-4, start=a, stop=b), w, strides=s, pads=p, dilations=d, group=g)
                    for x[4], w[4], s[2], p[4], d[2]
    slice-output:   slice(conv(x, w, strides=s, pads=p, dilations=d), axis=-3, start=a, stop=b)
                    == conv(x, slice(w, axis=-4, start=a, stop=b), strides=s, pads=p, dilations=d)
                    for x[4], w[4], s[2], p[4], d[2]
    pad-kernel:     conv(x, pad(w, before=(0, 0, a, b), after=(0, 0, c, e)), strides=s,
                         pads=(p0 + d0 * a, p1 + d1 * b, p2 + d0 * c, p3 + d1 * e), dilations=d, group=g)
                    == conv(x, w, strides=s, pads=p, dilations=d, group=g)
                    for x[4], w[4], s[2], p[4], d[2]
    pad-image:      conv(pad(x, before=(0, 0, a, b), after=(0, 0, c, e)), w, strides=s, pads=p, dilations=d, group=g)
                    == conv(x, w, strides=s, pads=(p0 + a, p1 + b, p2 + c, p3 + e), dilations=d, group=g)
                    for x[4], w[4], s[2], p[4], d[2]
    pad-output:     conv(x, pad(w, before=(a, 0, 0, 0), after=(b, 0, 0, 0)), strides=s, pads=p, dilations=d)
                    == pad(conv(x, w, strides=s, pads=p, dilations=d), before=(0, a, 0, 0), after=(0, b, 0, 0))
                    for x[4], w[4], s[2], p[4], d[2]
    pad-input:      conv(pad(x, before=(0, a, 0, 0), after=(0, b, 0, 0)), pad(w, before=(0, a, 0, 0), after=(0, b, 0, 0)),
                         strides=s, pads=p, dilations=d)
                    == conv(x, w, strides=s, pads=p, dilations=d)
                    for x[4], w[4], s[2], p[4], d[2]
    identity:       conv(x, identity_kernel(shape=(x.shape[-3], c, m, n), at=(u, v)),
                         pads=(d0 * u, d1 * v, d0 * (m - 1 - u), d1 * (n - 1 - v)), dilations=d, group=g) == x
                    for x[4], d[2]
    zeros:          conv(x, zeros(shape=f), strides=s, pads=p, dilations=d, group=g)
                    == zeros(shape=conv(x, zeros(shape=f), strides=s, pads=p, dilations=d, group=g).shape)
                    for x[4], f[4], s[2], p[4], d[2]
    scale-outputs:  conv(x, w, strides=s, pads=p, dilations=d, group=g)
                    * expand(t, shape=conv(x, w, strides=s, pads=p, dilations=d, group=g).shape, axes=(-3,))
                    == conv(x, w * expand(t, shape=w.shape, axes=(-4,)), strides=s, pads=p, dilations=d, group=g)
                    for x[4], w[4], t[1], s[2], p[4], d[2]
    scale-inputs:   conv(x * expand(t, shape=x.shape, axes=(-3,)), w, strides=s, pads=p, dilations=d)
                    == conv(x, w * expand(t, shape=w.shape, axes=(-3,)), strides=s, pads=p, dilations=d)
                    for x[4], w[4], t[1], s[2], p[4], d[2]
    scale-each:     conv(x * expand(t, shape=x.shape, axes=(-3,)), w, strides=s, pads=p, dilations=d, group=w.shape[-4])
                    == conv(x, w * expand(t, shape=w.shape, axes=(-4,)), strides=s, pads=p, dilations=d, group=w.shape[-4])
                    for x[4], w[4], t[1], s[2], p[4], d[2] where w.shape[-3] == 1
    pointwise-out:  conv(conv(x, v, strides=s, pads=p, dilations=d), w)
                    == conv(x, reshape(reshape(w, shape=(w.shape[-4], w.shape[-3]))
                                       @ reshape(v, shape=(v.shape[-4], v.shape[-3] * v.shape[-2] * v.shape[-1])),
                                       shape=(w.shape[-4], v.shape[-3], v.shape[-2], v.shape[-1])),
                            strides=s, pads=p, dilations=d)
                    for x[4], v[4], w[4], s[2], p[4], d[2] where w.shape[-2] == 1, w.shape[-1] == 1
    pointwise-in:   conv(conv(x, v), w, strides=s, pads=p, dilations=d)
                    == conv(x, transpose(transpose(w, perm=(-4, -2, -1, -3)) @ reshape(v, shape=(v.shape[-4], v.shape[-3])),
                                         perm=(-4, -1, -3, -2)), strides=s, pads=p, dilations=d)
                    for x[4], v[4], w[4], s[2], p[4], d[2] where v.shape[-2] == 1, v.shape[-1] == 1
    depthwise-in:   conv(conv(x, v, strides=s, pads=p, dilations=d, group=v.shape[-4]), w)
                    == conv(x, expand(reshape(w, shape=(w.shape[-4], w.shape[-3])), axes=(-4, -3),
                                      shape=(w.shape[-4], w.shape[-3], v.shape[-2], v.shape[-1]))
                               * expand(reshape(v, shape=(v.shape[-4], v.shape[-2], v.shape[-1])), axes=(-3, -2, -1),
                                        shape=(w.shape[-4], w.shape[-3], v.shape[-2], v.shape[-1])),
                            strides=s, pads=p, dilations=d)
                    for x[4], v[4], w[4], s[2], p[4], d[2] where v.shape[-3] == 1, w.shape[-2] == 1, w.shape[-1] == 1
    as-matmul:      reshape(reshape(w, shape=(w.shape[-4], w.shape[-3]))
                            @ reshape(x, shape=(x.shape[-4], x.shape[-3], x.shape[-2] * x.shape[-1])),
                            shape=(x.shape[-4], w.shape[-4], x.shape[-2], x.shape[-1])) == conv(x, w)
                    for x[4], w[4] where w.shape[-2] == 1, w.shape[-1] == 1
    pool-pointwise: avg_pool(conv(x, w, group=g), kernel=k, strides=s, pads=p, include_pads=i)
                    == conv(avg_pool(x, kernel=k, strides=s, pads=p, include_pads=i), w, group=g)
                    for x[4], w[4], k[2], s[2], p[4] where w.shape[-2] == 1, w.shape[-1] == 1
    mean-pointwise: reduce_mean(conv(x, w), axes=(-2, -1))
                    == reduce_mean(x, axes=(-2, -1)) @ transpose(reshape(w, shape=(w.shape[-4], w.shape[-3])), perm=(-1, -2))
                    for x[4], w[4] where w.shape[-2] == 1, w.shape[-1] == 1
"""


def conv(
    x: Tensor,
    w: Tensor,
    *,
    strides: Extents = (1, 1),
    pads: Extents = (0, 0, 0, 0),
    dilations: Extents = (1, 1),
    group: Extent = 1,
) -> Tensor:
    require(x.rank == 4 and w.rank == 4, "conv takes an image batch and a kernel of rank 4")
    require(len(strides) == 2 and len(pads) == 4 and len(dilations) == 2, "conv: attributes for two axes")
    (n, c, height, width), (f, depth, rows, columns) = x.shape, w.shape
    for amount in (group, *strides, *dilations):
        require(amount >= 1, "conv: group, strides and dilations are positive")
    for amount in pads:
        require(amount >= 0, "conv: pads are not negative")
    require(same(c, depth * group), "conv: input channels are the kernel's, group times")
    require(same(f % group, 0), "conv: the groups divide the output channels")

    def extent(size: Extent, window: Extent, axis: int) -> Extent:
        reach = size + pads[axis] + pads[axis + 2] - dilations[axis] * (window - 1) - 1
        require(reach >= 0, "conv: the kernel fits into the padded image")
        return reach // strides[axis] + 1

    def at(b, o, i, j):
        first = o // (f // group) * depth if group != 1 else 0

        def tap(k, u, v):
            row = i * strides[0] + u * dilations[0] - pads[0]
            column = j * strides[1] + v * dilations[1] - pads[1]
            seen = inside(row, height) & inside(column, width)
            return select(seen, x[b, first + k, row, column], number(0)) * w[o, k, u, v]

        return total(depth, lambda k: total(rows, lambda u: total(columns, lambda v: tap(k, u, v))))

    return tensor((n, f, extent(height, rows, 0), extent(width, columns, 1)), at)


def lower(term: Term, emit: Emit, *bias: Term) -> str:
    window = {name: term.integers(name) for name in ("strides", "pads", "dilations")}
    kernel = term.args[1].sizes[2:]
    return emit("Conv", *term.args, *bias, kernel_shape=kernel, group=term.integer("group"), **window)
