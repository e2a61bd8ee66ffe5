"""exp(x), elementwise (ONNX Exp)."""

from __future__ import annotations

from superopt.graph import Term
from superopt.index import Tensor, call, tensor
from superopt.op import Emit, Node, apply, pointwise

ONNX = "Exp"
EXACT = "uninterpreted"

AXIOMS = (
    pointwise("exp")
    + """
    add:          exp(x + y) == exp(x) * exp(y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
"""
)


def exp(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("exp", x[i]))


def lift(node: Node) -> Term | None:
    return apply("exp", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Exp", *term.args)
