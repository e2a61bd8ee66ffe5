"""The content digest of a model, independent of where its tensors are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir
from onnx import NodeProto

from superopt.protobuf.map_types import to_proto, without_maps
from superopt.protobuf.tensors import tensor_content


def content_digest(model: ir.Model) -> str:
    """Return the SHA-256 of the model's content, including its tensors. External and inline tensors give equal digests."""
    return hashlib.sha256(_hollow(model)).hexdigest()


def _hollow(model: ir.Model) -> bytes:
    """Serialize the model with a digest in place of the elements of each initializer.

    The result is the same for a model in memory and for a model that was just read from a file.
    """
    copy = model.clone()
    for graph in copy.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None:
                text = f"{tensor.dtype.name}{list(tensor.shape.numpy())}".encode()
                array = np.frombuffer(text + hashlib.sha256(tensor_content(tensor)).digest(), dtype=np.uint8)
                value.const_value = ir.tensor(array, name=value.name)
                value.shape, value.type = ir.Shape(array.shape), ir.TensorType(ir.DataType.UINT8)
    proto = to_proto(ir.from_proto(without_maps(to_proto(copy))))
    _forget_names(proto.graph.node)
    for function in proto.functions:
        _forget_names(function.node)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _forget_names(nodes: Iterable[NodeProto]) -> None:
    """Remove the names of tensors in the attributes of nodes, including nodes of nested graphs.

    These names have no effect on the model. Reading a model adds such names, so the names must not influence the digest.
    """
    for node in nodes:
        for attribute in node.attribute:
            for tensor in (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors:
                tensor.ClearField("name")
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                _forget_names(graph.node)
