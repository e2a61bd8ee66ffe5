"""Load a model from a file or from an object in memory. The message of an error is one line that describes the problem with the
input.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias, runtime_checkable

import onnx
import onnx_ir as ir
from onnx import ModelProto
from onnx_ir import Model

from superopt.errors import InvalidModelError, ModelNotFoundError, first_line
from superopt.files import require_model_file
from superopt.model.shape_inference import with_shapes
from superopt.protobuf.graphs import with_input_types
from superopt.protobuf.map_types import to_proto, untype_zipmap_nodes, without_maps
from superopt.protobuf.sparse import without_sparse
from superopt.protobuf.validate import require_well_formed

__all__ = [
    "OVERRIDABLE_SINCE",
    "ExportedProgram",
    "Loaded",
    "Model",
    "ModelProto",
    "Source",
    "all_nodes",
    "analysis_copy",
    "as_model",
    "as_proto",
    "load",
    "model_tensors",
    "normalized_copy",
    "opset_of",
]


@runtime_checkable
class ExportedProgram(Protocol):
    """An exported model, such as a `torch.onnx.ONNXProgram`. The attribute `model` contains the model in ONNX form."""

    exported_program: object

    @property
    def model(self) -> Model:
        """The model in ONNX form."""

    def __init__(self, model: Model, exported_program: object) -> None:
        """Make a program from an ONNX model and the exporter's own form of the model."""


Source: TypeAlias = "str | os.PathLike[str] | BinaryIO | bytes | ModelProto | Model | ExportedProgram"
"""A model: a path, an open file, the bytes of a file, a model in memory, or an `ExportedProgram`."""
OVERRIDABLE_SINCE = 4
"""The first IR version in which an initializer need not be an input. An initializer that is also an input has a default value
that the caller may override.

In older IR versions, every initializer is also an input.
"""


@dataclass(frozen=True)
class Loaded:
    """A loaded model, which must not be changed. `path` is the path of the model's file, or None if the model is not from a
    file.
    """

    model: Model
    path: Path | None = None

    @property
    def label(self) -> str:
        """The name by which messages refer to the model."""
        return str(self.path) if self.path is not None else (self.model.graph.name or "the model")

    @property
    def external(self) -> bool:
        """Whether the model has tensors in external data files."""
        return any(isinstance(t, ir.ExternalTensor) for t in model_tensors(self.model))


def load(source: Source) -> Loaded:
    """Check that the model's external data files exist and can be read, and return the model with its nodes in topological
    order.

    ONNX requires topological order, but ONNX Runtime also accepts models in other orders.

    Raises:
        ModelNotFoundError: the file, or a file of external data, is missing.
        InvalidModelError: the file is empty or is not an ONNX model, a graph of the model has a cycle, or a file of external
            data is outside the model's folder.
    """
    if (model := _model_in_memory(source)) is not None:
        return Loaded(model if all(map(_is_ordered, _tops(model))) else _ordered(as_model(as_proto(model)), "the model"))
    if isinstance(source, ModelProto):
        return Loaded(_read(source, Path(), "the model"))
    if isinstance(source, bytes):
        return Loaded(_read(_parsed(source), Path(), "the model"))
    if not isinstance(source, str | os.PathLike):
        content = source.read() if hasattr(source, "read") else None
        if not isinstance(content, bytes):
            raise TypeError(f"a model must be a path, a binary file, bytes or an ONNX model, not {type(source).__name__}")
        return load(content)
    path = Path(source)
    return Loaded(_read(_parse(path), path, str(path)), path)


def _model_in_memory(source: object) -> Model | None:
    """Return the source if it is an `onnx_ir.Model`, or the attribute `model` of the source if the attribute is an
    `onnx_ir.Model`. Return None if neither is an `onnx_ir.Model`.
    """
    held = source if isinstance(source, Model) else getattr(source, "model", None)
    return held if isinstance(held, Model) else None


def _parsed(content: bytes) -> ModelProto:
    if not content:
        raise InvalidModelError("the model is empty")
    try:
        return onnx.load_model_from_string(content)
    except Exception as error:
        raise InvalidModelError(f"the given bytes are not an ONNX model ({first_line(error)})") from error


def _parse(path: Path) -> ModelProto:
    require_model_file(path)
    if not path.is_file():
        raise InvalidModelError(f"{path}: not a file")
    try:
        if path.stat().st_size == 0:
            raise InvalidModelError(f"{path}: the file is empty")
        return onnx.load(path, format="protobuf", load_external_data=False)
    except OSError as error:
        raise InvalidModelError(f"{path}: {error.strerror or error}") from error
    except InvalidModelError:
        raise
    except Exception as error:
        raise InvalidModelError(f"{path}: not an ONNX model ({first_line(error)})") from error


def _read(proto: ModelProto, path: Path, label: str) -> Model:
    if not proto.HasField("graph") or not proto.HasField("ir_version") or not proto.opset_import:
        raise InvalidModelError(f"{label}: not an ONNX model (the graph, the IR version or the opset is missing)")
    if proto.training_info:
        raise InvalidModelError(f"{label}: training information is not supported")
    require_well_formed(proto, label)
    try:
        model = as_model(proto)
    except Exception as error:
        raise InvalidModelError(f"{label}: not a valid ONNX model ({first_line(error)})") from error
    _bind_external_data(model, path, label)
    return _ordered(model, label)


def _ordered(model: Model, label: str) -> Model:
    for graph in _tops(model):
        if not _is_ordered(graph):
            try:
                graph.sort()
            except ValueError as error:
                raise InvalidModelError(
                    f"{label}: not a valid ONNX model (its nodes depend on each other in a cycle)"
                ) from error
    return model


