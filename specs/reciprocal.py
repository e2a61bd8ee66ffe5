"""1 / x, elementwise (ONNX Reciprocal)."""

from __future__ import annotations

from superopt.graph import Term
from superopt.index import Tensor, call, tensor
from superopt.op import Emit, Node, apply, pointwise

ONNX = "Reciprocal"
EXACT = "uninterpreted"

AXIOMS = pointwise("reciprocal")


def reciprocal(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("reciprocal", x[i]))


def lift(node: Node) -> Term | None:
    return apply("reciprocal", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Reciprocal", *term.args)
