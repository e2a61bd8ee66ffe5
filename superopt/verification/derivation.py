"""A certificate against both models: what is outside the segments is the same, weights are what their terms say, and the nodes
of segments compute their terms.

Nothing is lifted or lowered. Nodes are compared as they stand in the files; new weights are computed from the original's, and
compared within the rounding of that computation; the terms of a segment before its steps are evaluated on values that the
original has in a run, those after them on values of the optimized model.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from superopt.errors import CertificateError, InvalidModelError, ShapeError
from superopt.graph import Atom, Dim, Term, subterms
from superopt.op import apply
from superopt.verification.arrays import Array, UndecidedError, evaluated
from superopt.verification.certificates import Certificate, Pass, Place, Rewrite, Scope, State, named_variables
from superopt.verification.inputs import Feeds
from superopt.verification.models import STANDARD, UNNAMED, Source, bodies, nodes
from superopt.verification.runs import Runner

SMALL = 4096
"""Elements up to which a new weight may have no term: numbers that nodes ask for beside operands, such as an algorithm's
matrices. They are compared by running the segment."""
NEAR = 2e-3
"""By what share of the largest magnitude of an output a segment's nodes in the model's precision may differ from its terms in
float64."""
SINGLE = 2.0**-22
"""The share of the magnitudes added up by which a weight may be off that was summed in float32."""
SUMMED_IN_SINGLE = frozenset({"conv", "conv_transpose", "max_pool", "avg_pool", "gram_kernel", "merge_groups"})
"""Operators for which ONNX Runtime has no float64 kernel."""


@dataclass(frozen=True)
class Weights:
    """How many weights of the optimized model are as they were, were computed anew from terms, and have no term."""

    kept: int
    computed: int
    small: int


# ---------------------------------------------------------------- tensors


@dataclass(frozen=True, eq=False)
class Tensors:
    """The initializers of a model's top graph, read when they are asked for."""

    source: Source

    @functools.cached_property
    def protos(self) -> Mapping[str, TensorProto]:
        """The messages by name."""
        return {tensor.name: tensor for tensor in self.source.proto.graph.initializer}

    def array(self, name: str) -> Array:
        """What an initializer holds.

        Raises:
            InvalidModelError: it cannot be read.
        """
        try:
            return numpy_helper.to_array(self.protos[name], base_dir=str(self.source.path.parent))
        except Exception as error:
            raise InvalidModelError(f"{self.source.path}: weight {name!r} cannot be read ({type(error).__name__})") from error


def check_weights(original: Source, optimized: Source, certificate: Certificate) -> Weights:
    """Every weight of the optimized model is one of the original, or what the certificate's terms make of these.

    Raises:
        CertificateError: a weight is neither.
    """
    before, after = Tensors(original), Tensors(optimized)
    known = _constants(original.proto.graph)
    made = _Made(before, certificate.passes, known)
    counts = {"kept": 0, "computed": 0, "small": 0}
    for name in after.protos:
        array = after.array(name)
        if name in made.latest:
            made.require(name, array)
            counts["computed"] += 1
        elif name in before.protos:
            if not _identical(before.array(name), array):
                raise CertificateError(f"weight {name!r} of the optimized model is not the original's")
            counts["kept"] += 1
        elif name in known and _identical(known[name], array):
            counts["kept"] += 1
        elif name in certificate.stored:
            counts["kept"] += 1  # compared with what the original computes under that name, see `check_stored`
        elif array.dtype.kind in "iub" or array.size <= SMALL:
            counts["small"] += 1
        else:
            raise CertificateError(f"weight {name!r} of the optimized model follows from no term of the certificate")
    return Weights(**counts)


