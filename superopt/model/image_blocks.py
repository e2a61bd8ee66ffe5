"""Use SpaceToDepth and DepthToSpace instead of transposes that move image blocks into channels, or channels into blocks."""

from __future__ import annotations

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term

INTO = (0, 2, 4, 1, 3)
"""The permutation that changes the order of axes from (n, rows, block, columns, block) to (n, block, block, rows, columns)."""
BACK = (0, 3, 1, 4, 2)


def rewrite_block_transpose(term: Term) -> Term | None:
    """Rewrite a transpose of image blocks as SpaceToDepth or DepthToSpace between two reshapes.

    The transpose must move whole square blocks. The result equals the transpose. Return None for any other term. On CPUs, ONNX
    Runtime's kernels for these operators are several times as fast as its kernel for arbitrary transposes.
    """
    if term.op != "transpose":
        return None
    x = term.args[0]
    perm, sizes = _merged(tuple(a + x.rank for a in term.integers("perm")), x.sizes)
    if len(perm) == 4:
        perm, sizes = (0, *(a + 1 for a in perm)), (1, *sizes)
    if perm == INTO and sizes[2] == sizes[4]:
        n, rows, block, columns, _ = sizes
        images = apply("reshape", x, shape=(n, 1, rows * block, columns * block))
        return apply("reshape", apply("space_to_depth", images, block=block), shape=term.shape)
    if perm == BACK and sizes[1] == sizes[2]:
        n, block, _, rows, columns = sizes
        channels = apply("reshape", x, shape=(n, block * block, rows, columns))
        return apply("reshape", apply("depth_to_space", channels, block=block), shape=term.shape)
    return None


def _merged(perm: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return an equivalent permutation of fewer axes, and the sizes of these axes.

    Axes of extent 1 are dropped. Axes that the permutation keeps adjacent and in order are merged.
    """
    runs: list[list[int]] = []
    kept = [a for a in range(len(sizes)) if sizes[a] != 1]
    rank = {axis: place for place, axis in enumerate(kept)}
    for axis in (rank[a] for a in perm if a in rank):
        if runs and axis == runs[-1][-1] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    order = sorted(range(len(runs)), key=lambda r: runs[r][0])
    place = {run: position for position, run in enumerate(order)}
    products = [1] * len(runs)
    for run in range(len(runs)):
        for axis in runs[run]:
            products[place[run]] *= sizes[kept[axis]]
    return tuple(place[run] for run in range(len(runs))), tuple(products)
