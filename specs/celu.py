"""x where x is positive, and alpha * (exp(x / alpha) - 1) elsewhere (ONNX Celu, opset 12)."""

from __future__ import annotations

from superopt.algebra.index import Real, Tensor, require, same
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term, at_least, negation
from superopt.speclib.composite import composed

ONNX = "Celu"
ROUNDS_BY_POSITION = ("float32",)

COMPOSITE = """
    scale(elu(scale(x, factor=1 / alpha)), factor=alpha)
    for x[1, 2, 3, 4]
"""


def celu(x: Tensor, *, alpha: Real = 1) -> Tensor:
    require(at_least(alpha, 0), "celu: alpha is positive")
    require(negation(same(alpha, 0)), "celu: alpha is positive")
    return composed(COMPOSITE, {"x": x}, alpha=alpha)


def lift(node: Node) -> Term | None:
    return apply("celu", node.operand(0), alpha=fraction_of(node.attribute("alpha", 1.0)))


def lower(term: Term, emit: Emit) -> str:
    return emit("Celu", *term.args, alpha=term.real("alpha"))
