"""Splicing: replace some nodes of a model by nodes that compute new terms, and leave the rest of the model unchanged."""

from __future__ import annotations

import copy
import functools
import math
import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import onnx_ir as ir
from onnx.checker import check_model
from onnx_ir.passes.common import CheckerPass

from superopt.algebra.dim_binding import FIXED, DimBinding
from superopt.algebra.terms import Term, variables
from superopt.errors import CheckFailedError, first_line
from superopt.model.bodies import TOP, Scope, control_flow_graphs
from superopt.model.dimensions import remove_placeholder_names
from superopt.model.fold import fold
from superopt.model.lift import constant_tensor
from superopt.model.load import OVERRIDABLE_SINCE, Model, as_proto, opset_of
from superopt.model.lower import Array, is_boolean, lower
from superopt.model.shape_inference import with_onnx_shapes
from superopt.policy import MODEL
from superopt.protobuf.map_types import has_maps
from superopt.protobuf.nodes import CONTRIB_VERSION, Deferred, NodeText, domains

MADE_NAME = re.compile(r"superopt\.(\d+)\.")
"""A pattern that matches the beginning of each name that splicing gives to new nodes, values and weights."""


@dataclass(frozen=True, eq=False)
class Replacement:
    """New terms for some values of a graph. Nodes for these terms will replace the nodes that compute the values at present.

    A variable of the terms stands for the value with the same name.

    Attributes:
        outputs: the new terms. The key of a term is the name of the value that the term computes.
        dtype: the type of all values, except booleans.
        conditions: the names of the outputs that are booleans. Variables that the algebra marks as conditions are booleans too.
        sizings: bindings of the dynamic dimensions to sample sizes.
        scope: the location of the graph that contains the values.
    """

    outputs: Mapping[str, Term]
    dtype: ir.DataType
    conditions: frozenset[str] = frozenset()
    sizings: tuple[DimBinding, ...] = FIXED
    scope: Scope = TOP


def splice(model: Model, replacements: Sequence[Replacement]) -> Model:
    """Return a copy of the model in which nodes for the new terms replace the nodes that computed the same values.

    Nodes and weights without users are removed. Weight-only terms become initializers, and equal terms share an initializer.
    The tensor of a large weight-only term is computed when the tensor is read. At most 256 MiB of these tensors stay in memory.
    The following parts do not change: inputs, outputs, opset, IR version, metadata, functions, subgraphs, names of remaining
    values, and weights that are still used. New names are unique.

    Raises:
        CheckFailedError: the replacements depend on each other in a cycle.
        ShapeError: the model's opset cannot express a term.
    """
    return splice_with_weights(model, replacements)[0]


def splice_with_weights(model: Model, replacements: Sequence[Replacement]) -> tuple[Model, dict[str, Term]]:
    """Return the model that `splice` returns, and a mapping from the names of new weights to terms.

    The term of a new weight computes this weight from weights of the original model. New weights without a term, such as the
    target shape of a Reshape, are left out of the mapping.
    """
    splicing = _Splicing(model.clone())
    remove_placeholder_names(value for known in splicing.values.values() for value in known.maps[0].values())
    for replacement in replacements:
        splicing.insert(replacement)
    try:
        splicing.graph.sort()
    except ValueError as error:
        raise CheckFailedError(f"the rewritten model has a cycle ({first_line(error)})") from error
    splicing.sweep()
    return splicing.model, splicing.origins


def require_valid(model: Model, original: Model) -> None:
    """Check that the ONNX checker accepts the model, unless the checker also rejects the original.

    Raises:
        CheckFailedError: the checker accepts the original, but rejects this model.
    """
    complaint = _complaint(model)
    if complaint is not None and _complaint(original) is None:
        raise CheckFailedError(f"the rewritten model is not valid ONNX ({complaint})")


def in_valid_form(model: Model, original: Model) -> Model:
    """Return the model in a form that the ONNX checker accepts. If the checker also rejects the original, return the model
    itself.

    The original may declare a shape that its nodes do not compute. If shape inference does not detect this wrong shape, the
    checker accepts the original. In a rewritten model, shape inference may detect the wrong shape, and the checker then rejects
    the rewritten model. In the result, the inferred shapes replace the wrong declared shapes. The caller must run both models
    to check that the shapes of their outputs are equal.

    Raises:
        CheckFailedError: the checker accepts the original, but rejects this model even with inferred shapes.
    """
    if _complaint(model) is None or _complaint(original) is not None:
        return model
    corrected = _with_possible_shapes(model)
    require_valid(corrected, original)
    return corrected


