"""Checks of a certificate against the original and the optimized model.

A segment is a group of nodes that the optimizer rewrote. For each segment, the certificate states the terms that the nodes
compute before and after the rewrite steps. There are three checks: nodes outside the segments are unchanged, new weights equal
their terms in the certificate, and the nodes of each segment compute the stated terms.

The checks translate neither nodes to terms nor terms to nodes. Nodes are compared in the form in which the files store the
nodes. New weights are computed again from the original's weights. The results and the stored new weights must agree within the
rounding error of this computation. A segment's old terms are its terms before the rewrite steps, and its new terms are its
terms after the steps. Old terms are evaluated on values from a run of the original. New terms are evaluated on values from a
run of the optimized model.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from superopt.algebra.extent import Sym, atoms
from superopt.algebra.operators import apply
from superopt.algebra.terms import Atom, Dim, Term, subterms
from superopt.errors import CertificateError, InvalidModelError, ShapeError
from superopt.policy import VERIFY
from superopt.protobuf.graphs import all_graphs, with_input_types
from superopt.verification.arrays import Array, UndecidedError, evaluate_certificate_terms
from superopt.verification.certificates import Certificate, Pass, Rewrite, RewrittenNodes, Scope, State, certificate_variables
from superopt.verification.inputs import Feeds, perturb_feeds
from superopt.verification.models import STANDARD, UNNAMED, ModelSource, verified_attribute_bodies, verified_model_nodes
from superopt.verification.runs import Runner

SINGLE = 2.0**-22
"""The tolerance for a weight that was summed in float32, relative to the sum of the summands' magnitudes."""
DOUBLE = 2.0**-46
"""The tolerance for a weight that was summed in float64, relative to the sum of the summands' magnitudes."""
SUMMED_IN_SINGLE = frozenset({"conv", "conv_transpose", "max_pool", "avg_pool", "gram_kernel", "merge_groups"})
"""Operators for which ONNX Runtime has no float64 kernel."""


@dataclass(frozen=True)
class Weights:
    """Counts of the optimized model's weights, by the reason why a weight is accepted.

    Attributes:
        kept: The number of weights that are equal to a stored weight or a computed value of the original.
        computed: The number of weights that equal their term in the certificate.
        small: The number of new weights without a term. Such weights are small, or contain integers or booleans.
    """

    kept: int
    computed: int
    small: int


# ---------------------------------------------------------------- tensors


@dataclass(frozen=True, eq=False)
class Tensors:
    """The initializers and Constant nodes of a model's top graph and of its control flow bodies, read on demand.

    A weight of a body is left out if another value of the model has the same name.
    """

    source: ModelSource

    @functools.cached_property
    def protos(self) -> Mapping[str, TensorProto]:
        """The TensorProto of each initializer, by name."""
        stored = [tensor for graph in self._bodies for tensor in graph.initializer if self._counts[tensor.name] == 1]
        return {tensor.name: tensor for tensor in (*self.source.proto.graph.initializer, *stored)}

    @functools.cached_property
    def constants(self) -> Mapping[str, Array]:
        """The tensors of the Constant nodes, by the names of their outputs."""
        inner = [node for graph in self._bodies for node in graph.node if all(self._counts[name] == 1 for name in node.output)]
        found: dict[str, Array] = {}
        for node in (*self.source.proto.graph.node, *inner):
            if node.op_type == "Constant" and node.output and len(node.attribute) == 1:
                value = helper.get_attribute_value(node.attribute[0])
                if isinstance(value, TensorProto):
                    found[node.output[0]] = numpy_helper.to_array(value)
                elif node.attribute[0].name in ("value_float", "value_floats"):
                    found[node.output[0]] = np.asarray(value, np.float32)
                elif node.attribute[0].name in ("value_int", "value_ints"):
                    found[node.output[0]] = np.asarray(value, np.int64)
        return found

    @property
    def _bodies(self) -> list[GraphProto]:
        top = self.source.proto.graph
        return [graph for graph in all_graphs(self.source.proto) if graph is not top]

    @functools.cached_property
    def _counts(self) -> Counter[str]:
        """For each name, the number of graphs that define a value of this name (input, initializer or result of a node)."""
        counts: Counter[str] = Counter()
        for graph in all_graphs(self.source.proto):
            counts.update({value.name for value in (*graph.input, *graph.initializer)})
            counts.update(name for node in graph.node for name in node.output)
        return counts

    def array(self, name: str) -> Array:
        """Return the elements of an initializer.

        Raises:
            InvalidModelError: The initializer cannot be read.
        """
        return self._read(self.protos[name])

    def large(self, wanted: Callable[[TensorProto], bool] = lambda _: True) -> Iterator[tuple[str, Array]]:
        """Yield the names and elements of large numeric initializers and attributes in all graphs and local functions.

        Tensors are left out if `wanted` returns False.
        """
        graphs = [*all_graphs(self.source.proto)]
        nodes = (node for one in (*graphs, *self.source.proto.functions) for node in one.node)
        attributes = [(next(iter(node.output), ""), a) for node in nodes for a in node.attribute]
        tensors = [(tensor.name, tensor) for graph in graphs for tensor in graph.initializer]
        tensors += [(name, tensor) for name, a in attributes for tensor in ((a.t,) if a.HasField("t") else a.tensors)]
        for name, tensor in tensors:
            if math.prod(tensor.dims) > VERIFY.max_untermed_elements and wanted(tensor):
                array = self._read(tensor)
                if array.dtype.kind not in "iub":
                    yield name, array
        yield from (
            (name, np.asarray(a.floats, np.float32)) for name, a in attributes if len(a.floats) > VERIFY.max_untermed_elements
        )

    def _read(self, tensor: TensorProto) -> Array:
        try:
            return numpy_helper.to_array(tensor, base_dir=str(self.source.path.parent))
        except Exception as error:
            raise InvalidModelError(
                f"{self.source.path}: weight {tensor.name!r} cannot be read ({type(error).__name__})"
            ) from error


