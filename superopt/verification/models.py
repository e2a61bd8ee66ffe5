"""The model that `superopt verify` reads: the model's interface, and the integers that occur in the model.

The module parses files only with the `onnx` package and runs no shape inference. `superopt.verification.inputs` chooses the
sizes of dynamic dimensions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from superopt.errors import CertificateError, InvalidModelError, first_line
from superopt.policy import VERIFY
from superopt.protobuf.graphs import with_input_types
from superopt.protobuf.map_types import to_proto, without_maps
from superopt.protobuf.normalization import Array, Normalization, boundary_values, normalizations
from superopt.protobuf.specialize import Specialization
from superopt.verification.contents import content_digest

UNNAMED = re.compile(r"\??|-1|None|unk__.*|.*\[\d+\]")
"""Placeholder names that exporters give to unknown dimensions. Dimensions with equal placeholder names may differ in size."""
STANDARD = ("", "ai.onnx")
"""The two names of the domain of the standard ONNX operators."""
# fmt: off
PASSED_ON = frozenset(
    {
        "Abs", "Add", "Cast", "Clip", "Concat", "Div", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
        "Identity", "Max", "Min", "Mul", "Neg", "Pad", "Relu", "Reshape", "ScatterElements", "ScatterND",
        "Slice", "Split", "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Unsqueeze", "Where",
    }
)
"""Operators whose results have the magnitude of an operand, or an infinity where an operand has an infinity."""
TAKEN_IN = frozenset(
    {
        "ArgMax", "ArgMin", "Attention", "Clip", "Equal", "GlobalMaxPool", "Greater", "GreaterOrEqual", "Hardmax", "IsInf",
        "IsNaN", "Less", "LessOrEqual", "Log", "LogSoftmax", "Max", "MaxPool", "Min", "Reciprocal", "ReduceLogSumExp",
        "ReduceMax", "ReduceMin", "Relu", "Softmax", "TopK", "Where",
    }
)
"""Operators that give ordinary results for infinities or for values of any magnitude (docs/floating-point.md).

