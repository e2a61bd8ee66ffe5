"""The Gaussian error linear unit x * (1 + erf(x / sqrt(2))) / 2, elementwise (ONNX Gelu, opset 20).

The definition contains the square root of 1/2 as a term, so that no proof needs a rounded number. The term is constant, so
lowering folds it into a weight.
"""

from __future__ import annotations

from math import sqrt

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "Gelu"

COMPOSITE = """
    scale(x + x * erf(x * sqrt(scale(ones(shape=x.shape), factor=1 / 2))), factor=1 / 2)
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("gelu", fixes_zero=True)
    + """
    negate:        gelu(x) - gelu(scale(x, factor=-1)) == x  for x[1, 2, 3, 4]
"""
)


def gelu(x: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x})


def lift(node: Node) -> Term | None:
    return apply("gelu", node.operand(0)) if node.attribute("approximate", "none") == "none" else None


def lower(term: Term, emit: Emit) -> str:
    x = term.args[0]
    if emit.opset >= 20:
        return emit("Gelu", x)
    twice = emit("Mul", x, emit("Add", emit("Erf", emit("Div", x, sqrt(2))), 1))
    return emit("Mul", twice, 0.5)
