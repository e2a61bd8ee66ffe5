"""The `layer_norm` of the sum of x, y and a bias, times a factor, plus another bias (contrib SkipLayerNormalization).

The sum may be a further output of a node. A node is lifted to its parts, and the parts are lowered separately, because ONNX
Runtime runs them faster on a CPU. If the sum is used nowhere else, ONNX Runtime fuses the parts into one node again when it
loads a model. Nodes with means or deviations as outputs are not supported.
"""

from __future__ import annotations

from superopt.algebra.operators import Node, apply, fraction_of
from superopt.algebra.terms import Term
from superopt.speclib.affine import affine, residual, rows

ONNX = "com.microsoft.SkipLayerNormalization"

COMPOSITE = """
    layer_norm(x + y + expand(c, shape=x.shape, axes=(-1,)), epsilon=epsilon)
    * expand(s, shape=x.shape, axes=(-1,)) + expand(b, shape=x.shape, axes=(-1,))
"""


def lift(node: Node) -> Term | tuple[Term, ...] | None:
    if node.wanted(1) or node.wanted(2):
        return None
    total = residual(node, 4)
    normalized = apply("layer_norm", total, epsilon=fraction_of(node.attribute("epsilon", 1e-12)))
    found = affine(normalized, *rows(node, 2), -1)
    return (found, total) if node.wanted(3) else found
