"""Each element times one number (ONNX Mul and Div by a scalar constant, Div of a scalar constant, Neg).

A division by a constant is lifted to a product with an exact fraction. If no float equals the fraction, as for 1/3, but a float
equals its reciprocal, the product is lowered as a division. A Div by 3 therefore remains a Div.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite

from superopt.algebra.index import Real, Tensor, number, tensor
from superopt.algebra.operators import Emit, Node, apply, is_divided_by
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pointwise

ONNX = ("Mul", "Div", "Neg")

AXIOMS = (
    pointwise("scale", "factor", fixes_zero=True)
    + """
    one:           scale(x, factor=1) == x  for x[1, 2, 3, 4]
    zero:          scale(x, factor=0) == zeros(shape=x.shape)  for x[1, 2, 3, 4]
    twice:         scale(scale(x, factor=a), factor=b) == scale(x, factor=a * b)  for x[1, 2, 3, 4]
    sum:           scale(x, factor=a) + scale(x, factor=b) == scale(x, factor=a + b)  for x[1, 2, 3, 4]
    increment:     scale(x, factor=a) + x == scale(x, factor=a + 1)  for x[1, 2, 3, 4]
    add:           scale(x + y, factor=a) == scale(x, factor=a) + scale(y, factor=a)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    sub:           scale(x - y, factor=a) == scale(x, factor=a) - scale(y, factor=a)  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    mul:           scale(x * y, factor=a) == scale(x, factor=a) * y  for x[1, 2, 3, 4], y[1, 2, 3, 4]
    ones:          x * scale(ones(shape=x.shape), factor=a) == scale(x, factor=a)  for x[1, 2, 3, 4]
    zeros:         scale(zeros(shape=s), factor=a) == zeros(shape=s)  for s[1, 2, 3, 4]
"""
)


def scale(x: Tensor, *, factor: Real) -> Tensor:
    return tensor(x.shape, lambda *i: x[i] * number(factor))


def lift(node: Node) -> Term | None:
    if node.op_type == "Neg":
        return apply("scale", node.operand(0), factor=-1)
    by = node.scalar(1)
    if by is not None and by != 0 and isfinite(by) and node.op_type == "Div":
        return _scaled(node, 0, 1 / Fraction(by))
    if by is not None and node.op_type == "Mul":
        return _scaled(node, 0, by)
    by = node.scalar(0)
    return _scaled(node, 1, by) if by is not None and node.op_type == "Mul" else None


def _scaled(node: Node, position: int, factor: float | Fraction) -> Term | None:
    x, number = node.operand(position), node.operand(1 - position)
    return apply("scale", x, factor=factor) if number.rank <= x.rank and isfinite(factor) else None


def lower(term: Term, emit: Emit) -> str:
    x, factor = term.args[0], term["factor"]
    if factor == -1:
        return emit("Neg", x)
    if x.op == "reciprocal" and emit.alone(x):
        return emit("Div", factor, *x.args)
    if is_divided_by(factor):
        return emit("Div", x, 1 / factor)
    return emit("Mul", x, factor)
