"""Square roots of sums of squares over whole axes (ONNX ReduceL2). The reduced axes are removed.

A node with keepdims=1 is lifted to a reduction and a reshape.
"""

from __future__ import annotations

from superopt.algebra.index import Axes, Tensor, call, total
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.reduction import lifted, lowered, reduced

ONNX = "ReduceL2"
EXACT = "root"

AXIOMS = """
    as-sum:       reduce_l2(x, axes=(k,)) == sqrt(reduce_sum_square(x, axes=(k,)))  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    as-sum-image: reduce_l2(x, axes=(-2, -1)) == sqrt(reduce_sum_square(x, axes=(-2, -1)))  for x[2, 3, 4]
"""


def reduce_l2(x: Tensor, *, axes: Axes) -> Tensor:
    return reduced(x, axes, total, lambda value: value * value, lambda value: call("sqrt", value))


def lift(node: Node) -> Term | None:
    return lifted(node, "reduce_l2", lambda x: apply("abs", x))


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, emit)
