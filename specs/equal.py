"""1 where x and y are equal, and 0 elsewhere (ONNX Equal). x and y have equal shapes. The result is a condition."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, require, same, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pairwise

ONNX = "Equal"
EXACT = "order"

AXIOMS = (
    pairwise("equal", fixes_zero=False)
    + """
    reflexive:    equal(x, x) == ones(shape=x.shape)  for x[1, 2, 3, 4]
    commute:      equal(x, y) == equal(y, x)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    shift:        equal(x + z, y + z) == equal(x, y)  for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
"""
)


def equal(x: Tensor, y: Tensor) -> Tensor:
    require(x.rank == y.rank, "equal: ranks agree")
    for here, there in zip(x.shape, y.shape, strict=True):
        require(same(here, there), "equal: shapes agree")
    return tensor(x.shape, lambda *i: call("zero", x[i] - y[i]))


def lift(node: Node) -> Term | None:
    return apply("equal", *node.broadcast())


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("Equal", term)
