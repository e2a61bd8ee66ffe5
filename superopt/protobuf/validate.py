"""Structural checks of a ModelProto, made before anything is computed from the model.

In a model that passes the checks, all text can be decoded, and the data of each tensor has the length that the tensor's shape
requires. Each value is defined once. Each value that a graph reads or returns is defined in this graph or in an enclosing
graph. The checks do not cover operators and types, because ONNX Runtime checks whether operators exist and types agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import onnx_ir as ir
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from superopt.errors import InvalidModelError
from superopt.protobuf.graphs import all_graphs
from superopt.protobuf.sparse import dense_bytes, positions, sparse_tensors
from superopt.protobuf.stored import INLINE_LIMIT

MAX_DIMENSION = 2**31 - 1
"""The largest allowed dimension of a tensor or an input. No operator of ONNX Runtime supports a larger dimension, and no tensor
with a larger dimension fits into memory.
"""
_ELEMENT_TYPES = frozenset(member.value for member in ir.DataType) - {TensorProto.UNDEFINED}
_INT32_DATA = frozenset(
    {
        ir.DataType.INT32,
        ir.DataType.INT16,
        ir.DataType.INT8,
        ir.DataType.UINT16,
        ir.DataType.UINT8,
        ir.DataType.BOOL,
        ir.DataType.FLOAT16,
        ir.DataType.BFLOAT16,
    }
)
_INDICES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.INT16, ir.DataType.INT8})
"""The types that the indices of a sparse tensor may have. ONNX allows only INT64. ONNX Runtime also reads the other types."""
_FIELDS = {
    ir.DataType.FLOAT: ("float_data", 1),
    ir.DataType.COMPLEX64: ("float_data", 2),
    ir.DataType.DOUBLE: ("double_data", 1),
    ir.DataType.COMPLEX128: ("double_data", 2),
    ir.DataType.INT64: ("int64_data", 1),
    ir.DataType.UINT32: ("uint64_data", 1),
    ir.DataType.UINT64: ("uint64_data", 1),
    ir.DataType.STRING: ("string_data", 1),
}
"""A mapping from element types to the TensorProto field that contains the elements if `raw_data` is not used, and to the number
of entries that this field has per element.
"""


def require_well_formed(model: ModelProto, label: str) -> None:
    """Check that the parts of a ModelProto fit together.

    Raises:
        InvalidModelError: The parts do not fit together. The message contains the fault and `label`, the name of the model.
    """
    fault = _fault(model)
    if fault is not None:
        raise InvalidModelError(f"{label}: not a valid ONNX model ({fault})")


def _fault(model: ModelProto) -> str | None:
    """Return a description of the first fault of the model, or None if there is no fault."""
    if not _is_decodable(model):
        return "the model has text that is not UTF-8"
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = entry.domain or "ai.onnx"
        if entry.version < 1 and (domain == "ai.onnx" or _is_used(domain, model)):
            return f"opset version {entry.version} of the domain {domain!r} is not a positive number"
        if versions.setdefault(domain, entry.version) != entry.version:
            return f"the domain {domain!r} is imported at two versions"
    waiting: list[tuple[GraphProto | FunctionProto, frozenset[str]]] = [(model.graph, frozenset())]
    waiting += [(function, frozenset()) for function in model.functions]
    while waiting:
        graph, outer = waiting.pop()
        own, fault = _defined(graph)
        fault = fault or _typing_fault(graph, top=graph is model.graph)
        if fault is not None:
            return fault
        visible = outer | own
        for node in graph.node:
            fault = _node_fault(node, visible)
            if fault is not None:
                return fault
            waiting += [(body, visible) for attribute in node.attribute for body in _bodies(attribute)]
        outputs = graph.output if isinstance(graph, FunctionProto) else [port.name for port in graph.output]
        if missing := [name for name in outputs if name not in visible]:
            return f"no node computes the output {missing[0]!r}"
    if (total := sum(map(dense_bytes, sparse_tensors(model)))) > INLINE_LIMIT:
        return f"its sparse tensors together ask for {total} bytes, more than the {INLINE_LIMIT} allowed"
    return None


def _is_used(domain: str, model: ModelProto) -> bool:
    return any(node.domain == domain for graph in (*all_graphs(model), *model.functions) for node in graph.node)


def _defined(graph: GraphProto | FunctionProto) -> tuple[set[str], str | None]:
    """Return the names that the graph defines, and a description of the first name that is defined twice. If no name is defined
    twice, the description is None.
    """
    ports = list(graph.input) if isinstance(graph, FunctionProto) else [port.name for port in graph.input]
    own = set(ports)
    if len(own) < len(ports):
        return own, f"the input {_repeated(ports)!r} is listed twice"
    stored = [] if isinstance(graph, FunctionProto) else [tensor.name for tensor in graph.initializer]
    stored += [] if isinstance(graph, FunctionProto) else [tensor.values.name for tensor in graph.sparse_initializer]
    if len(set(stored)) < len(stored):
        return own, f"the initializer {_repeated(stored)!r} is stored twice"
    made = [name for node in graph.node for name in node.output if name]
    fixed = own | set(stored)
    unique = set(made)
    if len(unique) < len(made):
        return fixed, f"the value {_repeated(made)!r} is computed twice"
    if clash := unique & fixed:
        return fixed, f"the value {min(clash)!r} is computed, and is an input or an initializer too"
    return fixed | unique, None


def _repeated(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _node_fault(node: NodeProto, visible: set[str] | frozenset[str]) -> str | None:
    """Return a description of the first fault of the node, or None. `visible` contains the names of the values that the node
    may read.
    """
    label = f"node {node.name!r}" if node.name else f"the node that computes {node.output[0]!r}" if node.output else "a node"
    if not node.op_type:
        return f"{label} has no operator"
    if not any(node.output):
        return f"{label} has no output"
    if missing := [name for name in node.input if name and name not in visible]:
        return f"{label} reads {missing[0]!r}, which nothing computes"
    names = [attribute.name for attribute in node.attribute]
    if len(set(names)) < len(names):
        return f"{label} has the attribute {_repeated(names)!r} twice"
    faults = (_attribute_fault(attribute, f"attribute {attribute.name!r} of {label}") for attribute in node.attribute)
    return next(filter(None, faults), None)


def _attribute_fault(attribute: AttributeProto, label: str) -> str | None:
    if not attribute.name or attribute.type == AttributeProto.UNDEFINED:
        return f"{label} has no name or no type"
    if attribute.ref_attr_name:
        return None
    if attribute.type == AttributeProto.GRAPH and not attribute.HasField("g"):
        return f"{label} has no graph"
    if attribute.type == AttributeProto.TENSOR and not attribute.HasField("t"):
        return f"{label} has no tensor"
    if attribute.HasField("sparse_tensor") and (fault := _sparse_fault(attribute.sparse_tensor)):
        return f"{label}: {fault}"
    for tensor in (*((attribute.t,) if attribute.HasField("t") else ()), *attribute.tensors):
        if fault := _tensor_fault(tensor):
            return f"{label}: {fault}"
    return None


def _typing_fault(graph: GraphProto | FunctionProto, *, top: bool) -> str | None:
    """Return a description of the first fault among the graph's initializers, declared types and dimensions, or None.

    `top` says whether the graph is the main graph. Declared dimensions of the main graph's inputs are limited to
    `MAX_DIMENSION`, and other declared dimensions are not limited.
    """
    if isinstance(graph, GraphProto):
        for sparse in graph.sparse_initializer:
            if fault := _sparse_fault(sparse):
                return f"sparse initializer {sparse.values.name!r}: {fault}"
        for tensor in graph.initializer:
            if fault := _tensor_fault(tensor):
                return f"initializer {tensor.name!r}: {fault}"
        for port in (*graph.input, *graph.output):
            if fault := _declared_fault(port, limited=top and port not in graph.output):
                return f"{port.name!r}: {fault}"
    for value in graph.value_info:
        if fault := _declared_fault(value, limited=False):
            return f"{value.name!r}: {fault}"
    return None


def _declared_fault(value: ValueInfoProto, *, limited: bool) -> str | None:
    for kind in _tensor_types(value.type):
        if kind.elem_type not in _ELEMENT_TYPES:
            return f"the element type {kind.elem_type} does not exist"
        if limited and any(d.dim_value > MAX_DIMENSION for d in kind.shape.dim):
            return f"a dimension of {max(d.dim_value for d in kind.shape.dim)} is more than the {MAX_DIMENSION} allowed"
    return None


def _tensor_types(kind: TypeProto) -> Iterator[TypeProto.Tensor]:
    """Yield the tensor type of a value. For a sequence or an optional, yield the tensor type of its elements."""
    while True:
        which = kind.WhichOneof("value")
        if which == "tensor_type":
            yield kind.tensor_type
        if which not in ("sequence_type", "optional_type"):
            return
        kind = kind.sequence_type.elem_type if which == "sequence_type" else kind.optional_type.elem_type


def _tensor_fault(tensor: TensorProto) -> str | None:
    """Return a description of the first fault in a stored tensor's type, shape or data length, or None.

    No memory is allocated for the data.
    """
    if tensor.data_type not in _ELEMENT_TYPES:
        return f"the element type {tensor.data_type} does not exist"
    if fault := _dimensions_fault(tensor.dims):
        return fault
    if tensor.HasField("segment"):
        return "the tensor is stored in segments, which is not supported"
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external_data_fault({entry.key: entry.value for entry in tensor.external_data})
    count, kind = math.prod(tensor.dims), ir.DataType(tensor.data_type)
    if tensor.HasField("raw_data"):
        if kind == ir.DataType.STRING:
            return "the tensor stores text as raw data"
        wanted, found, unit = -(-count * kind.bitwidth // 8), len(tensor.raw_data), "bytes"
    else:
        name, each = _FIELDS.get(kind, ("int32_data", 1))
        wanted, found, unit = count * each, len(getattr(tensor, name)), "elements"
        if kind not in _FIELDS and kind not in _INT32_DATA:
            wanted = min(wanted, max(found, -(-count * kind.bitwidth // 8)))
    if wanted != found:
        return f"the dimensions {list(tensor.dims)} ask for {wanted} {unit} of data, and the tensor has {found}"
    return None


def _dimensions_fault(dims: Sequence[int]) -> str | None:
    if any(extent < 0 or extent > MAX_DIMENSION for extent in dims):
        return f"the dimensions {list(dims)} are negative or more than the {MAX_DIMENSION} allowed"
    return None


def _sparse_fault(sparse: SparseTensorProto) -> str | None:
    """Return a description of the first fault in a sparse tensor, or None. No memory is allocated for the dense tensor."""
    values, indices = sparse.values, sparse.indices
    for title, tensor in (("values", values), ("indices", indices)):
        if fault := _tensor_fault(tensor):
            return f"its {title}: {fault}"
        if tensor.data_location == TensorProto.EXTERNAL:
            return f"its {title} are in external data, which is not supported for sparse tensors"
    kind, places = ir.DataType(values.data_type), ir.DataType(indices.data_type)
    if kind == ir.DataType.STRING or kind.bitwidth % 8:
        return f"a sparse tensor has no elements of type {kind.name}"
    if places not in _INDICES:
        return f"its indices are of type {places.name}, which is not a type of signed integers"
    if fault := _dimensions_fault(sparse.dims):
        return fault
    if len(values.dims) != 1 or [*indices.dims] not in ([*values.dims], [*values.dims, len(sparse.dims)]):
        found = f"values with the dimensions {list(values.dims)}, and indices with the dimensions {list(indices.dims)}"
        return f"it has {found}, which must be [n], and [n] or [n, {len(sparse.dims)}]"
    if (size := dense_bytes(sparse)) > INLINE_LIMIT:
        return f"the dimensions {list(sparse.dims)} ask for {size} bytes, more than the {INLINE_LIMIT} allowed"
    try:
        found_at = positions(sparse)
    except ValueError as error:
        return str(error)
    return None if bool((found_at[1:] > found_at[:-1]).all()) else "its indices are repeated, or not in ascending order"


def _external_data_fault(entries: dict[str, str]) -> str | None:
    if not entries.get("location"):
        return "the tensor is external and has no location"
    for key in ("offset", "length"):
        if not entries.get(key, "0").isdecimal():
            return f"the {key} {entries[key]!r} of its external data is not a number of bytes"
    return None


def _bodies(attribute: AttributeProto) -> Iterable[GraphProto]:
    return (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs)


def _is_decodable(message: Any) -> bool:
    """Return whether all text in a protobuf message is UTF-8. The stored elements of tensors do not count as text.

    For text that is not UTF-8, protobuf raises an error or returns bytes, depending on how protobuf was built.
    """
    waiting = [message]
    try:
        while waiting:
            one = waiting.pop()
            if isinstance(one, TensorProto):
                texts: list[object] = [one.name, one.doc_string]
                if not all(isinstance(text, str) for text in texts):
                    return False
                waiting += [*one.external_data, *one.metadata_props]
                continue
            for field, value in one.ListFields():
                if field.message_type is not None:
                    waiting += value if field.is_repeated else [value]
                elif field.type == field.TYPE_STRING:
                    texts = [*value] if field.is_repeated else [value]
                    if not all(isinstance(text, str) for text in texts):
                        return False
    except UnicodeDecodeError:
        return False
    return True
