"""alpha * x' @ y' + beta * z, where transA and transB transpose x and y, and z is broadcast (ONNX Gemm)."""

from __future__ import annotations

from superopt.algebra.operators import Emit, Node, apply
from superopt.algebra.terms import Term

ONNX = "Gemm"

COMPOSITE = "scale(x @ y, factor=alpha) + scale(z, factor=beta)"


def lift(node: Node) -> Term | None:
    x, y = node.operand(0), node.operand(1)
    if x.rank != 2 or y.rank != 2:
        return None
    x = apply("transpose", x, perm=(1, 0)) if node.attribute("transA", 0) else x
    y = apply("transpose", y, perm=(1, 0)) if node.attribute("transB", 0) else y
    product = _scaled(apply("matmul", x, y), node.attribute("alpha", 1.0))
    if node.absent(2):
        return product
    addend = _scaled(node.operand(2), node.attribute("beta", 1.0))
    return apply("add", product, node.expanded(addend, product.sizes))


def _scaled(x: Term, factor: float) -> Term:
    return apply("scale", x, factor=factor) if factor != 1 else x


def bias_axis(host: Term) -> int | None:
    return -1 if host.op == "matmul" and host.rank == host.args[1].rank == 2 else None


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    return emit("Gemm", *host.args, bias)
