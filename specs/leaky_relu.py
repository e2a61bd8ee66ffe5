"""x where x is positive, and alpha * x elsewhere (ONNX LeakyRelu)."""

from __future__ import annotations

from superopt.algebra.index import Real, Tensor
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pointwise

ONNX = "LeakyRelu"

COMPOSITE = """
    scale(x, factor=alpha) + scale(relu(x), factor=1 - alpha)
    for x[1, 2, 3, 4]
"""

KERNEL = "relu(x) - scale(relu(scale(x, factor=-1)), factor=alpha)"
"""A kernel adds no multiple of a positive x, because the multiple is rounded. An infinity stays one."""

AXIOMS = (
    pointwise("leaky_relu", "alpha", fixes_zero=True)
    + """
    scale:         leaky_relu(scale(x, factor=a), alpha=b) == scale(leaky_relu(x, alpha=b), factor=a)
                   for x[1, 2, 3, 4] where a >= 0
    relu:          leaky_relu(x, alpha=0) == relu(x)  for x[1, 2, 3, 4]
    one:           leaky_relu(x, alpha=1) == x  for x[1, 2, 3, 4]
    absolute:      leaky_relu(x, alpha=-1) == abs(x)  for x[1, 2, 3, 4]
    twice:         leaky_relu(leaky_relu(x, alpha=a), alpha=b) == leaky_relu(x, alpha=a * b)  for x[1, 2, 3, 4] where a >= 0
"""
)


def leaky_relu(x: Tensor, *, alpha: Real) -> Tensor:
    return composed(COMPOSITE, {"x": x}, alpha=alpha)


def lift(node: Node) -> Term | None:
    return apply("leaky_relu", node.operand(0), alpha=fraction_of(node.attribute("alpha", 0.01)))


def lower(term: Term, emit: Emit) -> str:
    return emit("LeakyRelu", *term.args, alpha=term.real("alpha"))