def _with_possible_shapes(model: Model) -> Model:
    """Return a copy in which every declared shape that differs from the inferred shape is replaced by the inferred shape.

    A dimension without a known size does not count as a difference.
    """
    corrected, bare = model.clone(), model.clone()
    values, inferred = (
        [value for node in ir.traversal.RecursiveGraphIterator(copied.graph) for value in node.outputs]
        for copied in (corrected, bare)
    )
    for value in inferred:
        value.shape = None
    with_onnx_shapes(bare)
    remove_placeholder_names(inferred)
    for value, other in zip(values, inferred, strict=True):
        if not _agree(value.shape, other.shape):
            value.shape = other.shape
    return corrected


def _agree(declared: ir.Shape | None, inferred: ir.Shape | None) -> bool:
    """Return whether two shapes have equal ranks, and equal sizes on each axis whose size is known in both shapes. An unknown
    shape agrees with every shape.
    """
    if declared is None or inferred is None:
        return True
    known = ((a, b) for a, b in zip(declared, inferred, strict=False) if isinstance(a, int) and isinstance(b, int))
    return len(declared) == len(inferred) and all(a == b for a, b in known)


def _complaint(model: Model) -> str | None:
    try:
        if has_maps(model):
            check_model(as_proto(model), full_check=True)
        else:
            CheckerPass(full_check=True)(model.clone())
    except Exception as error:  # noqa: BLE001
        return first_line(error)
    return None


class _Splicing:
    """A model whose nodes are being replaced in place, and the names, arrays and weights that were added so far."""

    def __init__(self, model: Model) -> None:
        self.model, self.graph = model, model.graph
        self.opset = opset_of(model)
        self.listed = model.ir_version < OVERRIDABLE_SINCE
        self.graphs = control_flow_graphs(model)
        self.values: dict[Scope, ChainMap[str, ir.Value]] = {}
        for scope, graph in self.graphs.items():
            self.values[scope] = ChainMap(_own(graph), *(self.values[scope[:-1]].maps if scope else ()))
        made = filter(None, map(MADE_NAME.match, _names(model)))
        self.numbers = count(1 + max((int(found[1]) for found in made), default=-1))
        self.folded: dict[tuple[Term, ir.DataType, frozenset[ir.Value]], Array | Deferred] = {}
        self.stored: dict[int, tuple[Array | Deferred, ir.Value]] = {}
        self.terms: dict[int, tuple[Array | Deferred, Term]] = {}
        self.origins: dict[str, Term] = {}
        self.retired: list[ir.Value] = []
        self.kept = 0

    def insert(self, replacement: Replacement) -> None:
        """Add nodes that compute the replacement's terms. The results take the names and users of the replaced values."""
        prefix = self._prefix()
        dtype = replacement.dtype
        graph, values = self.graphs[replacement.scope], self.values[replacement.scope]

        def constant(term: Term) -> Array | Deferred:
            array = self._folded(term, dtype, values)
            self.terms[id(array)] = array, term
            return array

        outputs, conditions = replacement.outputs, replacement.conditions
        lowered = lower(
            outputs,
            self.opset,
            constant=constant,
            dtype=dtype.numpy(),
            prefix=prefix,
            conditions=conditions,
        )
        for domain in domains(lowered):
            self.model.opset_imports.setdefault(domain, CONTRIB_VERSION)
        known = {t.name: values[t.name] for t in variables(*replacement.outputs.values())}
        known.update((name, self._initializer(name, array)) for name, array in lowered.initializers.items())
        for position, text in enumerate(lowered.nodes):
            node = _node(text, known, f"{prefix}{text.op_type}.{position}")
            graph.append(node)
            known.update((v.name or "", v) for v in node.outputs)
        for name in replacement.outputs:
            self._hand_over(values[name], known[name])
            values[name] = known[name]

    def _hand_over(self, old: ir.Value, new: ir.Value) -> None:
        """Make all users of the value `old` read the value `new`, and copy the type, shape and metadata of `old` to `new`.

        If `new` is the result of an Identity and is not a graph output, the users read the operand of the Identity instead.
        """
        new.shape, new.type, new.doc_string = old.shape, old.type, old.doc_string
        new.metadata_props.update(old.metadata_props)
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        self.retired.append(old)
        passed = new.producer()
        if passed is not None and passed.op_type == "Identity" and not new.is_graph_output():
            assert passed.inputs[0] is not None
            new.replace_all_uses_with(passed.inputs[0])
            self.retired.append(new)

    def sweep(self) -> None:
        """Remove the nodes and weights that nothing uses after new nodes have replaced old nodes.

        If the node that computed a replaced value is still needed for another result, the replaced value gets a new name.
        """
        for value in self.retired:
            self._bury(value)
        prefix = self._prefix()
        for position, value in enumerate(v for v in self.retired if v.producer() is not None and v.graph is not None):
            value.name = f"{prefix}unused.{position}"

    def _bury(self, value: ir.Value) -> None:
        """If the value is a weight without users, remove it. If no result of the value's node has users, remove the node, and
        then the nodes and weights that only this node used.
        """
        dying = [value]
        while dying:
            value = dying.pop()
            node = value.producer()
            if node is not None:
                graph = node.graph
                if graph is not None and not any(v.uses() or v.is_graph_output() for v in node.outputs):
                    dying.extend(v for v in node.inputs if v is not None)
                    graph.remove(node, safe=True)
            elif value.is_initializer() and not value.uses() and not value.is_graph_output():
                self._forget(value)

    def _forget(self, weight: ir.Value) -> None:
        """Remove a weight that nothing uses, unless the weight is an input for which a caller may pass a value."""
        if weight.is_graph_input() and self.listed:
            self.graph.inputs.remove(weight)
        if not weight.is_graph_input() and weight.graph is not None:
            weight.graph.initializers.pop(weight.name or "", None)

    def _folded(self, term: Term, dtype: ir.DataType, values: Mapping[str, ir.Value]) -> Array | Deferred:
        """Return the array of a term over weights. `values` maps the names of the term's variables to the weights.

        Equal terms over the same weights give the same array object. A large array is computed when it is read.
        """
        if term.is_variable:
            return stored_tensor(values[term.name]).numpy()
        weights = {t.name: values[t.name] for t in variables(term)}
        key = term, dtype, frozenset(weights.values())
        if key not in self.folded:
            tensors = {name: stored_tensor(weight) for name, weight in weights.items()}
            compute = functools.partial(_computed, term, tensors, dtype)
            large = math.prod(term.sizes) * dtype.itemsize >= MODEL.min_deferred_weight_bytes and not is_boolean(term)
            self.folded[key] = Deferred(dtype.numpy(), term.sizes, compute) if large else compute()
        return self.folded[key]

    def _initializer(self, name: str, array: Array | Deferred) -> ir.Value:
        """Return the weight that stores the array. If there is no such weight yet, a new weight with this name is added to the
        top graph.
        """
        if id(array) not in self.stored:
            tensor = self._tensor(array, name)
            value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
            self.graph.register_initializer(value)
            if self.listed:
                self.graph.inputs.append(value)
            self.stored[id(array)] = array, value
            if id(array) in self.terms:
                self.origins[name] = self.terms[id(array)][1]
        return self.stored[id(array)][1]

    def _tensor(self, array: Array | Deferred, name: str) -> ir.TensorProtocol:
        if not isinstance(array, Deferred):
            return ir.tensor(array, name=name)
        kind = ir.DataType.from_numpy(array.dtype)
        self.kept += array.dtype.itemsize * array.size
        shape, cache = ir.Shape(array.shape), self.kept <= MODEL.max_cached_weight_bytes
        return ir.LazyTensor(lambda: ir.tensor(array.computed(), name=name), kind, shape, name=name, cache=cache)

    def _prefix(self) -> str:
        """Return a new prefix `superopt.N.` for names. If names in the model already begin with such prefixes, `N` is larger
        than the numbers in these prefixes.

        So passes use different names, and a certificate can use names to distinguish the values of the first model from the
        values of the last model.
        """
        return f"superopt.{next(self.numbers)}."


