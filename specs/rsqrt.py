"""1 / sqrt(x), elementwise (ONNX Reciprocal of Sqrt). The operator occurs in the weights of batch normalization."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

DOMAIN = "positive"

COMPOSITE = """
    reciprocal(sqrt(x))
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("rsqrt")
    + """
    square:        rsqrt(x) * rsqrt(x) => reciprocal(x)  for x[1, 2, 3, 4]
"""
)


def rsqrt(x: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x})


def lower(term: Term, emit: Emit) -> str:
    return emit("Reciprocal", emit("Sqrt", *term.args))
