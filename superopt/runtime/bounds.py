"""The two kinds of integer inputs: positions in a tensor, which have bounds, and numbers, which can have any value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from superopt.policy import CHECK
from superopt.protobuf.graphs import all_graphs

_PICKS = {
    "Gather": (0, 1),
    "GatherElements": (0, 1),
    "Scatter": (0, 1),
    "ScatterElements": (0, 1),
    "RotaryEmbedding": (1, 3),
    "com.microsoft.RotaryEmbedding": (2, 1),
    "com.microsoft.EmbedLayerNormalization": (2, 0),
}
"""Operators that select elements along one axis of a tensor.

The two numbers of an operator are the index of the input with the tensor, and the index of the input with the positions.
"""
_PICKS_PLACES = {"GatherND": (0, 1), "ScatterND": (0, 1)}
"""Operators that select elements of a tensor. A selection gives a position on each of the tensor's first axes.

The two numbers of an operator are the index of the input with the tensor, and the index of the input with the positions. The
last axis of the second input contains one position for each of the tensor's first axes.
"""
_COUNTS = {"TopK": (0, 1, -1), "ReverseSequence": (0, 1, 0)}
"""Operators that process a given number of elements along an axis of a tensor.

The three numbers of an operator are the index of the input with the tensor, the index of the input with the number of elements,
and the default axis. The number of elements is at least 1, and at most the size of the axis.
"""
_CARRIES_INDICES = {"Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Concat", "Slice", "Transpose", "Expand"}
_KEEPS_COLUMNS = {"Cast", "Identity"}
# fmt: off
_COMPUTES = {
    "Abs", "Add", "Clip", "CumSum", "Identity", "Max", "Mean", "Min", "Mul", "Neg", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceSum", "Sign", "Sub", "Sum", "Transpose",
}
"""Operators that compute plain numbers from plain numbers. A plain number is not a position, a size or a count."""
_KEEPS_FIRST = {
    "DepthToSpace", "Div", "Expand", "Flatten", "Gather", "MaxPool", "Mod", "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth",
    "Split", "Squeeze", "Tile", "Unsqueeze",
}
"""Operators whose results are plain numbers if the elements of their first operand are plain numbers.

