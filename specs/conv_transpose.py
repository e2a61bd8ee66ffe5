"""Two-dimensional transposed convolution (ONNX ConvTranspose without bias): x is (N, C, H, W), w is (C, F / group, KH, KW).

The value at input position q, times w[u], is added to output position q * stride + u * dilation - pad. `output_pads` makes the
result longer at the end.
"""

from __future__ import annotations

from superopt.algebra.index import Extents, Tensor, inside, number, require, same, select, tensor, total
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Extent, Term

AXIOMS = """
    linear-kernel:  conv_transpose(x, v + w, strides=s, pads=p, dilations=d, output_pads=o, group=g)
                    == conv_transpose(x, v, strides=s, pads=p, dilations=d, output_pads=o, group=g)
                     + conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o, group=g)
                    for x[4], v[4], w[4], s[2], p[4], d[2], o[2]
    linear-input:   conv_transpose(x + y, w, strides=s, pads=p, dilations=d, output_pads=o, group=g)
                    == conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o, group=g)
                     + conv_transpose(y, w, strides=s, pads=p, dilations=d, output_pads=o, group=g)
                    for x[4], y[4], w[4], s[2], p[4], d[2], o[2]
    scale-kernel:   conv_transpose(x, scale(w, factor=a), strides=s, pads=p, dilations=d, output_pads=o, group=g)
                    == scale(conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o, group=g), factor=a)
                    for x[4], w[4], s[2], p[4], d[2], o[2]
    scale-input:    conv_transpose(scale(x, factor=a), w, strides=s, pads=p, dilations=d, output_pads=o, group=g)
                    == scale(conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o, group=g), factor=a)
                    for x[4], w[4], s[2], p[4], d[2], o[2]
    concat-batch:   conv_transpose(concat(x, y, axis=-4), w, strides=s, pads=p, dilations=d, output_pads=o, group=g)
                    == concat(conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o, group=g),
                              conv_transpose(y, w, strides=s, pads=p, dilations=d, output_pads=o, group=g), axis=-4)
                    for x[4], y[4], w[4], s[2], p[4], d[2], o[2]
    concat-output:  conv_transpose(x, concat(v, w, axis=-3), strides=s, pads=p, dilations=d, output_pads=o)
                    == concat(conv_transpose(x, v, strides=s, pads=p, dilations=d, output_pads=o),
                              conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o), axis=-3)
                    for x[4], v[4], w[4], s[2], p[4], d[2], o[2]
    concat-input:   conv_transpose(concat(x, y, axis=-3), concat(v, w, axis=-4), strides=s, pads=p, dilations=d, output_pads=o)
                    == conv_transpose(x, v, strides=s, pads=p, dilations=d, output_pads=o)
                     + conv_transpose(y, w, strides=s, pads=p, dilations=d, output_pads=o)
                    for x[4], y[4], v[4], w[4], s[2], p[4], d[2], o[2]
    slice-batch:    slice(conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o, group=g), axis=-4,
                          start=a, stop=b)
                    == conv_transpose(slice(x, axis=-4, start=a, stop=b), w, strides=s, pads=p, dilations=d, output_pads=o,
                                      group=g)
                    for x[4], w[4], s[2], p[4], d[2], o[2]
    slice-output:   slice(conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o), axis=-3, start=a, stop=b)
                    == conv_transpose(x, slice(w, axis=-3, start=a, stop=b), strides=s, pads=p, dilations=d, output_pads=o)
                    for x[4], w[4], s[2], p[4], d[2], o[2]
    crop:           slice(slice(conv_transpose(x, w, strides=s, pads=p, dilations=d, group=g), axis=-2, start=a, stop=b),
                          axis=-1, start=c, stop=e)
                    == conv_transpose(x, w, strides=s, dilations=d, group=g,
                          pads=(p0 + a, p1 + c,
                                p2 + conv_transpose(x, w, strides=s, pads=p, dilations=d, group=g).shape[-2] - b,
                                p3 + conv_transpose(x, w, strides=s, pads=p, dilations=d, group=g).shape[-1] - e))
                    for x[4], w[4], s[2], p[4], d[2]
    scale-outputs:  conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o)
                    * expand(t, shape=conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o).shape, axes=(-3,))
                    == conv_transpose(x, w * expand(t, shape=w.shape, axes=(-3,)), strides=s, pads=p, dilations=d,
                                      output_pads=o)
                    for x[4], w[4], t[1], s[2], p[4], d[2], o[2]
    scale-inputs:   conv_transpose(x * expand(t, shape=x.shape, axes=(-3,)), w, strides=s, pads=p, dilations=d, output_pads=o,
                                   group=g)
                    == conv_transpose(x, w * expand(t, shape=w.shape, axes=(-4,)), strides=s, pads=p, dilations=d,
                                      output_pads=o, group=g)
                    for x[4], w[4], t[1], s[2], p[4], d[2], o[2]
    zeros:          conv_transpose(x, zeros(shape=f), strides=s, pads=p, dilations=d, output_pads=o, group=g)
                    == zeros(shape=conv_transpose(x, zeros(shape=f), strides=s, pads=p, dilations=d, output_pads=o,
                                                  group=g).shape)
                    for x[4], f[4], s[2], p[4], d[2], o[2]
    as-conv:        conv_transpose(x, w, pads=p, dilations=d)
                    == conv(x, transpose(reverse(reverse(w, axis=-1), axis=-2), perm=(-3, -4, -2, -1)), dilations=d,
                            pads=(d0 * (w.shape[-2] - 1) - p0, d1 * (w.shape[-1] - 1) - p1,
                                  d0 * (w.shape[-2] - 1) - p2, d1 * (w.shape[-1] - 1) - p3))
                    for x[4], w[4], p[4], d[2]
    depthwise:      conv_transpose(x, w, pads=p, dilations=d, group=x.shape[-3])
                    == conv(x, reverse(reverse(w, axis=-1), axis=-2), dilations=d, group=x.shape[-3],
                            pads=(d0 * (w.shape[-2] - 1) - p0, d1 * (w.shape[-1] - 1) - p1,
                                  d0 * (w.shape[-2] - 1) - p2, d1 * (w.shape[-1] - 1) - p3))
                    for x[4], w[4], p[4], d[2] where w.shape[-3] == 1
    pointwise-in:   conv_transpose(conv(x, v), w, strides=s, pads=p, dilations=d, output_pads=o)
                    == conv_transpose(x, reshape(transpose(reshape(v, shape=(v.shape[-4], v.shape[-3])), perm=(-1, -2))
                                                 @ reshape(w, shape=(w.shape[-4], w.shape[-3] * w.shape[-2] * w.shape[-1])),
                                                 shape=(v.shape[-3], w.shape[-3], w.shape[-2], w.shape[-1])),
                                      strides=s, pads=p, dilations=d, output_pads=o)
                    for x[4], v[4], w[4], s[2], p[4], d[2], o[2] where v.shape[-2] == 1, v.shape[-1] == 1
    blocks:         conv_transpose(x, w, strides=(w.shape[-2], w.shape[-2]))
                    == pixel_shuffle(conv(x, reshape(transpose(reshape(w,
                           shape=(w.shape[-4], w.shape[-3] * w.shape[-2] * w.shape[-2])), perm=(-1, -2)),
                           shape=(w.shape[-3] * w.shape[-2] * w.shape[-2], w.shape[-4], 1, 1))), block=w.shape[-2])
                    for x[4], w[4] where w.shape[-1] == w.shape[-2]
    concat-groups:  conv_transpose(concat(x, y, axis=-3), concat(v, w, axis=-4), strides=s, pads=p, dilations=d, output_pads=o,
                                   group=g + h)
                    == concat(conv_transpose(x, v, strides=s, pads=p, dilations=d, output_pads=o, group=g),
                              conv_transpose(y, w, strides=s, pads=p, dilations=d, output_pads=o, group=h), axis=-3)
                    for x[4], y[4], v[4], w[4], s[2], p[4], d[2], o[2] where v.shape[-4] // g == w.shape[-4] // h
    scale-each:     conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o, group=x.shape[-3])
                    * expand(t, shape=conv_transpose(x, w, strides=s, pads=p, dilations=d, output_pads=o,
                                                     group=x.shape[-3]).shape, axes=(-3,))
                    == conv_transpose(x, w * expand(t, shape=w.shape, axes=(-4,)), strides=s, pads=p, dilations=d,
                                      output_pads=o, group=x.shape[-3])
                    for x[4], w[4], t[1], s[2], p[4], d[2], o[2] where w.shape[-3] == 1
    as-repeat:      conv_transpose(x, ones(shape=(x.shape[-3], 1, m, n)), strides=(m, n), group=x.shape[-3])
                    == repeat(repeat(x, axis=-2, times=m), axis=-1, times=n)
                    for x[4]
    spread:         stride(stride(conv_transpose(x, w, strides=s), axis=-2, step=s0), axis=-1, step=s1) == conv_transpose(x, w)
                    for x[4], w[4], s[2] where w.shape[-2] == 1, w.shape[-1] == 1
"""


