"""A model whose local functions stand where they are called: what they do is searched together with what is around them."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import PassError
from onnx_ir.passes.common import InlinePass

from superopt.model.load import Model


def inlined(model: Model) -> Model:
    """The model without local functions, which computes the same; the model itself where it has none.

    It is returned as it is, too, where functions cannot stand where they are called: they call one another in a circle, are of
    another opset than the model, take graphs as attributes, or give back what they are given as an output of the model. Inputs,
    outputs, metadata and the names of values outside functions are as they were, weights the same tensors.
    """
    if not model.functions:
        return model
    copy = model.clone()
    try:
        InlinePass()(copy)
    except (PassError, ValueError):
        return model
    whole = not copy.functions and _interface(copy) == _interface(model)
    return copy if whole and not any(v.is_graph_input() for v in copy.graph.outputs) else model


def _interface(model: Model) -> list[tuple[str | None, ir.TypeProtocol | None, str]]:
    return [(v.name, v.type, str(v.shape)) for v in (*model.graph.inputs, *model.graph.outputs)]
