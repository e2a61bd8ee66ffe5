"""Transposed convolution plus a bias for every output channel (ONNX ConvTranspose), and what that lifts to without one."""

from __future__ import annotations

from superopt.graph import Term
from superopt.op import Emit, Node, apply, operator

ONNX = "ConvTranspose"

COMPOSITE = "x + expand(b, shape=x.shape, axes=(-3,))"


def lift(node: Node) -> Term | None:
    x, w = node.operand(0), node.operand(1)
    if x.rank != 4:
        return None
    strides, dilations = node.attribute("strides", (1, 1)), node.attribute("dilations", (1, 1))
    longer = node.attribute("output_padding", (0, 0))
    reach = [
        s * (n - 1) + o + d * (k - 1) + 1
        for s, n, o, d, k in zip(strides, x.sizes[2:], longer, dilations, w.sizes[2:], strict=True)
    ]
    pads = _pads(node, reach, [s * n for s, n in zip(strides, x.sizes[2:], strict=True)])
    if pads is None:
        return None
    window = {"strides": strides, "pads": pads, "dilations": dilations, "output_pads": longer}
    result = apply("conv_transpose", x, w, group=node.attribute("group", 1), **window)
    return result if node.absent(2) else node.written(COMPOSITE, {"x": result, "b": node.operand(2)})


def _pads(node: Node, reach: list[int], whole: list[int]) -> tuple[int, ...] | None:
    """What is cut off a result of extents `reach`; `whole` is what auto_pad's SAME makes of it."""
    auto_pad, asked = node.attribute("auto_pad", "NOTSET"), node.attribute("output_shape")
    if asked is None and auto_pad in ("NOTSET", "VALID"):
        return tuple(node.attribute("pads", (0, 0, 0, 0))) if auto_pad == "NOTSET" else (0, 0, 0, 0)
    excess = [r - n for r, n in zip(reach, whole if asked is None else asked[-2:], strict=True)]
    if min(excess) < 0:
        return None
    less, more = [e // 2 for e in excess], [e - e // 2 for e in excess]
    return (*less, *more) if auto_pad == "SAME_UPPER" else (*more, *less)


def bias_axis(host: Term) -> int | None:
    return -3 if host.op == "conv_transpose" else None


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    lower = operator("conv_transpose").lower
    assert lower is not None
    return lower(host, emit, bias)
