"""Support for the map types of ONNX, which onnx_ir cannot represent.

For example, the operator ZipMap of the domain ai.onnx.ml returns maps from classes to probabilities.

In an `onnx_ir.Model`, a map has no type, and its map type is stored as text in the value's metadata. In a ModelProto and in
files, the map type is stored as the value's type.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import chain

import onnx_ir as ir
from onnx import ModelProto, TypeProto, ValueInfoProto

from superopt.errors import InvalidModelError, first_line
from superopt.protobuf.graphs import all_graphs

KEY = "superopt.type"
"""The metadata key under which the map type of a value is stored."""
UNTYPED = "superopt.untyped"
"""A domain without operators. In copies of models for analysis, operators with map results are moved to this domain, so that no
types are inferred for their results.
"""


def without_maps(model: ModelProto) -> ModelProto:
    """Return a copy of the model with map types moved to metadata, or the model itself if it has no map types."""
    if not any(_is_map(value.type) for value in _values(model)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for value in _values(copy):
        if _is_map(value.type):
            value.metadata_props.add(key=KEY, value=base64.b64encode(value.type.SerializeToString()).decode())
            value.ClearField("type")
    return copy


def to_proto(model: ir.Model) -> ModelProto:
    """Return the model as a ModelProto. Each map type that is stored in a value's metadata becomes the type of this value.

    Raises:
        InvalidModelError: onnx_ir cannot write a part of the model.
    """
    try:
        return with_maps(ir.to_proto(model))
    except ir.serde.SerdeError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise InvalidModelError(f"the model cannot be written ({first_line(cause)})") from error


def with_maps(model: ModelProto) -> ModelProto:
    """Restore the map types of the model in place, and return the model. Each map type that is stored in a value's metadata
    becomes the type of this value.
    """
    for value in _values(model):
        for place, entry in enumerate(value.metadata_props):
            if entry.key == KEY:
                value.type.ParseFromString(base64.b64decode(entry.value))
                del value.metadata_props[place]
                break
    return model


def has_maps(model: ir.Model) -> bool:
    """Return whether a value of the model has a map type in its metadata."""
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    made = (value for node in nodes for value in node.outputs)
    return any(KEY in value.metadata_props for value in chain(model.graph.inputs, model.graph.outputs, made))


def untype_zipmap_nodes(model: ir.Model) -> None:
    """Change the domain of ZipMap nodes in place to a domain without operators, so that no types are inferred for their
    results.
    """
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.domain == "ai.onnx.ml" and node.op_type == "ZipMap":
            node.domain = UNTYPED
            model.opset_imports.setdefault(UNTYPED, 1)


def _values(model: ModelProto) -> Iterator[ValueInfoProto]:
    """Yield the value infos of all graphs of the model, at any depth, and of its functions."""
    for graph in all_graphs(model):
        yield from chain(graph.input, graph.output, graph.value_info)
    for function in model.functions:
        yield from function.value_info


def _is_map(kind: TypeProto) -> bool:
    """Return whether the type is a map type, or a sequence type or optional type whose elements are maps."""
    if kind.HasField("sequence_type"):
        return _is_map(kind.sequence_type.elem_type)
    return _is_map(kind.optional_type.elem_type) if kind.HasField("optional_type") else bool(kind.HasField("map_type"))
