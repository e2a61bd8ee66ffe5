"""Two-dimensional max pooling (ONNX MaxPool and GlobalMaxPool). `max_pool1d` is max pooling along one axis.

Positions outside the image are ignored. Each window contains a position inside the image, because pads are smaller than the
window and dilations are not larger than the image.
"""

from __future__ import annotations

from collections.abc import Mapping

from superopt.algebra.index import Extents, Tensor, inside, lowest, maximum, require, select, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term

ONNX = ("MaxPool", "GlobalMaxPool")

EXACT = "order"

AXIOMS = """
    relu:         max_pool(relu(x), kernel=k, strides=s, pads=p, dilations=d)
                  == relu(max_pool(x, kernel=k, strides=s, pads=p, dilations=d))
                  for x[4], k[2], s[2], p[4], d[2]
    scale:        max_pool(scale(x, factor=a), kernel=k, strides=s, pads=p, dilations=d)
                  == scale(max_pool(x, kernel=k, strides=s, pads=p, dilations=d), factor=a)
                  for x[4], k[2], s[2], p[4], d[2] where a >= 0
    concat:       max_pool(concat(x, y, axis=c), kernel=k, strides=s, pads=p, dilations=d)
                  == concat(max_pool(x, kernel=k, strides=s, pads=p, dilations=d),
                            max_pool(y, kernel=k, strides=s, pads=p, dilations=d), axis=c)
                  for x[4], y[4], k[2], s[2], p[4], d[2], c[-3, -4]
    slice:        max_pool(slice(x, axis=c, start=a, stop=b), kernel=k, strides=s, pads=p, dilations=d)
                  == slice(max_pool(x, kernel=k, strides=s, pads=p, dilations=d), axis=c, start=a, stop=b)
                  for x[4], k[2], s[2], p[4], d[2], c[-3, -4]
    single:       max_pool(x, kernel=(1, 1), strides=(1, 1), pads=(0, 0, 0, 0), dilations=d) == x  for x[4], d[2]
"""


def max_pool(x: Tensor, *, kernel: Extents, strides: Extents, pads: Extents, dilations: Extents = (1, 1)) -> Tensor:
    require(x.rank == 4, "max_pool takes an image batch of rank 4")
    require(
        len(kernel) == 2 and len(strides) == 2 and len(pads) == 4 and len(dilations) == 2, "max_pool: attributes for two axes"
    )
    n, c, height, width = x.shape
    for amount in (*kernel, *strides, *dilations):
        require(amount >= 1, "max_pool: kernel, strides and dilations are positive")
    for position, amount in enumerate(pads):
        require(amount >= 0, "max_pool: pads are not negative")
        require(amount < kernel[position % 2], "max_pool: pads are smaller than the window")

    def extent(size: Extent, axis: int) -> Extent:
        require(dilations[axis] <= size, "max_pool: the dilation is no larger than the image")
        reach = size + pads[axis] + pads[axis + 2] - dilations[axis] * (kernel[axis] - 1) - 1
        require(reach >= 0, "max_pool: the window fits into the padded image")
        return reach // strides[axis] + 1

    def at(b, k, i, j):
        def tap(u, v):
            row = i * strides[0] + u * dilations[0] - pads[0]
            column = j * strides[1] + v * dilations[1] - pads[1]
            return select(inside(row, height) & inside(column, width), x[b, k, row, column], lowest())

        return maximum(kernel[0], lambda u: maximum(kernel[1], lambda v: tap(u, v)))

    return tensor((n, c, extent(height, 0), extent(width, 1)), at)


def lift(node: Node) -> Term | None:
    x = node.operand(0)
    if node.op_type == "GlobalMaxPool":
        kernel: tuple[int, ...] = x.sizes[2:]
        once = (1,) * len(kernel)
        window: Mapping[str, tuple[int, ...]] = {"strides": once, "dilations": once, "pads": (0,) * (2 * len(kernel))}
    else:
        kernel = node.attribute("kernel_shape")
        window = node.window(kernel)
    if x.rank != 3:
        return apply("max_pool", x, kernel=kernel, **window)
    (stride,), (dilation,), (before, after) = window["strides"], window["dilations"], window["pads"]
    return apply("max_pool1d", x, kernel=kernel[0], stride=stride, before=before, after=after, dilation=dilation)


def lower(term: Term, emit: Emit) -> str:
    """Write a MaxPool node, even if the window covers the whole image.

    MaxPool is as fast as GlobalMaxPool, and is available for more types.
    """
    window = {name: term.integers(name) for name in ("strides", "pads", "dilations")}
    if window["dilations"] == (1, 1):
        del window["dilations"]
    return emit("MaxPool", *term.args, kernel_shape=term.integers("kernel"), **window)
