"""x divided by the root of its mean square along the last axes, times a factor (ONNX Runtime's SimplifiedLayerNormalization).

ONNX Runtime defines the operator in the standard's domain, although no opset of the standard contains it. A node is lifted to
`rms_norm` and a product. When ONNX Runtime loads a model, it fuses the `rms_norm` and the product into one node again.
"""

from __future__ import annotations

from superopt.algebra.operators import Node, operator
from superopt.algebra.terms import Term

ONNX = "SimplifiedLayerNormalization"

COMPOSITE = "rms_norm(x, epsilon=epsilon) * expand(s, shape=x.shape, axes=(-1,))"


def lift(node: Node) -> Term | None:
    found: Term | None = operator("rms_norm").module.lift(node)
    return found
