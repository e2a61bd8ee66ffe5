"""The kernel of average pooling as a depthwise convolution. Every element is 1 / (shape[-2] * shape[-1])."""

from __future__ import annotations

from superopt.algebra.index import Extents, Tensor, number, require, tensor
from superopt.algebra.terms import inverse

EXACT = "quotient"

AXIOMS = """
    as-ones:      mean_kernel(shape=s) == scale(ones(shape=s), factor=1 / (s2 * s3))  for s[4]
"""


def mean_kernel(*, shape: Extents) -> Tensor:
    require(len(shape) == 4, "mean_kernel: rank 4")
    for extent in shape:
        require(extent >= 1, "mean_kernel: not empty")
    return tensor(shape, lambda *_: number(inverse(shape[-2] * shape[-1])))
