"""Cross-correlation along one axis (ONNX Conv of rank 3), as convolution of images of height 1. `conv_bias` lifts the nodes."""

from __future__ import annotations

from superopt.algebra.index import Tensor, require
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Extent, Term
from superopt.speclib.composite import composed

COMPOSITE = """
    reshape(c := conv(reshape(x, shape=(x.shape[-3], x.shape[-2], 1, x.shape[-1])),
                      reshape(w, shape=(w.shape[-3], w.shape[-2], 1, w.shape[-1])),
                      strides=(1, stride), pads=(0, before, 0, after), dilations=(1, dilation), group=group),
            shape=(x.shape[-3], w.shape[-3], c.shape[-1]))
    for x[3], w[3]
"""


def conv1d(
    x: Tensor,
    w: Tensor,
    *,
    stride: Extent = 1,
    before: Extent = 0,
    after: Extent = 0,
    dilation: Extent = 1,
    group: Extent = 1,
) -> Tensor:
    require(x.rank == 3 and w.rank == 3, "conv1d takes a batch and a kernel of rank 3")
    given = {"stride": stride, "before": before, "after": after, "dilation": dilation, "group": group}
    return composed(COMPOSITE, {"x": x, "w": w}, **given)


def lower(term: Term, emit: Emit, *bias: Term) -> str:
    window = {
        "strides": (term.integer("stride"),),
        "pads": (term.integer("before"), term.integer("after")),
        "dilations": (term.integer("dilation"),),
    }
    kernel = term.args[1].sizes[2:]
    return emit("Conv", *term.args, *bias, kernel_shape=kernel, group=term.integer("group"), **window)
