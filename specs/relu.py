"""max(x, 0), elementwise (ONNX Relu)."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pointwise

ONNX = "Relu"
EXACT = "order"

AXIOMS = (
    pointwise("relu", fixes_zero=True)
    + """
    twice:         relu(relu(x)) == relu(x)  for x[1, 2, 3, 4]
    zeros:         relu(zeros(shape=s)) == zeros(shape=s)  for s[1, 2, 3, 4]
    scale:         relu(scale(x, factor=a)) == scale(relu(x), factor=a)  for x[1, 2, 3, 4] where a >= 0
    parts:         relu(x) - relu(scale(x, factor=-1)) == x  for x[1, 2, 3, 4]
    exp:           relu(exp(x)) == exp(x)  for x[1, 2, 3, 4]
    sqrt:          relu(sqrt(x)) == sqrt(x)  for x[1, 2, 3, 4]
"""
)


def relu(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("relu", x[i]))


def lift(node: Node) -> Term | None:
    return apply("relu", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Relu", *term.args)
