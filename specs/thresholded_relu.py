"""x where x is greater than alpha, and 0 elsewhere (ONNX ThresholdedRelu)."""

from __future__ import annotations

from superopt.algebra.index import Real, Tensor
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "ThresholdedRelu"

COMPOSITE = """
    where(less(scale(ones(shape=x.shape), factor=alpha), x), x, zeros(shape=x.shape))
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("thresholded_relu", "alpha")
    + """
    relu:          thresholded_relu(x, alpha=0) == relu(x)  for x[1, 2, 3, 4]
"""
)


def thresholded_relu(x: Tensor, *, alpha: Real) -> Tensor:
    return composed(COMPOSITE, {"x": x}, alpha=alpha)


def lift(node: Node) -> Term | None:
    return apply("thresholded_relu", node.operand(0), alpha=fraction_of(node.attribute("alpha", 1.0)))


def lower(term: Term, emit: Emit) -> str:
    return emit("ThresholdedRelu", *term.args, alpha=term.real("alpha"))
