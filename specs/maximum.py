"""Elementwise maximum of tensors of equal shape (ONNX Max). The operator is associative and commutative."""

from __future__ import annotations

from superopt.algebra.index import Tensor, larger, require, same, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pairwise

ONNX = "Max"
COMMUTATIVE = True
EXACT = "order"

AXIOMS = (
    pairwise("maximum({}, {})")
    + """
    itself:        maximum(x, x) == x  for x[1, 2, 3, 4]
    relu:          maximum(x, zeros(shape=x.shape)) == relu(x)  for x[1, 2, 3, 4]
    relus:         maximum(relu(x), relu(y)) == relu(maximum(x, y))  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    difference:    maximum(x, y) == y + relu(x - y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    absorb:        maximum(x, minimum(x, y)) == x  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    distribute:    maximum(x, minimum(y, z)) == minimum(maximum(x, y), maximum(x, z))
                   for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
    add:           maximum(x + z, y + z) == maximum(x, y) + z  for x[1, 2, 3, 4], y[1, 2, 3, 4], z[1, 2, 3, 4]
    scale:         maximum(scale(x, factor=a), scale(y, factor=a)) == scale(maximum(x, y), factor=a)
                   for x[1, 2, 3, 4], y[1, 2, 3, 4] where a >= 0
    multiple:      maximum(scale(x, factor=a), x) == scale(x, factor=a) + scale(relu(x), factor=1 - a)
                   for x[1, 2, 3, 4] where 1 >= a
    sum:           maximum(x, y) + minimum(x, y) == x + y  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    product:       maximum(x, y) * minimum(x, y) == x * y  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    max-pool:      max_pool(maximum(x, y), kernel=k, strides=s, pads=p, dilations=d)
                   == maximum(max_pool(x, kernel=k, strides=s, pads=p, dilations=d),
                              max_pool(y, kernel=k, strides=s, pads=p, dilations=d))
                   for x[4], y[4], k[2], s[2], p[4], d[2]
    reduce-max:    reduce_max(maximum(x, y), axes=(k,)) == maximum(reduce_max(x, axes=(k,)), reduce_max(y, axes=(k,)))
                   for x[1, 2, 3, 4], y[1, 2, 3, 4], k[-1, -2, -3, -4]
"""
)


def maximum(x: Tensor, y: Tensor) -> Tensor:
    require(x.rank == y.rank, "maximum: ranks agree")
    for here, there in zip(x.shape, y.shape, strict=True):
        require(same(here, there), "maximum: shapes agree")
    return tensor(x.shape, lambda *i: larger(x[i], y[i]))


def lift(node: Node) -> Term | None:
    terms = node.broadcast()
    if len(terms) == 2:
        for position, x in enumerate(terms):
            if node.scalar(1 - position) == 0 and x is node.operand(position):
                return apply("relu", x)
    return apply("maximum", *terms) if len(terms) > 1 else terms[0]


def lower(term: Term, emit: Emit) -> str:
    return emit.chain("Max", term) if emit.opset >= 8 else emit("Max", *term.args)
