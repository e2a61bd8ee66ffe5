"""Describe parts of a model for drawings: operators with their attributes, the shapes of weights, and edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from superopt.model.bodies import STANDARD, Scope, control_flow_graphs
from superopt.model.load import Model
from superopt.policy import REPORT

_USUAL: Mapping[str, object] = {
    **dict.fromkeys(("alpha", "beta", "dilations", "group", "keepdims", "strides"), 1),
    **dict.fromkeys(("ceil_mode", "count_include_pad", "noop_with_empty_axes", "pads", "storage_order", "transA", "transB"), 0),
    "auto_pad": "NOTSET",
    "approximate": "none",
}
"""The usual values of attributes. A drawing leaves out attributes that have their usual values. A list is left out if all of
its elements have the usual value.
"""
_OMITTED = frozenset({"momentum", "training_mode", "spatial", "epsilon"})
"""Attributes that a drawing always leaves out."""


@dataclass(frozen=True)
class DrawnNode:
    """A node of a model, or a value from outside the drawn part.

    Attributes:
        name: The name of the node, or of the value.
        operator: The operator, or an empty text for a value.
        details: Lines of text with the attributes that do not have their usual values, and with the shapes of weights.
        operands: The nodes and values that the node reads, as positions in `DrawnPart.nodes`, in the order of the node's
            inputs.
        output: Whether a result of the node is used outside the drawn part.
    """

    name: str
    operator: str
    details: tuple[str, ...]
    operands: tuple[int, ...] = ()
    output: bool = False


@dataclass(frozen=True)
class DrawnPart:
    """A part of a model: its nodes, and the values from outside the part that the nodes read. Each node comes after its
    operands.
    """

    nodes: tuple[DrawnNode, ...]

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the nodes. Entries for values from outside the part are left out."""
        return tuple(node.operator for node in self.nodes if node.operator)


def part_of_model(model: Model, scope: Scope, outputs: Iterable[str], inputs: Collection[str]) -> DrawnPart:
    """Return the part of the model that computes the named outputs from the named inputs.

    Nodes whose results depend only on weights are left out, and their results count as weights.

    Args:
        model: The model.
        scope: The location of the graph with the nodes.
        outputs: The names of the values to compute. Names that do not occur in the graph are ignored.
        inputs: The names of the values where the part begins.
    """
    graph = control_flow_graphs(model)[scope]
    produced = {v.name: v for node in graph for v in node.outputs if v.name}
    wanted = [produced[name] for name in outputs if name in produced]
    return DrawnPart(tuple(_Walk(inputs, wanted).drawn()))


class _Walk:
    """A walk through a part of a model, from the outputs of the part back to its inputs."""

    def __init__(self, inputs: Collection[str], outputs: list[ir.Value]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.constant: dict[ir.Value, bool] = {}

    def drawn(self) -> Iterator[DrawnNode]:
        """Yield the nodes and values of the part. Operands come before the nodes that read them."""
        ends = {value.producer() for value in self.outputs}
        places: dict[ir.Node | ir.Value, int] = {}
        for item in self._order():
            places[item] = len(places)
            if isinstance(item, ir.Value):
                yield DrawnNode(item.name or "", "", tuple(filter(None, [_shape(item)])))
                continue
            operands = [o for value in item.inputs if value is not None and (o := self._source(value)) is not None]
            title = item.op_type if item.domain in STANDARD else f"{item.domain}.{item.op_type}"
            weights = Counter(_shape(v) for v in item.inputs if v is not None and self._source(v) is None)
            shapes = (f"{f'{number} ' if number > 1 else ''}[{shape}]" for shape, number in weights.items() if shape)
            details = [*_attributes(item.attributes), *shapes]
            limit = REPORT.max_drawn_detail_count
            kept = (*details[:limit], *(["…"] if len(details) > limit else []))
            yield DrawnNode(_label(item), title, kept, tuple(dict.fromkeys(places[o] for o in operands)), item in ends)

    def _source(self, value: ir.Value) -> ir.Node | ir.Value | None:
        """Return the node that computes the value. For a value from outside the part, return the value itself. For a weight,
        return None.
        """
        if self._is_constant(value):
            return None
        producer = value.producer()
        return value if producer is None or value.name in self.inputs else producer

    def _is_constant(self, value: ir.Value) -> bool:
        """Return whether the value depends only on weights. An input of the part counts as a weight only if the model stores
        the input's value.
        """
        stack = [value]
        while stack:
            top = stack[-1]
            if top in self.constant:
                stack.pop()
                continue
            producer = top.producer()
            if producer is None or (top.name in self.inputs and producer.op_type != "Constant"):
                self.constant[top] = top.is_initializer()
                continue
            read = [v for v in producer.inputs if v is not None]
            unknown = [v for v in read if v not in self.constant]
            stack += unknown
            if not unknown:
                self.constant[top] = all(self.constant[v] for v in read) and not _has_body(producer)
        return self.constant[value]

    def _order(self) -> list[ir.Node | ir.Value]:
        """Return the nodes of the part, and the values from outside the part, in topological order."""
        order: dict[ir.Node | ir.Value, None] = {}
        stack: list[ir.Node | ir.Value] = [o for v in reversed(self.outputs) if (o := self._source(v)) is not None]
        while stack:
            top = stack[-1]
            sources = () if isinstance(top, ir.Value) else (self._source(v) for v in top.inputs if v is not None)
            missing = [s for s in sources if s is not None and s not in order]
            if missing and top not in order:
                stack += reversed(missing)
            else:
                stack.pop()
                order[top] = None
        return [*order]


def _has_body(node: ir.Node) -> bool:
    return any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values())


def _label(node: ir.Node) -> str:
    return node.name or next((v.name for v in node.outputs if v.name), "") or ""


def _shape(value: ir.Value) -> str:
    """Return the shape as text such as `64×3×7×7`, or an empty text for a scalar or an unknown shape."""
    shape = value.shape
    return "" if shape is None else "×".join(str(extent) if isinstance(extent, int) else "?" for extent in shape)


def _attributes(attributes: Mapping[str, ir.Attr]) -> Iterator[str]:
    for name, attribute in attributes.items():
        if attribute.is_ref() or attribute.type not in _PLAIN or name in _OMITTED:
            continue
        value = attribute.value
        parts = [*value] if isinstance(value, list | tuple) else [value]
        if name in _USUAL and all(part == _USUAL[name] for part in parts):
            continue
        text = ",".join(f"{part:.4g}" if isinstance(part, float) else str(part) for part in parts)
        yield f"{name}={text}"[: REPORT.max_drawn_line_characters]


_PLAIN = frozenset(
    (ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING, ir.AttributeType.INTS, ir.AttributeType.FLOATS)
)
"""The types of attributes that a drawing shows."""
