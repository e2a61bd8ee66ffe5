"""x where x is positive, and alpha * (exp(x) - 1) elsewhere (ONNX Elu)."""

from __future__ import annotations

from superopt.algebra.index import Real, Tensor
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "Elu"
ROUNDS_BY_POSITION = ("float32",)

COMPOSITE = """
    relu(x) + scale(exp(minimum(x, zeros(shape=x.shape))) - ones(shape=x.shape), factor=alpha)
    for x[1, 2, 3, 4]
"""

AXIOMS = pointwise("elu", "alpha", fixes_zero=True)


def elu(x: Tensor, *, alpha: Real = 1) -> Tensor:
    return composed(COMPOSITE, {"x": x}, alpha=alpha)


def lift(node: Node) -> Term | None:
    return apply("elu", node.operand(0), alpha=fraction_of(node.attribute("alpha", 1.0)))


def lower(term: Term, emit: Emit) -> str:
    return emit("Elu", *term.args, alpha=term.real("alpha"))
