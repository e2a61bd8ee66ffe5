"""x * tanh(log(1 + exp(x))), elementwise (ONNX Mish, opset 18)."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "Mish"
ROUNDS_BY_POSITION = ("float32",)

COMPOSITE = """
    x * tanh(softplus(x))
    for x[1, 2, 3, 4]
"""

AXIOMS = pointwise("mish", fixes_zero=True)


def mish(x: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x})


def lift(node: Node) -> Term | None:
    return apply("mish", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    x = term.args[0]
    return emit("Mish", x) if emit.opset >= 18 else emit("Mul", x, emit("Tanh", emit("Softplus", x)))
