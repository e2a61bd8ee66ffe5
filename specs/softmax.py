"""exp(x) divided by its sum along an axis (ONNX Softmax).

Before opset 13, the ONNX operator normalizes over the given axis and all following axes together. Lowering therefore moves the
axis to the end with a Transpose node.
"""

from __future__ import annotations

from superopt.algebra.index import Axis, Tensor
from superopt.algebra.operators import Emit, Node
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.softmax_legacy import lifted, lowered

ONNX = "Softmax"

COMPOSITE = """
    exp(x) * expand(reciprocal(reduce_sum(exp(x), axes=(axis,))), shape=x.shape, axes=others(x, axis))
    for x[1, 2, 3, 4], axis[-1, -2, -3, -4]
"""

KERNEL = "softmax(x - expand(reduce_max(x, axes=(axis,)), shape=x.shape, axes=others(x, axis)), axis=axis)"
"""Kernels subtract the maximum first. An infinite maximum makes all elements NaN."""


def softmax(x: Tensor, *, axis: Axis) -> Tensor:
    return composed(COMPOSITE, {"x": x}, axis=axis)


def lift(node: Node) -> Term | None:
    return lifted(node, "softmax")


def lower(term: Term, emit: Emit) -> str:
    return lowered(term, "Softmax", emit)
