"""What a model holds, wherever its tensors lie: its digest, and whether two models are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import numpy as np
import onnx_ir as ir
from onnx import NodeProto

from superopt.errors import CertificateError
from superopt.model.load import Model, as_model, as_proto

ULPS = 1024
"""By how many units in the last place of a weight's largest magnitude it may differ where another machine folded it."""


def content_digest(model: Model) -> str:
    """The SHA-256 of all that the model holds, its tensors included; whether these lie in other files does not matter."""
    return hashlib.sha256(_hollow(model, tensor_digest)).hexdigest()


def tensor_digest(tensor: ir.TensorProtocol) -> bytes:
    """The SHA-256 of a tensor's bytes."""
    return hashlib.sha256(tensor.tobytes()).digest()


def require_same(made: Model, given: Model) -> int:
    """How many weights of the two models differ in their last places; everything else of them is the same.

    Raises:
        CertificateError: something else differs, or a weight by more.
    """
    if _hollow(made, lambda _: b"") != _hollow(given, lambda _: b""):
        raise CertificateError("the steps lead to another model than the optimized one: nodes, names or shapes differ")
    weights = zip(_weights(made), _weights(given), strict=True)
    unlike = [(one, other) for one, other in weights if tensor_digest(one) != tensor_digest(other)]
    for one, other in unlike:
        if not _near(one.numpy(), other.numpy()):
            raise CertificateError(f"the steps lead to another model than the optimized one: weight {other.name!r} differs")
    return len(unlike)


def _near(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype.kind != "f":
        return False
    with np.errstate(invalid="ignore"):
        scale = float(np.max(np.abs(np.where(np.isfinite(one), one, 0)), initial=0.0))
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
        return bool(np.all((one == other) | (apart <= ULPS * float(np.finfo(one.dtype).eps) * scale)))


def _weights(model: Model) -> list[ir.TensorProtocol]:
    """The initializers of all graphs, each graph's in the order of their names."""
    return [
        value.const_value
        for graph in model.graphs()
        for _, value in sorted(graph.initializers.items())
        if value.const_value is not None
    ]


def _hollow(model: Model, mark: Callable[[ir.TensorProtocol], bytes]) -> bytes:
    """The model as a message with a mark in place of what each initializer holds, as it is when it was read from a file."""
    copy = model.clone()
    for graph in copy.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None:
                text = f"{tensor.dtype.name}{list(tensor.shape.numpy())}".encode()
                array = np.frombuffer(text + mark(tensor), dtype=np.uint8)
                value.const_value = ir.tensor(array, name=value.name)
                value.shape, value.type = ir.Shape(array.shape), ir.TensorType(ir.DataType.UINT8)
    proto = as_proto(as_model(as_proto(copy)))
    _forget_names(proto.graph.node)
    for function in proto.functions:
        _forget_names(function.node)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _forget_names(nodes: Iterable[NodeProto]) -> None:
    """Takes the names of tensors out of attributes, graphs in these included: they name nothing, and reading adds them."""
    for node in nodes:
        for attribute in node.attribute:
            for tensor in (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors:
                tensor.ClearField("name")
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                _forget_names(graph.node)
