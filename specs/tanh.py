"""The hyperbolic tangent, elementwise (ONNX Tanh)."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import increasing, pointwise, pooled

ONNX = "Tanh"
ROUNDS_BY_POSITION = ("float64",)

COMPOSITE = """
    scale(sigmoid(scale(x, factor=2)), factor=2) - ones(shape=x.shape)
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("tanh", fixes_zero=True)
    + increasing("tanh")
    + pooled("tanh")
    + """
    odd:           tanh(scale(x, factor=-1)) == scale(tanh(x), factor=-1)  for x[1, 2, 3, 4]
    sigmoid:       scale(tanh(scale(x, factor=1 / 2)) + ones(shape=x.shape), factor=1 / 2) == sigmoid(x)  for x[1, 2, 3, 4]
"""
)


def tanh(x: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x})


def lift(node: Node) -> Term | None:
    return apply("tanh", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Tanh", *term.args)
