"""x to the power of one number, elementwise (ONNX Pow with a constant exponent).

Where x < 0, the result is NaN if the exponent is not an integer. All axioms also hold where x < 0.
"""

from __future__ import annotations

from superopt.algebra.index import Real, Tensor, call, number, tensor
from superopt.algebra.operators import Emit, Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.elementwise import pointwise

ONNX = "Pow"
ROUNDS_BY_POSITION = ("float32", "float64")
EXACT = "root"
DOMAIN = "positive"

AXIOMS = (
    pointwise("power", "exponent")
    + """
    zero:          power(x, exponent=0) == ones(shape=x.shape)  for x[1, 2, 3, 4]
    one:           power(x, exponent=1) == x  for x[1, 2, 3, 4]
    square:        power(x, exponent=2) == x * x  for x[1, 2, 3, 4]
    cube:          power(x, exponent=3) == x * x * x  for x[1, 2, 3, 4]
    root:          power(x, exponent=1 / 2) == sqrt(x)  for x[1, 2, 3, 4]
    inverse:       power(x, exponent=-1) == reciprocal(x)  for x[1, 2, 3, 4]
    inverse-root:  power(x, exponent=-1 / 2) == rsqrt(x)  for x[1, 2, 3, 4]
    exp:           power(exp(x), exponent=a) == exp(scale(x, factor=a))  for x[1, 2, 3, 4]
    product:       power(abs(x) * abs(y), exponent=a) == power(abs(x), exponent=a) * power(abs(y), exponent=a)
                   for x[1, 2, 3, 4], y[1, 2, 3, 4]
    sum:           power(abs(x), exponent=a) * power(abs(x), exponent=b) == power(abs(x), exponent=a + b)
                   for x[1, 2, 3, 4] where a >= 0, b >= 0
    twice:         power(power(abs(x), exponent=a), exponent=b) == power(abs(x), exponent=a * b)
                   for x[1, 2, 3, 4] where a >= 0, b >= 0
"""
)


def power(x: Tensor, *, exponent: Real) -> Tensor:
    return tensor(x.shape, lambda *i: call("power", x[i], number(exponent)))


def lift(node: Node) -> Term | None:
    exponent = node.scalar(1)
    x = node.operand(0)
    return apply("power", x, exponent=fraction_of(exponent)) if exponent is not None else None


def lower(term: Term, emit: Emit) -> str:
    return emit("Pow", term.args[0], term["exponent"])
