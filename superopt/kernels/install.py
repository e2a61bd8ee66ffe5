"""Islands as single nodes: the nodes of an island move to a function of the model, and one node calls the function.

If the library of the kernels is registered in the session, ONNX Runtime runs the kernel. Otherwise, ONNX Runtime runs the nodes
of the function.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from superopt.algebra.terms import Term, variables
from superopt.kernels.emit import Target
from superopt.kernels.groups import Group
from superopt.kernels.library import LibraryKernel, compilation, source_of
from superopt.model.fold import fold
from superopt.model.functions import FUNCTIONS_IR
from superopt.model.load import Model
from superopt.model.splice import stored_tensor
from superopt.protobuf.kernels import is_kernel_domain


@dataclass(frozen=True, eq=False)
class Replaced:
    """A model in which nodes call kernels.

    Attributes:
        model: The model.
        source: The C source of the kernels' library.
        domain: The domain of the nodes.
        names: For each group, the name of its operator.
    """

    model: Model
    source: str
    domain: str
    names: Mapping[Group, str]


def with_kernels(model: Model, groups: Sequence[Group], target: Target, within: Replaced | None = None) -> Replaced:
    """Replace each group in a copy of the model by one node, and return the copy and the source of the library.

    The nodes of the groups must not overlap. `target` describes the vectors of the processor. If `within` is given, the library
    of `within` is used. This library must contain kernels for the groups.
    """
    changed = model.clone()
    values = _values(changed)
    names: Mapping[Group, str]
    if within is not None:
        source, domain, names = within.source, within.domain, within.names
    else:
        kernels = _kernels(groups, values)
        source, domain = source_of([*kernels.values()], target, compilation(target))
        names = {group: kernel.name for group, kernel in kernels.items()}
    for group in groups:
        _Call.of(changed, group, values, names[group]).insert(changed, domain, values)
    changed.graph.opset_imports[domain] = 1
    changed.ir_version = max(changed.ir_version, FUNCTIONS_IR)
    changed.graph.sort()
    return Replaced(changed, source, domain, names)


def library_source(model: Model, groups: Sequence[Group], target: Target, made_by: str) -> tuple[str, str]:
    """Return the source and the domain of a library with kernels for the groups of the model's nodes.

    `made_by` names the compiler and its flags.
    """
    return source_of([*_kernels(groups, _values(model)).values()], target, made_by)


def differing_call(model: Model, plain: Model, again: Model) -> str:
    """Return the name of a kernel that reads or writes other values in `model` than in `again`, or an empty text.

    The order of the values counts. `again` is the model `plain` with calls of kernels. A weight that `plain` does not contain
    is compared by its elements.
    """
    known = _values(plain)
    calls = {node.op_type: node for node in model.graph if is_kernel_domain(node.domain)}
    for wanted in (node for node in again.graph if is_kernel_domain(node.domain)):
        call = calls[wanted.op_type]
        pairs = [*itertools.zip_longest(call.inputs, wanted.inputs), *itertools.zip_longest(call.outputs, wanted.outputs)]
        for given, value in pairs:
            if given is None or value is None:
                return wanted.op_type
            if not (given.name == value.name if value.name in known else _is_same_weight(given, value)):
                return wanted.op_type
    return ""


def _is_same_weight(given: ir.Value, wanted: ir.Value) -> bool:
    """Return whether both values are weights with equal elements, up to the last bit."""
    if given.producer() is not None or given.const_value is None or wanted.const_value is None:
        return False
    one, other = given.const_value.numpy(), wanted.const_value.numpy()
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    kind = np.finfo(other.dtype)
    close = np.allclose(one, other, rtol=float(kind.eps), atol=float(kind.smallest_subnormal), equal_nan=True)
    return close and np.array_equal(np.signbit(one), np.signbit(other))


def _values(model: Model) -> dict[str, ir.Value]:
    values = {v.name: v for node in model.graph for v in node.outputs if v.name}
    return values | {v.name: v for v in (*model.graph.inputs, *model.graph.initializers.values()) if v.name}


def _kernels(groups: Sequence[Group], values: Mapping[str, ir.Value]) -> dict[Group, LibraryKernel]:
    return {g: LibraryKernel(f"island_{i}", g.program, len(_unused(g, values))) for i, g in enumerate(groups)}


def _nodes(group: Group, values: Mapping[str, ir.Value]) -> dict[ir.Node, None]:
    """Return the nodes of the group in the model whose values are `values`."""
    found = dict.fromkeys(values[v.name].producer() for node in group.island.nodes for v in node.outputs if v.name)
    return {node: None for node in found if node is not None}


def _unused(group: Group, values: Mapping[str, ir.Value]) -> tuple[ir.Value, ...]:
    """Return the values that the group's nodes read and that the group's kernel does not read."""
    nodes = _nodes(group, values)
    passed = {*group.program.inputs, *(term.name for term in group.program.weights if _is_passed(term, values))}
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v is not None and v.producer() not in nodes)
    return tuple(v for v in read if v.name not in passed)


def _is_passed(weight: Term, values: Mapping[str, ir.Value]) -> bool:
    """Return whether the kernel reads the weight as the model stores it."""
    return weight.is_variable and weight.name in values and values[weight.name].dtype == ir.DataType.FLOAT


@dataclass(frozen=True, eq=False)
class _Call:
    """A node that will replace the nodes of an island.

    Attributes:
        name: The name of the operator.
        nodes: The nodes of the island, in the model that is changed.
        inputs: The values that the kernel reads.
        unused: The values that the function's nodes read, and that the kernel does not read.
        outputs: The values of the island that are used outside the island.
    """

    name: str
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    unused: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]

    @classmethod
    def of(cls, model: Model, group: Group, values: Mapping[str, ir.Value], name: str) -> _Call:
        program = group.program
        weights = _weights(program.weights, values)
        inputs = [values[x] for x in program.inputs]
        for position, term in enumerate(program.weights):
            if _is_passed(term, values):
                inputs.append(values[term.name])
            else:
                inputs.append(_initializer(model, _new_name(f"superopt.{name}.{position}", values), weights[term]))
        outputs = tuple(values[x] for x in group.island.outputs)
        return cls(name, tuple(_nodes(group, values)), tuple(inputs), _unused(group, values), outputs)

    def insert(self, model: Model, domain: str, values: dict[str, ir.Value]) -> None:
        """Move the nodes to a new function of the model, and add a node that calls the function."""
        given = dict.fromkeys((*self.inputs, *self.unused))
        formal: dict[ir.Value | None, ir.Value | None] = {v: ir.Value(name=v.name, shape=v.shape, type=v.type) for v in given}
        formal[None] = None
        body: list[ir.Node] = []
        for node in self.nodes:
            outputs = [ir.Value(name=v.name, shape=v.shape, type=v.type) for v in node.outputs]
            attributes = [copy.copy(a) for a in node.attributes.values()]
            body.append(
                ir.Node(
                    node.domain, node.op_type, [formal[v] for v in node.inputs], attributes, outputs=outputs, name=node.name
                )
            )
            formal.update(zip(node.outputs, outputs, strict=True))
        inputs = [formal[v] for v in given]
        results = [formal[v] for v in self.outputs]
        graph = ir.Graph(inputs, results, nodes=body, opset_imports=dict(model.opset_imports))  # type: ignore[arg-type]
        model.functions[domain, self.name, ""] = ir.Function(domain, self.name, "", graph=graph, attributes=[])
        call = ir.Node(domain, self.name, list(given), num_outputs=len(self.outputs), name=f"superopt.{self.name}")
        model.graph.append(call)
        for old, new in zip(self.outputs, call.outputs, strict=True):
            new.shape, new.type, new.name = old.shape, old.type, old.name
            new.metadata_props.update(old.metadata_props)
            old.replace_all_uses_with(new, replace_graph_outputs=True)
            values[new.name or ""] = new
        for node in reversed(self.nodes):
            model.graph.remove(node, safe=True)


def _weights(terms: Mapping[Term, object], values: Mapping[str, ir.Value]) -> dict[Term, np.ndarray]:
    folded = [term for term in terms if not term.is_variable]
    arrays = {x.name: stored_tensor(values[x.name]).numpy() for x in variables(*terms)}
    own = {term: arrays[term.name].astype(np.float32) for term in terms if term.is_variable}
    return own | fold(folded, arrays, np.float32)


def _new_name(name: str, values: Mapping[str, ir.Value]) -> str:
    """Return the name. If a value of the model already has this name, a number is appended."""
    names = itertools.chain([name], (f"{name}.{i}" for i in itertools.count(1)))
    return next(one for one in names if one not in values)


def _initializer(model: Model, name: str, array: np.ndarray) -> ir.Value:
    tensor = ir.tensor(np.ascontiguousarray(array), name=name)
    value = ir.Value(name=tensor.name, shape=ir.Shape(array.shape), type=ir.TensorType(ir.DataType.FLOAT), const_value=tensor)
    model.graph.register_initializer(value)
    return value
