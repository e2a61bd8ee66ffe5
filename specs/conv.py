"""Two-dimensional cross-correlation (ONNX Conv without bias): x is (N, C, H, W), w is (F, C / group, KH, KW)."""

from __future__ import annotations

from superopt.graph import Extent, Term
from superopt.index import Extents, Tensor, inside, number, require, same, select, tensor, total
from superopt.op import Emit

AXIOMS = """
    linear-kernel:  conv(x, v + w, strides=(s0, s1), pads=(p0, p1, p2, p3), dilations=(d0, d1), group=g)
                    == conv(x, v, strides=(s0, s1), pads=(p0, p1, p2, p3), dilations=(d0, d1), group=g)
                    + conv(x, w, strides=(s0, s1), pads=(p0, p1, p2, p3), dilations=(d0, d1), group=g)
                    for x[4], v[4], w[4]
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
    (n, c, height, width), (f, depth, rows, columns) = x.shape, w.shape
    require(same(c, depth * group), "conv: input channels are the kernel's, group times")
    require(same(f % group, 0), "conv: the groups divide the output channels")

    def extent(size: Extent, window: Extent, axis: int) -> Extent:
        reach = size + pads[axis] + pads[axis + 2] - dilations[axis] * (window - 1) - 1
        require(reach >= 0, "conv: the kernel fits into the padded image")
        return reach // strides[axis] + 1

    def at(b, o, i, j):
        first = o // (f // group) * depth

        def tap(k, u, v):
            row = i * strides[0] + u * dilations[0] - pads[0]
            column = j * strides[1] + v * dilations[1] - pads[1]
            seen = inside(row, height) & inside(column, width)
            return select(seen, x[b, first + k, row, column], number(0)) * w[o, k, u, v]

        return total(depth, lambda k: total(rows, lambda u: total(columns, lambda v: tap(k, u, v))))

    return tensor((n, f, extent(height, rows, 0), extent(width, columns, 1)), at)


def lower(term: Term, emit: Emit) -> str:
    return emit("Conv", *term.args, strides=term["strides"], pads=term["pads"], dilations=term["dilations"], group=term["group"])
