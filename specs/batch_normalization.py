"""Batch normalization at inference (ONNX BatchNormalization), with the node's own epsilon: a scale and a shift per channel.

Channels stand at axis `c` of x; s, b, m and v are the node's scale, bias, mean and variance, all constant.
"""

from __future__ import annotations

from superopt.graph import Term
from superopt.op import Emit, Node, apply

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
    channels = 1 - host.rank
    return channels if host.op == "mul" and len(host.args) == 2 and _factor(host) is not None else None


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    factor = _factor(host)
    assert factor is not None
    (x,) = (a for a in host.args if a is not factor)
    s = factor.args[0]
    return emit("BatchNormalization", x, s, bias, apply("zeros", shape=s.shape), apply("ones", shape=s.shape), epsilon=0.0)


def _factor(product: Term) -> Term | None:
    """The operand that multiplies each channel by a constant of its own, where the other is no constant."""
    x, y = sorted(product.args, key=lambda a: a.constant)
    by_channel = y.op == "expand" and y.integers("axes") == (1 - product.rank,)
    return y if y.constant and not x.constant and by_channel else None
