"""Logarithms of sums of exponentials over whole axes (ONNX ReduceLogSumExp). The reduced axes are removed.

A node with keepdims=1 is lifted to a reduction and a reshape.
"""

from __future__ import annotations

from superopt.algebra.index import Axes, Tensor, call, total
from superopt.algebra.operators import Emit, Node
from superopt.algebra.terms import Term
from superopt.speclib.reduction import lifted, lowered, reduced

ONNX = "ReduceLogSumExp"
EXACT = "exponential, logarithm"

AXIOMS = """
    as-sum:       reduce_log_sum_exp(x, axes=(k,)) == log(reduce_sum(exp(x), axes=(k,)))  for x[1, 2, 3, 4], k[-1, -2, -3, -4]
    as-sum-image: reduce_log_sum_exp(x, axes=(-2, -1)) == log(reduce_sum(exp(x), axes=(-2, -1)))  for x[2, 3, 4]
"""

KERNEL = """
    log(reduce_sum(exp(x - expand(clip(reduce_max(x, axes=axes), low=-3.4028234663852886e38, high=3.4028234663852886e38),
    shape=x.shape, axes=others(x, axes))), axes=axes))
    + clip(reduce_max(x, axes=axes), low=-3.4028234663852886e38, high=3.4028234663852886e38)
"""
"""Kernels subtract the maximum first, where it is finite."""


def reduce_log_sum_exp(x: Tensor, *, axes: Axes) -> Tensor:
    return reduced(x, axes, total, lambda value: call("exp", value), lambda value: call("log", value))


def lift(node: Node) -> Term | None:
    return lifted(node, "reduce_log_sum_exp")


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, emit)
