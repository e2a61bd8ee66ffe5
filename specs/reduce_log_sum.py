"""Logarithms of sums over whole axes (ONNX ReduceLogSum). The reduced axes are removed.

A node with keepdims=1 is lifted to a reduction and a reshape.
"""

from __future__ import annotations

from superopt.algebra.index import Axes, Tensor, call, total
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.reduction import lifted, lowered, reduced

ONNX = "ReduceLogSum"
EXACT = "logarithm"
DOMAIN = "positive"

AXIOMS = """
    as-sum:       reduce_log_sum(x, axes=(k,)) == log(reduce_sum(x, axes=(k,)))  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    as-sum-image: reduce_log_sum(x, axes=(-2, -1)) == log(reduce_sum(x, axes=(-2, -1)))  for x[2, 3, 4]
"""


def reduce_log_sum(x: Tensor, *, axes: Axes) -> Tensor:
    return reduced(x, axes, total, result=lambda value: call("log", value))


def lift(node: Node) -> Term | None:
    return lifted(node, "reduce_log_sum", lambda x: apply("log", x))


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, emit)
