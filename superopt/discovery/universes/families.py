"""The universes (vocabularies for enumeration) in the order of exploration.

The order matters because rules of an earlier universe can make rules of a later universe redundant.
"""

from __future__ import annotations

from collections.abc import Mapping

from superopt.discovery.universe import Universe
from superopt.discovery.universes import (
    batches,
    convolution,
    gather,
    heads,
    images,
    matrix,
    mixture_of_experts,
    pointwise,
    reductions,
    stacks,
    unit_axes,
)

UNIVERSES: tuple[Universe, ...] = (
    matrix.AFFINE,
    matrix.ELEMENTWISE,
    matrix.SPLIT,
    matrix.HALVES,
    matrix.PIECES,
    matrix.INTERVALS,
    matrix.BIASES,
    matrix.FACTORED,
    matrix.MATRIX,
    matrix.LOW_RANK,
    matrix.DIFFERENCES,
    matrix.SQUARE,
    pointwise.ORDER,
    pointwise.CLAMPS,
    pointwise.POWERS,
    pointwise.EXPONENTIALS,
    pointwise.SIGMOIDS,
    pointwise.ERROR_FUNCTIONS,
    pointwise.CONDITIONS,
    *pointwise.MOVES,
    pointwise.MOVES_OF_CONDITIONS,
    reductions.SUMS,
    reductions.EXTREMES,
    reductions.SOFTMAXES,
    reductions.MOVES_OF_SOFTMAXES,
    reductions.NORMS,
    reductions.REPEATS,
    reductions.SCANS,
    batches.BATCHED,
    batches.REPEATED,
    batches.PAIRS,
    batches.STACKED,
    batches.UNFLATTENED,
    batches.PICKED,
    convolution.GROUPED,
    convolution.CONVOLVED_DIFFERENCES,
    convolution.DENSE,
    convolution.DEPTHWISE,
    convolution.ENLARGED,
    convolution.RESIDUAL,
    convolution.POOLING,
    convolution.LAYOUT,
    images.POOLED,
    images.ENLARGING,
    images.BLOCKS,
    images.TRANSPOSED,
    *gather.UNIVERSES,
    convolution.PADDED,
    convolution.PADDED_DEPTHWISE,
    convolution.PADDED_MASKS,
    *mixture_of_experts.UNIVERSES,
    *heads.UNIVERSES,
    batches.SPREAD,
    images.ENLARGED_BIASES,
    *stacks.UNIVERSES,
    *unit_axes.UNIVERSES,
    matrix.SIGNS,
    matrix.AFFINE_LAYERS,
)
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(u.family for u in UNIVERSES))
ABOUT: Mapping[str, str] = {
    "matrix": "Rules between elementwise operators, matrix products, pieces of tensors and reductions.",
    "pointwise": "Rules about functions of single elements, maxima and conditions, and how they trade places with moves.",
    "reductions": "Rules about sums, means and maxima over axes, softmax and normalizations, repetition and scans.",
    "batches": "Rules about batched products, stacked tensors, and positions picked by constant indices.",
    "images": "Rules about enlarging, pooling and blocks of images, and transposed convolutions.",
    "convolution": "Rules about convolutions, pools, channels and the layout of images.",
    "lookups": "Rules about rows of tables at positions that are known at run time alone: what is done to the table before.",
    "padding": "Rules about channels that are zero: how they move through images and kernels, and where they cancel.",
    "gates": "Rules about rows and tensors that are weighted at run time: how weights move through products.",
    "heads": "Rules about heads of attention: how they trade places with the batch, and how products of them are transposed.",
    "stacks": "Rules about tensors side by side, stacked along an axis of their own, and what is taken out of stacks again.",
    "lone": "Rules about axes of one position: what is constant there, and what leaves them alone.",
    "definitions": "What composite operators are: folded always, written out where only moves, sums and products are gained.",
    "operators": "Rules of single operators: how elements move through the operator, and what its axioms state.",
    "algorithms": "By what other algorithms operators can be computed: with fewer multiplications, or in fuller vectors.",
    "mutants": "What mutants of pools and convolutions generalise to: other layouts, and factors that correct borders.",
}
"""For each family (the rules that are stored in one file), the subject of its rules. The subject is stated at the top of the
file.
"""
