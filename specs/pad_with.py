"""x with a nonzero number before and after it along each axis (ONNX Pad, constant mode). `pad` lifts the nodes."""

from __future__ import annotations

from superopt.algebra.index import Extents, Real, Tensor, require
from superopt.algebra.operators import Emit
from superopt.algebra.terms import Term, negation, same
from superopt.speclib.composite import composed

COMPOSITE = """
    ((p := pad(x, before=before, after=after))
     + scale(ones(shape=p.shape) - pad(ones(shape=x.shape), before=before, after=after), factor=value))
    for x[1, 2, 3, 4], before[1, 2, 3, 4], after[1, 2, 3, 4]
"""


def pad_with(x: Tensor, *, before: Extents, after: Extents, value: Real) -> Tensor:
    require(negation(same(value, 0)), "pad_with: the number is not zero")
    return composed(COMPOSITE, {"x": x}, before=before, after=after, value=value)


def lower(term: Term, emit: Emit) -> str:
    pads = (*term.integers("before"), *term.integers("after"))
    if emit.opset < 11:
        return emit("Pad", term.args[0], mode="constant", pads=pads, value=float(term["value"]))  # type: ignore[arg-type]
    return emit("Pad", term.args[0], None, term["value"], mode="constant", pads=pads)
