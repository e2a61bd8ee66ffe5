"""1 where the condition is 0, and 0 elsewhere (ONNX Not)."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pointwise

ONNX = "Not"
EXACT = "order"

AXIOMS = (
    pointwise("logical_not")
    + """
    thrice:       logical_not(logical_not(logical_not(c))) == logical_not(c)  for c[1, 2, 3, 4]
    less:         logical_not(logical_not(less(x, y))) == less(x, y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    equal:        logical_not(logical_not(equal(x, y))) == equal(x, y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
"""
)


def logical_not(c: Tensor) -> Tensor:
    return tensor(c.shape, lambda *i: call("zero", c[i]))


def lift(node: Node) -> Term | None:
    return apply("logical_not", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Not", *term.args)
