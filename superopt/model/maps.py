"""Types that onnx_ir has no place for: maps, as the probabilities of classifiers often are (ZipMap of the domain ai.onnx.ml).

While a model is an `onnx_ir.Model`, a value of such a type has none, and its type, as text, among its metadata. Messages and
files have it where it was.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import chain

import onnx_ir as ir
from onnx import ModelProto, TypeProto, ValueInfoProto

from superopt.model.messages import graphs

KEY = "superopt.type"
"""Under which name the type is among a value's metadata."""
UNTYPED = "superopt.untyped"
"""The domain that makers of maps have in a copy for analysis, so that no type is inferred for what they make."""


def without_maps(model: ModelProto) -> ModelProto:
    """The model with its maps' types among their metadata; the model itself where there are none."""
    if not any(_is_map(value.type) for value in _values(model)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for value in _values(copy):
        if _is_map(value.type):
            value.metadata_props.add(key=KEY, value=base64.b64encode(value.type.SerializeToString()).decode())
            value.ClearField("type")
    return copy


def with_maps(model: ModelProto) -> ModelProto:
    """The model itself, now with the types of its maps in their places."""
    for value in _values(model):
        for place, entry in enumerate(value.metadata_props):
            if entry.key == KEY:
                value.type.ParseFromString(base64.b64decode(entry.value))
                del value.metadata_props[place]
                break
    return model


def has_maps(model: ir.Model) -> bool:
    """Whether values of the model have types among their metadata."""
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    made = (value for node in nodes for value in node.outputs)
    return any(KEY in value.metadata_props for value in chain(model.graph.inputs, model.graph.outputs, made))


def make_untyped(model: ir.Model) -> None:
    """No types are inferred for maps that nodes of the model make."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.domain == "ai.onnx.ml" and node.op_type == "ZipMap":
            node.domain = UNTYPED
            model.opset_imports.setdefault(UNTYPED, 1)


def _values(model: ModelProto) -> Iterator[ValueInfoProto]:
    """What the model says of values, bodies and functions included."""
    for graph in graphs(model):
        yield from chain(graph.input, graph.output, graph.value_info)
    for function in model.functions:
        yield from function.value_info


def _is_map(kind: TypeProto) -> bool:
    """Whether the type is of maps, of sequences of them, or of ones that may be missing."""
    if kind.HasField("sequence_type"):
        return _is_map(kind.sequence_type.elem_type)
    return _is_map(kind.optional_type.elem_type) if kind.HasField("optional_type") else bool(kind.HasField("map_type"))
