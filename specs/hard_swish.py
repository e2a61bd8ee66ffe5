"""x * clip(x / 6 + 1/2, 0, 1), elementwise (ONNX HardSwish, opset 14)."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "HardSwish"

COMPOSITE = """
    x * hard_sigmoid(x, alpha=1 / 6, beta=1 / 2)
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("hard_swish", fixes_zero=True)
    + """
    negate:        hard_swish(x) - hard_swish(scale(x, factor=-1)) == x  for x[1, 2, 3, 4]
"""
)


def hard_swish(x: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x})


def lift(node: Node) -> Term | None:
    return apply("hard_swish", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    x = term.args[0]
    return emit("HardSwish", x) if emit.opset >= 14 else emit("Mul", x, emit("HardSigmoid", x, alpha=1 / 6, beta=0.5))