def check_weights(original: ModelSource, optimized: ModelSource, certificate: Certificate) -> Weights:
    """Check that every weight of the optimized model is a weight of the original, or equals its term in the certificate.

    A new weight without a term is accepted if the weight is small, or contains integers or booleans. A weight with the name of
    a value that the original computes needs a term, or is compared with this value by `check_stored` in
    `superopt.verification.stored`.

    Raises:
        CertificateError: A weight replaces a computed value that `check_stored` does not compare, or differs from the
            original's weight of the same name. Or a new weight has no term, or does not equal its term. Or a constant that
            is no initializer is large and new.
    """
    before, after = Tensors(original), Tensors(optimized)
    results = {name for node in original.proto.graph.node for name in node.output}
    known = before.constants
    made = _Made(before, certificate.passes)
    counts = {"kept": 0, "computed": 0, "small": 0}
    for name in after.protos:
        array = after.array(name)
        if name in made.latest:
            made.require(name, array)
            counts["computed"] += 1
        elif name in before.protos:
            if not same_bytes(before.array(name), array):
                raise CertificateError(f"weight {name!r} of the optimized model differs from the original's weight")
            counts["kept"] += 1
        elif name in known and same_bytes(known[name], array):
            counts["kept"] += 1
        elif name in certificate.stored:
            counts["kept"] += 1  # `check_stored` compares this weight with the value of the same name in the original
        elif name in results:
            raise CertificateError(f"the original computes {name!r}, which the optimized model stores as a weight")
        elif array.dtype.kind in "iub" or array.size <= VERIFY.max_untermed_elements:
            counts["small"] += 1
        else:
            raise CertificateError(f"weight {name!r} of the optimized model has no term in the certificate")
    for name in after.constants.keys() & made.latest.keys():
        made.require(name, after.constants[name])
    _require_known_constants(before, after)
    return Weights(**counts)


def _require_known_constants(before: Tensors, after: Tensors) -> None:
    """Check that the original contains the large constants of the optimized model that are not in `after.protos`.

    Such constants are attributes of nodes, or weights of several bodies with the same name.

    Raises:
        CertificateError: A large constant of the optimized model is new.
    """
    found = {_key(array): name for name, array in after.large(lambda tensor: after.protos.get(tensor.name) is not tensor)}
    new = found.keys() - {_key(array) for _, array in before.large()} if found else ()
    for key in new:
        raise CertificateError(f"the optimized model has a new large constant, {found[key]!r}, without a term")


def _key(array: Array) -> tuple[tuple[int, ...], bytes]:
    return array.shape, sha256(array.tobytes()).digest()


