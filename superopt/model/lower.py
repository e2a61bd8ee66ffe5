"""Lowering: terms as ONNX nodes, by the bindings in specs/, at the opset of the model they go into.

What the algebra makes explicit is put back as ONNX writes it: `expand` disappears where ONNX broadcasts, slices that tile an
axis become one Split, a bias goes into its convolution or Gemm, and weight-only terms become initializers.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx.defs
import onnx.helper
import onnx.numpy_helper
from onnx import AttributeProto, ModelProto, NodeProto
from onnx.defs import OpSchema

from superopt.errors import ShapeError
from superopt.evaluate import Floats, evaluate
from superopt.graph import Term
from superopt.op import Operator, apply, operator, registry

SMALL = 64
IR_VERSION = 4  # the first in which an initializer need not be an input
Array: TypeAlias = "npt.NDArray[Any]"
AttributeValue: TypeAlias = "int | float | str | tuple[int, ...]"
Constants: TypeAlias = "Callable[[Term], Array]"


@dataclass(frozen=True)
class NodeText:
    """One ONNX node: what stands in a NodeProto, as plain values. An absent optional input is the empty string."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, AttributeValue], ...] = ()


@dataclass(frozen=True, eq=False)
class Lowered:
    """Nodes in topological order, and the arrays of the initializers they need beyond the variables of the terms."""

    nodes: tuple[NodeText, ...]
    initializers: Mapping[str, Array]


def lower(
    outputs: Mapping[str, Term],
    opset: int,
    *,
    constant: Constants | None = None,
    dtype: npt.DTypeLike = np.float32,
    prefix: str = "superopt.",
) -> Lowered:
    """ONNX nodes that compute each term under its name.

    A variable stands for the value of its name. `constant` computes a weight-only term that is no variable; it becomes an
    initializer (without `constant`, only terms that have no variables do, and the rest are computed by nodes). Numbers are
    stored as `dtype`. Every new name begins with `prefix`.

    Raises:
        ShapeError: the opset cannot express a term.
    """
    return _Lowering(outputs, opset, constant, np.dtype(dtype), prefix).run()


def literal(term: Term, dtype: npt.DTypeLike) -> Array:
    """The value of a term without variables."""
    (value,) = evaluate((term,), {}, lambda _: None, Floats())
    return np.asarray(value, dtype=dtype, order="C")


