"""Which inputs of a model pick rows of its tables, and how many rows there are: random numbers for them have to be below."""

from __future__ import annotations

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

_PICKS = {"Gather": (0, 1), "GatherElements": (0, 1), "RotaryEmbedding": (1, 3), "com.microsoft.RotaryEmbedding": (2, 1)}
"""Where operators that pick rows of a table have the table, and which rows."""
_CARRIES_INDICES = {"Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Concat", "Slice", "Transpose", "Expand"}


def index_bounds(model: ModelProto) -> dict[str, int]:
    """For each input whose values pick rows of a stored table, the least number of rows met: ids below it are in range."""
    bounds: dict[str, int] = {}
    tables = {t.name: tuple(t.dims) for t in model.graph.initializer}
    origin = {port.name: port.name for port in model.graph.input}
    for node in _nodes(model.graph):
        source = origin.get(node.input[0]) if node.input else None
        if source is not None and node.op_type in _CARRIES_INDICES:
            origin.update(dict.fromkeys(node.output, source))
        places = _PICKS.get(f"{node.domain}.{node.op_type}".removeprefix("ai.onnx").removeprefix("."))
        table, rows = (node.input[place] for place in places) if places and max(places) < len(node.input) else ("", "")
        if table in tables and rows in origin:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            bounds[origin[rows]] = min(bounds.get(origin[rows], 1 << 31), tables[table][axis])
    return bounds


def _nodes(graph: GraphProto) -> list[NodeProto]:
    """The nodes of a graph and of the graphs inside it."""
    found: list[NodeProto] = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                found.extend(_nodes(attribute.g))
    return found
