"""exp(x) over its sum along an axis (ONNX Softmax)."""

from __future__ import annotations

from superopt.composite import composed
from superopt.graph import Term
from superopt.index import Axis, Tensor
from superopt.op import Emit, Node, apply

ONNX = "Softmax"
EXACT = "uninterpreted"

COMPOSITE = """
    exp(x) * expand(reciprocal(reduce_sum(exp(x), axes=(axis,))), shape=x.shape, axes=others(x, axis))
    for x[2, 3, 4], axis[-1, -2, -3, -4]
"""


def softmax(x: Tensor, *, axis: Axis) -> Tensor:
    return composed(COMPOSITE, {"x": x}, axis=axis)


def lift(node: Node) -> Term | None:
    return apply("softmax", node.operand(0), axis=node.attribute("axis", -1)) if node.opset >= 13 else None


def lower(term: Term, emit: Emit) -> str:
    x = term.args[0]
    axis = term["axis"]
    assert isinstance(axis, int)
    return emit("Softmax", x, axis=axis + x.rank)