def _own(graph: ir.Graph) -> dict[str, ir.Value]:
    """Map names to the values that the graph defines: its inputs, its initializers and the results of its nodes."""
    made = (value for node in graph for value in node.outputs)
    return {v.name: v for v in (*graph.inputs, *graph.initializers.values(), *made) if v.name}


def stored_tensor(weight: ir.Value) -> ir.TensorProtocol:
    """Return the tensor of a weight: an initializer, or the result of a Constant node."""
    stored = constant_tensor(weight) if weight.const_value is None else weight.const_value
    assert stored is not None, "a weight has an array"
    return stored


def _computed(term: Term, weights: Mapping[str, ir.TensorProtocol], dtype: ir.DataType) -> Array:
    """Compute a term over the given weights, and return its array. Weights that are read from files do not stay in memory."""
    arrays = {name: copy.copy(tensor).numpy() for name, tensor in weights.items()}
    return fold([term], arrays, dtype.numpy())[term]


def _node(text: NodeText, known: Mapping[str, ir.Value], name: str) -> ir.Node:
    domain, _, op_type = text.op_type.rpartition(".")
    return ir.Node(
        domain,
        op_type,
        [known[i] if i else None for i in text.inputs],
        ir.convenience.convert_attributes(dict(text.attributes)),
        outputs=[ir.Value(name=o) for o in text.outputs],
        name=name,
    )


def _names(model: Model) -> Iterator[str]:
    """Yield every name of a value or node of the model, including names in subgraphs."""
    for graph in model.graphs():
        values: Iterable[ir.Value | None] = (*graph.inputs, *graph.outputs, *graph.initializers.values())
        yield from (v.name for v in values if v is not None and v.name)
        for node in graph:
            yield from (x.name for x in (node, *node.inputs, *node.outputs) if x is not None and x.name)
