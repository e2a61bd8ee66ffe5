"""The `rms_norm` of the sum of x, y and a bias, times a factor (contrib SkipSimplifiedLayerNormalization).

The sum may be a further output of a node. A node is lifted to its parts, and the parts are lowered separately, because ONNX
Runtime runs them faster on a CPU. Nodes with means or deviations as outputs are not supported.
"""

from __future__ import annotations

from superopt.algebra.operators import Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.affine import affine, residual

ONNX = "com.microsoft.SkipSimplifiedLayerNormalization"

COMPOSITE = """
    rms_norm(x + y + expand(c, shape=x.shape, axes=(-1,)), epsilon=epsilon) * expand(s, shape=x.shape, axes=(-1,))
"""


def lift(node: Node) -> Term | tuple[Term, ...] | None:
    if node.wanted(1) or node.wanted(2):
        return None
    total = residual(node, 3)
    normalized = apply("rms_norm", total, epsilon=fraction_of(node.attribute("epsilon", 1e-12)))
    found = affine(normalized, None if node.uniform(2) == 1 else node.operand(2), None, -1)
    return (found, total) if node.wanted(3) else found
