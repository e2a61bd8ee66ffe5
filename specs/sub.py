"""Elementwise difference of tensors of equal shape (ONNX Sub)."""

from __future__ import annotations

from fractions import Fraction

from superopt.algebra.index import Tensor, require, same, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

ONNX = "Sub"

AXIOMS = """
    as-sum:       x - y == x + scale(y, factor=-1)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    self:         x - x == zeros(shape=x.shape)  for x[1, 2, 3, 4]
    undo:         x + y - y == x  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    distribute:   x * (y - z) == x * y - x * z  for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
"""


def sub(x: Tensor, y: Tensor) -> Tensor:
    require(x.rank == y.rank, "sub: ranks agree")
    for here, there in zip(x.shape, y.shape, strict=True):
        require(same(here, there), "sub: shapes agree")
    return tensor(x.shape, lambda *i: x[i] - y[i])


def lift(node: Node) -> Term | None:
    x, y = node.broadcast()
    return apply("add", x, _negated(y)) if y.constant and not x.constant else apply("sub", x, y)


def _negated(weight: Term) -> Term:
    """Return the negative of a weight. In IEEE arithmetic, adding the negative equals subtracting the weight."""
    match weight.op:
        case "expand" | "reshape":
            return apply(weight.op, _negated(weight.args[0]), **dict(weight.attributes))
        case "scale" if isinstance(factor := weight["factor"], int | float | Fraction):
            return apply("scale", weight.args[0], factor=-factor)
        case _:
            return apply("scale", weight, factor=-1)


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("Sub", term)