def _tops(model: Model) -> list[ir.Graph]:
    """Return the top graph of the model and the graphs of its local functions."""
    return [model.graph, *(function.graph for function in model.functions.values())]


def _is_ordered(graph: ir.Graph) -> bool:
    seen: set[ir.Node | None] = {None}
    for node in ir.traversal.RecursiveGraphIterator(graph):
        if any(value is not None and value.producer() not in seen for value in node.inputs):
            return False
        seen.add(node)
    return True


def as_model(model: Model | ModelProto | ExportedProgram | bytes) -> Model:
    """Return the model as an `onnx_ir.Model`. Sparse tensors are converted to dense tensors."""
    if isinstance(model, bytes):
        model = onnx.load_model_from_string(model)
    if not isinstance(model, ModelProto):
        return model if isinstance(model, Model) else model.model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ir.from_proto(with_input_types(without_maps(without_sparse(model))))


def as_proto(model: Model) -> ModelProto:
    """Return the model as an `onnx.ModelProto`. External tensors stay in their files.

    Raises:
        InvalidModelError: onnx_ir cannot write a part of the model.
    """
    return to_proto(model)


def opset_of(model: Model) -> int:
    """Return the version of the standard operators that the model imports, or 0 if the model imports no standard operators."""
    imports = model.opset_imports
    return imports.get("", imports.get("ai.onnx", 0))


def all_nodes(model: Model) -> Iterator[ir.Node]:
    """Return the nodes of a loaded model: the nodes of the top graph and of all nested graphs."""
    return iter(ir.traversal.RecursiveGraphIterator(model.graph))


def count(model: Model) -> int:
    """Return the number of nodes in the top graph and in all nested graphs."""
    return sum(1 for _ in all_nodes(model))


def model_tensors(model: Model) -> Iterator[ir.TensorProtocol]:
    """Yield every tensor in the initializers and attributes of a loaded model. Subgraphs and local functions are included."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value
    for _, attribute in _attributes(model):
        if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
            tensor: ir.TensorProtocol = attribute.value
            yield tensor


def weight_bytes(model: Model) -> int:
    """Return the total size in bytes of all tensors that the model stores."""
    return sum(tensor.nbytes for tensor in model_tensors(model))


def _attributes(model: Model) -> Iterator[tuple[ir.Node, ir.Attr]]:
    for graph in _tops(model):
        for node in ir.traversal.RecursiveGraphIterator(graph):
            for attribute in list(node.attributes.values()):
                yield node, attribute


def _bind_external_data(model: Model, path: Path, label: str) -> None:
    """Make every external tensor of the model readable. The tensor's file must be in the folder that contains the model's file
    `path`.

    The tensor's file may be a symbolic link. The target of this link must be in the same folder. If `path` itself is a symbolic
    link, as in the Hugging Face cache, there is a second permitted folder: the folder of the file to which `path` points.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = _bound(value.const_value, path, label)
    for node, attribute in _attributes(model):
        if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
            bound = _bound(attribute.value, path, label)
            inline = ir.Tensor(bound.numpy(), dtype=bound.dtype, name=bound.name, doc_string=bound.doc_string)
            node.attributes[attribute.name] = ir.AttrTensor(attribute.name, inline, doc_string=attribute.doc_string)


def _bound(tensor: ir.ExternalTensor, path: Path, label: str) -> ir.ExternalTensor:
    location = os.fspath(tensor.location)
    folder = path.parent
    if Path(location).is_absolute() or ".." in Path(location).parts:
        raise InvalidModelError(f"{label}: external data path {location!r} points outside the model's folder")
    file = folder / location
    if not file.is_file():
        raise ModelNotFoundError(f"{label}: the external data file {file} is missing")
    real = file.resolve()
    if not any(real.is_relative_to(home) for home in (folder.resolve(), path.resolve().parent)):
        raise InvalidModelError(f"{label}: external data path {location!r} is a link to a file outside the model's folder")
    end = (tensor.offset or 0) + (tensor.nbytes if tensor.length is None else tensor.length)
    if file.stat().st_size < end:
        raise InvalidModelError(f"{label}: the external data file {file} is too short for the tensor {tensor.name!r}")
    linked = real != folder.resolve() / location or real.stat().st_nlink > 1
    return ir.ExternalTensor(
        str(real) if linked else location,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=ir.Shape(tensor.shape),
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
        base_dir="" if linked else folder,
    )


def analysis_copy(model: Model) -> Model:
    """Return a copy of the model for analysis: a `normalized_copy` with all shapes that can be inferred."""
    copy = normalized_copy(model)
    return with_shapes(copy, opset_of(copy))


def normalized_copy(model: Model) -> Model:
    """Return a copy of the model in a uniform form.

    The nodes are in topological order, no weight is an input, and the shapes of all weights are known. Inputs of the
    copy have no default values, because no shape may depend on a value that the caller may override.
    """
    copy = model.clone()
    if copy.ir_version < OVERRIDABLE_SINCE:
        inputs = [v for v in copy.graph.inputs if not v.is_initializer()]
        copy.graph.inputs.clear()
        copy.graph.inputs.extend(inputs)
    for graph in copy.graphs():
        for value in graph.inputs:
            if graph.initializers.pop(value.name or "", None) is not None:
                value.const_value = None
    copy.graph.sort()
    untype_zipmap_nodes(copy)
    for value in (v for graph in copy.graphs() for v in graph.initializers.values()):
        if value.const_value is not None:
            value.shape, value.dtype = ir.Shape(value.const_value.shape.numpy()), value.const_value.dtype
    return copy
