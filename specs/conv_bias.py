"""Convolution plus a bias for every output channel (ONNX Conv), and what ONNX Conv lifts to without one."""

from __future__ import annotations

from superopt.graph import Term
from superopt.op import Node, apply

ONNX = "Conv"

COMPOSITE = "x + expand(b, shape=x.shape, axes=(-3,))"


def lift(node: Node) -> Term | None:
    x, w, *rest = node.inputs
    if x is None or w is None or x.rank != 4 or w.rank != 4:
        return None
    window = node.window(w.shape[-2:])
    if window is None:
        return None
    result = apply("conv", x, w, group=node.attribute("group", 1), **window)
    return node.written(COMPOSITE, x=result, b=rest[0]) if rest and rest[0] is not None else result
