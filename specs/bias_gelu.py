"""The Gaussian error linear unit of x, or of x plus a bias along the last axis (ONNX Runtime's contrib Gelu and BiasGelu).

A node is lifted to `gelu` and a sum. When ONNX Runtime loads a model, it fuses the `gelu` and the sum into one node again.
"""

from __future__ import annotations

from superopt.algebra.operators import Node, apply
from superopt.algebra.terms import Term
from superopt.speclib.affine import affine

ONNX = ("com.microsoft.BiasGelu", "com.microsoft.Gelu")

COMPOSITE = "gelu(x + expand(b, shape=x.shape, axes=(-1,)))"


def lift(node: Node) -> Term:
    bias = None if node.op_type == "Gelu" else node.operand(1)
    return apply("gelu", affine(node.operand(0), None, bias, -1))
