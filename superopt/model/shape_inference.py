"""Shape inference for models whose inputs have fixed shapes, and constant folding of their shape computations."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx.defs
import onnx_ir as ir
from onnx import TypeProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import infer_node_outputs
from onnx_ir.passes.common import ShapeInferencePass
from onnx_ir.serde import serialize_node, serialize_tensor

from superopt.model.lift import FLOATS, STANDARD, constant_tensor, ignores_dilations, is_standard, leaf_of, lift_node
from superopt.policy import MODEL

Array = npt.NDArray[Any]
# If inference fails, onnx_ir logs a traceback, and shapes stay unknown. Without a handler, Python prints the traceback.
logging.getLogger("onnx_ir").addHandler(logging.NullHandler())
# fmt: off
FOLDED = frozenset(
    {
        "Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Floor", "Gather",
        "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
        "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Shape", "Size", "Slice", "Sqrt", "Squeeze",
        "Sub", "Transpose", "Unsqueeze", "Where",
    }
)
# fmt: on
"""Operators that occur in shape computations."""
ALIKE = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
"""Standard operators for which the package onnx infers no shapes. The result has the shape and type of the first operand."""


def with_shapes(model: ir.Model, opset: int) -> ir.Model:
    """Return the model with inferred shapes. The elements of constant values are stored in `const_value`.

    Elements are stored only for small tensors of integers or booleans, and for single floating-point numbers. The declared
    shapes of results are used only where inference finds no shapes, because they can be out of date.
    """
    declared = _cleared(model)
    model = _inferred(model, opset)
    return _inferred(model, opset) if _restored(model, declared) else model


def _cleared(model: ir.Model) -> dict[ir.Value, ir.Shape]:
    """Remove the declared shapes of the results of standard operators, and return them."""
    nodes = (node for node in _nodes(model) if node.domain in STANDARD and node.op_identifier() not in model.functions)
    declared = {value: value.shape for node in nodes for value in node.outputs if value.shape is not None}
    for value in declared:
        value.shape = None
    return declared


def _restored(model: ir.Model, declared: Mapping[ir.Value, ir.Shape]) -> bool:
    """Set the extents that were declared and not inferred, and return whether there are any.

    If onnx and ONNX Runtime disagree on a shape of the model, no extents are set, because they may come from onnx.
    """
    news = False
    if any(map(ignores_dilations, _nodes(model))):
        return news
    for value, shape in declared.items():
        found = shape if value.shape is None else value.shape
        if not _is_fixed(value) and len(found) == len(shape):
            value.shape = ir.Shape([n if isinstance(n, int) else d for n, d in zip(found, shape, strict=True)])
            news = True
    return news


def _inferred(model: ir.Model, opset: int) -> ir.Model:
    """Infer shapes and constants in turn, until nothing new is found."""
    model = with_onnx_shapes(model)
    for _ in range(MODEL.max_inference_rounds):
        if not _folded(model, opset) or not _has_unknown_shapes(model):
            break
        _learn_shapes(model)
    return model


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield the nodes of the top graph and of all nested graphs."""
    return iter(ir.traversal.RecursiveGraphIterator(model.graph))


def _has_unknown_shapes(model: ir.Model) -> bool:
    return any(not _is_fixed(v) for node in _nodes(model) for v in node.outputs if v.name)


def with_onnx_shapes(model: ir.Model) -> ir.Model:
    """Return the model with the shapes that onnx's shape inference finds.

    The result of a pooling for which ONNX Runtime ignores the dilations has no shape, because onnx infers another one.
    """
    pools = {node: node.op_type for node in _nodes(model) if ignores_dilations(node)}
    for node in pools:
        node.op_type = f"superopt.{node.op_type}"
        for value in node.outputs:
            value.shape = None
    ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
    for node, op_type in pools.items():
        node.op_type = op_type
    return model


def _folded(model: ir.Model, opset: int) -> bool:
    """Visit each node once. If the shapes of the node's results can be inferred, store them. If the node's result can be
    computed as a small constant, store it too.

    Returns True if a constant was stored, or if a shape was stored for an operator for which onnx infers no shapes.
    """
    news = False
    for node in _nodes(model):
        if node.op_identifier() not in model.functions:
            news = _learn_contrib(node, opset) or news
            if not ignores_dilations(node):
                _learn_shape(node, opset)
        if node.op_type not in FOLDED or node.domain not in ("", "ai.onnx") or node.op_identifier() in model.functions:
            continue
        wanted = [v for v in node.outputs if v.name]
        if len(wanted) != 1 or wanted[0].const_value is not None or _is_large(wanted[0]):
            continue
        array = constant_value(node, opset)
        if array is not None and array.size <= MODEL.max_stored_elements and (array.dtype.kind in "ib" or array.size == 1):
            value = wanted[0]
            value.const_value = ir.tensor(array, name=value.name)
            value.shape, value.type = ir.Shape(array.shape), ir.TensorType(value.const_value.dtype)
            news = True
    return news


def _is_large(value: ir.Value) -> bool:
    """Return whether the value has too many elements for its constant to be stored."""
    extents = [n for n in value.shape or () if isinstance(n, int)]
    return math.prod(extents) > (1 if value.dtype in FLOATS else MODEL.max_stored_elements)


