"""1 / x, elementwise (ONNX Reciprocal). The result is infinite where x is 0. ONNX Div is a product with a reciprocal."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pointwise

ONNX = "Reciprocal"
EXACT = "field"

AXIOMS = (
    pointwise("reciprocal")
    + """
    twice:         reciprocal(reciprocal(x)) => x  for x[1, 2, 3, 4]
    cancel:        x * reciprocal(x) => ones(shape=x.shape)  for x[1, 2, 3, 4]
    product:       reciprocal(x * y) == reciprocal(x) * reciprocal(y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    scale:         reciprocal(scale(x, factor=a)) == scale(reciprocal(x), factor=1 / a)  for x[1, 2, 3, 4] where a != 0
    ones:          reciprocal(ones(shape=s)) == ones(shape=s)  for s[1, 2, 3, 4]
"""
)


def reciprocal(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("reciprocal", x[i]))


def lift(node: Node) -> Term | None:
    return apply("reciprocal", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Reciprocal", *term.args)
