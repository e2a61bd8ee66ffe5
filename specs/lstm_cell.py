"""The cell state of a long short-term memory after the last element (output Y_c of ONNX LSTM). `lstm` has the same operands."""

from __future__ import annotations

from superopt.algebra.index import Tensor
from superopt.algebra.operators import Emit, operator
from superopt.algebra.terms import Term
from superopt.speclib.composite import written_out
from superopt.speclib.recurrence import shape_of

EXACT = "field, exponential"


def lstm_cell(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor) -> Tensor:
    _, n, k = shape_of(4, 4, x, w, r, b, h, c)
    return written_out(unrolled, (n, k), x=x, w=w, r=r, b=b, h=h, c=c)


def unrolled(*operands: Term) -> Term:
    *_, states = operator("lstm").module.RECURRENCE.unrolled(*operands)
    last: Term = states[1]
    return last


def lower(term: Term, emit: Emit) -> str:
    return emit("Reshape", operator("lstm").module.outputs(term, emit)[2], shape=term.sizes)