A plain number is not a position, a size or a count. The other operands of these operators are positions, sizes or divisors.
"""
_COMPARES = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
_DEQUANTIZES = {"ConvInteger", "DequantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
"""Operators that compute with quantized numbers."""
_INTEGERS = {
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT64,
}
# fmt: on
Shapes = Mapping[str, Sequence[int | None]]


class IndexRange(int):
    """An upper bound on the random integers for an input: the integers are less than the bound and at least `low`.

    If each position along the last axis has a separate bound, `columns` contains the separate bounds. The `IndexRange` itself
    is then the smallest of the separate bounds.
    """

    low: int
    columns: tuple[int, ...]

    def __new__(cls, high: int, low: int = 0, columns: tuple[int, ...] = ()) -> Self:
        made = super().__new__(cls, high)
        made.low, made.columns = low, columns
        return made


@dataclass(frozen=True)
class _Origin:
    """The model input that provides the elements of a value.

    `name` is the name of the input. `whole` states whether the last axis of the value is the last axis of the input.
    """

    name: str
    whole: bool = True


def index_bounds(model: ModelProto) -> dict[str, int]:
    """Return upper bounds for the integers in inputs of the model, by the name of the input.

    The mapping contains the inputs whose integers select elements along axes of known sizes. The bound is the smallest of these
    sizes, so all positions below the bound exist. If the integers also have a lower limit, or if each position of the last axis
    has a separate bound, the bound is an `IndexRange`.
    """
    bounds: dict[str, int] = {}
    tables: Shapes = {t.name: tuple(t.dims) for t in model.graph.initializer}
    origin = {port.name: _Origin(port.name) for port in model.graph.input}
    inferred: Shapes | None = None
    for node in _nodes(model.graph):
        source = origin.get(node.input[0]) if node.input else None
        if source is not None and node.op_type in _CARRIES_INDICES:
            passed = _Origin(source.name, source.whole and node.op_type in _KEEPS_COLUMNS)
            origin.update(dict.fromkeys(node.output, passed))
        title = f"{node.domain}.{node.op_type}".removeprefix("ai.onnx").removeprefix(".")
        places = _PICKS.get(title) or _PICKS_PLACES.get(title) or _COUNTS.get(title, ())[:2]
        if not places or max(places) >= len(node.input):
            continue
        table, rows = node.input[places[0]], origin.get(node.input[places[1]])
        if rows is None:
            continue
        if table not in tables and inferred is None:
            inferred = _inferred(model)
        shape = tables.get(table) or (inferred or {}).get(table)
        found = None if not shape else _bound(node, title, shape, rows)
        if found is not None:
            known = bounds.get(rows.name)
            bounds[rows.name] = found if known is None else _both(known, found)
    return bounds


def number_inputs(model: ModelProto) -> frozenset[str]:
    """Return the names of the integer inputs whose elements are numbers, and not positions, sizes or counts.

    The model only computes with the elements of such an input, compares them, or converts them to floats or booleans. A
    quantized tensor is such an input. An input that is the divisor of an integer division is left out, because ONNX Runtime
    ends the process if an integer is divided by 0.
    """
    found = {port.name for port in model.graph.input if port.type.tensor_type.elem_type in _INTEGERS}
    nested = {name for graph in all_graphs(model) if graph is not model.graph for node in graph.node for name in node.input}
    origins = {name: {name} for name in found}
    for node in model.graph.node:
        read = [origins.get(name, set()) for name in node.input]
        target = next((a.i for a in node.attribute if a.name == "to"), 0)
        if node.domain not in ("", "ai.onnx"):
            passed, kept = set[str](), set[str]().union(*read)
        elif node.op_type in _COMPARES | _DEQUANTIZES or (node.op_type == "Cast" and target not in _INTEGERS):
            passed, kept = set[str](), set[str]()
        elif node.op_type in _COMPUTES or node.op_type in ("Cast", "Concat"):
            passed, kept = set[str]().union(*read), set[str]()
        elif node.op_type == "Where":
            passed, kept = set[str]().union(*read[1:]), read[0]
        elif node.op_type in _KEEPS_FIRST:
            passed, kept = read[0], set[str]().union(*read[1:])
        else:
            passed, kept = set[str](), set[str]().union(*read)
        found -= kept
        origins.update((name, passed) for name in node.output if passed)
    return frozenset(found.difference(*(origins[name] for name in nested & origins.keys())))


def integer_constants(model: ModelProto) -> tuple[int, ...]:
    """Return the distinct integers in the small integer tensors that the model stores, in ascending order.

    Integers of 2**62 or more in magnitude are left out. These large integers are ends of slices. The sum of such an integer and
    1 or -1 may not fit into int64.
    """
    stored = [tensor for graph in all_graphs(model) for tensor in graph.initializer]
    stored += [a.t for graph in all_graphs(model) for node in graph.node if node.op_type == "Constant" for a in node.attribute]
    small = (t for t in stored if t.data_type in _INTEGERS and not t.external_data and t.ByteSize() <= CHECK.max_constant_bytes)
    found = {int(number) for tensor in small for number in numpy_helper.to_array(tensor).ravel()}
    return tuple(sorted(number for number in found if abs(number) < 2**62))


def _bound(node: NodeProto, title: str, shape: Sequence[int | None], rows: _Origin) -> int | None:
    """Return the bound on the positions that a node selects in a tensor, or None if the sizes of the selected axes are unknown.

    `title` is the node's operator with its domain, and `shape` is the shape of the tensor. `rows` describes the model's input
    that contains the positions.
    """
    numbers = {a.name: a.i for a in node.attribute if a.type == AttributeProto.INT}
    if title in _PICKS_PLACES:
        extents = shape[numbers.get("batch_dims", 0) :]
        known = [n for n in extents if n is not None]
        if not known or min(known) < 1:
            return None
        columns = tuple(n or 1 for n in extents)
        return IndexRange(min(columns), columns=columns if rows.whole else ())
    low, axis = 0, numbers.get("axis", 0)
    if title in _COUNTS:
        low, axis = 1, numbers.get("time_axis" if title == "ReverseSequence" else "axis", _COUNTS[title][2])
    extent = shape[axis] if -len(shape) <= axis < len(shape) else None
    if extent is None or extent < 1:
        return None
    return IndexRange(extent + 1, low) if low else extent


def _both(one: int, other: int) -> int:
    """Return a bound that allows exactly the integers that both given bounds allow."""
    low = max(getattr(one, "low", 0), getattr(other, "low", 0))
    sides = [getattr(bound, "columns", ()) for bound in (one, other)]
    if any(sides):
        columns = (
            tuple(map(min, *sides)) if all(sides) else tuple(min(n, *(int(one), int(other))) for n in sides[0] or sides[1])
        )
        return IndexRange(min(one, other), low, columns)
    return IndexRange(max(min(one, other), low + 1), low) if low else min(one, other)


def _inferred(model: ModelProto) -> Shapes:
    """Return the shapes that ONNX infers for values, with None for each unknown size. Large weights are not copied."""
    hollow = ModelProto(ir_version=max(model.ir_version, 4))
    hollow.opset_import.extend(model.opset_import)
    hollow.functions.extend(model.functions)
    hollow.graph.name = "hollow"
    hollow.graph.node.extend(model.graph.node)
    hollow.graph.output.extend(model.graph.output)
    listed = {port.name for port in model.graph.input}
    hollow.graph.input.extend(model.graph.input)
    for tensor in model.graph.initializer:
        if tensor.ByteSize() < CHECK.max_inferred_constant_bytes and not tensor.external_data:
            hollow.graph.initializer.append(tensor)
        elif tensor.name not in listed:
            hollow.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    try:
        found = onnx.shape_inference.infer_shapes(hollow, data_prop=True)
    except Exception:  # noqa: BLE001
        return {}
    return {v.name: _shape(v) for v in (*found.graph.input, *found.graph.value_info) if v.type.tensor_type.HasField("shape")}


def _shape(value: ValueInfoProto) -> tuple[int | None, ...]:
    return tuple(d.dim_value if d.dim_value > 0 else None for d in value.type.tensor_type.shape.dim)


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph and of all graphs nested in the nodes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _nodes(attribute.g)
