"""The part of a tensor between two positions of an axis (ONNX Slice with step 1; ONNX Split lifts to several)."""

from __future__ import annotations

from superopt.graph import Extent, Term
from superopt.index import Axis, Tensor, require, tensor
from superopt.op import Emit

AXIOMS = """
"""


def slice(x: Tensor, *, axis: Axis, start: Extent = 0, stop: Extent) -> Tensor:
    require(start >= 0, "slice: starts inside")
    require(stop <= x.shape[axis], "slice: stops inside")
    require(start < stop, "slice: not empty")
    shape = tuple(stop - start if a == axis else x.shape[a] for a in range(-x.rank, 0))
    return tensor(shape, lambda *i: x[tuple(v + start if a == axis else v for a, v in zip(range(-x.rank, 0), i, strict=True))])


def lower(term: Term, emit: Emit) -> str:
    return emit("Slice", term.args[0], [term["start"]], [term["stop"]], [term["axis"]])