@dataclass
class _Lowering:
    """`op.Emit`, and the state of one lowering."""

    wanted: Mapping[str, Term]
    opset: int
    constant: Constants | None
    dtype: np.dtype[Any]
    prefix: str
    nodes: list[NodeText] = field(default_factory=list)
    initializers: dict[str, Array] = field(default_factory=dict)
    names: dict[Term, str] = field(default_factory=dict)
    stored: dict[tuple[object, ...], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = itertools.count()
        self.live = self._live()
        self.operands = {term: _parts(term, self.live) for term in self.live}
        self.uses = Counter(x for operands in self.operands.values() for x in operands)
        self.uses.update(self.wanted.values())
        self.hosts = {term: host for term in self.live if (host := self._host(term)) is not None}
        self.splits = _splits(self.live)

    def run(self) -> Lowered:
        inside = set(self.hosts.values())
        for term in self.live:
            if term.op != "expand" and term not in inside:
                self.name_of(term)
        titles: dict[str, str] = {}
        for name, term in self.wanted.items():
            if self._ready(term) or self.name_of(term) in titles:
                self.nodes.append(NodeText("Identity", (self.name_of(term),), (name,)))
            else:
                titles[self.name_of(term)] = name
        nodes = _needed([_renamed(node, titles) for node in self.nodes], self.wanted)
        read = {name for node in nodes for name in node.inputs}
        return Lowered(tuple(nodes), {name: array for name, array in self.initializers.items() if name in read})

    # ------------------------------------------------------------ what is computed by nodes

    def _ready(self, term: Term) -> bool:
        """Whether the term is there without a node: a variable, or something that becomes an initializer."""
        return term.is_variable or (term.constant and (self.constant is not None or not term.args))

    def _live(self) -> list[Term]:
        """Terms that nodes compute, arguments first; nothing under an initializer is looked at."""
        order: dict[Term, None] = {}
        stack = [(root, False) for root in reversed(list(self.wanted.values())) if not self._ready(root)]
        while stack:
            term, done = stack.pop()
            if done:
                order.setdefault(term)
            elif term not in order:
                stack.append((term, True))
                stack.extend((a, False) for a in reversed(term.args) if a not in order and not self._ready(a))
        return list(order)

    def name_of(self, term: Term) -> str:
        """The value that holds the term, computed now if it is not there yet."""
        if term not in self.names:
            self.names[term] = self._computed(term)
        return self.names[term]

    def _computed(self, term: Term) -> str:
        if term.is_variable:
            return term.name
        if self._ready(term):
            return self._initializer(literal(term, self.dtype) if self.constant is None else self.constant(term))
        if term in self.splits:
            return self._split(term)
        if term in self.hosts:
            return self._with_bias(term, self.hosts[term])
        spec = operator(term.op)
        if spec.lower is None:
            raise ShapeError(f"{term.op} has no lowering")
        return spec.lower(term, self)

    # ------------------------------------------------------------ op.Emit

    def __call__(self, op_type: str, *inputs: Any, **attributes: Any) -> str:
        return self._emit(op_type, inputs, attributes, outputs=1)[0]

    def aligned(self, term: Term) -> Term:
        x, axes = term.args[0], term.integers("axes")
        shape = [term.sizes[a] if a in axes else 1 for a in range(-term.rank, 0)]
        new = next((position for position in range(term.rank) if position - term.rank in axes), term.rank)
        return apply("reshape", x, shape=tuple(shape[new:])) if tuple(shape[new:]) != x.shape else x

    def nested(self, term: Term) -> list[Term]:
        operands = [term.args[0]]
        rest = term.args[1]
        while rest.op == term.op and rest.attributes == term.attributes and self.uses[rest] == 1 and not self._ready(rest):
            operands.append(rest.args[0])
            rest = rest.args[1]
        return [*operands, rest]

    def chain(self, op_type: str, term: Term) -> str:
        return self._chained(op_type, term, self.operands.get(term, term.args), None)

    # ------------------------------------------------------------ sums, products and biases

    def _chained(self, op_type: str, term: Term, operands: Iterable[Term], first: str | None) -> str:
        """The operands combined from left to right, after `first`, a value of the term's shape, where there is one."""
        if operator(term.op).commutative and self.constant is not None:
            operands = _with_constants_merged(term.op, operands)
        operands = list(operands)
        inputs = [self.aligned(x) if x.op == "expand" and x not in self.names else x for x in operands]
        if first is None and np.broadcast_shapes(*(x.sizes for x in inputs)) != term.shape:
            inputs[0] = operands[0]
        names = [*([] if first is None else [first]), *map(self.name_of, inputs)]
        return functools.reduce(lambda result, name: self(op_type, result, name), names)

    def _host(self, term: Term) -> Term | None:
        """An operand that nothing else uses and that one node computes together with the sum's biases (see `op.Operator`)."""
        if term.op == "add":
            for host in self.operands[term]:
                if self.uses[host] == 1 and not self._ready(host) and _biases(host, self.operands[term]):
                    return host
        return None

    def _with_bias(self, term: Term, host: Term) -> str:
        biases = _biases(host, self.operands[term])
        rest = list((Counter(self.operands[term]) - Counter([host, *biases])).elements())
        rows = [b.args[0] for b in biases]
        composite = _taking_bias(host)
        assert composite is not None
        name: str = composite.module.lower_biased(host, apply("add", *rows) if len(rows) > 1 else rows[0], self)
        return self._chained("Add", term, rest, name) if rest else name

    # ------------------------------------------------------------ nodes and initializers

    def _split(self, term: Term) -> str:
        slices = self.splits[term]
        x, axis = term.args[0], term.integer("axis")
        sizes = tuple(s.sizes[axis] for s in slices)
        names = self._emit("Split", (x,), {"axis": axis + x.rank, "split": sizes}, outputs=len(slices))
        self.names.update(zip(slices, names, strict=True))
        return self.names[term]

    def _emit(self, op_type: str, inputs: Iterable[Any], attributes: Mapping[str, Any], outputs: int) -> tuple[str, ...]:
        schema = _schema(op_type, self.opset)
        names = [self._input(x) for x in inputs]
        written: list[tuple[str, AttributeValue]] = []
        for name, value in attributes.items():
            if name in schema.attributes:
                written.append((name, value))
            else:
                position = _input_position(schema, name, self.opset)
                names += [""] * (position + 1 - len(names))
                names[position] = self._initializer(np.asarray(value, dtype=np.int64))
        results = tuple(self._fresh(op_type) for _ in range(outputs))
        self.nodes.append(NodeText(op_type, tuple(names), results, tuple(written)))
        return results

    def _input(self, given: Any) -> str:
        match given:
            case None:
                return ""
            case str():
                return given
            case Term():
                return self.name_of(given)
            case int() | float() | Fraction():
                return self._initializer(np.asarray(float(given), dtype=self.dtype))
            case _:
                return self._initializer(np.asarray(given))

    def _initializer(self, array: Array) -> str:
        small = array.size <= SMALL
        key = (array.dtype.str, array.shape, array.tobytes()) if small else (id(array),)
        if key not in self.stored:
            self.stored[key] = self._fresh("constant")
            self.initializers[self.stored[key]] = array
        return self.stored[key]

    def _fresh(self, stem: str) -> str:
        return f"{self.prefix}{stem}.{next(self.numbers)}"


def _parts(term: Term, live: Sequence[Term]) -> tuple[Term, ...]:
    """What to combine for a term: of a sum or product, parts that are wanted anyway, the longest first, then what is left."""
    if not operator(term.op).commutative or len(term.args) == 2:
        return term.args
    left = Counter(term.args)
    chosen: list[Term] = []
    for part in sorted((p for p in live if p.op == term.op and p is not term), key=lambda p: -len(p.args)):
        if not Counter(part.args) - left:
            left -= Counter(part.args)
            chosen.append(part)
    return (*chosen, *left.elements())


def _with_constants_merged(op: str, operands: Iterable[Term]) -> list[Term]:
    """The operands with those that are constant combined, at the end: under one `expand` where all have the same."""
    given = list(operands)
    others, constants = [x for x in given if not x.constant], [x for x in given if x.constant]
    if len(constants) < 2:
        return [*others, *constants]
    if all(x.op == "expand" and x.attributes == constants[0].attributes for x in constants):
        inner = apply(op, *(x.args[0] for x in constants))
        return [*others, apply("expand", inner, **dict(constants[0].attributes))]
    return [*others, apply(op, *constants)]


def _biases(host: Term, operands: Iterable[Term]) -> list[Term]:
    """Those of the operands that one ONNX node can add to what the host computes."""
    composite = _taking_bias(host)
    axes = () if composite is None else (composite.module.bias_axis(host),)
    return [x for x in operands if x.constant and x.op == "expand" and x.integers("axes") == axes != ()]


def _taking_bias(host: Term) -> Operator | None:
    """The composite that is the host with a bias."""
    composites = (spec for spec in registry().values() if hasattr(spec.module, "bias_axis"))
    return next((spec for spec in composites if spec.module.bias_axis(host) is not None), None)


def _splits(live: Iterable[Term]) -> dict[Term, tuple[Term, ...]]:
    """For each slice that belongs to a set of slices which tile an axis of their operand: that set, in order."""
    groups: dict[tuple[Term, int], list[Term]] = {}
    for term in live:
        if term.op == "slice":
            groups.setdefault((term.args[0], term.integer("axis")), []).append(term)
    tiled: dict[Term, tuple[Term, ...]] = {}
    for (x, axis), slices in groups.items():
        slices.sort(key=lambda s: s.integer("start"))
        stops = [s.integer("stop") for s in slices]
        if [0, *stops[:-1]] == [s.integer("start") for s in slices] and stops[-1] == x.sizes[axis]:
            tiled.update(dict.fromkeys(slices, tuple(slices)))
    return tiled


def _schema(op_type: str, opset: int) -> OpSchema:
    try:
        return onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        raise ShapeError(f"opset {opset} has no {op_type}") from None


def _input_position(schema: OpSchema, name: str, opset: int) -> int:
    for position, formal in enumerate(schema.inputs):
        if formal.name == name:
            return position
    raise ShapeError(f"{schema.name} has no {name} at opset {opset}")


def _renamed(node: NodeText, titles: Mapping[str, str]) -> NodeText:
    inputs, outputs = (tuple(titles.get(name, name) for name in names) for names in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)


def _needed(nodes: Sequence[NodeText], outputs: Iterable[str]) -> list[NodeText]:
    """The nodes that the outputs depend on."""
    wanted = set(outputs)
    kept: list[NodeText] = []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]


# ---------------------------------------------------------------- a model of its own


def model_of(
    lowered: Lowered, inputs: Iterable[Term], outputs: Mapping[str, Term], opset: int, dtype: npt.DTypeLike = np.float32
) -> ModelProto:
    """A model that takes the variables `inputs` and returns the terms that `lowered` computes under the names in `outputs`."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [_node(n) for n in lowered.nodes],
        "terms",
        [info(x.name, kind, x.sizes) for x in inputs],
        [info(name, kind, term.sizes) for name, term in outputs.items()],
        [onnx.numpy_helper.from_array(np.asarray(a, order="C"), name) for name, a in lowered.initializers.items()],
    )
    imports = [onnx.helper.make_opsetid("", opset)]
    version = max(IR_VERSION, onnx.helper.find_min_ir_version_for(imports))
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=version)


def _node(text: NodeText) -> NodeProto:
    node = onnx.helper.make_node(text.op_type, text.inputs, text.outputs)
    for name, value in text.attributes:
        kind = AttributeProto.INTS if isinstance(value, tuple) else None
        node.attribute.append(onnx.helper.make_attribute(name, value, attr_type=kind))
    return node
