"""x where it is positive, alpha * (exp(x / alpha) - 1) elsewhere (ONNX Celu, opset 12)."""

from __future__ import annotations

from superopt.composite import composed
from superopt.graph import Term, at_least, negation
from superopt.index import Real, Tensor, require, same
from superopt.op import Emit, Node, apply, fraction_of

ONNX = "Celu"

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
