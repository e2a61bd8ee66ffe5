"""Convolution by Toom-Cook's algorithm along both axes (Winograd convolution): tile by tile, with fewer multiplications.

x is (N, C, H, W). u is the `winograd_kernel` of weights (F, C, taps[0], taps[1]) for the same `tile`. `tile` is the shape of
the tiles into which the result is divided (Lavin and Gray, Fast algorithms for convolutional neural networks, 2016). The
strides, dilations and group of the convolution are 1. The algorithm saves multiplications if there are many channels. The
rounding error is larger than the rounding error of `conv`, but only a little larger for small tiles.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from superopt.algebra.bilinear import Matrix, ToomCook
from superopt.algebra.index import Extents, Tensor, entry, inside, number, require, same, select, tensor, total
from superopt.algebra.operators import Emit, apply
from superopt.algebra.terms import Extent, Term

EXACT = "quotient"

AXIOMS = """
    algorithm-two-three:  winograd(x, winograd_kernel(w, tile=(2, 2)), tile=(2, 2), taps=(3, 3), pads=p) == conv(x, w, pads=p)
                          for x[4], w[4], p[4] where w.shape[-2] == 3, w.shape[-1] == 3
    algorithm-four-three: winograd(x, winograd_kernel(w, tile=(4, 4)), tile=(4, 4), taps=(3, 3), pads=p) == conv(x, w, pads=p)
                          for x[4], w[4], p[4] where w.shape[-2] == 3, w.shape[-1] == 3
    algorithm-two-five:   winograd(x, winograd_kernel(w, tile=(2, 2)), tile=(2, 2), taps=(5, 5), pads=p) == conv(x, w, pads=p)
                          for x[4], w[4], p[4] where w.shape[-2] == 5, w.shape[-1] == 5
