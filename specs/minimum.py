"""Elementwise minimum of tensors of equal shape (ONNX Min). The operator is associative and commutative."""

from __future__ import annotations

from superopt.algebra.index import Tensor, require, same, smaller, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pairwise

ONNX = "Min"
COMMUTATIVE = True
EXACT = "order"

AXIOMS = (
    pairwise("minimum({}, {})")
    + """
    as-maximum:    minimum(x, y) == scale(maximum(scale(x, factor=-1), scale(y, factor=-1)), factor=-1)
                   for x[1, 2, 3, 4], y[1, 2, 3, 4]
    itself:        minimum(x, x) == x  for x[1, 2, 3, 4]
    relu:          minimum(x, zeros(shape=x.shape)) == x - relu(x)  for x[1, 2, 3, 4]
    relus:         minimum(relu(x), relu(y)) == relu(minimum(x, y))  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    difference:    minimum(x, y) == x - relu(x - y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    absorb:        minimum(x, maximum(x, y)) == x  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    distribute:    minimum(x, maximum(y, z)) == maximum(minimum(x, y), minimum(x, z))
                   for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
    add:           minimum(x + z, y + z) == minimum(x, y) + z  for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
    scale:         minimum(scale(x, factor=a), scale(y, factor=a)) == scale(minimum(x, y), factor=a)
                   for x[1, 2, 3, 4], y[1, 2, 3, 4] where a >= 0
"""
)


def minimum(x: Tensor, y: Tensor) -> Tensor:
    require(x.rank == y.rank, "minimum: ranks agree")
    for here, there in zip(x.shape, y.shape, strict=True):
        require(same(here, there), "minimum: shapes agree")
    return tensor(x.shape, lambda *i: smaller(x[i], y[i]))


def lift(node: Node) -> Term | None:
    terms = node.broadcast()
    return apply("minimum", *terms) if len(terms) > 1 else terms[0]


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("Min", term) if emit.opset >= 8 else emit("Min", *term.args)
