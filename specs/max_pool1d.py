"""Max pooling along one axis (ONNX MaxPool of rank 3), as max pooling of images of height 1. `max_pool` lifts the nodes."""

from __future__ import annotations

from superopt.algebra.index import Tensor, require
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Extent, Term
from superopt.speclib.composite import composed

COMPOSITE = """
    reshape(c := max_pool(reshape(x, shape=(x.shape[-3], x.shape[-2], 1, x.shape[-1])), kernel=(1, kernel),
                          strides=(1, stride), pads=(0, before, 0, after), dilations=(1, dilation)),
            shape=(x.shape[-3], x.shape[-2], c.shape[-1]))
    for x[3]
"""


def max_pool1d(
    x: Tensor, *, kernel: Extent, stride: Extent = 1, before: Extent = 0, after: Extent = 0, dilation: Extent = 1
) -> Tensor:
    require(x.rank == 3, "max_pool1d takes a batch of rank 3")
    given = {"kernel": kernel, "stride": stride, "before": before, "after": after, "dilation": dilation}
    return composed(COMPOSITE, {"x": x}, **given)


def lower(term: Term, emit: Emit) -> str:
    dilation = term.integer("dilation")
    dilated = {"dilations": (dilation,)} if dilation != 1 else {}
    return emit(
        "MaxPool",
        *term.args,
        kernel_shape=(term.integer("kernel"),),
        strides=(term.integer("stride"),),
        pads=(term.integer("before"), term.integer("after")),
        **dilated,
    )
