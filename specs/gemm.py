"""alpha * x' @ y' + beta * z (ONNX Gemm), where x' and y' are transposed first if transA and transB say so."""

from __future__ import annotations

from superopt.graph import Term
from superopt.op import Node, apply

ONNX = "Gemm"

COMPOSITE = "scale(x @ y, factor=alpha) + scale(z, factor=beta)"


def lift(node: Node) -> Term | None:
    x, y, *rest = node.inputs
    if x is None or y is None or x.rank != 2 or y.rank != 2:
        return None
    x = apply("transpose", x, perm=(1, 0)) if node.attribute("transA", 0) else x
    y = apply("transpose", y, perm=(1, 0)) if node.attribute("transB", 0) else y
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    product = apply("matmul", x, y)
    if not rest or rest[0] is None:
        return node.written("scale(x, factor=alpha)", x=product, alpha=alpha) if alpha != 1 else product
    addend = node.expanded(rest[0], product.shape)
    if alpha == 1 and beta == 1:
        return apply("add", product, addend)
    return node.written(COMPOSITE, x=x, y=y, z=addend, alpha=alpha, beta=beta)
