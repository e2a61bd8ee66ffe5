"""alpha * x + beta, clipped to the range from 0 to 1, elementwise (ONNX HardSigmoid)."""

from __future__ import annotations

from superopt.algebra.index import Real, Tensor
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "HardSigmoid"

COMPOSITE = """
    clip(scale(x, factor=alpha) + scale(ones(shape=x.shape), factor=beta), low=0, high=1)
    for x[1, 2, 3, 4]
"""

AXIOMS = (
    pointwise("hard_sigmoid", "alpha", "beta")
    + """
    negate:        hard_sigmoid(scale(x, factor=-1), alpha=a, beta=b)
                   == ones(shape=x.shape) - hard_sigmoid(x, alpha=a, beta=1 - b)
                   for x[1, 2, 3, 4]
    scale:         hard_sigmoid(scale(x, factor=c), alpha=a, beta=b) == hard_sigmoid(x, alpha=a * c, beta=b)  for x[1, 2, 3, 4]
"""
)


def hard_sigmoid(x: Tensor, *, alpha: Real, beta: Real) -> Tensor:
    return composed(COMPOSITE, {"x": x}, alpha=alpha, beta=beta)


def lift(node: Node) -> Term | None:
    alpha, beta = node.attribute("alpha", 0.2), node.attribute("beta", 0.5)
    return apply("hard_sigmoid", node.operand(0), alpha=fraction_of(alpha), beta=fraction_of(beta))


def lower(term: Term, emit: Emit) -> str:
    return emit("HardSigmoid", *term.args, alpha=term.real("alpha"), beta=term.real("beta"))
