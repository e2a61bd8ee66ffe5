"""Conversion of the sparse tensors of a ModelProto to dense tensors with the same elements.

onnx_ir reads neither sparse initializers nor Constant nodes with a `sparse_value`. ONNX Runtime converts sparse tensors to
dense tensors when it loads a model. So the results of a model do not change if dense tensors replace its sparse tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import AttributeProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from superopt.protobuf.graphs import all_graphs

Array = npt.NDArray[Any]


def without_sparse(model: ModelProto) -> ModelProto:
    """Return the model with dense tensors in place of sparse tensors, or the model itself if it has no sparse tensors.

    The model must pass `require_well_formed`.
    """
    if next(sparse_tensors(model), None) is None:
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for graph in all_graphs(copy):
        if graph.sparse_initializer:
            graph.initializer.extend(dense_tensor(sparse) for sparse in graph.sparse_initializer)
            del graph.sparse_initializer[:]
    for attribute in _sparse_values(copy):
        dense = dense_tensor(attribute.sparse_tensor)
        attribute.ClearField("sparse_tensor")
        attribute.name, attribute.type = "value", AttributeProto.TENSOR
        attribute.t.CopyFrom(dense)
    return copy


def sparse_tensors(model: ModelProto) -> Iterator[SparseTensorProto]:
    """Yield the sparse initializers of all graphs of the model, and the sparse tensors of its Constant nodes."""
    for graph in all_graphs(model):
        yield from graph.sparse_initializer
    for attribute in _sparse_values(model):
        yield attribute.sparse_tensor


def _sparse_values(model: ModelProto) -> Iterator[AttributeProto]:
    """Yield each attribute that holds the sparse tensor of a Constant node, in graphs at any depth and in functions."""
    functions = (function.node for function in model.functions)
    nodes: Iterable[NodeProto] = chain.from_iterable(chain((graph.node for graph in all_graphs(model)), functions))
    for node in nodes:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            own = (attribute for attribute in node.attribute if not attribute.ref_attr_name)
            yield from (a for a in own if a.name == "sparse_value" and a.HasField("sparse_tensor"))


def dense_bytes(sparse: SparseTensorProto) -> int:
    """Return the size in bytes of the dense tensor that equals the sparse tensor."""
    kind = ir.DataType(sparse.values.data_type)
    return math.prod(map(int, sparse.dims)) * kind.bitwidth // 8


def dense_tensor(sparse: SparseTensorProto) -> TensorProto:
    """Return the dense tensor that has the elements of a well-formed sparse tensor."""
    values = numpy_helper.to_array(sparse.values)
    elements = np.zeros(math.prod(sparse.dims), values.dtype)
    elements[positions(sparse)] = values
    dense = numpy_helper.from_array(elements, sparse.values.name)
    dense.dims[:] = sparse.dims
    return dense


def positions(sparse: SparseTensorProto) -> Array:
    """Return the positions of the sparse tensor's elements in the flattened dense tensor.

    The indices of a sparse tensor have one of two forms. Indices of shape [n] are positions in the flattened tensor. Indices of
    shape [n, rank] are coordinates, from which positions are computed.

    Raises:
        ValueError: An index is outside of the dense tensor.
    """
    extents = [*sparse.dims] if len(sparse.indices.dims) > 1 else [math.prod(sparse.dims)]
    indices = numpy_helper.to_array(sparse.indices).astype(np.int64).reshape(-1, len(extents))
    if indices.size and (indices.min() < 0 or bool((indices >= np.array(extents)).any())):
        raise ValueError("an index lies outside of the tensor")
    flat = np.zeros(len(indices), np.int64)
    for column, extent in zip(indices.T, extents, strict=True):
        flat = flat * extent + column
    return flat
