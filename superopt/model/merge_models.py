"""Merge several models into one model, which computes the outputs of all models and stores equal parts once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir

from superopt.errors import OpsetError, PackError
from superopt.model.contents import attribute_text, tensor_digest
from superopt.model.convert_opset import convert_opset
from superopt.model.inline_functions import inline_functions
from superopt.model.islands import RANDOM
from superopt.model.lift import STANDARD
from superopt.model.load import OVERRIDABLE_SINCE, Model, opset_of

RANDOM_SOURCES = frozenset({"RandomNormal", "RandomUniform"})
"""Operators without inputs that give random results."""
_ANNOTATIONS = "quant_parameter_tensor_names"
"""The key under which onnx_ir keeps the names of the scale and the zero point of a quantized value."""


def merge_models(models: Mapping[str, Model], shared_inputs: Collection[str] = ()) -> Model:
    """Return one model that computes the outputs of all `models`, the tenants of the new model.

    The names of the values, nodes, dynamic dimensions and metadata entries of a tenant get the prefix `NAME/`, where NAME is
    the name of the tenant. An input in `shared_inputs` keeps its name and the names of its dynamic dimensions. All tenants that
    have this input read one input of the new model. Local functions are inlined. All tenants are converted to the newest opset
    that any tenant has. Equal weights are stored once. Nodes that compute the same values from the same operands are merged
    (see `share_equal_nodes`). The given models are not changed.

    Raises:
        PackError: A name is not suitable, a shared input is missing or has different types or shapes, the tenants need
            different versions of a domain, or the local functions of a tenant cannot be inlined.
        OpsetError: A tenant cannot be converted to the newest opset.
    """
    _require_names(models, shared_inputs)
    opset = max(map(opset_of, models.values()), default=0)
    tenants = {name: _own_copy(name, model, opset, shared_inputs) for name, model in models.items()}
    shared = _shared_values(tenants, shared_inputs)
    inputs: dict[str | None, ir.Value] = {}
    outputs: list[ir.Value] = []
    weights: list[ir.Value] = []
    nodes: list[ir.Node] = []
    for name, tenant in tenants.items():
        graph = tenant.graph
        _copy_passed_inputs(graph, name, shared)
        for value in graph.inputs:
            if (first := inputs.setdefault(value.name, value)) is not value:
                ir.convenience.replace_all_uses_with(value, first, replace_graph_outputs=True)
        outputs.extend(graph.outputs)
        weights.extend(graph.initializers.values())
        own = list(graph)
        graph.remove(own)
        nodes += own
        for taken in (graph.inputs, graph.outputs, graph.initializers):
            taken.clear()
    graph = ir.Graph(
        [*inputs.values()],
        outputs,
        nodes=nodes,
        initializers=weights,
        opset_imports=_opset_imports(tenants),
        name="packed",
    )
    metadata = {f"{name}/{key}": text for name, tenant in tenants.items() for key, text in tenant.metadata_props.items()}
    version = max(tenant.ir_version for tenant in tenants.values())
    merged = Model(graph, ir_version=max(version, OVERRIDABLE_SINCE), metadata_props=metadata)
    share_equal_weights(merged)
    share_equal_nodes(merged)
    return merged


def share_equal_weights(model: Model) -> None:
    """Replace equal initializers of the top graph by one initializer, in place.

    Initializers that are also inputs stay, because the caller may override them. Initializers that are also outputs stay too.
    """
    graph = model.graph
    known: dict[str, ir.Value] = {}
    for name, value in list(graph.initializers.items()):
        if value.const_value is None or value.is_graph_input() or value.is_graph_output():
            continue
        kept = known.setdefault(tensor_digest(value.const_value), value)
        if kept is not value:
            ir.convenience.replace_all_uses_with(value, kept)
            del graph.initializers[name]


def share_equal_nodes(model: Model) -> None:
    """Merge nodes of the top graph that have equal operators, attributes and operands, in place.

    Only operators of the standard domains are merged, because operators of other domains may have random results or a state.
    Random operators and operators with control flow bodies are not merged either.
    """
    graph = model.graph
    known: dict[object, ir.Node] = {}
    for node in list(graph):
        if not _is_shareable(node):
            continue
        attributes = sorted((a.name, a.type, attribute_text(a)) for a in node.attributes.values())
        named = tuple(bool(value.name) for value in node.outputs)
        kept = known.setdefault((node.op_identifier(), node.inputs, named, tuple(attributes)), node)
        if kept is not node:
            _replace(graph, node, kept)


def _require_names(models: Mapping[str, Model], shared_inputs: Collection[str]) -> None:
    """Check the names of the tenants and of the shared inputs.

    Raises:
        PackError: There is no tenant, a name is empty or contains a slash, or a shared input is in no tenant.
    """
    if not models:
        raise PackError("there are no models to pack")
    for name in models:
        if not name or "/" in name:
            raise PackError(f"{name!r} cannot be the name of a packed model: it is empty or contains a slash")
    for key in shared_inputs:
        if not any(key == value.name for model in models.values() for value in model.graph.inputs):
            known = dict.fromkeys(value.name or "" for model in models.values() for value in model.graph.inputs)
            raise PackError(f"no model has the shared input {key!r}; the inputs are {', '.join(known)}")
        if any(key.startswith(f"{name}/") for name in models):
            raise PackError(f"the input {key!r} cannot be shared, because its name begins with the name of a packed model")


def _own_copy(name: str, model: Model, opset: int, shared_inputs: Collection[str]) -> Model:
    """Return a copy of the model at the opset, without local functions, and with `name/` before all names.

    Raises:
        PackError: The local functions cannot be inlined.
        OpsetError: The model cannot be converted to the opset.
    """
    plain = inline_functions(model)
    if plain.functions:
        raise PackError(f"{name}: the local functions of the model cannot be inlined")
    try:
        converted = convert_opset(plain, opset) if opset_of(plain) else plain
    except OpsetError as error:
        raise OpsetError(f"{name}: {error}") from error
    copy = converted.clone()
    if copy.ir_version < OVERRIDABLE_SINCE:
        inputs = [value for value in copy.graph.inputs if not value.is_initializer()]
        copy.graph.inputs.clear()
        copy.graph.inputs.extend(inputs)
    _add_prefix(copy, f"{name}/", {value for value in copy.graph.inputs if value.name in shared_inputs})
    return copy


def _add_prefix(model: Model, prefix: str, shared: Collection[ir.Value]) -> None:
    """Put the prefix before the names of all values, nodes and dynamic dimensions, apart from shared inputs and their
    dimensions.
    """
    kept = {str(extent) for value in shared for extent in value.shape or () if not isinstance(extent, int)}
    for value in list(_values(model)):
        if isinstance(found := value.meta.get(_ANNOTATIONS), Mapping):
            value.meta[_ANNOTATIONS] = {key: f"{prefix}{name}" for key, name in found.items()}
        if value.shape is not None:
            value.shape = _prefixed_shape(value.shape, prefix, kept)
        if value.name and value not in shared:
            tensor, value.const_value = value.const_value, None
            value.name = f"{prefix}{value.name}"
            value.const_value = None if tensor is None else _own_tensor(tensor, value.name)
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        node.name = f"{prefix}{node.name}" if node.name else node.name


def _values(model: Model) -> Iterator[ir.Value]:
    """Yield each value of the model once. The values of control flow bodies are included."""
    found: dict[ir.Value, None] = {}
    for graph in model.graphs():
        found |= dict.fromkeys((*graph.inputs, *graph.initializers.values()))
        found |= dict.fromkeys(value for node in graph for value in node.outputs)
    yield from found


def _prefixed_shape(shape: ir.Shape, prefix: str, kept: Collection[str]) -> ir.Shape:
    def prefixed(extent: int | ir.SymbolicDim) -> int | ir.SymbolicDim | str:
        plain = isinstance(extent, int) or extent.value is None or str(extent) in kept
        return extent if plain else f"{prefix}{extent}"

    return ir.Shape(map(prefixed, shape), [shape.get_denotation(axis) for axis in range(len(shape))])


def _own_tensor(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """Return a tensor object with the given name and the elements of `tensor`. The elements are not copied, and a lazy tensor
    stays lazy.

    onnx_ir changes the name of a tensor when it writes the model, and the given models must not change.
    """
    if isinstance(tensor, ir.ExternalTensor):
        return ir.ExternalTensor(
            tensor.location,
            tensor.offset,
            tensor.length,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=name,
            base_dir=tensor.base_dir,
        )
    if isinstance(tensor, ir.LazyTensor):
        return tensor
    if isinstance(tensor, ir.StringTensor):
        return ir.StringTensor(tensor.string_data(), shape=ir.Shape(tensor.shape.numpy()), name=name)
    return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name)


def _shared_values(tenants: Mapping[str, Model], shared_inputs: Collection[str]) -> set[ir.Value]:
    """Return the shared inputs of all tenants.

    Raises:
        PackError: A shared input has different types or shapes in two tenants, or has a default value.
    """
    found: dict[str, tuple[str, str]] = {}
    shared: set[ir.Value] = set()
    for name, tenant in tenants.items():
        for value in tenant.graph.inputs:
            if value.name not in shared_inputs:
                continue
            key = value.name or ""
            if value.is_initializer():
                raise PackError(f"the input {key!r} cannot be shared, because it has a default value in {name}")
            first, kind = found.setdefault(key, (name, _kind(value)))
            if kind != _kind(value):
                raise PackError(f"the input {key!r} cannot be shared: it is {kind} in {first} and {_kind(value)} in {name}")
            shared.add(value)
    return shared


def _kind(value: ir.Value) -> str:
    return f"{value.type}{'' if value.shape is None else value.shape}"


def _copy_passed_inputs(graph: ir.Graph, name: str, shared: Collection[ir.Value]) -> None:
    """Make a copy of each shared input that is also an output, so that the output has the name of its tenant."""
    for place, value in enumerate(graph.outputs):
        if value in shared:
            copied = ir.Value(name=f"{name}/{value.name}", type=value.type, shape=value.shape)
            graph.append(ir.Node("", "Identity", [value], outputs=[copied]))
            graph.outputs[place] = copied


def _opset_imports(tenants: Mapping[str, Model]) -> dict[str, int]:
    """Return the versions of all domains.

    Raises:
        PackError: Two tenants need different versions of a domain.
    """
    found: dict[str, tuple[int, str]] = {}
    for name, tenant in tenants.items():
        for domain, version in tenant.opset_imports.items():
            plain = "" if domain in STANDARD else domain
            known, first = found.setdefault(plain, (version, name))
            if known != version:
                raise PackError(f"{first} needs version {known} of the domain {domain!r}, and {name} needs version {version}")
    return {domain: version for domain, (version, _) in found.items()}


def _is_shareable(node: ir.Node) -> bool:
    graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    plain = node.domain == "ai.onnx.ml" or (node.domain in STANDARD and node.op_type not in RANDOM | RANDOM_SOURCES)
    return plain and not any(attribute.type in graphs for attribute in node.attributes.values())


def _replace(graph: ir.Graph, node: ir.Node, kept: ir.Node) -> None:
    """Replace the results of `node` by the results of the equal node `kept`, and remove `node`.

    If a result of `node` and its replacement are both outputs, the result becomes a copy of the replacement.
    """
    for old, new in zip(node.outputs, kept.outputs, strict=True):
        place = next((place for place, value in enumerate(graph.outputs) if value is old), None)
        if place is not None and any(value is new for value in graph.outputs):
            copied = ir.Value(name=old.name, type=old.type, shape=old.shape)
            graph.insert_before(node, ir.Node("", "Identity", [new], outputs=[copied]))
            graph.outputs[place] = copied
        elif place is not None:
            new.name, new.type, new.shape = old.name, old.type, old.shape
            new.metadata_props.update(old.metadata_props)
            graph.outputs[place] = new
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
