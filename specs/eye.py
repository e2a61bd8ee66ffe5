"""The identity matrix."""

from __future__ import annotations

from superopt.algebra.index import Tensor, number, require, same, select, tensor
from superopt.algebra.terms import Extent

AXIOMS = """
    transpose:    transpose(eye(n=n), perm=(-1, -2)) == eye(n=n)
"""


def eye(*, n: Extent) -> Tensor:
    require(n >= 1, "eye: not empty")
    return tensor((n, n), lambda i, j: select(same(i, j), number(1), number(0)))