def _identical(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _constants(graph: GraphProto) -> dict[str, Array]:
    """What the Constant nodes of a graph hold, by the names of their outputs."""
    found: dict[str, Array] = {}
    for node in graph.node:
        if node.op_type == "Constant" and node.output and len(node.attribute) == 1:
            value = helper.get_attribute_value(node.attribute[0])
            if isinstance(value, TensorProto):
                found[node.output[0]] = numpy_helper.to_array(value)
            elif node.attribute[0].name in ("value_float", "value_floats"):
                found[node.output[0]] = np.asarray(value, np.float32)
            elif node.attribute[0].name in ("value_int", "value_ints"):
                found[node.output[0]] = np.asarray(value, np.int64)
    return found


class _Made:
    """The weights that the passes of a certificate make, computed in float64 when they are asked for."""

    def __init__(self, tensors: Tensors, passes: Sequence[Pass], constants: Mapping[str, Array]) -> None:
        self.tensors, self.passes, self.constants = tensors, passes, constants
        self.latest = {name: number for number, one in enumerate(passes) for name in one.weights}
        self.done: dict[tuple[int, str], tuple[Array, Array, bool]] = {}

    def require(self, name: str, array: Array) -> None:
        """Raises CertificateError where the array is not what the weight's term says, rounded to its type."""
        exact, magnitude, single = self._value(self.latest[name], name)
        if exact.shape != array.shape:
            raise CertificateError(f"weight {name!r} has shape {list(array.shape)}, and its term {list(exact.shape)}")
        if array.dtype.kind in "iub":
            same = np.array_equal(exact, array.astype(np.float64))
        else:
            given = array.astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                rounded = exact.astype(array.dtype).astype(np.float64)
                allowed = 1.01 * _ulp(rounded, array.dtype) + magnitude * (SINGLE if single else 2.0**-46)
                same = bool(
                    np.all((rounded == given) | (np.abs(rounded - given) <= allowed) | (np.isnan(rounded) & np.isnan(given)))
                )
        if not same:
            raise CertificateError(f"weight {name!r} of the optimized model is not what its term says")

    def knows(self, name: str) -> bool:
        """Whether the value is a weight of the original, or one that the certificate makes."""
        return name in self.tensors.protos or name in self.constants or name in self.latest

    def kind(self, name: str) -> str:
        """The kind of numbers that a weight of the original holds; empty for any other value."""
        if name in self.latest:
            return ""
        if name in self.constants:
            return self.constants[name].dtype.kind
        tensor = self.tensors.protos.get(name)
        return "" if tensor is None else helper.tensor_dtype_to_np_dtype(tensor.data_type).kind

    def value(self, name: str) -> Array:
        """A weight of the original, or what the certificate's terms make, in float64."""
        return self._value(self.latest.get(name, -1), name)[0]

    def _value(self, number: int, name: str) -> tuple[Array, Array, bool]:
        """A weight after a pass in float64, the magnitudes that were added up to it, and whether in float32."""
        while number >= 0 and name not in self.passes[number].weights:
            number -= 1
        if (number, name) not in self.done:
            if number < 0:
                array = self._given(name)
                self.done[number, name] = array, np.abs(array), False
            else:
                self.done[number, name] = self._computed(number, self.passes[number].weights[name])
        return self.done[number, name]

    def _given(self, name: str) -> Array:
        if name in self.tensors.protos:
            return self.tensors.array(name).astype(np.float64)
        if name in self.constants:
            return self.constants[name].astype(np.float64)
        raise CertificateError(f"a term of the certificate reads {name!r}, which is no weight of the original")

    def _computed(self, number: int, term: Term) -> tuple[Array, Array, bool]:
        names = [x.name for x in named_variables([term])]
        inside = {name: self._value(number - 1, name) for name in names}
        single = any(one[2] for one in inside.values()) or any(t.op in SUMMED_IN_SINGLE for t in subterms(term))
        try:
            (exact,) = evaluated([term], {name: one[0] for name, one in inside.items()})
            (magnitude,) = evaluated([_of_magnitudes(term)], {name: one[1] for name, one in inside.items()})
        except ShapeError as error:
            raise CertificateError(f"a weight of the certificate cannot be computed ({error})") from error
        return exact, np.abs(magnitude), single


def _of_magnitudes(term: Term) -> Term:
    """The term with sums in place of differences, and magnitudes in place of numbers: no less than what was added up."""
    done: dict[Term, Term] = {}
    for part in subterms(term):
        args = tuple(done[a] for a in part.args)
        if part.is_variable:
            done[part] = part
        elif part.op == "sub":
            done[part] = apply("add", *args)
        elif part.op == "scale":
            factor = part["factor"]
            done[part] = apply("scale", *args, factor=abs(factor) if isinstance(factor, int | float) else factor)
        else:
            done[part] = part if args == part.args else apply(part.op, *args, **dict(part.attributes))
    return done[term]


def _ulp(array: Array, dtype: np.dtype[Any]) -> Array:
    """A unit in the last place of each number, in its type."""
    try:
        info = np.finfo(dtype)
        eps, tiny = float(info.eps), float(info.smallest_subnormal)
    except ValueError:  # bfloat16 and the like
        eps, tiny = 2.0**-7, 2.0**-133
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(array), tiny)))
    return np.asarray(np.maximum(eps * np.exp2(exponent), tiny))