def same_bytes(one: Array, other: Array) -> bool:
    """Return whether both arrays have the same type, shape and bytes."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


class _MadeWeight(NamedTuple):
    """A weight in float64, with facts about the rounding of the stored weight.

    Attributes:
        exact: The weight without any rounding.
        magnitude: The sum of the magnitudes of all numbers that were added.
        single: Whether ONNX Runtime adds in float32.
        stored: The number of successive roundings to the type of the weights. A pass of the optimizer rounds each weight that
            the pass computes and stores.
    """

    exact: Array
    magnitude: Array
    single: bool = False
    stored: int = 0


class _Made:
    """The weights that a certificate defines by terms, computed in float64 on demand.

    The terms of a pass read the weights that existed before the pass.
    """

    def __init__(self, tensors: Tensors, passes: Sequence[Pass]) -> None:
        self.tensors, self.passes, self.constants = tensors, passes, tensors.constants
        self.latest = {name: number for number, one in enumerate(passes) for name in one.weights}
        self.done: dict[tuple[int, str], _MadeWeight] = {}

    def require(self, name: str, array: Array) -> None:
        """Check that the array equals the certificate's term for the weight `name`, up to rounding.

        Raises:
            CertificateError: The array differs from the term.
        """
        exact, magnitude, single, stored = self._value(self.latest[name], name)
        if exact.shape != array.shape:
            raise CertificateError(f"weight {name!r} has shape {list(array.shape)}, but its term has shape {list(exact.shape)}")
        if array.dtype.kind in "iub":
            same = np.array_equal(exact, array.astype(np.float64))
        else:
            given = array.astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                rounded = exact.astype(array.dtype).astype(np.float64)
                summed, epsilon = SINGLE if single else DOUBLE, _epsilon(array.dtype)
                largest = float(np.max(np.abs(np.where(np.isfinite(exact), exact, 0)), initial=VERIFY.min_weight_magnitude))
                most = VERIFY.max_weight_rounding_factor * max(summed, epsilon) * largest
                rounding = np.fmin(magnitude * (summed + (stored - 1) * epsilon / 2), most)
                allowed = 1.01 * _ulp(rounded, array.dtype) + rounding
                same = bool(
                    np.all((rounded == given) | (np.abs(rounded - given) <= allowed) | (np.isnan(rounded) & np.isnan(given)))
                )
        if not same:
            raise CertificateError(f"weight {name!r} of the optimized model differs from its term in the certificate")

    def knows(self, name: str) -> bool:
        """Return whether `name` is a weight of the original, or a weight that the certificate defines."""
        return name in self.tensors.protos or name in self.constants or name in self.latest

    def kind(self, name: str) -> str:
        """Return the numpy kind of a weight of the original. For any other value, return an empty string."""
        if name in self.latest:
            return ""
        if name in self.constants:
            return self.constants[name].dtype.kind
        tensor = self.tensors.protos.get(name)
        return "" if tensor is None else helper.tensor_dtype_to_np_dtype(tensor.data_type).kind

    def value(self, name: str) -> Array:
        """Return the value of a weight in float64. The weight is a weight of the original, or is defined by the certificate."""
        return self._value(self.latest.get(name, -1), name).exact

    def _value(self, number: int, name: str) -> _MadeWeight:
        """Return the value of the weight `name` after a pass of the optimizer.

        `number` is the index of the pass, or -1 for the original.
        """
        while number >= 0 and name not in self.passes[number].weights:
            number -= 1
        if (number, name) not in self.done:
            if number < 0:
                array = self._given(name)
                self.done[number, name] = _MadeWeight(array, np.abs(array))
            else:
                self.done[number, name] = self._computed(number, self.passes[number].weights[name])
        return self.done[number, name]

    def _given(self, name: str) -> Array:
        if name in self.tensors.protos:
            return self.tensors.array(name).astype(np.float64)
        if name in self.constants:
            return self.constants[name].astype(np.float64)
        raise CertificateError(f"a term of the certificate reads {name!r}, which is not a weight of the original")

    def _computed(self, number: int, term: Term) -> _MadeWeight:
        names = [x.name for x in certificate_variables([term])]
        inside = {name: self._value(number - 1, name) for name in names}
        single = any(one.single for one in inside.values()) or any(t.op in SUMMED_IN_SINGLE for t in subterms(term))
        stored = max((one.stored for one in inside.values()), default=0)
        try:
            (exact,) = evaluate_certificate_terms([term], {name: one.exact for name, one in inside.items()})
            magnitudes = {name: one.magnitude for name, one in inside.items()}
            (magnitude,) = evaluate_certificate_terms([_of_magnitudes(term)], magnitudes)
        except ShapeError as error:
            raise CertificateError(f"a weight of the certificate cannot be computed ({error})") from error
        return _MadeWeight(exact, np.abs(magnitude), single, stored + 1)


def _of_magnitudes(term: Term) -> Term:
    """Return the term with differences replaced by sums, and scale factors replaced by their magnitudes.

    The returned term is evaluated on the magnitudes of the variables. Its value is an upper bound on the sum of the magnitudes
    of the numbers that `term` adds.
    """
    done: dict[Term, Term] = {}
    for part in subterms(term):
        args = tuple(done[a] for a in part.args)
        if part.is_variable:
            done[part] = part
        elif part.op == "sub":
            done[part] = apply("add", *args)
        elif part.op == "scale":
            factor = part["factor"]
            if isinstance(factor, int | float | Fraction) and factor < 0:
                factor = -factor
            done[part] = apply("scale", *args, factor=factor)
        else:
            done[part] = part if args == part.args else apply(part.op, *args, **dict(part.attributes))
    return done[term]


def _epsilon(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number of the type `dtype`."""
    try:
        return float(np.finfo(dtype).eps)
    except ValueError:  # bfloat16 and the like
        return 2.0**-7


