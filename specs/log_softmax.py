"""The logarithm of softmax along an axis (ONNX LogSoftmax).

Before opset 13 ONNX's runs over that axis and all that follow it, as one; other axes are transposed to the end on lowering.
"""

from __future__ import annotations

from superopt.algebra.index import Axis, Tensor
from superopt.algebra.operators import Emit, Node
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.softmax_legacy import lifted, lowered

ONNX = "LogSoftmax"

COMPOSITE = """
    x - expand(log(reduce_sum(exp(x), axes=(axis,))), shape=x.shape, axes=others(x, axis))
    for x[1, 2, 3, 4], axis[-1, -2, -3, -4]
"""

KERNEL = "log_softmax(x - expand(reduce_max(x, axes=(axis,)), shape=x.shape, axes=others(x, axis)), axis=axis)"
"""Kernels subtract the maximum first. An infinite maximum makes all elements NaN."""


def log_softmax(x: Tensor, *, axis: Axis) -> Tensor:
    return composed(COMPOSITE, {"x": x}, axis=axis)


def lift(node: Node) -> Term | None:
    return lifted(node, "log_softmax")


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, "LogSoftmax", emit)
