"""Elementwise sum (ONNX Add), shapes equal; associative and commutative."""

from __future__ import annotations

from superopt.graph import Term
from superopt.index import Tensor, require, same, tensor
from superopt.op import Emit, Node, apply

ONNX = "Add"
COMMUTATIVE = True

AXIOMS = """
    zero:           x + zeros(shape=x.shape) == x  for x[1, 2, 3, 4]
"""


def add(x: Tensor, y: Tensor) -> Tensor:
    require(x.rank == y.rank, "add: ranks agree")
    for here, there in zip(x.shape, y.shape, strict=True):
        require(same(here, there), "add: shapes agree")
    return tensor(x.shape, lambda *i: x[i] + y[i])


def lift(node: Node) -> Term | None:
    return apply("add", *node.broadcast())


def lower(term: Term, emit: Emit) -> str:
    return emit("Add", *(emit.broadcast(a) for a in term.args))
