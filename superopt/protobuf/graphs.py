"""The graphs of a ModelProto, at any depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper


def attribute_values(node: NodeProto) -> dict[str, Any]:
    """Return a mapping from names to values for the attributes of the node.

    An attribute that refers to an attribute of the enclosing function has no value, and is left out.
    """
    return {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.ref_attr_name}


def all_graphs(model: ModelProto) -> Iterator[GraphProto]:
    """Yield the model's main graph, and the graphs in attributes of nodes (such as the branches of If) at any depth.

    The graphs in attributes of the nodes of local functions are included.
    """
    waiting = [model.graph, *(body for function in model.functions for body in _bodies(function.node))]
    while waiting:
        graph = waiting.pop()
        waiting += _bodies(graph.node)
        yield graph


def with_input_types(model: ModelProto) -> ModelProto:
    """Return a model in which each graph output that is also an input of the graph has the input's declaration.

    If all such outputs already have this declaration, return the model itself. Otherwise, return a changed copy.

    The input's declaration is chosen because ONNX Runtime uses this declaration. In an `onnx_ir.Model`, input and output are
    one value, and onnx_ir uses the last declaration.
    """

    def passed_on(graph: GraphProto) -> Iterator[tuple[ValueInfoProto, ValueInfoProto]]:
        inputs = {value.name: value for value in graph.input}
        yield from ((inputs[value.name], value) for value in graph.output if value.name in inputs)

    if all(source == output for graph in all_graphs(model) for source, output in passed_on(graph)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for graph in all_graphs(copy):
        for source, output in passed_on(graph):
            output.CopyFrom(source)
    return copy


def _bodies(nodes: Iterable[NodeProto]) -> list[GraphProto]:
    """Return the graphs in the nodes' attributes. For an attribute without a graph, the list contains an empty graph."""
    return [body for node in nodes for attribute in node.attribute for body in (attribute.g, *attribute.graphs)]
