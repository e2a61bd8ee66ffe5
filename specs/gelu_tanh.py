"""x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) / 2, elementwise (ONNX Gelu, approximate="tanh", opset 20).

The definition contains sqrt(2 / pi) as a decimal number with 16 digits, which is the precision of float64.
"""

from __future__ import annotations

from math import pi, sqrt

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "Gelu"
ROUNDS_BY_POSITION = ("float64",)

COMPOSITE = """
    scale(x + x * tanh(scale(x + scale(x * x * x, factor=8943 / 200000), factor=7978845608028654 / 10000000000000000)),
          factor=1 / 2)
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("gelu_tanh", fixes_zero=True)
    + """
    negate:        gelu_tanh(x) - gelu_tanh(scale(x, factor=-1)) == x  for x[1, 2, 3, 4]
"""
)


def gelu_tanh(x: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x})


def lift(node: Node) -> Term | None:
    return apply("gelu_tanh", node.operand(0)) if node.attribute("approximate", "none") == "tanh" else None


def lower(term: Term, emit: Emit) -> str:
    x = term.args[0]
    if emit.opset >= 20:
        return emit("Gelu", x, approximate="tanh")
    cubic = emit("Add", x, emit("Mul", emit("Pow", x, 3), 0.044715))
    twice = emit("Mul", x, emit("Add", emit("Tanh", emit("Mul", cubic, sqrt(2 / pi))), 1))
    return emit("Mul", twice, 0.5)
