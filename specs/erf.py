"""The error function, elementwise (ONNX Erf)."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import increasing, pointwise, pooled

ONNX = "Erf"
EXACT = "uninterpreted"

AXIOMS = (
    pointwise("erf", fixes_zero=True)
    + increasing("erf")
    + pooled("erf")
    + """
    odd:           erf(scale(x, factor=-1)) == scale(erf(x), factor=-1)  for x[1, 2, 3, 4]
    zeros:         erf(zeros(shape=s)) == zeros(shape=s)  for s[1, 2, 3, 4]
"""
)


def erf(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("erf", x[i]))


def lift(node: Node) -> Term | None:
    return apply("erf", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Erf", *term.args)
