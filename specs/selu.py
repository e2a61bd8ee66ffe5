"""gamma * x where x is positive, and gamma * alpha * (exp(x) - 1) elsewhere (ONNX Selu)."""

from __future__ import annotations

from superopt.algebra.index import Real, Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed

ONNX = "Selu"
ROUNDS_BY_POSITION = ("float32",)

COMPOSITE = """
    scale(elu(x, alpha=alpha), factor=gamma)
    for x[1, 2, 3, 4]
"""


def selu(x: Tensor, *, alpha: Real, gamma: Real) -> Tensor:
    return composed(COMPOSITE, {"x": x}, alpha=alpha, gamma=gamma)


def lift(node: Node) -> Term | None:
    alpha, gamma = node.attribute("alpha", 1.6732632), node.attribute("gamma", 1.050701)
    return apply("selu", node.operand(0), alpha=alpha, gamma=gamma)


def lower(term: Term, emit: Emit) -> str:
    return emit("Selu", *term.args, alpha=term.real("alpha"), gamma=term.real("gamma"))
