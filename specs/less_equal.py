"""1 where x <= y, and 0 elsewhere (ONNX LessOrEqual, GreaterOrEqual). x and y have equal shapes. The result is a condition."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed

ONNX = ("LessOrEqual", "GreaterOrEqual")

COMPOSITE = """
    logical_not(less(y, x))
    for x[1, 2, 3, 4], y[1, 2, 3, 4]
"""

KERNEL = "logical_or(less(x, y), equal(x, y))"


def less_equal(x: Tensor, y: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x, "y": y})


def lift(node: Node) -> Term | None:
    x, y = node.broadcast()
    return apply("less_equal", x, y) if node.op_type == "LessOrEqual" else apply("less_equal", y, x)


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("LessOrEqual", term)