# ---------------------------------------------------------------- nodes


def check_nodes(original: Source, optimized: Source, certificate: Certificate) -> None:
    """Every node of the optimized model is one of the original, or only segments' outputs and new values come out of it.

    Raises:
        CertificateError: a node outside the segments is another one.
    """
    opsets = [
        max((o.version for o in one.proto.opset_import if o.domain in STANDARD), default=0) for one in (original, optimized)
    ]
    if certificate.opset is not None and (opsets[0] == opsets[1] or opsets[1] != certificate.opset):
        raise CertificateError("the certificate says that the opset was converted, and the models do not show it")
    if original.proto.functions or certificate.opset is not None:
        return  # functions were put in their places, or the opset converted: both models are compared by running them
    places = [place for one in certificate.passes for rewrite in one.rewrites for place in rewrite.places]
    allowed: dict[Scope, set[str]] = {}
    for place in places:
        allowed.setdefault(place.scope, set()).update(place.outputs)
    made = {name for node in original.proto.graph.node for name in node.output}
    for rewrite in certificate.passes[0].rewrites if certificate.passes else ():
        for place in rewrite.places:
            if not place.scope and not {*place.nodes, *place.outputs} <= made:
                raise CertificateError("the original has no nodes that compute the values which the certificate names")
    _require_same(original.proto.graph, optimized.proto.graph, (), allowed, dict(_aliases(certificate)))
    if _types(original) != _types(optimized):
        raise CertificateError("inputs or outputs of the two models have other types or shapes")


def _require_same(
    before: GraphProto, after: GraphProto, scope: Scope, allowed: Mapping[Scope, set[str]], aliases: Mapping[str, str]
) -> None:
    """Raises CertificateError where a node of the graph, or of a body in it, is another one and in no segment there."""
    known = {tuple(node.output): node for node in before.node}
    names = {name for outputs in known for name in outputs} | {value.name for value in before.input}
    for node in after.node:
        old = known.get(tuple(node.output))
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
            raise CertificateError(f"the node that computes {wrong[0]!r} is another one, and no segment of the certificate")


def _require_same_ends(before: GraphProto, after: GraphProto) -> None:
    """Raises CertificateError where a body has other inputs, outputs or weights, or a weight that hides a value."""
    first, second = ([[v.name for v in values] for values in (body.input, body.output)] for body in (before, after))
    weights = {tensor.name: _raw(tensor).SerializeToString() for tensor in before.initializer}
    read = {name for node in nodes(before) for name in node.input}
    own = {t.name: _raw(t).SerializeToString() for t in after.initializer}
    if first != second or any(weights.get(name) != array for name, array in own.items() if name in read | weights.keys()):
        raise CertificateError("a body of control flow has other inputs, outputs or weights")


def _types(source: Source) -> list[bytes]:
    """The types of inputs and outputs, without names of dimensions that say nothing."""
    stored = {tensor.name for tensor in source.proto.graph.initializer}
    given = [value for value in source.proto.graph.input if value.name not in stored]
    return [_named_alone(value.type).SerializeToString(deterministic=True) for value in (*given, *source.proto.graph.output)]


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
    """Values that a segment only passes on, each with the value that it is."""
    for one in certificate.passes:
        for rewrite in one.rewrites:
            for place in rewrite.places:
                for name, term in zip(place.outputs, rewrite.after, strict=False):
                    if term.is_variable and term.name in place.inputs:
                        yield name, place.inputs[term.name]


