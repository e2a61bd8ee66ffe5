"""Transposed convolution along one or two axes, plus a bias for each output channel (ONNX ConvTranspose).

A node without a bias is lifted to `conv_transpose` or `conv_transpose1d` alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from superopt.algebra.operators import Emit, Node, apply, operator
from superopt.algebra.terms import Term

ONNX = "ConvTranspose"

COMPOSITE = "x + expand(b, shape=x.shape, axes=(axis,))"
AXES = {"conv_transpose1d": -2, "conv_transpose": -3}


def lift(node: Node) -> Term | None:
    x, w = node.operand(0), node.operand(1)
    once = (1,) * (x.rank - 2)
    strides, dilations = node.attribute("strides", once), node.attribute("dilations", once)
    longer, group = node.attribute("output_padding", (0,) * len(once)), node.attribute("group", 1)
    spans = zip(strides, x.sizes[2:], longer, dilations, w.sizes[2:], strict=True)
    reach = [s * (n - 1) + o + d * (k - 1) + 1 for s, n, o, d, k in spans]
    excess = _excess(node, reach, [s * n for s, n in zip(strides, x.sizes[2:], strict=True)])
    pads = node.attribute("pads", (0,) * (2 * len(once)))
    if excess is not None:
        auto_pad = node.attribute("auto_pad", "NOTSET")
        if auto_pad != "NOTSET" and min(excess) < 0:
            return None
        pads = _shared(excess, more_after=auto_pad == "SAME_UPPER")
        longer = tuple(o + max(-e, 0) for o, e in zip(longer, excess, strict=True))
    if x.rank == 3:
        (stride,), (dilation,), (output_pad,), (before, after) = strides, dilations, longer, pads
        window = {"stride": stride, "before": before, "after": after, "dilation": dilation, "output_pad": output_pad}
        result = apply("conv_transpose1d", x, w, group=group, **window)
    else:
        result = apply("conv_transpose", x, w, strides=strides, pads=pads, dilations=dilations, output_pads=longer, group=group)
    if node.absent(2):
        return result
    return node.written(COMPOSITE, {"x": result, "b": node.operand(2)}, axis=AXES[result.op])


def _excess(node: Node, reach: Sequence[int], whole: Sequence[int]) -> list[int] | None:
    """For each axis, return the extent of the result without pads minus the requested extent.

    Return None if the node has pads instead of requested extents.
    """
    auto_pad, asked = node.attribute("auto_pad", "NOTSET"), node.attribute("output_shape")
    if asked is None and auto_pad in ("NOTSET", "VALID"):
        return [0] * len(reach) if auto_pad == "VALID" else None
    return [r - n for r, n in zip(reach, whole if asked is None else asked[-len(reach) :], strict=True)]


def _shared(excess: Sequence[int], *, more_after: bool) -> tuple[int, ...]:
    """Return pads that cut off half of the excess at the start of each axis, and half of the excess at the end.

    If the excess is odd, the larger half is cut off at the end if `more_after` is True, and at the start otherwise.
    """
    cut = [max(e, 0) for e in excess]
    less, more = [c // 2 for c in cut], [c - c // 2 for c in cut]
    return (*less, *more) if more_after else (*more, *less)


def bias_axis(host: Term) -> int | None:
    return AXES.get(host.op)


def lower_biased(host: Term, bias: Term, emit: Emit) -> str:
    lower = operator(host.op).lower
    assert lower is not None
    return lower(host, emit, bias)
