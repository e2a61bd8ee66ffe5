"""Batch normalization at inference (ONNX BatchNormalization): a factor and a bias for each channel.

Axis `c` of x is the axis of channels. s, b, m and v are the node's scale, bias, mean and variance, which must be constant.
`epsilon` is the node's epsilon.
"""

from __future__ import annotations

from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

ONNX = "BatchNormalization"

COMPOSITE = """
    x * expand(f := s * rsqrt(v + scale(ones(shape=v.shape), factor=epsilon)), shape=x.shape, axes=(c,))
    + expand(b - m * f, shape=x.shape, axes=(c,))
"""


def lift(node: Node) -> Term | None:
    x, s, b, m, v = (node.operand(position) for position in range(5))
    training = node.attribute("training_mode", 0) or node.attribute("spatial", 1) != 1
    if training or x.rank < 2 or not all(p.constant for p in (s, b, m, v)):
        return None
    operands = {"x": x, "s": s, "b": b, "m": m, "v": v}
    return node.written(COMPOSITE, operands, c=1 - x.rank, epsilon=node.attribute("epsilon", 1e-5))


def bias_axis(host: Term) -> int | None:
    return 1 - host.rank if host.op == "mul" and _scaled(host) is not None else None


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    scaled = _scaled(host)
    assert scaled is not None
    x, s = scaled
    return emit("BatchNormalization", x, s, bias, apply("zeros", shape=s.shape), apply("ones", shape=s.shape), epsilon=0.0)


def _scaled(product: Term) -> tuple[Term, Term] | None:
    """Split a product of one non-constant operand and constant factors for each channel.

    Return the operand and the product of the factors. Return None if the term has a different form.
    """
    others = [a for a in product.args if not (a.constant and a.op == "expand" and a.integers("axes") == (1 - product.rank,))]
    rows = [a.args[0] for a in product.args if a not in others]
    if len(others) != 1 or others[0].constant or not rows:
        return None
    return others[0], rows[0] if len(rows) == 1 else apply("mul", *rows)
