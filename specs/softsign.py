"""x / (1 + |x|), elementwise (ONNX Softsign)."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "Softsign"

COMPOSITE = """
    x * reciprocal(ones(shape=x.shape) + abs(x))
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("softsign", fixes_zero=True)
    + """
    odd:           softsign(scale(x, factor=-1)) == scale(softsign(x), factor=-1)  for x[1, 2, 3, 4]
"""
)


def softsign(x: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x})


def lift(node: Node) -> Term | None:
    return apply("softsign", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Softsign", *term.args)
