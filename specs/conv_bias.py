"""Convolution along one or two axes, plus a bias for each output channel (ONNX Conv).

A node without a bias is lifted to `conv` or `conv1d` alone.
"""

from __future__ import annotations

from superopt.algebra.operators import Emit, Node, apply, operator
from superopt.algebra.terms import Term

ONNX = "Conv"

COMPOSITE = "x + expand(b, shape=x.shape, axes=(axis,))"
AXES = {"conv1d": -2, "conv": -3}


def lift(node: Node) -> Term | None:
    x, w = node.operand(0), node.operand(1)
    result = _along_one_axis(node, x, w) if x.rank == 3 else _of_images(node, x, w)
    if node.absent(2):
        return result
    return node.written(COMPOSITE, {"x": result, "b": node.operand(2)}, axis=AXES[result.op])


def _of_images(node: Node, x: Term, w: Term) -> Term:
    return apply("conv", x, w, group=node.attribute("group", 1), **node.window(w.sizes[2:]))


def _along_one_axis(node: Node, x: Term, w: Term) -> Term:
    window = node.window(w.sizes[2:])
    (stride,), (dilation,), (before, after) = window["strides"], window["dilations"], window["pads"]
    group = node.attribute("group", 1)
    return apply("conv1d", x, w, stride=stride, before=before, after=after, dilation=dilation, group=group)


def bias_axis(host: Term) -> int | None:
    return AXES.get(host.op)


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    lower = operator(host.op).lower
    assert lower is not None
    return lower(host, emit, bias)
