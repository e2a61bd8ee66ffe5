"""x / y, elementwise (ONNX Div), as a product of x and the reciprocal of y.

A product with a reciprocal is lowered as Div. `scale` lifts divisions by a scalar constant.
"""

from __future__ import annotations

from superopt.algebra.operators import Node, apply
from superopt.algebra.terms import Term

ONNX = "Div"

COMPOSITE = "x * reciprocal(y)"


def lift(node: Node) -> Term | None:
    if node.scalar(1) is not None:
        return None
    y = node.operand(1)
    x = node.scalar(0)
    if x is not None and node.operand(0).rank <= y.rank:
        inverse = apply("reciprocal", y)
        return apply("scale", inverse, factor=x) if x != 1 else inverse
    dividend, divisor = node.broadcast()
    if divisor.op == "expand":
        return apply("mul", dividend, apply("expand", apply("reciprocal", divisor.args[0]), **dict(divisor.attributes)))
    return apply("mul", dividend, apply("reciprocal", divisor))
