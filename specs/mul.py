"""Elementwise product of tensors of equal shape (ONNX Mul). The operator is associative and commutative."""

from __future__ import annotations

from superopt.algebra.index import Tensor, require, same, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pairwise

ONNX = "Mul"  # by a scalar constant: see scale
COMMUTATIVE = True

AXIOMS = (
    pairwise("{} * {}")
    + """
    one:           x * ones(shape=x.shape) == x  for x[1, 2, 3, 4]
    zero:          x * zeros(shape=x.shape) == zeros(shape=x.shape)  for x[1, 2, 3, 4]
    distribute:    x * (y + z) == x * y + x * z  for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
"""
)


def mul(x: Tensor, y: Tensor) -> Tensor:
    require(x.rank == y.rank, "mul: ranks agree")
    for here, there in zip(x.shape, y.shape, strict=True):
        require(same(here, there), "mul: shapes agree")
    return tensor(x.shape, lambda *i: x[i] * y[i])


def lift(node: Node) -> Term | None:
    if node.scalar(0) is not None or node.scalar(1) is not None:
        return None
    return apply("mul", *node.broadcast())


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("Mul", term, inverse=("Div", _divisor))


def _divisor(factor: Term) -> Term | None:
    return factor.args[0] if factor.op == "reciprocal" else None
