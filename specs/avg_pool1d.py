"""Average pooling along one axis (ONNX AveragePool of rank 3), as pooling of images of height 1. `avg_pool` lifts the nodes."""

from __future__ import annotations

from superopt.algebra.index import Tensor, require
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Extent, Term
from superopt.speclib.composite import composed

COMPOSITE = """
    reshape(c := avg_pool(reshape(x, shape=(x.shape[-3], x.shape[-2], 1, x.shape[-1])), kernel=(1, kernel),
                          strides=(1, stride), pads=(0, before, 0, after), include_pads=include_pads),
            shape=(x.shape[-3], x.shape[-2], c.shape[-1]))
    for x[3]
"""


def avg_pool1d(
    x: Tensor, *, kernel: Extent, stride: Extent = 1, before: Extent = 0, after: Extent = 0, include_pads: Extent = 0
) -> Tensor:
    require(x.rank == 3, "avg_pool1d takes a batch of rank 3")
    given = {"kernel": kernel, "stride": stride, "before": before, "after": after, "include_pads": include_pads}
    return composed(COMPOSITE, {"x": x}, **given)


def lower(term: Term, emit: Emit) -> str:
    return emit(
        "AveragePool",
        *term.args,
        kernel_shape=(term.integer("kernel"),),
        strides=(term.integer("stride"),),
        pads=(term.integer("before"), term.integer("after")),
        count_include_pad=term.integer("include_pads"),
    )
