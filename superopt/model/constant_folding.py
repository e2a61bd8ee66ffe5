"""Constant folding: store values that do not depend on the model's inputs as weights.

Many models contain such values, because exporters write shape computations even where shapes are fixed.
"""

from __future__ import annotations

import onnx_ir as ir

from superopt.model.dimensions import dynamic_dimension_names
from superopt.model.load import OVERRIDABLE_SINCE, Model, analysis_copy


def fold_known_values(model: Model, chart: Model | None = None) -> Model:
    """Return a model in which weights replace the results of shape computations and constant computations. Each weight has the
    name of the result that it replaces.

    Without constant folding, a shape computation would keep its input alive and split islands (the regions that a search
    rewrites). The model is returned unchanged in three cases: the model has dynamic dimensions, the IR version is below 4, or
    the model contains no result that can be folded. `chart` is an `analysis_copy` of the model, if the caller has one.
    """
    if dynamic_dimension_names(model) or model.ir_version < OVERRIDABLE_SINCE:
        return model
    chart = analysis_copy(model) if chart is None else chart
    known = {
        v.name: v.const_value
        for node in chart.graph
        if node.op_type != "Constant"
        for v in node.outputs
        if v.name and v.const_value is not None and not v.is_graph_output()
    }
    if not known:
        return model
    copy = model.clone()
    for node in list(copy.graph):
        for value in node.outputs:
            tensor = known.get(value.name or "")
            if tensor is not None:
                _store(copy.graph, value, tensor)
    copy.graph.sort()
    read = {*known}
    for node in reversed(list(copy.graph)):
        if not any(v.uses() or v.is_graph_output() for v in node.outputs):
            read.update(v.name for v in node.inputs if v is not None and v.name)
            copy.graph.remove(node, safe=True)
    for name in read & copy.graph.initializers.keys():
        weight = copy.graph.initializers[name]
        if not (weight.uses() or weight.is_graph_input() or weight.is_graph_output()):
            del copy.graph.initializers[name]
    return copy


def _store(graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol) -> None:
    """Replace the value by a weight of the same name that stores the tensor."""
    name = value.name
    value.name = f"{name}.computed"
    stored = ir.Value(name=name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(stored)
    value.replace_all_uses_with(stored)
