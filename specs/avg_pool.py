"""Two-dimensional average pooling (ONNX AveragePool). `avg_pool1d` is average pooling along one axis.

If `include_pads` is 1, the sum of a window is divided by the window's area. If `include_pads` is 0, the sum is divided by the
number of window positions inside the image. This number is at least 1, because pads are smaller than the window.
"""

from __future__ import annotations

from superopt.algebra.index import Extents, Tensor, call, inside, number, require, select, tensor, total
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Extent, Term, inverse

ONNX = "AveragePool"
EXACT = "field, quotient"

AXIOMS = """
    add:            avg_pool(x + y, kernel=k, strides=s, pads=p, include_pads=i)
                    == avg_pool(x, kernel=k, strides=s, pads=p, include_pads=i)
                    + avg_pool(y, kernel=k, strides=s, pads=p, include_pads=i)
                    for x[4], y[4], k[2], s[2], p[4]
    scale:          avg_pool(scale(x, factor=a), kernel=k, strides=s, pads=p, include_pads=i)
                    == scale(avg_pool(x, kernel=k, strides=s, pads=p, include_pads=i), factor=a)
                    for x[4], k[2], s[2], p[4]
    scale-channels: avg_pool(x * expand(t, shape=x.shape, axes=(-3,)), kernel=k, strides=s, pads=p, include_pads=i)
                    == avg_pool(x, kernel=k, strides=s, pads=p, include_pads=i)
                    * expand(t, shape=avg_pool(x, kernel=k, strides=s, pads=p, include_pads=i).shape, axes=(-3,))
                    for x[4], t[1], k[2], s[2], p[4]
    concat:         avg_pool(concat(x, y, axis=c), kernel=k, strides=s, pads=p, include_pads=i)
                    == concat(avg_pool(x, kernel=k, strides=s, pads=p, include_pads=i),
                              avg_pool(y, kernel=k, strides=s, pads=p, include_pads=i), axis=c)
                    for x[4], y[4], k[2], s[2], p[4], c[-3, -4]
    slice:          avg_pool(slice(x, axis=c, start=a, stop=b), kernel=k, strides=s, pads=p, include_pads=i)
                    == slice(avg_pool(x, kernel=k, strides=s, pads=p, include_pads=i), axis=c, start=a, stop=b)
                    for x[4], k[2], s[2], p[4], c[-3, -4]
    as-conv:        avg_pool(x, kernel=k, strides=s, pads=p, include_pads=1)
                    == conv(x, mean_kernel(shape=(x.shape[-3], 1, k0, k1)), strides=s, pads=p, group=x.shape[-3])
                    for x[4], k[2], s[2], p[4]
    unpadded:       avg_pool(x, kernel=k, strides=s, pads=(0, 0, 0, 0), include_pads=0)
                    == avg_pool(x, kernel=k, strides=s, pads=(0, 0, 0, 0), include_pads=1)
                    for x[4], k[2], s[2]
    pad:            avg_pool(pad(x, before=(0, 0, a, b), after=(0, 0, c, e)), kernel=k, strides=s, pads=p, include_pads=1)
                    == avg_pool(x, kernel=k, strides=s, pads=(p0 + a, p1 + b, p2 + c, p3 + e), include_pads=1)
                    for x[4], k[2], s[2], p[4]
    constant:       avg_pool(expand(t, shape=z, axes=(-3,)), kernel=k, strides=s, pads=(0, 0, 0, 0), include_pads=1)
                    == expand(t, shape=avg_pool(expand(t, shape=z, axes=(-3,)), kernel=k, strides=s, pads=(0, 0, 0, 0),
                                                include_pads=1).shape, axes=(-3,))
                    for t[1], z[4], k[2], s[2]
    single:         avg_pool(x, kernel=(1, 1), strides=(1, 1), pads=(0, 0, 0, 0), include_pads=i) == x  for x[4]
    global:         avg_pool(x, kernel=(x.shape[-2], x.shape[-1]), strides=s, pads=(0, 0, 0, 0), include_pads=1)
                    == reshape(reduce_mean(x, axes=(-2, -1)), shape=(x.shape[-4], x.shape[-3], 1, 1))
                    for x[4], s[2]
"""


def avg_pool(x: Tensor, *, kernel: Extents, strides: Extents, pads: Extents, include_pads: Extent = 0) -> Tensor:
    require(x.rank == 4, "avg_pool takes an image batch of rank 4")
    require(len(kernel) == 2 and len(strides) == 2 and len(pads) == 4, "avg_pool: attributes for two axes")
    require((include_pads >= 0) & (include_pads <= 1), "avg_pool: include_pads is 0 or 1")
    n, c, height, width = x.shape
    for amount in (*kernel, *strides):
        require(amount >= 1, "avg_pool: kernel and strides are positive")
    for position, amount in enumerate(pads):
        require(amount >= 0, "avg_pool: pads are not negative")
        require(amount < kernel[position % 2], "avg_pool: pads are smaller than the window")

    def extent(size: Extent, axis: int) -> Extent:
        reach = size + pads[axis] + pads[axis + 2] - kernel[axis]
        require(reach >= 0, "avg_pool: the window fits into the padded image")
        return reach // strides[axis] + 1

    def at(b, k, i, j):
        def over(body):
            def tap(u, v):
                row, column = i * strides[0] + u - pads[0], j * strides[1] + v - pads[1]
                return select(inside(row, height) & inside(column, width), body(row, column), number(0))

            return total(kernel[0], lambda u: total(kernel[1], lambda v: tap(u, v)))

        window = over(lambda row, column: x[b, k, row, column])
        by_area = window * number(inverse(kernel[0] * kernel[1]))
        if include_pads == 1:
            return by_area
        by_count = window * call("reciprocal", over(lambda *_: number(1)))
        return by_count if include_pads == 0 else select(include_pads >= 1, by_area, by_count)

    return tensor((n, c, extent(height, 0), extent(width, 1)), at)


def lift(node: Node) -> Term | None:
    x, kernel = node.operand(0), node.attribute("kernel_shape")
    window, counted = dict(node.window(kernel)), node.attribute("count_include_pad", 0)
    if any(d != 1 for d in window.pop("dilations")) or (counted and _beyond(node, window["pads"])):
        return None
    if x.rank != 3:
        return apply("avg_pool", x, kernel=kernel, include_pads=counted, **window)
    (stride,), (before, after) = window["strides"], window["pads"]
    return apply("avg_pool1d", x, kernel=kernel[0], stride=stride, before=before, after=after, include_pads=counted)


def _beyond(node: Node, pads: tuple[int, ...]) -> bool:
    """Return whether the pads that follow from `ceil_mode` are longer than the pads that the node counts."""
    given = node.attribute("auto_pad", "NOTSET") == "NOTSET"
    return bool(node.attribute("ceil_mode", 0)) and (not given or pads != node.attribute("pads", (0,) * len(pads)))


def lower(term: Term, emit: Emit) -> str:
    window = {name: term.integers(name) for name in ("strides", "pads")}
    counted = term.integer("include_pads")
    return emit("AveragePool", *term.args, kernel_shape=term.integers("kernel"), count_include_pad=counted, **window)
