"""A tensor in which every element is 1."""

from __future__ import annotations

from superopt.algebra.index import Extents, Tensor, number, require, tensor

AXIOMS = """
    concat:       concat(ones(shape=(m, n)), ones(shape=(m, l)), axis=-1) == ones(shape=(m, n + l))
"""


def ones(*, shape: Extents) -> Tensor:
    for extent in shape:
        require(extent >= 1, "ones: not empty")
    return tensor(shape, lambda *_: number(1))
