"""Sums of squares over whole axes (ONNX ReduceSumSquare). The reduced axes are removed.

A node with keepdims=1 is lifted to a reduction and a reshape.
"""

from __future__ import annotations

from superopt.algebra.index import Axes, Tensor, total
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.reduction import lifted, lowered, reduced

ONNX = "ReduceSumSquare"

AXIOMS = """
    as-sum:       reduce_sum_square(x, axes=(k,)) == reduce_sum(x * x, axes=(k,))  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    as-sum-image: reduce_sum_square(x, axes=(-2, -1)) == reduce_sum(x * x, axes=(-2, -1))  for x[2, 3, 4]
"""


def reduce_sum_square(x: Tensor, *, axes: Axes) -> Tensor:
    return reduced(x, axes, total, lambda value: value * value)


def lift(node: Node) -> Term | None:
    return lifted(node, "reduce_sum_square", lambda x: apply("mul", x, x))


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, emit)
