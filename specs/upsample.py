"""Images that are enlarged by whole factors, by repetition of pixels along the last two axes (ONNX Resize). `repeat` lifts and
lowers the nodes.
"""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, operator
from superopt.algebra.terms import Extent, Term
from superopt.speclib.composite import composed

COMPOSITE = "repeat(repeat(x, axis=-2, times=rows), axis=-1, times=columns) for x[2, 3, 4]"


def upsample(x: Tensor, *, rows: Extent, columns: Extent) -> Tensor:
    return composed(COMPOSITE, {"x": x}, rows=rows, columns=columns)


def lower(term: Term, emit: Emit) -> str:
    repeated = operator("repeat").lower
    assert repeated is not None
    return repeated(term, emit)
