"""log(1 + exp(x)), elementwise (ONNX Softplus). The definition is written so that exp does not overflow."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "Softplus"
ROUNDS_BY_POSITION = ("float32",)

COMPOSITE = """
    relu(x) + log(ones(shape=x.shape) + exp(scale(abs(x), factor=-1)))
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("softplus")
    + """
    logarithm:     softplus(x) == log(ones(shape=x.shape) + exp(x))  for x[1, 2, 3, 4]
    negate:        softplus(x) - softplus(scale(x, factor=-1)) == x  for x[1, 2, 3, 4]
    exp:           exp(softplus(x)) == ones(shape=x.shape) + exp(x)  for x[1, 2, 3, 4]
    sigmoid:       exp(softplus(scale(x, factor=-1))) == reciprocal(sigmoid(x))  for x[1, 2, 3, 4]
"""
)


def softplus(x: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x})


def lift(node: Node) -> Term | None:
    return apply("softplus", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Softplus", *term.args)
