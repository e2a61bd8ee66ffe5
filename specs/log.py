"""The natural logarithm, elementwise (ONNX Log). The result is NaN where x < 0, and minus infinity where x is 0."""

from __future__ import annotations

from superopt.algebra.index import Tensor, call, tensor
from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pointwise

ONNX = "Log"
ROUNDS_BY_POSITION = ("float32", "float64")
EXACT = "logarithm"
DOMAIN = "positive"

AXIOMS = (
    pointwise("log")
    + """
    exp:           log(exp(x)) == x  for x[1, 2, 3, 4]
    product:       log(x * exp(y)) == log(x) + y  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    undone:        exp(log(x)) => x  for x[1, 2, 3, 4]
    sum:           log(x) + log(y) => log(x * y)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    difference:    log(x) - log(y) => log(x * reciprocal(y))  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    reciprocal:    log(reciprocal(x)) == scale(log(x), factor=-1)  for x[1, 2, 3, 4]
    sqrt:          log(sqrt(x)) == scale(log(x), factor=1 / 2)  for x[1, 2, 3, 4]
    ones:          log(ones(shape=s)) == zeros(shape=s)  for s[1, 2, 3, 4]
"""
)


def log(x: Tensor) -> Tensor:
    return tensor(x.shape, lambda *i: call("log", x[i]))


def lift(node: Node) -> Term | None:
    return apply("log", node.operand(0))


def lower(term: Term, emit: Emit) -> str:
    return emit("Log", *term.args)