For example, Softmax maps an operand of -infinity to 0.
"""
ZEROS_PASSED_ON = PASSED_ON | {
    "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "Ceil", "Erf", "Floor", "GlobalAveragePool", "LeakyRelu", "Mean", "PRelu",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Round", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
}
"""Operators that may return a zero with the sign of a zero in an operand."""
# fmt: on


@dataclass(frozen=True)
class DeclaredInput:
    """An input: the name, the element type, and for each axis a number or the name of a dynamic dimension."""

    name: str
    dtype: npt.DTypeLike
    axes: tuple[int | str, ...]


@dataclass(frozen=True, eq=False)
class ModelSource:
    """A model file, parsed without external tensor data."""

    path: Path
    proto: ModelProto

    @staticmethod
    def read(path: Path) -> ModelSource:
        """Read a model file.

        Raises:
            InvalidModelError: The file cannot be parsed, or a file with external data is missing.
        """
        try:
            source = ModelSource(path, onnx.load(path, load_external_data=False))
        except Exception as error:
            raise InvalidModelError(f"{path}: not an ONNX model ({type(error).__name__})") from error
        for tensor in verified_model_tensors(source.proto.graph):
            for entry in tensor.external_data if tensor.data_location == TensorProto.EXTERNAL else ():
                if entry.key == "location" and not (path.parent / entry.value).is_file():
                    raise InvalidModelError(
                        f"{path}: the external data file {entry.value!r} of tensor {tensor.name!r} is missing"
                    )
        return source

    def specialized(self, to: Specialization) -> ModelSource:
        """Return the model with fixed inputs and inlined branches, or the model itself if the model has local functions.

        Raises:
            CertificateError: The model lacks an input or a branch that `to` names.
        """
        if not to or self.proto.functions:
            return self
        try:
            return ModelSource(self.path, to_proto(to.of(ir.from_proto(with_input_types(without_maps(self.proto))))))
        except Exception as error:
            raise CertificateError(f"{self.path} lacks an input or a branch that the certificate names ({error})") from error

    @cached_property
    def inputs(self) -> tuple[DeclaredInput, ...]:
        """The inputs that a caller must provide: inputs without an initializer."""
        stored = {t.name for t in self.proto.graph.initializer} | {t.values.name for t in self.proto.graph.sparse_initializer}
        return tuple(_port(value) for value in self.proto.graph.input if value.name not in stored)

    @cached_property
    def normalized(self) -> dict[str, Normalization]:
        """A mapping from the names of inputs to the normalizations that the model applies to these inputs."""
        return normalizations(self.proto)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(value.name for value in self.proto.graph.output)

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """The names of the inputs' dynamic dimensions. Expressions over other names, such as `past + length`, are left out."""
        found = dict.fromkeys(axis for port in self.inputs for axis in port.axes if isinstance(axis, str))
        return tuple(
            name
            for name in found
            if not dimension_expression_names(name) or not dimension_expression_names(name) <= found.keys()
        )

    @cached_property
    def constants(self) -> tuple[int, ...]:
        """The positive integers in the model, and the extents of the model's weights."""
        found: set[int] = set()
        for tensor in verified_model_tensors(self.proto.graph):
            found.update(n for n in tensor.dims if n)
            integral = tensor.data_type in (TensorProto.INT64, TensorProto.INT32)
            local = tensor.data_location != TensorProto.EXTERNAL
            if integral and local and int(np.prod(tensor.dims, dtype=np.int64)) <= VERIFY.max_sized_constant_elements:
                found.update(abs(int(n)) for n in numpy_helper.to_array(tensor).ravel())
        for node in verified_model_nodes(self.proto.graph):
            found.update(abs(n) for a in node.attribute for n in (a.i, *a.ints))
        return tuple(sorted(n for n in found if 1 < n <= VERIFY.max_compared_size))

    @cached_property
    def masks(self) -> frozenset[str]:
        """The inputs that may be masks. The elements of a mask switch off elements of other tensors.

        An input may be a mask if an operator that reads the input, such as Softmax, may turn infinities into finite numbers.
        The operator reads the input directly or through operators that pass infinities on.
        """
        found: set[str] = set()
        for node in reversed([*verified_model_nodes(self.proto.graph)]):
            passed = node.op_type in PASSED_ON and any(name in found for name in node.output)
            if passed or node.op_type in TAKEN_IN or node.domain not in STANDARD:
                found.update(node.input)
            else:
                found.update(self._divisors(node))
        return frozenset(port.name for port in self.inputs if port.name in found)

    @cached_property
    def boundaries(self) -> dict[str, tuple[Array, ...]]:
        """For each input, values at which the input equals a constant of the model (see `boundary_values`).

        The model compares such an input with the constant, divides by the difference of input and constant, or divides by a
        value that depends on this difference. At a difference of 0, the sign of the zero decides the sign of an infinity.
        """
        signed: set[str] = set()
        for node in reversed([*verified_model_nodes(self.proto.graph)]):
            if node.op_type in ZEROS_PASSED_ON and any(name in signed for name in node.output):
                signed.update(node.input)
            signed.update(node.input if node.op_type == "Reciprocal" else self._divisors(node))
        return boundary_values(self.proto, signed)

    def _divisors(self, node: NodeProto) -> Sequence[str]:
        """If the node is a quotient, return the divisor.

        If the node is a power whose exponent is not a natural number, return the operands. For any other node, the result is
        empty.
        """
        match node.op_type:
            case "Div":
                return list(node.input[1:])
            case "Pow" if not self._is_natural(node.input[1]):
                return list(node.input)
        return ()

    def _is_natural(self, name: str) -> bool:
        """Return whether the value `name` is a constant that consists of a single natural number."""
        given = {
            node.output[0]: a.t
            for node in verified_model_nodes(self.proto.graph)
            if node.op_type == "Constant"
            for a in node.attribute
        }
        weight = given.get(name) or next((t for t in self.proto.graph.initializer if t.name == name), None)
        if weight is None or weight.data_location == TensorProto.EXTERNAL or list(weight.dims) not in ([], [1]):
            return False
        return float(numpy_helper.to_array(weight).reshape(())) in range(1 << 10)

    def digest(self, *, metadata: bool = True) -> str:
        """Return the digest of the model's content, including external tensor data.

        If `metadata` is True, the content includes the metadata.

        Raises:
            InvalidModelError: The content cannot be read.
        """
        try:
            model = ir.from_proto(with_input_types(without_maps(self.proto)))
            ir.external_data.set_base_dir(model.graph, self.path.parent)
            if not self._ordered:
                model.graph.sort()
            if not metadata:
                model.metadata_props.clear()
            return content_digest(model)
        except Exception as error:
            raise InvalidModelError(f"{self.path}: the model cannot be read ({type(error).__name__})") from error

    @property
    def _ordered(self) -> bool:
        """Whether the nodes of the top graph are in topological order."""
        made = {name for node in self.proto.graph.node for name in node.output}
        seen: set[str] = set()
        for node in self.proto.graph.node:
            if any(name in made and name not in seen for name in verified_node_reads(node)):
                return False
            seen.update(node.output)
        return True