def _ulp(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return the ulp (unit in the last place) of each number in `array`, for numbers of the type `dtype`."""
    eps = _epsilon(dtype)
    try:
        tiny = float(np.finfo(dtype).smallest_subnormal)
    except ValueError:  # bfloat16 and the like
        tiny = 2.0**-133
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(array), tiny)))
    return np.asarray(np.maximum(eps * np.exp2(exponent), tiny))


# ---------------------------------------------------------------- nodes


def check_nodes(original: ModelSource, optimized: ModelSource, certificate: Certificate) -> bool:
    """Check that both models have equal nodes, except for the nodes that the certificate lists as rewritten.

    A segment is a group of nodes that the certificate lists as rewritten. If a node exists only in the optimized model, the
    node may only compute outputs of segments, or values with new names.

    Returns:
        Whether the nodes were compared. The nodes are not compared if the original has local functions or the opset was
        converted.

    Raises:
        CertificateError: A node outside the segments differs, or the opsets, local functions, inputs, outputs or names of
            values do not agree with the certificate.
    """
    opsets = [
        max((o.version for o in one.proto.opset_import if o.domain in STANDARD), default=0) for one in (original, optimized)
    ]
    stated = opsets[0] if certificate.opset is None else certificate.opset
    if opsets[1] != stated or opsets[0] == certificate.opset:
        how = "kept" if certificate.opset is None else f"converted to {certificate.opset}"
        raise CertificateError(
            f"the certificate says that the opset was {how}, but the models have opsets {opsets[0]} and {opsets[1]}"
        )
    functions = [{(f.domain, f.name): f.SerializeToString() for f in one.proto.functions} for one in (original, optimized)]
    if not functions[1].items() <= functions[0].items():
        raise CertificateError("the optimized model has a local function that the original does not have")
    if _types(original) != _types(optimized):
        raise CertificateError("inputs or outputs of the two models differ in type or shape")
    if original.proto.functions or certificate.opset is not None:
        return False  # functions were inlined or the opset was converted, so nodes differ: runs are the only check
    places = [place for one in certificate.passes for rewrite in one.rewrites for place in rewrite.places]
    allowed: dict[Scope, set[str]] = {}
    for place in places:
        allowed.setdefault(place.scope, set()).update(place.outputs)
    graph = original.proto.graph
    computed = {name for node in graph.node for name in node.output}
    values = computed | {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    for rewrite in certificate.passes[0].rewrites if certificate.passes else ():
        read = {x.name for x in certificate_variables((*rewrite.before, *rewrite.after))}
        for place in (one for one in rewrite.places if not one.scope):
            if not {*place.nodes, *place.outputs} <= computed:
                raise CertificateError("the certificate names values that no node of the original computes")
            if not {value for name, value in place.inputs.items() if name in read} <= values:
                raise CertificateError("the certificate reads values that the original does not have")
    _require_same(original.proto.graph, optimized.proto.graph, (), allowed, dict(_aliases(certificate)))
    return True


def _require_same(
    before: GraphProto, after: GraphProto, scope: Scope, allowed: Mapping[Scope, set[str]], aliases: Mapping[str, str]
) -> None:
    """Check the nodes that exist only in the optimized graph.

    Such a node may compute only outputs of segments, and values that the original does not have. A segment is a group of
    rewritten nodes. The nodes of nested bodies are checked too.

    Args:
        before: The graph in the original.
        after: The graph in the optimized model.
        scope: The path to the graph from the top graph.
        allowed: A mapping from the path of a graph to the outputs of the segments in this graph.
        aliases: A mapping from the name of a replaced value to the name of the value that is read instead.

    Raises:
        CertificateError: A node that exists only in the optimized graph computes a value of the original that is not an output
            of a segment.
    """
    known = {_outputs(node): node for node in before.node}
    names = {name for outputs in known for name in outputs} | {value.name for value in before.input}
    for node in after.node:
        old = known.get(_outputs(node))
        if old is not None and _plain(old, aliases) == _plain(node, aliases):
            continue
        if old is not None and _plain(old, aliases, bodiless=True) == _plain(node, aliases, bodiless=True):
            inner = {attribute.name: attribute.g for attribute in node.attribute}
            for attribute in old.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    title = next(filter(None, node.output), "")
                    body = inner[attribute.name]
                    _require_same_ends(attribute.g, body)
                    _require_same(attribute.g, body, (*scope, (title, attribute.name)), allowed, aliases)
            continue
        wrong = [name for name in node.output if name in names and name not in allowed.get(scope, ())]
        if wrong:
            raise CertificateError(
                f"the node that computes {wrong[0]!r} differs between the models, but is not in a segment of the certificate"
            )


def _require_same_ends(before: GraphProto, after: GraphProto) -> None:
    """Check that a control flow body has the same inputs and outputs in both models, and that no weight differs.

    The optimized body may lack weights of the original body. The optimized body may also contain new weights. The name of a new
    weight must differ from the names of all values that the original body reads.

    Raises:
        CertificateError: The inputs or outputs differ, or a weight differs.
    """
    first, second = ([[v.name for v in values] for values in (body.input, body.output)] for body in (before, after))
    weights = {tensor.name: _raw(tensor).SerializeToString() for tensor in before.initializer}
    read = {name for node in verified_model_nodes(before) for name in node.input}
    own = {t.name: _raw(t).SerializeToString() for t in after.initializer}
    if first != second or any(weights.get(name) != array for name, array in own.items() if name in read | weights.keys()):
        raise CertificateError("the inputs, outputs or weights of a control flow body differ between the two models")


def _types(source: ModelSource) -> list[bytes]:
    """Serialize the types of the model's inputs and outputs. Placeholder names of dimensions (`unk__1`) are left out."""
    graph = with_input_types(source.proto).graph
    stored = {tensor.name for tensor in graph.initializer}
    given = [value for value in graph.input if value.name not in stored]
    return [_named_alone(value.type).SerializeToString(deterministic=True) for value in (*given, *graph.output)]


def _named_alone(kind: TypeProto) -> TypeProto:
    copy = TypeProto()
    copy.CopyFrom(kind)
    inner = copy
    while (field := inner.WhichOneof("value")) in ("sequence_type", "optional_type"):
        inner = getattr(inner, field).elem_type
    for axis in inner.tensor_type.shape.dim if inner.WhichOneof("value") == "tensor_type" else ():
        if UNNAMED.fullmatch(axis.dim_param):
            axis.ClearField("dim_param")
    return copy


def _aliases(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """Yield pairs of names of equal values: an output of rewritten nodes, and an input or earlier output of these nodes.

    Nodes that read the output in the original may read the equal value in the optimized model.
    """
    for one in certificate.passes:
        for rewrite in one.rewrites:
            for place in rewrite.places:
                first: dict[Term, str] = {}
                for name, term in zip(place.outputs, rewrite.after, strict=False):
                    if term.is_variable and term.name in place.inputs:
                        yield name, place.inputs[term.name]
                    elif first.setdefault(term, name) != name:
                        yield name, first[term]


def _plain(node: NodeProto, aliases: Mapping[str, str], *, bodiless: bool = False) -> bytes:
    """Serialize the node without names and doc strings.

    An input in `aliases` is replaced by the value that the rewrite uses instead. If `bodiless` is True, the control flow bodies
    of the node are empty.
    """
    copy = NodeProto()
    copy.CopyFrom(node)
    for field in ("name", "doc_string", "metadata_props"):
        copy.ClearField(field)
    if copy.domain in STANDARD:
        copy.ClearField("domain")
    del copy.input[:]
    copy.input.extend(_followed(name, aliases) for name in node.input)
    while copy.input and not copy.input[-1]:
        copy.input.pop()
    copy.output[:] = _outputs(node)
    attributes = sorted(copy.attribute, key=lambda a: a.name)
    del copy.attribute[:]
    copy.attribute.extend(attributes)
    for attribute in copy.attribute:
        attribute.ClearField("doc_string")
        if attribute.HasField("t"):
            attribute.t.CopyFrom(_raw(attribute.t))
        if bodiless and attribute.type == AttributeProto.GRAPH:
            attribute.g.Clear()
        for body in verified_attribute_bodies(attribute):
            _strip(body, aliases)
    return bytes(copy.SerializeToString(deterministic=True))


def _outputs(node: NodeProto) -> tuple[str, ...]:
    """Return the names of the outputs without the empty names at the end. An empty name stands for an omitted output."""
    names = list(node.output)
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def _raw(tensor: TensorProto) -> TensorProto:
    """Return the tensor without a name, with the elements stored as bytes."""
    found = numpy_helper.from_array(numpy_helper.to_array(tensor)) if tensor.data_type != TensorProto.STRING else tensor
    copy = TensorProto()
    copy.CopyFrom(found)
    copy.ClearField("name")
    copy.ClearField("doc_string")
    return copy


def _strip(graph: GraphProto, aliases: Mapping[str, str]) -> None:
    graph.ClearField("value_info")
    graph.ClearField("doc_string")
    graph.ClearField("name")
    for node in graph.node:
        plain = NodeProto()
        plain.ParseFromString(_plain(node, aliases))
        node.CopyFrom(plain)


def _followed(name: str, aliases: Mapping[str, str]) -> str:
    seen = {name}
    while name in aliases and aliases[name] not in seen:
        name = aliases[name]
        seen.add(name)
    return name


# ---------------------------------------------------------------- segments in a run


@dataclass
class SegmentCounts:
    """Counts of comparisons between the terms of segments (groups of rewritten nodes) and values from runs of the models.

    Attributes:
        before: The number of comparisons with values of the original. Each comparison covers the terms that one segment has
            before the rewrite steps.
        after: The number of comparisons with values of the optimized model. Each comparison covers the terms that one segment
            has after the rewrite steps.
        left_out: The number of comparisons that were not made, because terms are too large or values are missing.
    """

    before: int = 0
    after: int = 0
    left_out: int = 0


def expose_values(source: ModelSource, names: Sequence[str]) -> ModelProto:
    """Return a copy of a verified model's ModelProto with the named values as additional outputs.

    External data is not loaded.
    """
    copy = ModelProto()
    copy.CopyFrom(source.proto)
    there = {value.name for value in copy.graph.output}
    copy.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in there)
    return copy


def values_of(source: ModelSource, names: Sequence[str], feeds: Feeds) -> dict[str, Array]:
    """Return the named values of a model in a run: inputs, weights, and results of nodes.

    Raises:
        InvalidModelError: ONNX Runtime cannot run the model with these values as outputs.
    """
    tensors = Tensors(source)
    found: dict[str, Array] = {name: feeds[name] for name in names if name in feeds}
    found.update({name: tensors.array(name) for name in names if name in tensors.protos})
    computed = {name for node in source.proto.graph.node for name in node.output}
    asked = [name for name in names if name in computed and name not in found]
    if asked:
        runner = Runner(source, proto=expose_values(source, asked), names=asked)
        results = runner.run(feeds)
        if isinstance(results, str):
            raise InvalidModelError(results)
        found.update({name: value for name, value in zip(asked, results, strict=True) if isinstance(value, np.ndarray)})
    return found


def check_segments(
    original: ModelSource, optimized: ModelSource, certificate: Certificate, feeds: Feeds, linked: SegmentCounts
) -> None:
    """Check the terms of each segment by a run of the models on the inputs `feeds`: the terms must have the computed values.

    A segment is a group of rewritten nodes. The certificate states the terms of each segment before and after the rewrite
    steps. The counts in `linked` are increased.

    Raises:
        CertificateError: The values that a segment computes differ from the values of its terms.
    """
    rewrites = [rewrite for one in certificate.passes for rewrite in one.rewrites]
    places = [place for rewrite in rewrites for place in rewrite.places if not place.scope]
    wanted = list(dict.fromkeys(name for place in places for name in (*place.inputs.values(), *place.outputs)))
    made = _Made(Tensors(original), certificate.passes)
    read = {value for rewrite in rewrites for place in rewrite.places for value in _weights_read(rewrite, place)}
    weights = {name: made.value(name) for name in read if made.knows(name)}
    _require_kinds(original, rewrites, made)
    try:
        runs = [{**weights, **values_of(source, wanted, feeds)} for source in (original, optimized)]
    except InvalidModelError:
        linked.left_out += len(places)
        return
    sizes = _sizes(original, feeds)
    for rewrite in rewrites:
        for place in rewrite.places:
            if place.scope:
                linked.left_out += 1
                continue
            for terms, values, which in ((rewrite.before, runs[0], "before"), (rewrite.after, runs[1], "after")):
                if _compared(place, terms, values, sizes, which):
                    setattr(linked, which, getattr(linked, which) + 1)
                else:
                    linked.left_out += 1


def _require_kinds(original: ModelSource, rewrites: Sequence[Rewrite], made: _Made) -> None:
    """Check that the marks of each variable in the rewrites' terms fit the variable's value.

    A variable stands for a value of the model. The variable may be marked as constant (a weight), boolean or integer.

    Raises:
        CertificateError: A variable is marked as constant, but its value is an input. Or a variable is not marked as constant,
            but its value is a weight. Or a variable is marked as boolean or as integer, but its weight has a different type.
    """
    given = {value.name for value in original.proto.graph.input}
    for rewrite in rewrites:
        for x in certificate_variables([*rewrite.before, *rewrite.after]):
            for name in (place.inputs.get(x.name, "") for place in rewrite.places):
                weight = made.knows(name) and name not in given
                if (weight and not x.constant) or (x.constant and name in given and name not in made.tensors.protos):
                    raise CertificateError(
                        f"the weight {name!r} has a variable that is not marked as a weight"
                        if weight
                        else f"{name!r} is not a weight, but its variable is marked as a weight"
                    )
                kind = made.kind(name)
                if kind and ((x.condition and kind != "b") or (x.position and kind not in "iu")):
                    raise CertificateError(f"the variable for the weight {name!r} and the weight itself have different types")


def _weights_read(rewrite: Rewrite, place: RewrittenNodes) -> list[str]:
    """Return the names of the weights that a rewrite reads.

    These weights are the values of variables that are marked as constant.
    """
    constant = (x.name for x in certificate_variables([*rewrite.before, *rewrite.after]) if x.constant)
    return [place.inputs[name] for name in constant if name in place.inputs]


def _sizes(original: ModelSource, feeds: Feeds) -> dict[Atom, int]:
    """Return the sizes of the model's dynamic input dimensions in a run. The keys are the dimensions' symbols in terms."""
    axes = ((axis, n) for port in original.inputs for axis, n in zip(port.axes, np.shape(feeds[port.name]), strict=True))
    return {Dim(f"%{axis}", 0): n for axis, n in axes if isinstance(axis, str)}


def _compared(place: RewrittenNodes, terms: State, values: Mapping[str, Array], sizes: Mapping[Atom, int], which: str) -> bool:
    """Compare the terms of a segment, a group of rewritten nodes, with the values that the nodes compute in a run.

    Terms are evaluated in float64. If the results disagree, the terms are evaluated again: in float32, because a compensated
    sum rounds on purpose, and on slightly changed values (see `_disagreeing`).

    Args:
        place: The nodes of the segment.
        terms: The terms of the segment before or after the rewrite steps.
        values: The values of the run, by name.
        sizes: The sizes of the dynamic dimensions.
        which: `before` for the initial terms, or `after` for the final terms. Error messages contain this information.

    Returns:
        False if a value is missing or empty, or if a term cannot be evaluated. Terms are defined only for tensors that are not
        empty.

    Raises:
        CertificateError: The terms do not fit the segment, or the values disagree.
    """
    stage = "initial" if which == "before" else "final"
    if len(terms) != len(place.outputs):
        raise CertificateError(f"a segment has {len(place.outputs)} outputs, but {len(terms)} terms")
    names = {x.name: place.inputs.get(x.name) for x in certificate_variables(terms)}
    if None in names.values():
        raise CertificateError("a term of a segment reads a variable that has no value in the model")
    if not {*names.values(), *place.outputs} <= values.keys():
        return False
    arrays = {name: np.asarray(values[value or ""]) for name, value in names.items()}
    for x in certificate_variables(terms):
        kind = arrays[x.name].dtype.kind
        if not x.constant and (x.condition, bool(x.position)) != (kind == "b", kind in "iu"):
            raise CertificateError(f"the value {names[x.name]!r} and its variable have different types")
    wanted = [np.asarray(values[name]) for name in place.outputs]
    if not all(array.size for array in (*arrays.values(), *wanted)):
        return False
    live = subterms(*terms)
    strange = {a for term in live for n in term.shape for a in atoms(n) if isinstance(a, Dim | Sym) and a not in sizes}
    if strange:
        raise CertificateError(f"the certificate uses dimensions that the model does not have: {', '.join(map(str, strange))}")
    try:
        off = _disagreeing(place.outputs, wanted, terms, arrays, sizes)
    except UndecidedError:
        return False
    except ShapeError as error:
        raise CertificateError(f"the {stage} terms do not fit the segment of {place.outputs[0]!r} ({error})") from error
    if off:
        raise CertificateError(f"value {off[0]!r} differs from its {stage} term in the certificate")
    return True


def _disagreeing(
    names: Sequence[str], wanted: Sequence[Array], terms: State, arrays: Mapping[str, Array], sizes: Mapping[Atom, int]
) -> list[str]:
    """Return the names of the values that disagree with their terms.

    The terms are evaluated in float64, then in float32, and then in float64 with random rounding errors: the arrays and the
    results of all operators are changed in their last bits. If all values agree with the terms in one of these evaluations, the
    list is empty. In the last evaluation, the changed bits may change the value of a term. For example, a comparison of nearly
    equal numbers may turn from true to false. The tolerance is then increased by twice the change of the term's value.

    Args:
        names: The names of the values.
        wanted: The values in the run.
        terms: The terms that describe the values.
        arrays: The values of the variables, by name.
        sizes: The sizes of the dynamic dimensions.

    Raises:
        ShapeError, UndecidedError: See `evaluate_certificate_terms`.
    """
    live = subterms(*terms)

    def evaluated(
        arrays: Mapping[str, Array],
        dtype: type[np.floating[Any]] = np.float64,
        changed: Callable[[Array], Array] = lambda array: array,
    ) -> dict[Term, Array]:
        return dict(zip(live, evaluate_certificate_terms(live, arrays, sizes, dtype, changed), strict=True))

    def differing(known: Mapping[Term, Array], changes: Mapping[Term, Array]) -> list[str]:
        rows = zip(names, wanted, terms, strict=True)
        return [name for name, value, term in rows if not _agree(value, known[term], _added_up(term, known), changes[term])]

    exact, unchanged = evaluated(arrays), {term: np.zeros(()) for term in terms}
    if not (off := differing(exact, unchanged)) or not differing(evaluated(arrays, np.float32), unchanged):
        return []
    changes = {term: np.zeros(exact[term].shape) for term in terms}
    for turn in range(VERIFY.max_segment_nudges):
        near = evaluated(_nudged(arrays, turn), changed=functools.partial(_rounded_at_random, np.random.default_rng(turn)))
        with np.errstate(invalid="ignore"):
            changes = {term: np.fmax(change, np.abs(near[term] - exact[term])) for term, change in changes.items()}
        if not (off := differing(exact, changes)):
            break
    return off


def _nudged(arrays: Mapping[str, Array], turn: int) -> dict[str, Array]:
    """Return the arrays with the last bits of all numbers changed.

    An array with a single number stays unchanged, because the number is often a threshold.
    """
    return {**arrays, **perturb_feeds({name: array for name, array in arrays.items() if array.size > 1}, turn)}


def _rounded_at_random(rng: np.random.Generator, array: Array) -> Array:
    """Return the array with an error of half a float32 ulp in each element. Integers stay unchanged, because they may be
    positions.
    """
    errors = rng.choice((-1.0, 1.0), array.shape) * float(np.finfo(np.float32).eps) / 2
    with np.errstate(all="ignore"):
        return np.where(array == np.round(array), array, array * (1 + errors))


def _added_up(term: Term, known: Mapping[Term, Array]) -> Array:
    """Return the sum of the magnitudes of all numbers that the term adds up. `known` contains the values of all terms.

    The tolerance for rounding is proportional to this sum, because the sum bounds rounding errors in any order of summation.
    """
    if term.op in ("add", "sub"):
        return np.asarray(sum(_added_up(arg, known) for arg in term.args))
    if term.op == "scale":
        return abs(float(term.real("factor"))) * _added_up(term.args[0], known)
    return np.abs(known[term])


def _agree(value: Array, array: Array, magnitude: Array, change: Array) -> bool:
    """Return whether a value from a run of a model agrees with the value of its term.

    `value` is the value from the run, and `array` is the value of the term. The shapes must be equal, and finite elements must
    be close. If an element of `array` is not finite, the same element of `value` must not be finite either. `magnitude` is the
    sum of the magnitudes of all numbers that the term adds up (see `_added_up`). If the last bits of the variables change, the
    term changes by the amount `change`.
    """
    if value.shape != array.shape:
        return False
    rounding = 2 * (float(np.finfo(value.dtype).eps) if value.dtype.kind == "f" else 0.0)
    value = value.astype(np.float64)
    finite = np.isfinite(value) & np.isfinite(array)
    scale = float(np.max(np.abs(np.where(finite, value, 0)), initial=0.0))
    distance = np.abs(np.where(finite, value, 0) - np.where(finite, array, 0))
    allowed = VERIFY.segment_tolerance_share * scale + rounding * np.where(finite, magnitude, 0) + 2 * change + 1e-30
    far = math.isfinite(scale) and bool(np.any(distance > allowed))
    return not far and not np.any(np.isfinite(value) & ~np.isfinite(array))