def _plain(node: NodeProto, aliases: Mapping[str, str], *, bodiless: bool = False) -> bytes:
    """The node without names and remarks, its inputs the values that they are; `bodiless`, with its bodies empty."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for field in ("name", "doc_string", "metadata_props"):
        copy.ClearField(field)
    del copy.input[:]
    copy.input.extend(_followed(name, aliases) for name in node.input)
    while copy.input and not copy.input[-1]:
        copy.input.pop()
    attributes = sorted(copy.attribute, key=lambda a: a.name)
    del copy.attribute[:]
    copy.attribute.extend(attributes)
    for attribute in copy.attribute:
        attribute.ClearField("doc_string")
        if attribute.HasField("t"):
            attribute.t.CopyFrom(_raw(attribute.t))
        if bodiless and attribute.type == AttributeProto.GRAPH:
            attribute.g.Clear()
        for body in bodies(attribute):
            _strip(body, aliases)
    return bytes(copy.SerializeToString(deterministic=True))


def _raw(tensor: TensorProto) -> TensorProto:
    """The tensor without a name, its elements as bytes."""
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
class Linked:
    """How many segments' terms were compared with the values of which model, and how many were too large or have no values."""

    before: int = 0
    after: int = 0
    left_out: int = 0


def exposed(source: Source, names: Sequence[str]) -> ModelProto:
    """The model, without its weights in other files, with more of its values as outputs."""
    copy = ModelProto()
    copy.CopyFrom(source.proto)
    there = {value.name for value in copy.graph.output}
    copy.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in there)
    return copy


def values_of(source: Source, names: Sequence[str], feeds: Feeds) -> dict[str, Array]:
    """The named values of a model in a run: inputs, weights, and what nodes compute.

    Raises:
        InvalidModelError: ONNX Runtime does not run the model with these as outputs.
    """
    tensors = Tensors(source)
    found: dict[str, Array] = {name: feeds[name] for name in names if name in feeds}
    found.update({name: tensors.array(name) for name in names if name in tensors.protos})
    computed = {name for node in source.proto.graph.node for name in node.output}
    asked = [name for name in names if name in computed and name not in found]
    if asked:
        runner = Runner(source, proto=exposed(source, asked), names=asked)
        results = runner.run(feeds)
        if isinstance(results, str):
            raise InvalidModelError(results)
        found.update({name: value for name, value in zip(asked, results, strict=True) if isinstance(value, np.ndarray)})
    return found


def check_stored(original: Source, optimized: Source, certificate: Certificate, feeds: Feeds) -> None:
    """Values that are stored as weights are what the original computes under their names.

    Raises:
        CertificateError: one is something else.
    """
    tensors = Tensors(optimized)
    names = [name for name in certificate.stored if name in tensors.protos]
    values = values_of(original, names, feeds) if names else {}
    for name in names:
        array = tensors.array(name)
        known = name in values or (certificate.opset is None and not original.proto.functions) or array.size > SMALL
        if known and not (name in values and _identical(np.asarray(values[name]), array)):
            raise CertificateError(f"weight {name!r} of the optimized model is not what the original computes under that name")


def check_segments(original: Source, optimized: Source, certificate: Certificate, feeds: Feeds, linked: Linked) -> None:
    """The terms of segments give the values that the models have in a run on these inputs.

    Raises:
        CertificateError: a segment computes something else than its terms say.
    """
    rewrites = [rewrite for one in certificate.passes for rewrite in one.rewrites]
    places = [place for rewrite in rewrites for place in rewrite.places if not place.scope]
    wanted = list(dict.fromkeys(name for place in places for name in (*place.inputs.values(), *place.outputs)))
    made = _Made(Tensors(original), certificate.passes, _constants(original.proto.graph))
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


def _require_kinds(original: Source, rewrites: Sequence[Rewrite], made: _Made) -> None:
    """Raises CertificateError where a variable is no weight although its value is one, or the other way round."""
    given = {value.name for value in original.proto.graph.input}
    for rewrite in rewrites:
        for x in named_variables([*rewrite.before, *rewrite.after]):
            for name in (place.inputs.get(x.name, "") for place in rewrite.places):
                weight = made.knows(name) and name not in given
                if (weight and not x.constant) or (x.constant and name in given and name not in made.tensors.protos):
                    raise CertificateError(f"a variable that stands for {name!r} is {'no' if weight else 'a'} weight")
                kind = made.kind(name)
                if kind and ((x.condition and kind != "b") or (x.position and kind not in "iu")):
                    raise CertificateError(f"a variable that stands for {name!r} is of another type than the weight")


