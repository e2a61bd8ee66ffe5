"""Sums of absolute values over whole axes (ONNX ReduceL1). The reduced axes are removed.

A node with keepdims=1 is lifted to a reduction and a reshape.
"""

from __future__ import annotations

from superopt.algebra.index import Axes, Tensor, larger, number, total
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.reduction import lifted, lowered, reduced

ONNX = "ReduceL1"
EXACT = "order"

AXIOMS = """
    as-sum:       reduce_l1(x, axes=(k,)) == reduce_sum(abs(x), axes=(k,))  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    as-sum-image: reduce_l1(x, axes=(-2, -1)) == reduce_sum(abs(x), axes=(-2, -1))  for x[2, 3, 4]
"""


def reduce_l1(x: Tensor, *, axes: Axes) -> Tensor:
    return reduced(x, axes, total, lambda value: larger(value, number(0) - value))


def lift(node: Node) -> Term | None:
    return lifted(node, "reduce_l1", lambda x: apply("abs", x))


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, emit)