def constant_value(node: ir.Node, opset: int) -> Array | None:
    """Return the node's result as an array. Return None if an operand is not constant, if an operand is too large, if the
    evaluation fails, or if the result contains strings.
    """
    if node.op_type in ("Shape", "Size"):
        source = node.inputs[0]
        shape = None if source is None or source.shape is None else list(source.shape)
        if shape is None or not all(isinstance(n, int) for n in shape):
            return None
        if node.op_type == "Size":
            return np.asarray(math.prod(int(str(n)) for n in shape), np.int64)
        first, last = (
            node.attributes[k].as_int() if k in node.attributes else d for k, d in (("start", 0), ("end", len(shape)))
        )
        return np.asarray(shape[first:last], np.int64)
    feeds: dict[str, Array] = {}
    for value in node.inputs:
        if value is None:
            continue
        tensor = constant_tensor(value)
        if tensor is None or tensor.size > MODEL.max_stored_elements or value.name is None:
            return None
        feeds[value.name] = tensor.numpy()
    return _evaluated(node, feeds, opset)


def _evaluated(node: ir.Node, feeds: Mapping[str, Array], opset: int) -> Array | None:
    try:
        (array,) = ReferenceEvaluator(serialize_node(node), opsets={"": opset}).run(None, dict(feeds))
    except Exception:  # noqa: BLE001
        return None
    found = np.asarray(array)
    return None if found.dtype.kind in "OSU" else found


def _learn_shape(node: ir.Node, opset: int) -> None:
    """Infer the shapes of the node's results from the known shapes and values of its inputs."""
    given = [v for v in node.inputs if v is not None]
    unknown = [v for v in node.outputs if v.name and not _is_fixed(v)]
    if not unknown or node.domain not in ("", "ai.onnx") or not all(v.name and v.dtype and _is_fixed(v) for v in given):
        return
    types = {v.name or "": _type(v) for v in given}
    tensors = {v.name or "": constant_tensor(v) for v in given}
    data = {name: serialize_tensor(t) for name, t in tensors.items() if t is not None and t.size <= MODEL.max_inferred_elements}
    try:
        schema = onnx.defs.get_schema(node.op_type, opset)
        found = infer_node_outputs(schema, serialize_node(node), types, data)
    except Exception:  # noqa: BLE001
        return
    for value in unknown:
        kind = found[value.name].tensor_type if value.name in found else TypeProto.Tensor()
        extents = [d.dim_value for d in kind.shape.dim if d.HasField("dim_value")]
        if kind.HasField("shape") and len(extents) == len(kind.shape.dim):
            value.shape = ir.Shape(extents)
            value.type = value.type or ir.TensorType(ir.DataType(kind.elem_type))


def _learn_contrib(node: ir.Node, opset: int) -> bool:
    """Set the result shapes of a node of a non-standard operator, using the operator's definition in specs/.

    Return whether shapes were set. The only standard operators that get shapes are those in `ALIKE`.
    """
    results = [v for v in node.outputs if v.name]
    if all(map(_is_fixed, results)):
        return False
    if is_standard(node, opset):
        first = node.inputs[0] if node.op_type in ALIKE else None
        if first is None or first.shape is None or not _is_fixed(first):
            return False
        results[0].shape, results[0].type = ir.Shape(first.shape), results[0].type or first.type
        return True
    inputs = [None if v is None else leaf_of(v) for v in node.inputs]
    lifted = lift_node(node, inputs, opset) or ()
    for value, term in zip(results, lifted, strict=False):
        value.shape, value.type = ir.Shape(term.sizes), value.type or node.inputs[0].type  # type: ignore[union-attr]
    return bool(lifted)


def _type(value: ir.Value) -> TypeProto:
    """Return the element type and the shape of a value as a TypeProto. Type and shape must be known."""
    return helper.make_tensor_type_proto(int(value.dtype or 0), [int(str(n)) for n in value.shape or ()])


def _is_fixed(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(n, int) for n in value.shape)


def _learn_shapes(model: ir.Model) -> None:
    """Infer shapes in a copy of the model in which constants replace the known values, and store these shapes in the model."""
    copy = model.clone()
    pairs = zip(_nodes(model), list(_nodes(copy)), strict=True)
    for number, (node, twin) in enumerate(pairs):
        for value, other in zip(node.outputs, twin.outputs, strict=True):
            if value.const_value is not None and node.op_type != "Constant" and value.name:
                name = f"{value.name}.known{number}"
                stored = ir.Value(name=name, shape=value.shape, type=value.type, const_value=value.const_value)
                copy.graph.register_initializer(stored)
                for user, position in tuple(other.uses()):
                    user.replace_input_with(position, stored)
    copy = with_onnx_shapes(copy)
    for node, twin in zip(_nodes(model), _nodes(copy), strict=True):
        for value, other in zip(node.outputs, twin.outputs, strict=True):
            if other.shape is not None and value.const_value is None:
                value.shape = other.shape
                value.type = value.type or other.type
