"""x / (1 + exp(-alpha * x)), elementwise (ONNX Runtime's contrib QuickGelu).

A node is lifted to `silu`. ONNX Runtime fuses the nodes of `silu` into one node again when it loads a model.
"""

from __future__ import annotations

from superopt.algebra.operators import Node, apply, fraction_of
from superopt.algebra.terms import Term

ONNX = "com.microsoft.QuickGelu"

COMPOSITE = "silu(x, alpha=alpha)"


def lift(node: Node) -> Term:
    return apply("silu", node.operand(0), alpha=fraction_of(node.attribute("alpha", 1.702)))
