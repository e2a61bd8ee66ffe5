"""Elementwise sum of tensors of equal shape (ONNX Add, Sum). The operator is associative and commutative."""

from __future__ import annotations

from superopt.algebra.index import Tensor, require, same, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pairwise

ONNX = ("Add", "Sum")
COMMUTATIVE = True

AXIOMS = (
    pairwise("{} + {}")
    + """
    zero:          x + zeros(shape=x.shape) == x  for x[1, 2, 3, 4]
    double:        x + x == scale(x, factor=2)  for x[1, 2, 3, 4]
"""
)


def add(x: Tensor, y: Tensor) -> Tensor:
    require(x.rank == y.rank, "add: ranks agree")
    for here, there in zip(x.shape, y.shape, strict=True):
        require(same(here, there), "add: shapes agree")
    return tensor(x.shape, lambda *i: x[i] + y[i])


def lift(node: Node) -> Term | None:
    terms = node.broadcast()
    return apply("add", *terms) if len(terms) > 1 else terms[0]


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("Add", term, inverse=("Sub", _subtrahend))


def _subtrahend(summand: Term) -> Term | None:
    return summand.args[0] if summand.op == "scale" and summand["factor"] == -1 else None
