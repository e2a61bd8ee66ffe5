"""Convolution plus a bias for every output channel (ONNX Conv), and what ONNX Conv lifts to without one."""

from __future__ import annotations

from superopt.graph import Term
from superopt.op import Emit, Node, apply, operator

ONNX = "Conv"

COMPOSITE = "x + expand(b, shape=x.shape, axes=(-3,))"


def lift(node: Node) -> Term | None:
    x, w = node.operand(0), node.operand(1)
    result = apply("conv", x, w, group=node.attribute("group", 1), **node.window(w.sizes[2:]))
    return result if node.absent(2) else node.written(COMPOSITE, {"x": result, "b": node.operand(2)})


def bias_axis(host: Term) -> int | None:
    return -3 if host.op == "conv" else None


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    lower = operator("conv").lower
    assert lower is not None
    return lower(host, emit, bias)
