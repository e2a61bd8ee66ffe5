"""x / (1 + exp(-alpha * x)), elementwise (ONNX Swish, opset 24), also known as swish."""

from __future__ import annotations

from superopt.algebra.index import Real, Tensor
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "Swish"
ROUNDS_BY_POSITION = ("float64",)
ABSOLUTE_ERROR = True

COMPOSITE = """
    x * sigmoid(scale(x, factor=alpha))
    for x[1, 2, 3, 4]
"""

AXIOMS = pointwise("silu", "alpha", fixes_zero=True)


def silu(x: Tensor, *, alpha: Real = 1) -> Tensor:
    return composed(COMPOSITE, {"x": x}, alpha=alpha)


def lift(node: Node) -> Term | None:
    return apply("silu", node.operand(0), alpha=fraction_of(node.attribute("alpha", 1.0)))


def lower(term: Term, emit: Emit) -> str:
    x, alpha = term.args[0], term["alpha"]
    if emit.opset >= 24:
        return emit("Swish", x, alpha=term.real("alpha"))
    return emit("Mul", x, emit("Sigmoid", x if alpha == 1 else emit("Mul", x, alpha)))
