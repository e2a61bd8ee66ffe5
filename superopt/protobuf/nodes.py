"""Lowered terms: ONNX nodes that are represented by Python values, and models that consist of such nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx.defs
import onnx.helper
import onnx.numpy_helper
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto
from onnx.defs import OpSchema

from superopt.algebra.terms import Shape, Term
from superopt.errors import ShapeError

INTEGERS = {32: TensorProto.INT32, 64: TensorProto.INT64}
IR_VERSION = 4  # the first version in which an initializer need not be an input
CONTRIB_VERSION = 1  # the opset version of every non-standard domain
Array: TypeAlias = "npt.NDArray[Any]"
AttributeValue: TypeAlias = "int | float | str | tuple[int, ...] | tuple[float, ...]"


WEIGHTS = "weights"
"""The name of the external data file for `Hollow` arrays. The file is in the model's folder."""


class Hollow(np.ndarray[Any, np.dtype[Any]]):
    """A stand-in for an array, with a type and a shape, but with arbitrary elements.

    In a model, a stand-in becomes a tensor with external data. The data file is needed only when a session is created.
    """

    @staticmethod
    def of(dtype: npt.DTypeLike, shape: Sequence[int]) -> Hollow:
        """Return a stand-in with this type and shape. Its elements take no memory."""
        return np.broadcast_to(np.zeros((), dtype), shape).view(Hollow)


@dataclass(frozen=True, eq=False)
class Deferred:
    """An array that is computed anew for each use, so that the array takes memory only during a use."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    computed: Callable[[], Array]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def astype(self, dtype: npt.DTypeLike) -> Deferred:
        """Return a deferred array with the elements converted to this type."""
        return Deferred(np.dtype(dtype), self.shape, lambda: self.computed().astype(dtype))


@dataclass(frozen=True)
class NodeText:
    """An ONNX node as Python values, with the contents of a NodeProto. An empty string in `inputs` stands for an absent input.

    The name of a non-standard operator includes its domain, as in `com.microsoft.Attention`.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, AttributeValue], ...] = ()


@dataclass(frozen=True, eq=False)
class Lowered:
    """The ONNX nodes that compute terms.

    Attributes:
        nodes: The nodes in topological order.
        initializers: The arrays of the initializers, by name. Variables of the terms are not initializers.
        booleans: The names of the outputs that are booleans. All other outputs are floating-point numbers.
        shapes: A mapping from the names of values to their shapes. A value that is not the result of any term may be left out.
    """

    nodes: tuple[NodeText, ...]
    initializers: Mapping[str, Array | Deferred]
    booleans: frozenset[str] = frozenset()
    shapes: Mapping[str, Shape] = field(default_factory=dict)


def rename_values(node: NodeText, titles: Mapping[str, str]) -> NodeText:
    inputs, outputs = (tuple(titles.get(name, name) for name in names) for names in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)


def shorten_reshape_chains(nodes: Iterable[NodeText], shapes: Mapping[str, Shape], outputs: Container[str]) -> list[NodeText]:
    """Shorten chains of Reshape nodes: let each Reshape of a chain read the input of the chain's first Reshape.

    Results do not change, because only the last Reshape of a chain determines the shape. If the input of a Reshape already has
    the target shape, the Reshape is left out, unless it computes one of the values in `outputs`.
    """
    source: dict[str, str] = {}
    same: dict[str, str] = {}
    found: list[NodeText] = []
    for node in nodes:
        inputs = tuple(same.get(name, name) for name in node.inputs)
        if node.op_type == "Reshape":
            result = node.outputs[0]
            start = source.get(inputs[0], inputs[0])
            source[result] = start
            if result not in outputs and result in shapes and shapes[result] == shapes.get(start):
                same[result] = start
                continue
            inputs = (start, *inputs[1:])
        found.append(replace(node, inputs=inputs))
    return found


def needed_nodes(nodes: Sequence[NodeText], outputs: Iterable[str]) -> list[NodeText]:
    """Return the nodes that the outputs depend on."""
    wanted = set(outputs)
    kept: list[NodeText] = []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]


