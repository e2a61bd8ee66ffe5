"""1 where both conditions are nonzero, and 0 elsewhere (ONNX And). The conditions have equal shapes."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, number, require, same, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pairwise

ONNX = "And"
EXACT = "order"

AXIOMS = (
    pairwise("logical_and")
    + """
    commute:      logical_and(c, d) == logical_and(d, c)  for c[1, 2, 3, 4], d[1, 2, 3, 4]
    choice:       logical_and(c, d) == where(c, logical_not(logical_not(d)), zeros(shape=c.shape))
                  for c[1, 2, 3, 4], d[1, 2, 3, 4]
    contradict:   logical_and(c, logical_not(c)) == zeros(shape=c.shape)  for c[1, 2, 3, 4]
"""
)


def logical_and(c: Tensor, d: Tensor) -> Tensor:
    require(c.rank == d.rank, "logical_and: ranks agree")
    for here, there in zip(c.shape, d.shape, strict=True):
        require(same(here, there), "logical_and: shapes agree")
    return tensor(c.shape, lambda *i: call("choose", c[i], call("choose", d[i], number(1), number(0)), number(0)))


def lift(node: Node) -> Term | None:
    return apply("logical_and", *node.broadcast())


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("And", term)
