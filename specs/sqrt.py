"""The square root, elementwise (ONNX Sqrt). The result is NaN where x < 0."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pointwise

ONNX = "Sqrt"
EXACT = "root"
DOMAIN = "positive"

AXIOMS = (
    pointwise("sqrt", fixes_zero=True)
    + """
    square:        sqrt(x * x) == abs(x)  for x[1, 2, 3, 4]
    product:       sqrt(abs(x) * abs(y)) == sqrt(abs(x)) * sqrt(abs(y))  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    exp:           sqrt(x * exp(y)) == sqrt(x) * exp(scale(y, factor=1 / 2))  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    undone:        sqrt(x) * sqrt(x) => x  for x[1, 2, 3, 4]
    roots:         sqrt(x) * sqrt(y) => sqrt(x * y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    scale:         sqrt(scale(x, factor=a * a)) == scale(sqrt(x), factor=a)  for x[1, 2, 3, 4] where a >= 0, a != 0
    reciprocal:    sqrt(reciprocal(x)) == reciprocal(sqrt(x))  for x[1, 2, 3, 4]
    zeros:         sqrt(zeros(shape=s)) == zeros(shape=s)  for s[1, 2, 3, 4]
    ones:          sqrt(ones(shape=s)) == ones(shape=s)  for s[1, 2, 3, 4]
"""
)


def sqrt(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("sqrt", x[i]))


def lift(node: Node) -> Term | None:
    return apply("sqrt", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Sqrt", *term.args)