def _weights_read(rewrite: Rewrite, place: Place) -> list[str]:
    """The values that the constant variables of a segment's terms stand for."""
    constant = (x.name for x in named_variables([*rewrite.before, *rewrite.after]) if x.constant)
    return [place.inputs[name] for name in constant if name in place.inputs]


def _sizes(original: Source, feeds: Feeds) -> dict[Atom, int]:
    """The sizes of the dynamic dimensions of the model's inputs in a run, by the atoms that certificates have for them."""
    axes = ((axis, n) for port in original.inputs for axis, n in zip(port.axes, np.shape(feeds[port.name]), strict=True))
    return {Dim(f"%{axis}", 0): n for axis, n in axes if isinstance(axis, str)}


def _compared(place: Place, terms: State, values: Mapping[str, Array], sizes: Mapping[Atom, int], which: str) -> bool:
    """Whether all values that a segment reads and computes are there, and terms can be evaluated; then they agree.

    Terms are evaluated in float64, and in float32 where that does not agree: a compensated sum rounds on purpose.
    """
    if len(terms) != len(place.outputs):
        raise CertificateError(f"a segment has {len(place.outputs)} outputs, and {len(terms)} terms")
    names = {x.name: place.inputs.get(x.name) for x in named_variables(terms)}
    if None in names.values():
        raise CertificateError("a term of a segment reads a variable that stands for no value")
    if not {*names.values(), *place.outputs} <= values.keys():
        return False
    arrays = {name: np.asarray(values[value or ""]) for name, value in names.items()}
    for x in named_variables(terms):
        kind = arrays[x.name].dtype.kind
        if not x.constant and (x.condition, bool(x.position)) != (kind == "b", kind in "iu"):
            raise CertificateError(f"a variable that stands for {names[x.name]!r} is of another type than the value")
    wanted = [np.asarray(values[name]) for name in place.outputs]
    live = subterms(*terms)
    off: list[str] = []
    for dtype in (np.float64, np.float32):
        try:
            known = dict(zip(live, evaluated(live, arrays, sizes, dtype), strict=True))
        except UndecidedError:
            return False
        except ShapeError as error:
            raise CertificateError(
                f"the terms {which} the steps do not fit the segment of {place.outputs[0]!r} ({error})"
            ) from error
        rows = zip(place.outputs, wanted, terms, strict=True)
        off = [name for name, value, term in rows if not _agree(value, known[term], _added_up(term, known))]
        if not off:
            return True
    raise CertificateError(f"{off[0]!r} is not what its term {which} the steps says")


def _added_up(term: Term, known: Mapping[Term, Array]) -> Array:
    """The magnitudes of what the term adds up: sums are rounded by their shares, in whatever order they are computed."""
    if term.op in ("add", "sub"):
        return np.asarray(sum(_added_up(arg, known) for arg in term.args))
    if term.op == "scale":
        return abs(float(term.real("factor"))) * _added_up(term.args[0], known)
    return np.abs(known[term])


def _agree(value: Array, array: Array, magnitude: Array) -> bool:
    """Whether a value of a run is what its term says: of the same shape, finite where the term is, and near it."""
    if value.shape != array.shape:
        return False
    rounding = 2 * (float(np.finfo(value.dtype).eps) if value.dtype.kind == "f" else 0.0)
    value = value.astype(np.float64)
    finite = np.isfinite(value) & np.isfinite(array)
    scale = float(np.max(np.abs(np.where(finite, value, 0)), initial=0.0))
    distance = np.abs(np.where(finite, value, 0) - np.where(finite, array, 0))
    allowed = NEAR * scale + rounding * np.where(finite, magnitude, 0) + 1e-30
    far = math.isfinite(scale) and bool(np.any(distance > allowed))
    return not far and not np.any(np.isfinite(value) & ~np.isfinite(array))
