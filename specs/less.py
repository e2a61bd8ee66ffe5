"""1 where x < y, and 0 elsewhere (ONNX Less, Greater). x and y have equal shapes. The result is a condition."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, require, same, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pairwise

ONNX = ("Less", "Greater")
EXACT = "order"

AXIOMS = (
    pairwise("less")
    + """
    irreflexive:  less(x, x) == zeros(shape=x.shape)  for x[1, 2, 3, 4]
    shift:        less(x + z, y + z) == less(x, y)  for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
    scale:        less(scale(x, factor=a), scale(y, factor=a)) == less(x, y)  for x[1, 2, 3, 4], y[1, 2, 3, 4] where a >= 1
    negate:       less(scale(x, factor=-1), scale(y, factor=-1)) == less(y, x)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
"""
)


def less(x: Tensor, y: Tensor) -> Tensor:
    require(x.rank == y.rank, "less: ranks agree")
    for here, there in zip(x.shape, y.shape, strict=True):
        require(same(here, there), "less: shapes agree")
    return tensor(x.shape, lambda *i: call("positive", y[i] - x[i]))


def lift(node: Node) -> Term | None:
    x, y = node.broadcast()
    return apply("less", x, y) if node.op_type == "Less" else apply("less", y, x)


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("Less", term)