"""


def winograd(x: Tensor, u: Tensor, *, tile: Extents, taps: Extents, pads: Extents = (0, 0, 0, 0)) -> Tensor:
    down, across, (rows, columns) = _checked(x, u, tile, taps, pads)
    (n, c, height, width), f = x.shape, u.shape[-2]
    tiles = (rows + tile[0] - 1) // tile[0], (columns + tile[1] - 1) // tile[1]

    def over(first, second, part):
        return total(first, lambda i: total(second, lambda j: part(i, j)))

    def datum(r, s, k, b, i, j):
        def part(p, q):
            row, column = i * tile[0] + p - pads[0], j * tile[1] + q - pads[1]
            pixel = select(inside(row, height) & inside(column, width), x[b, k, row, column], number(0))
            return entry(down.data, r, p) * entry(across.data, s, q) * pixel

        return over(down.products, across.products, part)

    data = tensor((down.products, across.products, c, n, *tiles), datum)

    def multiplied(r, s, o, b, i, j):
        return total(c, lambda k: u[r, s, o, k] * data[r, s, k, b, i, j])

    product = tensor((down.products, across.products, f, n, *tiles), multiplied)

    def at(b, o, i, j):
        def part(r, s):
            weight = entry(down.back, i % tile[0], r) * entry(across.back, j % tile[1], s)
            return weight * product[r, s, o, b, i // tile[0], j // tile[1]]

        return over(down.products, across.products, part)

    return tensor((n, f, rows, columns), at)


def _checked(
    x: Tensor, u: Tensor, tile: Extents, taps: Extents, pads: Extents
) -> tuple[ToomCook, ToomCook, tuple[Extent, Extent]]:
    """Check that all operands fit together. Return the algorithms along the two axes, and the extents of the result."""
    require(x.rank == 4 and u.rank == 4, "winograd takes an image batch of rank 4, and what winograd_kernel makes")
    require(len(tile) == 2 and len(taps) == 2 and len(pads) == 4, "winograd: attributes for two axes")
    for extent in (*tile, *taps):
        require(extent >= 1, "winograd: tiles and kernels are not empty")
    for amount in pads:
        require(amount >= 0, "winograd: pads are not negative")
    down, across = ToomCook(tile[0], taps[0]), ToomCook(tile[1], taps[1])
    require(same(u.shape[0], down.products), "winograd: the kernel is one for these tiles")
    require(same(u.shape[1], across.products), "winograd: the kernel is one for these tiles")
    require(same(x.shape[1], u.shape[3]), "winograd: input channels are the kernel's")
    rows, columns = (size + pads[a] + pads[a + 2] - taps[a] + 1 for a, size in enumerate(x.shape[2:]))
    for extent in (rows, columns):
        require(extent >= 1, "winograd: the kernel fits into the padded image")
    return down, across, (rows, columns)


def rounding(*, tile: tuple[int, int], taps: tuple[int, int], **_: object) -> float:
    """Return the typical rounding error, divided by the typical rounding error of `conv`."""
    return math.prod(ToomCook(m, r).growth for m, r in zip(tile, taps, strict=True))


def lower(term: Term, emit: Emit) -> str:
    """Write the algorithm as ONNX nodes, and return the name of the result.

    A convolution of single channels cuts out the tiles and transforms them. One batched product then computes all products.
    Another product transforms the products back to tiles, and DepthToSpace arranges the tiles as images. This form was the
    fastest of several forms in ONNX Runtime on CPUs.
    """
    x, u = term.args
    tile = term.integers("tile")
    down, across = (ToomCook(m, r) for m, r in zip(tile, term.integers("taps"), strict=True))
    (n, c, *_), (_, f, *image), products = x.sizes, term.sizes, u.sizes[:2]
    tiles = tuple(-(-extent // m) for extent, m in zip(image, tile, strict=True))
    each, count = math.prod(products), math.prod(tiles)

    data = _tiles(x, _together(down.data(), across.data()).reshape(each, 1, *products), tile, tiles, term, emit)
    if n == 1:
        data = emit("Transpose", emit("Reshape", data, shape=(c, each, count)), perm=(1, 0, 2))
    else:
        data = emit("Transpose", emit("Reshape", data, shape=(n, c, each, count)), perm=(2, 1, 0, 3))
        data = emit("Reshape", data, shape=(each, c, n * count))

    product = emit("MatMul", apply("reshape", u, shape=(each, f, c)), data)
    result = emit("MatMul", _together(down.back(), across.back()), emit("Reshape", product, shape=(each, f * n * count)))
    if n != 1:
        result = emit("Transpose", emit("Reshape", result, shape=(math.prod(tile) * f, n, count)), perm=(1, 0, 2))

    result = _laid_out(result, (n, f), tile, tiles, emit)
    if all(k * m == extent for k, m, extent in zip(tiles, tile, image, strict=True)):
        return result
    return emit("Slice", result, starts=(0, 0), ends=tuple(image), axes=(2, 3))


def _tiles(
    x: Term, windows: npt.NDArray[np.float64], tile: tuple[int, ...], tiles: tuple[int, ...], term: Term, emit: Emit
) -> str:
    """Apply each window to each tile of each channel separately, and return the name of the result [n c, windows, tiles]."""
    n, c, *image = x.sizes
    before, window = term.integers("pads")[:2], windows.shape[2:]
    after = (m * (k - 1) + p - extent - b for m, k, p, extent, b in zip(tile, tiles, window, image, before, strict=True))
    alone = emit("Reshape", x, shape=(n * c, 1, *image))
    return emit("Conv", alone, windows, kernel_shape=window, strides=tile, pads=(*before, *after))


def _laid_out(blocks: str, images: tuple[int, int], tile: tuple[int, ...], tiles: tuple[int, ...], emit: Emit) -> str:
    """Arrange tiles [n, tile, f, tiles] as images [n, f], and return the name of the result."""
    n, f = images
    if tile[0] == tile[1]:
        mode = {"mode": "DCR"} if emit.opset >= 11 else {}
        stacked = emit("Reshape", blocks, shape=(n, math.prod(tile) * f, *tiles))
        return emit("DepthToSpace", stacked, blocksize=tile[0], **mode)
    apart = emit("Transpose", emit("Reshape", blocks, shape=(n, *tile, f, *tiles)), perm=(0, 3, 4, 1, 5, 2))
    return emit("Reshape", apart, shape=(n, f, tiles[0] * tile[0], tiles[1] * tile[1]))


def _together(down: Matrix, across: Matrix) -> npt.NDArray[np.float64]:
    """Return one matrix that applies both matrices, one along each axis."""
    return np.asarray(np.kron(*(np.array(m, dtype=np.float64) for m in (down, across))), dtype=np.float64)
