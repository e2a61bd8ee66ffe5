"""The logistic function 1 / (1 + exp(-x)), elementwise (ONNX Sigmoid)."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import increasing, pointwise, pooled

ONNX = "Sigmoid"
ROUNDS_BY_POSITION = ("float64",)
ABSOLUTE_ERROR = True

COMPOSITE = """
    reciprocal(ones(shape=x.shape) + exp(scale(x, factor=-1)))
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("sigmoid")
    + increasing("sigmoid")
    + pooled("sigmoid")
    + """
    negate:        sigmoid(scale(x, factor=-1)) == ones(shape=x.shape) - sigmoid(x)  for x[1, 2, 3, 4]
    exp:           sigmoid(x) == exp(x) * sigmoid(scale(x, factor=-1))  for x[1, 2, 3, 4]
"""
)


def sigmoid(x: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x})


def lift(node: Node) -> Term | None:
    return apply("sigmoid", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Sigmoid", *term.args)
