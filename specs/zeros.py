"""A tensor in which every element is 0."""

from __future__ import annotations

from superopt.algebra.index import Extents, Tensor, number, require, tensor

AXIOMS = """
    concat:       concat(zeros(shape=(m, n)), zeros(shape=(m, l)), axis=-1) == zeros(shape=(m, n + l))
"""


def zeros(*, shape: Extents) -> Tensor:
    for extent in shape:
        require(extent >= 1, "zeros: not empty")
    return tensor(shape, lambda *_: number(0))
