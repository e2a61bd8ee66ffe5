"""x where x is positive, and slope * x elsewhere (ONNX PRelu). x and `slope` have equal shapes."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.composite import composed
from superopt.speclib.elementwise import pairwise

ONNX = "PRelu"

COMPOSITE = """
    x * slope + relu(x) - relu(x) * slope
    for x[1, 2, 3, 4], slope[1, 2, 3, 4]
"""

KERNEL = "relu(x) - slope * relu(scale(x, factor=-1))"
"""A kernel adds no multiple of a positive x, because the multiple is rounded, and may be infinite. An infinity stays one."""

AXIOMS = (
    pairwise("prelu({}, {})")
    + """
    relu:          prelu(x, zeros(shape=x.shape)) == relu(x)  for x[1, 2, 3, 4]
    leaky:         prelu(x, scale(ones(shape=x.shape), factor=a)) == leaky_relu(x, alpha=a)  for x[1, 2, 3, 4]
"""
)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return composed(COMPOSITE, {"x": x, "slope": slope})


def lift(node: Node) -> Term | None:
    x = node.operand(0)
    return apply("prelu", x, node.expanded(node.operand(1), x.sizes))


def lower(term: Term, emit: Emit) -> str:
    x, slope = term.args
    return emit("PRelu", x, emit.aligned(slope) if slope.op == "expand" else slope)