def dimension_expression_names(name: str) -> frozenset[str]:
    """If the name of a dimension is an expression, return the names in the expression. Otherwise, return an empty set.

    For example, the dimension `past + length` gives `past` and `length`.
    """
    try:
        tree = ast.parse(name, mode="eval").body
    except (SyntaxError, ValueError):
        return frozenset()
    inside = [*ast.walk(tree)]
    known = (ast.BinOp, ast.Name, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Load)
    if not isinstance(tree, ast.BinOp) or not all(isinstance(node, known) for node in inside):
        return frozenset()
    return frozenset(node.id for node in inside if isinstance(node, ast.Name))


def dimension_expression_extent(axis: int | str, sizes: Mapping[str, int]) -> int:
    """Return the extent of an axis at these sizes of the dynamic dimensions.

    `axis` is a number, the name of a dimension, or an expression over names of dimensions.

    Raises:
        InvalidModelError: The expression has no value.
    """
    if isinstance(axis, int):
        return axis
    if axis in sizes:
        return sizes[axis]
    try:
        value = eval(compile(ast.parse(axis, mode="eval"), "<dimension>", "eval"), {"__builtins__": {}}, dict(sizes))
        return max(int(value), 0)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise InvalidModelError(f"the dimension {axis!r} has no size ({first_line(error)})") from error


def verified_node_reads(node: NodeProto) -> Iterator[str]:
    """Yield the names of the values that a node or its bodies read."""
    yield from node.input
    for attribute in node.attribute:
        for body in verified_attribute_bodies(attribute):
            for inner in body.node:
                yield from verified_node_reads(inner)


def verified_model_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield every node of the graph and of nested bodies."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in verified_attribute_bodies(attribute):
                yield from verified_model_nodes(body)


def verified_attribute_bodies(attribute: AttributeProto) -> list[GraphProto]:
    """Return the graphs in an attribute."""
    if attribute.type == AttributeProto.GRAPH:
        return [attribute.g]
    return [*attribute.graphs] if attribute.type == AttributeProto.GRAPHS else []


def verified_model_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield every initializer and every tensor attribute of the graph and of nested bodies."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for body in verified_attribute_bodies(attribute):
                yield from verified_model_tensors(body)


def _port(value: onnx.ValueInfoProto) -> DeclaredInput:
    kind = value.type.tensor_type
    try:
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    except KeyError:
        raise InvalidModelError(f"input {value.name!r} is not a tensor") from None
    axes: list[int | str] = []
    for place, axis in enumerate(kind.shape.dim):
        if axis.HasField("dim_value") and axis.dim_value >= 0:
            axes.append(int(axis.dim_value))
        else:
            plain = "" if UNNAMED.fullmatch(axis.dim_param) else axis.dim_param
            axes.append(plain or f"{value.name}[{place}]")
    return DeclaredInput(value.name, dtype, tuple(axes))
