"""Convert a model to a newer opset with ONNX's version converter, so that the model can contain newer operators."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx import version_converter

from superopt.errors import OpsetError, first_line
from superopt.model.load import Model, as_model, as_proto, opset_of
from superopt.policy import MODEL


def convert_opset(model: Model, opset: int) -> Model:
    """Return an equivalent model at the opset `opset` of the standard operators. If `model` already has this opset, return
    `model` itself.

    Names, metadata and operators of non-standard domains do not change, and the weights are the same tensors. If the model's IR
    version supports the opset, the IR version does not change. Otherwise, the oldest IR version that supports the opset is
    used.

    Raises:
        OpsetError: the opset is older than the model's opset or is not known, or the model cannot be converted.
    """
    before = opset_of(model)
    if opset == before:
        return model
    newest = onnx.defs.onnx_opset_version()
    if not before < opset <= newest:
        reason = f"the model has opset {before} already" if opset < before else f"the newest known opset is {newest}"
        raise OpsetError(f"a model of opset {opset} was requested, but {reason}")
    if model.functions:
        raise OpsetError(f"the model has local functions, which cannot be converted to opset {opset}")
    hollow, weights = _without_weights(model)
    try:
        converted = version_converter.convert_version(as_proto(hollow), opset)
        result = as_model(converted)
    except Exception as error:
        raise OpsetError(f"the model cannot be converted from opset {before} to {opset} ({first_line(error)})") from error
    _restore(result, weights)
    result.ir_version = max(model.ir_version, _least_ir_version(opset))
    for name, version in model.opset_imports.items():
        result.opset_imports.setdefault(name, version)
    _require_same_interface(model, result)
    return result


def _without_weights(model: Model) -> tuple[Model, dict[str, ir.TensorProtocol]]:
    """Replace the large weights by inputs in a copy of the model. Return the copy, and a mapping from names to the replaced
    weights.
    """
    copy = model.clone()
    graph = copy.graph
    weights: dict[str, ir.TensorProtocol] = {}
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None and tensor.nbytes > MODEL.max_converted_weight_bytes and not value.is_graph_input():
            weights[name] = tensor
            del graph.initializers[name]
            value.const_value = None
            value.shape, value.dtype = ir.Shape(tensor.shape.numpy()), tensor.dtype
            graph.inputs.append(value)
    return copy, weights


def _restore(model: Model, weights: dict[str, ir.TensorProtocol]) -> None:
    """Turn each input whose name is in `weights` back into a weight."""
    graph = model.graph
    values = [value for value in graph.inputs if value.name in weights]
    for value in values:
        graph.inputs.remove(value)
    for value in values:
        value.const_value = weights[value.name or ""]
        graph.register_initializer(value)


def _least_ir_version(opset: int) -> int:
    return onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)], ignore_unknown=True)


def _require_same_interface(before: Model, after: Model) -> None:
    """Check that the inputs and outputs of both models have the same names in the same order.

    Raises:
        OpsetError: a name or the order differs.
    """
    for one, other in ((before.graph.inputs, after.graph.inputs), (before.graph.outputs, after.graph.outputs)):
        if [v.name for v in one] != [v.name for v in other]:
            raise OpsetError("the ONNX version converter changed names of inputs or outputs")
