"""Transposed convolution along one axis (ONNX ConvTranspose of rank 3). `conv_transpose_bias` lifts the nodes."""

from __future__ import annotations

from superopt.algebra.index import Tensor, require
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Extent, Term
from superopt.speclib.composite import composed

COMPOSITE = """
    reshape(c := conv_transpose(reshape(x, shape=(x.shape[-3], x.shape[-2], 1, x.shape[-1])),
                                reshape(w, shape=(w.shape[-3], w.shape[-2], 1, w.shape[-1])),
                                strides=(1, stride), pads=(0, before, 0, after), dilations=(1, dilation),
                                output_pads=(0, output_pad), group=group),
            shape=(c.shape[-4], c.shape[-3], c.shape[-1]))
    for x[3], w[3]
"""


def conv_transpose1d(
    x: Tensor,
    w: Tensor,
    *,
    stride: Extent = 1,
    before: Extent = 0,
    after: Extent = 0,
    dilation: Extent = 1,
    output_pad: Extent = 0,
    group: Extent = 1,
) -> Tensor:
    require(x.rank == 3 and w.rank == 3, "conv_transpose1d takes a batch and a kernel of rank 3")
    given = {"stride": stride, "before": before, "after": after, "dilation": dilation, "output_pad": output_pad}
    return composed(COMPOSITE, {"x": x, "w": w}, group=group, **given)


def lower(term: Term, emit: Emit, *bias: Term) -> str:
    window = {
        "strides": (term.integer("stride"),),
        "pads": (term.integer("before"), term.integer("after")),
        "dilations": (term.integer("dilation"),),
    }
    kernel, longer = term.args[1].sizes[2:], (term.integer("output_pad"),)
    given = {"kernel_shape": kernel, "group": term.integer("group"), "output_padding": longer}
    return emit("ConvTranspose", *term.args, *bias, **given, **window)
