"""The universes in the order in which they are explored: what an earlier one finds makes rules of a later one redundant."""

from __future__ import annotations

from collections.abc import Mapping

from superopt.find import convolution, matrix
from superopt.find.universe import Universe

UNIVERSES: tuple[Universe, ...] = (
    matrix.ELEMENTWISE,
    matrix.PIECES,
    matrix.MATRIX,
    matrix.HALVES,
    matrix.LOW_RANK,
    matrix.DIFFERENCES,
    matrix.SQUARE,
    convolution.GROUPED,
    convolution.CONVOLVED_DIFFERENCES,
    convolution.DENSE,
    convolution.DEPTHWISE,
    convolution.ENLARGED,
    convolution.RESIDUAL,
    convolution.POOLING,
    convolution.LAYOUT,
)
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(u.family for u in UNIVERSES))
ABOUT: Mapping[str, str] = {
    "matrix": "Rules between elementwise operators, matrix products, pieces of tensors and reductions.",
    "convolution": "Rules about convolutions, pools, channels and the layout of images.",
    "definitions": "What composite operators are: folded always, written out where only moves, sums and products are gained.",
}
"""What the rules of each family are about, as the first lines of its file say."""
