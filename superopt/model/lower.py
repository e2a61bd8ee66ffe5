"""Lowering: write terms as ONNX nodes, using the operator definitions in specs/ and the opset of the target model.

Lowering writes the usual ONNX forms. An `expand` is left out where ONNX broadcasts. Slices that together cover an axis become
one Split. A bias becomes part of its convolution or Gemm. Weight-only terms become initializers.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx.helper
import onnx.numpy_helper
from onnx import TensorProto
from onnx.defs import OpSchema

from superopt.algebra.operators import apply, operator, registry
from superopt.algebra.terms import Extent, Shape, Term, subterms, variables
from superopt.errors import ShapeError
from superopt.model.booleans import MOVERS, resolve_booleans
from superopt.model.dynamic_lowering import flattened_axis, has_dynamic_dimensions, numeric, unit_axes
from superopt.model.epilogues import ROLES, emit_epilogue, fusable_operands, row
from superopt.model.image_blocks import rewrite_block_transpose
from superopt.model.keepdims import sink_unit_axes
from superopt.model.operands import (
    fold_literal_term,
    merge_constants,
    order_lowered_operands,
    positions,
    tilings,
    uniform_constant_operand,
)
from superopt.policy import MODEL
from superopt.protobuf.nodes import (
    AttributeValue,
    Deferred,
    Lowered,
    NodeText,
    needed_nodes,
    rename_values,
    schema_input_position,
    schema_of,
    shorten_reshape_chains,
)
from superopt.speclib.composite import unfolded, without
from superopt.speclib.gather_nd import unflattened

Array: TypeAlias = "npt.NDArray[Any]"
Constants: TypeAlias = "Callable[[Term], Array | Deferred]"
Inverse: TypeAlias = "tuple[str, Callable[[Term], Term | None]]"


def lower(
    outputs: Mapping[str, Term],
    opset: int,
    *,
    constant: Constants | None = None,
    dtype: npt.DTypeLike = np.float32,
    prefix: str = "superopt.",
    conditions: Collection[str] | None = None,
) -> Lowered:
    """Return ONNX nodes that compute the terms in `outputs`. The key of a term in `outputs` is the name of its result.

    A variable of the terms stands for the value with the same name. If there are dynamic dimensions, the nodes are right at all
    sizes (see `dynamic_lowering`).

    Args:
        outputs: the terms, by the names of their results.
        opset: the opset of the nodes.
        constant: a function that computes the value of a weight-only term. Weight-only terms that are not variables become
            initializers with these values. If `constant` is None, only terms without variables become initializers, and nodes
            compute the other weight-only terms.
        dtype: the type in which numbers are stored.
        prefix: the prefix of every new name.
        conditions: the names of the outputs that are booleans. All other outputs are numbers. By default, `conditions` contains
            the outputs whose terms are computed as booleans (see `booleans`).

    Raises:
        ShapeError: the opset has no operators for a term, or no nodes compute a term at all sizes of the dynamic dimensions.
    """
    while True:
        try:
            return _Lowering(outputs, opset, constant, np.dtype(dtype), prefix, conditions).run()
        except _UnavailableError as error:
            outputs = dict(zip(outputs, without(str(error), tuple(outputs.values())), strict=True))


class _UnavailableError(ShapeError):
    """The opset has no node for a composite operator. A composite operator is an operator of the algebra that is defined by a
    term of simpler operators.

    The message of the error is the name of the composite operator.
    """


@functools.lru_cache(maxsize=1 << 16)
def is_boolean(term: Term) -> bool:
    """Return whether ONNX nodes compute the term as booleans, as they do for a comparison or a transposed condition."""
    if term.is_variable:
        return term.condition
    if not any(t.condition or t.op in _comparisons() for t in subterms(term)):
        return False
    try:
        return bool(lower({"term": term}, onnx.defs.onnx_opset_version()).booleans)
    except ShapeError:
        return False


@functools.cache
def _comparisons() -> frozenset[str]:
    """Return the names of the operators in superopt's algebra that stand for boolean ONNX operators.

    An ONNX operator is boolean if it returns booleans for every input type, as Less does.
    """
    yields = {s.name: resolve_booleans(s, [], 1)[1] for s in onnx.defs.get_all_schemas() if s.domain == "" and s.outputs}
    return frozenset(n for n, o in registry().items() if o.definition and any(yields.get(t) == [True] for t in o.onnx))


def _broadcast_shape(terms: Sequence[Term]) -> Shape:
    """Return the shape to which ONNX broadcasts the terms.

    An extent that is 1 only at some sizes is treated as different from 1.
    """
    columns = itertools.zip_longest(*(reversed(x.shape) for x in terms), fillvalue=1)
    return tuple(next((n for n in column if n != 1), 1) for column in columns)[::-1]


@dataclass
class _Lowering:
    """The state of a translation of terms into ONNX nodes.

    The class implements `op.Emit`, the interface through which the code in specs/ writes nodes.
    """

    wanted: Mapping[str, Term]
    opset: int
    constant: Constants | None
    dtype: np.dtype[Any]
    prefix: str
    conditions: Collection[str] | None = None
    booleans: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    casts: dict[str, str] = field(default_factory=dict)
    nodes: list[NodeText] = field(default_factory=list)
    initializers: dict[str, Array | Deferred] = field(default_factory=dict)
    names: dict[Term, str] = field(default_factory=dict)
    stored: dict[tuple[object, ...], str] = field(default_factory=dict)
    symbolic: dict[str, tuple[Extent, ...]] = field(default_factory=dict)
    shared: dict[tuple[object, ...], tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = itertools.count()
        self.live = self._live()
        self.operands = {term: order_lowered_operands(term, self.live) for term in self.live}
        self.uses = Counter(x for operands in self.operands.values() for x in operands)
        self.uses.update(self.wanted.values())
        self.hosts = {term: host for term in self.live if (host := self._host(term)) is not None}
        tiled = tilings(self.live)
        self.splits = {s: of for s, of in tiled.items() if all(isinstance(t.shape[t.integer("axis")], int) for t in of)}

    def run(self) -> Lowered:
        joined = (x for term in self.live if term.op == "concat" for x in term.args if self._is_joined(x, term))
        inside = {*self.hosts.values(), *joined}
        for term in self.live:
            if term.op != "expand" and term not in inside:
                self.name_of(term)
        titles: dict[str, str] = {}
        booleans: set[str] = set()
        for name, term in self.wanted.items():
            found = self.name_of(term)
            boolean = found in self.booleans if self.conditions is None else name in self.conditions
            value = self._cast(found, boolean=boolean)
            if value in titles or value in self.initializers or (self._ready(term) and value == found):
                self.nodes.append(NodeText("Identity", (value,), (name,)))
            else:
                titles[value] = name
            booleans.update([name] if boolean else [])
        shapes: dict[str, Shape] = {titles.get(name, name): term.shape for term, name in self.names.items()}
        renamed = [rename_values(node, titles) for node in self.nodes]
        nodes = needed_nodes(shorten_reshape_chains(renamed, shapes, self.wanted), self.wanted)
        if self.symbolic or any(has_dynamic_dimensions(value) for node in nodes for _, value in node.attributes):
            nodes = self._numeric(nodes, shapes)
        read = {name for node in nodes for name in node.inputs}
        stored = {name: array for name, array in self.initializers.items() if name in read}
        return Lowered(tuple(nodes), stored, frozenset(booleans), shapes)

    def _numeric(self, nodes: Iterable[NodeText], shapes: dict[str, Shape]) -> list[NodeText]:
        """Replace expressions over the dynamic dimensions by constants from which ONNX derives the same values at run time."""
        given: dict[str, Sequence[Extent]] = {
            name: [int(n) for n in array.tolist()]
            for name, array in self.initializers.items()
            if not isinstance(array, Deferred)
            and array.dtype.kind == "i"
            and array.ndim == 1
            and array.size <= MODEL.max_shared_elements
        }
        given.update(self.symbolic)
        found: list[NodeText] = []
        for node in nodes:
            for name in (*node.inputs, *node.outputs):
                if name not in shapes and name in self.initializers:
                    shapes[name] = self.initializers[name].shape
            units = unit_axes(node, given.get(node.inputs[1], ()), shapes) if node.inputs[1:] else None
            if units is not None and node.inputs[1] in self.symbolic:
                found += self._with_units(node, *units)
                continue
            axis = flattened_axis(node, given.get(node.inputs[1], ()), shapes) if node.inputs[1:] else None
            if axis is not None:
                found.append(NodeText("Flatten", node.inputs[:1], node.outputs, (("axis", axis),)))
                continue
            written, operands = numeric(node, given, shapes)
            inputs = list(written.inputs)
            for position, numbers in operands.items():
                inputs[position] = self._initializer(np.asarray(numbers, dtype=np.int64))
            found.append(replace(written, inputs=tuple(inputs)))
        return found

    # ------------------------------------------------------------ terms that nodes compute

    def _ready(self, term: Term) -> bool:
        """Return whether the term needs no node: it is a variable, or becomes an initializer."""
        if term.is_variable:
            return True
        fixed = all(isinstance(n, int) for n in term.shape)
        return term.constant and fixed and (self.constant is not None or not variables(term))

    def _is_spread(self, term: Term) -> bool:
        """Return whether the term is a single constant number that is broadcast to a shape with dynamic extents."""
        return term.constant and not all(isinstance(n, int) for n in term.shape) and uniform_constant_operand(term) is not None

    def _live(self) -> list[Term]:
        """Return the terms that nodes compute. Each term comes after its operands.

        Terms that become initializers, and terms that are needed only for initializers, are left out.
        """
        order: dict[Term, None] = {}
        stack = [(root, False) for root in reversed(list(self.wanted.values())) if not self._ready(root)]
        while stack:
            term, done = stack.pop()
            if done:
                order.setdefault(term)
            elif term not in order:
                stack.append((term, True))
                below = (a for a in reversed(term.args) if a not in order and not self._ready(a) and not self._is_spread(a))
                stack.extend((a, False) for a in below)
        return list(order)

    def name_of(self, term: Term) -> str:
        """Return the name of a value that equals the term. If no value equals the term yet, nodes that compute the term are
        added.
        """
        if term not in self.names:
            self.names[term] = self._computed(term)
        return self.names[term]

    def _computed(self, term: Term) -> str:
        if term.is_variable:
            self.booleans.update([term.name] if term.condition else [])
            return self._position(term) if term.position else term.name
        if self._ready(term):
            return self._initializer(fold_literal_term(term, self.dtype) if self.constant is None else self.constant(term))
        if not term.args:
            raise ShapeError(f"the shape of the constant {term.op} depends on the dynamic dimensions")
        if term in self.splits:
            return self._split(term)
        moved = (
            sink_unit_axes(term, self.alone)
            or unflattened(term, self.alone)
            or (rewrite_block_transpose(term) if self._may_block(term) else None)
        )
        if moved is not None:
            return self.name_of(moved)
        if term in self.hosts:
            return self._with_host(term, self.hosts[term])
        spec = operator(term.op)
        if spec.lower is None:
            raise ShapeError(f"the operator {term.op} has no lowering to ONNX nodes")
        try:
            return spec.lower(term, self)
        except _UnavailableError:
            raise
        except ShapeError as error:
            if unfolded(term) is None:
                raise
            raise _UnavailableError(term.op) from error

    def _with_units(self, node: NodeText, dropped: Sequence[int], added: Sequence[int]) -> Iterator[NodeText]:
        """Yield nodes that replace a Reshape: a Squeeze of the axes `dropped` and an Unsqueeze of the axes `added`.

        A node without axes is left out. If both nodes are left out, an Identity is yielded.
        """
        source, (target,) = node.inputs[0], node.outputs
        steps = [(op, axes) for op, axes in (("Squeeze", dropped), ("Unsqueeze", added)) if axes]
        for place, (op_type, axes) in enumerate(steps or [("Identity", ())]):
            name = target if place + 1 >= len(steps) else self._fresh(op_type)
            if not axes:
                yield NodeText(op_type, (source,), (name,))
            elif "axes" in schema_of(op_type, self.opset).attributes:
                yield NodeText(op_type, (source,), (name,), (("axes", tuple(axes)),))
            else:
                yield NodeText(op_type, (source, self._initializer(np.asarray(axes, dtype=np.int64))), (name,))
            source = name

    def _may_block(self, term: Term) -> bool:
        """Return whether the term is a transpose that DepthToSpace or SpaceToDepth may replace (see `image_blocks`).

        The elements must be floating-point numbers of at least 32 bits, because all kernels of these operators accept such
        numbers.
        """
        fixed = all(isinstance(n, int) for n in term.shape)
        return fixed and self.dtype.itemsize >= 4 and term.op == "transpose" and self._kind(self.name_of(term.args[0])) is False

    # ------------------------------------------------------------ op.Emit

    def __call__(self, op_type: str, *inputs: object, **attributes: AttributeValue) -> str:
        return self._emit(op_type, inputs, attributes, outputs=1)[0]

    def several(self, op_type: str, *inputs: object, outputs: int, **attributes: AttributeValue) -> tuple[str, ...]:
        names = self._inputs(op_type, inputs)
        key = op_type, names, tuple(sorted(attributes.items())), outputs
        if key not in self.shared:
            self.shared[key] = self._emit(op_type, names, attributes, outputs)
        return self.shared[key]

    def aligned(self, term: Term) -> Term:
        x, axes = term.args[0], term.integers("axes")
        shape = [term.sizes[a] if a in axes else 1 for a in range(-term.rank, 0)]
        new = next((position for position in range(term.rank) if position - term.rank in axes), term.rank)
        while x.op == "reshape" and x.shape != tuple(shape[new:]):
            x = x.args[0]
        return apply("reshape", x, shape=tuple(shape[new:])) if tuple(shape[new:]) != x.shape else x

    def alone(self, term: Term) -> bool:
        return self.uses[term] == 1 and not self._ready(term)

    def inputs(self, term: Term) -> list[Term]:
        given = [self._broadcast(x) for x in term.args]
        return given if _broadcast_shape(given) == term.shape else [term.args[0], *given[1:]]

    def integers(self, term: Term, extent: int) -> str:
        if self.constant is None or not term.constant:
            name = self.name_of(term)
            if name not in self.whole:
                name = self("Cast", name, to=TensorProto.INT64)
                self.whole.add(name)
            return name
        key = ("positions", term, extent)
        if key not in self.stored:
            self.stored[key] = self._initializer(positions(self.constant(term), extent))
        return self.stored[key]

    def nested(self, term: Term) -> list[Term]:
        operands, stack = list[Term](), [*reversed(term.args)]
        while stack:
            x = stack.pop()
            inside = self._is_joined(x, term)
            (stack if inside else operands).extend(reversed(x.args) if inside else [x])
        return operands

    def _is_joined(self, x: Term, term: Term) -> bool:
        """Return whether the node of the term also computes its argument `x`, so that `x` needs no node."""
        return x.op == term.op and x.attributes == term.attributes and self.alone(x)

    def chain(self, op_type: str, term: Term, inverse: Inverse | None = None) -> str:
        return self._chained(op_type, term, self.operands.get(term, term.args), None, inverse)

    # ------------------------------------------------------------ sums, products and biases

    def _chained(
        self, op_type: str, term: Term, operands: Iterable[Term], first: str | None, inverse: Inverse | None = None
    ) -> str:
        """Write nodes of the operator `op_type` that combine the operands from left to right, and return the result's name.

        `term` is the sum or product that the nodes compute. If `first` is not None, it is the name of a value that has the
        term's shape, and the nodes combine this value with the operands. `inverse` gives a different operator for some
        operands. For example, a negated operand of a sum is subtracted by a Sub.
        """
        if operator(term.op).commutative and self.constant is not None:
            operands = merge_constants(term.op, operands)
        steps = self._steps(op_type, list(operands), inverse)
        inputs = [self._broadcast(x) for _, x in steps]
        if first is None and _broadcast_shape(inputs) != term.shape:
            inputs[0] = steps[0][1]
        names = [*([] if first is None else [first]), *map(self.name_of, inputs)]
        if schema_of(op_type, self.opset).inputs[-1].option == OpSchema.FormalParameterOption.Variadic:
            return self(op_type, *names)
        types = [step for step, _ in steps][first is None :]
        return functools.reduce(
            lambda result, step: self(step[0], result, step[1]), zip(types, names[1:], strict=True), names[0]
        )

    def _steps(self, op_type: str, operands: list[Term], inverse: Inverse | None) -> list[tuple[str, Term]]:
        """Return a pair (ONNX operator, operand) for each operand of a chain such as a sum, in the order of the emitted nodes.

        For example, an operand `-x` of a sum becomes `Sub` and `x`. The first pair has the operator `op_type`.
        """
        steps: list[tuple[str, Term]] = []
        for x in operands:
            under = x.args[0] if x.op == "expand" else x
            what = inverse[1](under) if inverse and self.alone(under) and (under is x or self.alone(x)) else None
            if inverse is None or what is None:
                steps.append((op_type, x))
            else:
                steps.append((inverse[0], what if under is x else apply("expand", what, **dict(x.attributes))))
        plain = next((step for step in steps if step[0] == op_type), (op_type, operands[0]))
        return [plain, *(step for step in (steps if plain in steps else steps[1:]) if step is not plain)]

    def _broadcast(self, x: Term) -> Term:
        """Return a smaller term that ONNX broadcasts to `x`, or `x` itself.

        If `x` is an `expand`, the smaller term is its operand. If all elements of `x` are known to be equal, the smaller term
        has rank 0.
        """
        if x.op == "expand" and x not in self.names:
            return self.aligned(x)
        return uniform_constant_operand(x) or x

    def _host(self, term: Term) -> Term | None:
        """Return an operand of the term such that other operands can be fused into the ONNX node of this operand. Return None
        if there is no such operand.

        For example, a Conv node can compute a convolution and also add a bias. So if the term is the sum of a convolution and a
        bias, the convolution is returned (see `epilogues`). The returned operand has no other users.
        """
        hosts = self.operands[term] if term.op in ROLES else ()
        return next((x for x in hosts if self.alone(x) and fusable_operands(term.op, x, self.operands[term])), None)

    def _with_host(self, term: Term, host: Term) -> str:
        rows = fusable_operands(term.op, host, self.operands[term])
        rest = list((Counter(self.operands[term]) - Counter([host, *rows])).elements())
        under = [row(term.op, host, x) for x in rows]
        name = emit_epilogue(term.op, host, apply(term.op, *under) if len(under) > 1 else under[0], self)
        return self._chained(ROLES[term.op][2], term, rest, name) if rest else name

    # ------------------------------------------------------------ nodes and initializers

    def _split(self, term: Term) -> str:
        slices = self.splits[term]
        x, axis = term.args[0], term.integer("axis")
        sizes = tuple(s.sizes[axis] for s in slices)
        names = self._emit("Split", (x,), {"axis": axis + x.rank, "split": sizes}, outputs=len(slices))
        self.names.update(zip(slices, names, strict=True))
        return self.names[term]

    def _emit(
        self, op_type: str, inputs: Iterable[object], attributes: Mapping[str, AttributeValue], outputs: int
    ) -> tuple[str, ...]:
        names = [*self._inputs(op_type, inputs)]
        if "." in op_type:
            return self._contrib(op_type, names, attributes, outputs)
        schema = schema_of(op_type, self.opset)
        wanted, yielded = resolve_booleans(schema, [self._kind(name) for name in names], outputs)
        names = [name if kind is None else self._cast(name, boolean=kind) for name, kind in zip(names, wanted, strict=True)]
        written: list[tuple[str, AttributeValue]] = []
        for name, value in attributes.items():
            if name in schema.attributes:
                written.append((name, value))
            else:
                position = schema_input_position(schema, name, self.opset)
                names += [""] * (position + 1 - len(names))
                if isinstance(value, tuple) and has_dynamic_dimensions(value):
                    names[position] = self._symbolic(value)
                else:
                    names[position] = self._initializer(np.asarray(value, dtype=np.int64))
        results = tuple(self._fresh(op_type) for _ in range(outputs))
        self.nodes.append(NodeText(op_type, tuple(names), results, tuple(written)))
        self.booleans.update(itertools.compress(results, yielded))
        self.whole.update(results if op_type in MOVERS and names[0] in self.whole else ())
        return results

    def _contrib(
        self, op_type: str, names: Sequence[str], attributes: Mapping[str, AttributeValue], outputs: int
    ) -> tuple[str, ...]:
        """Add a node of a non-standard domain, and return its outputs.

        Inputs and outputs of such a node are numbers, not booleans.
        """
        numbers = tuple(self._cast(name, boolean=False) for name in names)
        results = tuple(self._fresh(op_type) for _ in range(outputs))
        self.nodes.append(NodeText(op_type, numbers, results, tuple(attributes.items())))
        return results

    def _position(self, term: Term) -> str:
        """Return the name of an integer variable's value. If another integer variable has a wider type, the value is cast to
        this type.
        """
        most = max(x.position for x in variables(*self.wanted.values()))
        name = self("Cast", term.name, to=TensorProto.INT64) if term.position < most else term.name
        self.whole.add(name)
        return name

    def _kind(self, name: str) -> bool | None:
        """Return whether the value is a boolean. Return None if the value is neither a boolean nor a floating-point number.

        The result is also None for an empty name, which stands for an absent input.
        """
        stored = self.initializers.get(name)
        known = name and name not in self.whole and (stored is None or stored.dtype.kind in "fb")
        return name in self.booleans if known else None

    def _cast(self, name: str, *, boolean: bool) -> str:
        """Cast the value to booleans, or to numbers if `boolean` is False, and return the name of the result. If the value
        already has the wanted type, no cast is added.
        """
        if (name in self.booleans) == boolean:
            return name
        if name not in self.casts:
            stored = self.initializers.get(name)
            dtype = np.dtype(np.bool_) if boolean else self.dtype
            if stored is not None:
                self.casts[name] = self._initializer(stored.astype(dtype))
            else:
                self.casts[name] = self._fresh("Cast")
                element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
                self.nodes.append(NodeText("Cast", (name,), (self.casts[name],), (("to", element),)))
                self.booleans.update([self.casts[name]] if boolean else [])
        return self.casts[name]

    def _inputs(self, op_type: str, inputs: Iterable[object]) -> tuple[str, ...]:
        """Return the names of a node's inputs.

        Constants have the type of the nodes. If the operator takes only float32 at a position, the constant there is float32.
        """
        formal = () if "." in op_type else schema_of(op_type, self.opset).inputs
        fixed = {position for position, parameter in enumerate(formal) if parameter.type_str == "tensor(float)"}
        types = (np.dtype(np.float32) if position in fixed else self.dtype for position in itertools.count())
        return tuple(map(self._input, inputs, types))

    def _input(self, given: object, dtype: np.dtype[Any]) -> str:
        match given:
            case None:
                return ""
            case str():
                return given
            case Term():
                return self.name_of(given)
            case int() | float() | Fraction():
                return self._initializer(self._number(given, dtype))
            case _:
                array = np.asarray(given)
                if array.dtype.kind == "O":
                    raise ShapeError("a constant operand of an ONNX node depends on the dynamic dimensions")
                return self._initializer(array.astype(dtype) if array.dtype.kind == "f" else array)

    def _number(self, given: float | Fraction, dtype: np.dtype[Any]) -> Array:
        """Return the number in the given type.

        Raises:
            ShapeError: The type cannot represent `given` or a number near it. For example, 1e-8 becomes 0 in float16.
        """
        try:
            number = float(given)
        except OverflowError:
            raise ShapeError(f"the type {dtype} cannot represent a number, because the number is too large") from None
        with np.errstate(over="ignore"):
            found = np.asarray(number, dtype=dtype)
        far = float(found) != number and abs(float(found) - number) > MODEL.max_rounding_share * abs(number)
        if far and math.isfinite(number):
            raise ShapeError(f"the type {dtype} cannot represent {number:g}, not even approximately")
        return found

    def _symbolic(self, numbers: Iterable[Extent]) -> str:
        """Create a constant whose elements are expressions over the dynamic dimensions, and return its name.

        Numbers replace the expressions when all nodes that read the constant have been written.
        """
        name = self._fresh("constant")
        self.symbolic[name] = tuple(numbers)
        return name

    def _initializer(self, array: Array | Deferred) -> str:
        held = None if isinstance(array, Deferred) or array.size > MODEL.max_shared_elements else array.tobytes()
        key = (id(array),) if held is None else (array.dtype.str, array.shape, held)
        if key not in self.stored:
            self.stored[key] = self._fresh("constant")
            self.initializers[self.stored[key]] = array
            self.booleans.update([self.stored[key]] if array.dtype == np.bool_ else [])
        return self.stored[key]

    def _fresh(self, stem: str) -> str:
        return f"{self.prefix}{stem}.{next(self.numbers)}"
