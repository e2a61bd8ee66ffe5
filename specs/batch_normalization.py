"""Batch normalization at inference (ONNX BatchNormalization), with the node's own epsilon: a scale and a shift per channel.

Channels stand at axis `c` of x; s, b, m and v are the node's scale, bias, mean and variance, all constant.
"""

from __future__ import annotations

from superopt.graph import Term
from superopt.op import Node

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
