"""exp(x), elementwise (ONNX Exp)."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import increasing, pointwise, pooled

ONNX = "Exp"
ROUNDS_BY_POSITION = ("float64",)
EXACT = "exponential"

AXIOMS = (
    pointwise("exp")
    + increasing("exp")
    + pooled("exp")
    + """
    add:           exp(x + y) == exp(x) * exp(y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    negate:        exp(scale(x, factor=-1)) == reciprocal(exp(x))  for x[1, 2, 3, 4]
    zeros:         exp(zeros(shape=s)) == ones(shape=s)  for s[1, 2, 3, 4]
"""
)


def exp(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("exp", x[i]))


def lift(node: Node) -> Term | None:
    return apply("exp", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Exp", *term.args)