def conv_transpose(
    x: Tensor,
    w: Tensor,
    *,
    strides: Extents = (1, 1),
    pads: Extents = (0, 0, 0, 0),
    dilations: Extents = (1, 1),
    output_pads: Extents = (0, 0),
    group: Extent = 1,
) -> Tensor:
    require(x.rank == 4 and w.rank == 4, "conv_transpose takes an image batch and a kernel of rank 4")
    require(len(strides) == len(dilations) == len(output_pads) == 2, "conv_transpose: attributes for two axes")
    require(len(pads) == 4, "conv_transpose: pads for two axes")
    (n, c, height, width), (depth, features, rows, columns) = x.shape, w.shape
    for amount in (group, *strides, *dilations):
        require(amount >= 1, "conv_transpose: group, strides and dilations are positive")
    for amount in (*pads, *output_pads):
        require(amount >= 0, "conv_transpose: pads are not negative")
    for axis, amount in enumerate(output_pads):
        require(amount < strides[axis], "conv_transpose: the result is longer by less than a stride")
    require(same(c, depth), "conv_transpose: input channels are the kernel's")
    require(same(c % group, 0), "conv_transpose: the groups divide the input channels")

    def extent(size: Extent, window: Extent, axis: int) -> Extent:
        whole = strides[axis] * (size - 1) + output_pads[axis] + dilations[axis] * (window - 1) + 1
        require(whole - pads[axis] - pads[axis + 2] >= 1, "conv_transpose: the pads leave something")
        return whole - pads[axis] - pads[axis + 2]

    def at(b, o, i, j):
        first = o // features * (c // group) if group != 1 else 0
        feature = o % features if group != 1 else o

        def tap(k, u, v):
            row, column = i + pads[0] - u * dilations[0], j + pads[1] - v * dilations[1]
            above, left = row // strides[0], column // strides[1]
            met = same(row % strides[0], 0) & same(column % strides[1], 0) & inside(above, height) & inside(left, width)
            return select(met, x[b, first + k, above, left], number(0)) * w[first + k, feature, u, v]

        return total(c // group, lambda k: total(rows, lambda u: total(columns, lambda v: tap(k, u, v))))

    return tensor((n, features * group, extent(height, rows, 0), extent(width, columns, 1)), at)


def lower(term: Term, emit: Emit, *bias: Term) -> str:
    window = {name: term.integers(name) for name in ("strides", "pads", "dilations")}
    kernel, longer = term.args[1].sizes[2:], term.integers("output_pads")
    given = {"kernel_shape": kernel, "group": term.integer("group"), "output_padding": longer}
    return emit("ConvTranspose", *term.args, *bias, **given, **window)
