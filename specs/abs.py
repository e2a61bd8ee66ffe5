"""The absolute value, elementwise (ONNX Abs)."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "Abs"

COMPOSITE = """
    maximum(x, scale(x, factor=-1))
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("abs", fixes_zero=True)
    + """
    twice:         abs(abs(x)) == abs(x)  for x[1, 2, 3, 4]
    mul:           abs(x * y) == abs(x) * abs(y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    square:        abs(x) * abs(x) == x * x  for x[1, 2, 3, 4]
    scale:         abs(scale(x, factor=a)) == scale(abs(x), factor=a)  for x[1, 2, 3, 4] where a >= 0
    negate:        abs(scale(x, factor=-1)) == abs(x)  for x[1, 2, 3, 4]
    relu:          abs(x) == relu(x) + relu(scale(x, factor=-1))  for x[1, 2, 3, 4]
    relu-inside:   abs(relu(x)) == relu(x)  for x[1, 2, 3, 4]
    relu-outside:  relu(abs(x)) == abs(x)  for x[1, 2, 3, 4]
    half:          scale(x + abs(x), factor=1 / 2) == relu(x)  for x[1, 2, 3, 4]
    maximum:       scale(x + y + abs(x - y), factor=1 / 2) == maximum(x, y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    minimum:       scale(x + y - abs(x - y), factor=1 / 2) == minimum(x, y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    exp:           abs(exp(x)) == exp(x)  for x[1, 2, 3, 4]
    sqrt:          abs(sqrt(x)) == sqrt(x)  for x[1, 2, 3, 4]
    reciprocal:    abs(reciprocal(x)) == reciprocal(abs(x))  for x[1, 2, 3, 4]
"""
)


def abs(x: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x})


def lift(node: Node) -> Term | None:
    return apply("abs", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Abs", *term.args)
