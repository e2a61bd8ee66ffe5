"""What stands in a model's message: its graphs, wherever they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import GraphProto, ModelProto, NodeProto


def graphs(model: ModelProto) -> Iterator[GraphProto]:
    """The model's graph, and those that are attributes of its nodes and of its functions' nodes, at any depth."""
    waiting = [model.graph, *(body for function in model.functions for body in _bodies(function.node))]
    while waiting:
        graph = waiting.pop()
        waiting += _bodies(graph.node)
        yield graph


def _bodies(nodes: Iterable[NodeProto]) -> list[GraphProto]:
    """The graphs that are attributes of the nodes; an empty one for each other attribute."""
    return [body for node in nodes for attribute in node.attribute for body in (attribute.g, *attribute.graphs)]