def lowered_model_proto(
    lowered: Lowered, inputs: Iterable[Term], outputs: Mapping[str, Term], opset: int, dtype: npt.DTypeLike = np.float32
) -> ModelProto:
    """Return a model with the nodes in `lowered`. The variables in `inputs` become inputs, and the keys of `outputs` name the
    outputs.
    """
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node_proto(n) for n in lowered.nodes],
        "terms",
        [info(x.name, INTEGERS.get(x.position) or (TensorProto.BOOL if x.condition else kind), x.sizes) for x in inputs],
        [info(name, TensorProto.BOOL if name in lowered.booleans else kind, term.sizes) for name, term in outputs.items()],
        [_tensor(array, name) for name, array in lowered.initializers.items()],
    )
    imports = [onnx.helper.make_opsetid("", opset)]
    version = max(IR_VERSION, onnx.helper.find_min_ir_version_for(imports))
    imports += [onnx.helper.make_opsetid(domain, CONTRIB_VERSION) for domain in domains(lowered)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=version)


def domains(lowered: Lowered) -> list[str]:
    """Return the non-standard domains of the nodes' operators, in alphabetical order."""
    return sorted({node.op_type.rpartition(".")[0] for node in lowered.nodes} - {""})


def _tensor(array: Array | Deferred, name: str) -> TensorProto:
    if isinstance(array, Hollow):
        return hollow_tensor(array, name)
    return onnx.numpy_helper.from_array(np.asarray(materialize_initializer(array), order="C"), name)


def materialize_initializer(array: Array | Deferred) -> Array:
    """If the array is a `Deferred`, compute its elements and return them. Otherwise, return the array itself."""
    return array.computed() if isinstance(array, Deferred) else array


def hollow_tensor(array: Hollow, name: str) -> TensorProto:
    """Return a `TensorProto` with this name and the type and shape of a `Hollow` array.

    The external data of the tensor is at the beginning of the file `WEIGHTS`.
    """
    tensor = TensorProto(name=name, dims=array.shape, data_location=TensorProto.EXTERNAL)
    tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.external_data.add(key="location", value=WEIGHTS)
    tensor.external_data.add(key="length", value=str(array.nbytes))
    return tensor


def with_hollow_data(model: ModelProto, folder: Path) -> ModelProto | Path:
    """Return a model of lowered nodes in a form that a session can load, with a data file for the `Hollow` tensors.

    A `Hollow` tensor has a shape but no stored elements. A model without such tensors is returned unchanged. A model with
    `Hollow` tensors is written to the folder, together with a sufficiently large file `WEIGHTS`, and the path of the model is
    returned.
    """
    lengths = [int(e.value) for t in model.graph.initializer for e in t.external_data if e.key == "length"]
    if not lengths:
        return model
    with (folder / WEIGHTS).open("wb") as file:
        file.truncate(max(lengths))
    path = folder / "segment.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def node_proto(text: NodeText) -> NodeProto:
    """Return the node as an ONNX NodeProto."""
    domain, _, name = text.op_type.rpartition(".")
    node = onnx.helper.make_node(name, text.inputs, text.outputs, domain=domain)
    for name, value in text.attributes:
        whole = isinstance(value, tuple) and all(isinstance(v, int) for v in value)
        kind = AttributeProto.INTS if whole else None
        node.attribute.append(onnx.helper.make_attribute(name, value, attr_type=kind))
    return node


def schema_of(op_type: str, opset: int) -> OpSchema:
    """Return the schema of a standard ONNX operator at this opset.

    Raises:
        ShapeError: The opset does not have the operator, or the operator is deprecated at this opset.
    """
    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        raise ShapeError(f"opset {opset} has no operator {op_type}") from None
    if schema.deprecated:
        raise ShapeError(f"{op_type} is deprecated at opset {opset}")
    return schema


def schema_input_position(schema: OpSchema, name: str, opset: int) -> int:
    """Return the position of the input with this name in the schema of an ONNX operator.

    Raises:
        ShapeError: The operator has no input with this name at this opset.
    """
    for position, formal in enumerate(schema.inputs):
        if formal.name == name:
            return position
    raise ShapeError(f"{schema.name} has no input {name} at opset {opset}")
