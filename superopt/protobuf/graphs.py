"""The graphs of a ModelProto, at any depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import GraphProto, ModelProto, NodeProto


def all_graphs(model: ModelProto) -> Iterator[GraphProto]:
    """Yield the model's graph and the graphs that are attributes of nodes, also in functions, at any depth."""
    waiting = [model.graph, *(body for function in model.functions for body in _bodies(function.node))]
    while waiting:
        graph = waiting.pop()
        waiting += _bodies(graph.node)
        yield graph


def _bodies(nodes: Iterable[NodeProto]) -> list[GraphProto]:
    """Return the graphs that are attributes of the nodes, with an empty graph for each other attribute."""
    return [body for node in nodes for attribute in node.attribute for body in (attribute.g, *attribute.graphs)]
