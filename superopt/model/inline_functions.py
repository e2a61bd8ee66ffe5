"""Inline a model's local functions, so that a search can rewrite their nodes together with the nodes around the calls."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import PassError
from onnx_ir.passes.common import InlinePass

from superopt.model.load import Model


def inline_functions(model: Model) -> Model:
    """Return an equivalent model in which local functions are inlined. If there are no local functions, return the model
    itself.

    Inputs, outputs, metadata and names of values outside functions do not change, and the weights are the same tensors. The
    model itself is also returned if its functions cannot be inlined. Functions cannot be inlined if they call one another in a
    cycle, have a different opset than the model, or take graphs as attributes. Functions also cannot be inlined if an input of
    the model would become an output.
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
