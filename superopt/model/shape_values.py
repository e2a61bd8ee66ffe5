"""Infer shapes, and the results of shape computations, as expressions over the dynamic dimensions.

`ShapeValues` walks over all nodes, and repeats the walk while it finds new assumptions, up to a total of
`MODEL.max_assumption_rounds` walks. A walk computes the shape of each value, and the elements of each small tensor of integers
or booleans. Sizes and elements are `Extent` and `Cond` expressions (see `superopt.algebra.integers`) that are right at all
sizes at which the model runs, including 0. Each element or size that depends on the data of the inputs, and not only on their
sizes, is represented by its own symbol for an unknown integer. If no element of a tensor depends on sizes or data, the tensor
is stored in the attribute `const_value` of the `ir.Value`.

Constraints that the model itself imposes are assumed, and are listed in `assumptions`. An example is that the inner dimensions
of a matrix product are equal.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx.defs
import onnx_ir as ir
from onnx import TypeProto, helper
from onnx.shape_inference import infer_node_outputs
from onnx_ir.serde import serialize_node, serialize_tensor

from superopt.algebra.extent import (
    AllOf,
    AnyOf,
    Atom,
    Compare,
    Cond,
    Dim,
    Extent,
    Indicator,
    Size,
    Sym,
    at_least,
    atoms,
    collect,
    conjunction,
    disjunction,
    same,
    sides,
    size,
    terms_of,
)
from superopt.algebra.integers import (
    absolute,
    choose,
    decide,
    floor_quotient,
    indicator,
    is_long,
    is_unknown,
    maximum,
    minimum,
    normal,
    normal_condition,
    prove,
    prove_equal,
    remainder,
    replace_atoms,
    truncated_quotient,
    truncated_remainder,
    unknown_integer,
    unknown_size,
)
from superopt.algebra.substitution import negation
from superopt.algebra.terms import Shape, Term, variable
from superopt.errors import ShapeError
from superopt.model.lift import (
    BITS,
    FLOATS,
    STANDARD,
    constant_tensor,
    is_standard,
    leaf_of,
    lift_node,
    results_of,
)
from superopt.model.shape_inference import ALIKE, FOLDED, constant_value, with_onnx_shapes
from superopt.policy import MODEL
from superopt.speclib.slice_bounds import require_end, slice_bound

Element: TypeAlias = "Extent | Cond"
Contents: TypeAlias = "npt.NDArray[np.object_]"
EXACT = 1 << 21
"""A bound below which float32 represents every multiple of 1/8 exactly."""
CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})
# fmt: off
BROADCAST = frozenset(
    {
        "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less",
        "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
    }
)
# fmt: on
"""Operators that broadcast their operands. The result has the broadcast shape."""


class ShapeValues:
    """The shapes of a model's values, and the elements of small integer tensors, as expressions over the dynamic dimensions.

    The expressions are right at all sizes at which the model runs. `dimensions` maps the input and axis of each dynamic
    dimension to the expression for this dimension. The model is modified in place: the computed shapes and constants are stored
    in its values.
    """

    def __init__(self, model: ir.Model, opset: int, dimensions: Mapping[tuple[ir.Value, int], Size]) -> None:
        self.model, self.opset = model, opset
        self.shapes: dict[ir.Value, Shape] = {}
        self.contents: dict[ir.Value, Contents] = {}
        self.assumptions: dict[str, None] = {}
        self._dimensions = dimensions
        self._equal: dict[Dim, Extent] = {}
        self._held: dict[Cond, None] = {}
        self._seeded = self._inferred()
        for _ in range(MODEL.max_assumption_rounds):
            known = len(self._equal), len(self._held)
            self._run()
            if (len(self._equal), len(self._held)) == known:
                break
        self._note()

    def shape(self, value: ir.Value) -> Shape | None:
        """Return the value's shape, or None if the rank is not known."""
        return self.shapes.get(value)

    def content(self, value: ir.Value) -> Contents | None:
        """Return the elements of a small tensor as expressions. Return None if the elements are not known as expressions."""
        return self.contents.get(value)

    # ------------------------------------------------------------ inference by onnx

    def _inferred(self) -> dict[ir.Value, tuple[str | int | None, ...]]:
        """Return the shapes that the package onnx infers, including shapes in control flow bodies and functions.

        Each extent is a number, a name, or None if the extent is not known.
        """
        titles = {f"superopt.d{n}": extent for n, extent in enumerate(dict.fromkeys(self._dimensions.values()))}
        names = {extent: title for title, extent in titles.items()}
        for value in self.model.graph.inputs:
            if value.shape is not None:
                value.shape = ir.Shape(
                    [
                        ir.SymbolicDim(names[self._dimensions[value, axis]]) if (value, axis) in self._dimensions else extent
                        for axis, extent in enumerate(value.shape)
                    ]
                )
        for node in self._nodes():
            for value in node.outputs if node.domain in STANDARD and node.op_type not in CONTROL else ():
                value.shape = None
        for value in self.model.graph.outputs:
            if value.producer() is not None:
                value.shape = None
        self._titles = titles
        copy = with_onnx_shapes(self.model.clone())
        found: dict[ir.Value, tuple[str | int | None, ...]] = {}
        for mine, other in zip(_values(self.model), _values(copy), strict=True):
            if other.shape is not None:
                found[mine] = tuple(d if isinstance(d, int) else d.value for d in other.shape)
            if mine.type is None:
                mine.type = other.type
        return found

    def _seed(self, value: ir.Value) -> Shape | None:
        found = self._seeded.get(value)
        return None if found is None else tuple(self._dimension(d) for d in found)

    def _dimension(self, extent: int | str | None) -> Extent:
        if isinstance(extent, int):
            return extent
        known = self._titles.get(extent or "")
        return self._fresh_size() if known is None else self._equated(known)

    # ------------------------------------------------------------ the walk

    def _run(self) -> None:
        self.shapes, self.contents, self._runs = {}, {}, False
        self._fresh = itertools.count()
        for graph in self.model.graphs():
            for value in (*graph.inputs, *graph.initializers.values()):
                tensor = constant_tensor(value)
                if tensor is not None:
                    self.shapes[value] = tuple(tensor.shape.numpy())
                elif (shape := self._seed(value)) is not None:
                    self.shapes[value] = shape
        for node in self._nodes():
            self._visit(node)

    def _nodes(self) -> Iterator[ir.Node]:
        return iter(ir.traversal.RecursiveGraphIterator(self.model.graph))

    def _visit(self, node: ir.Node) -> None:
        outputs = [v for v in node.outputs if v.name]
        self._runs = node.graph is self.model.graph and any(v.uses() or v.is_graph_output() for v in outputs)
        for value, shape in zip(node.outputs, self._shapes_of(node), strict=False):
            if value.name and shape is not None:
                self.shapes[value] = tuple(map(self._short, shape))
        if any(v.type is None for v in outputs) and is_standard(node, self.opset):
            self._by_schema(node)
        if len(outputs) == 1 or node.op_type == "Split":
            self._fill(node, outputs)

    def _short(self, extent: Extent) -> Extent:
        """Return the expression in normal form. If the normal form is too long, return a new symbol for an unknown integer."""
        found = normal(self._assumed(extent), 0)
        return self._fresh_size() if is_long(found) else found

    def _assumed(self, extent: Extent) -> Extent:
        """Simplify the expression with the conditions on sizes that hold wherever the model runs, and return the result."""

        def value(atom: Atom) -> Extent | None:
            held = self._given_condition(atom.condition) if isinstance(atom, Indicator) else None
            return int(held) if isinstance(held, bool) else None

        return replace_atoms(extent, value) if self._held else extent

    def _given_condition(self, condition: Cond) -> Cond:
        for held in self._held:
            if prove(disjunction(negation(held), condition), 0):
                return True
            if prove(disjunction(negation(held), negation(condition)), 0):
                return False
        return condition

    def _fresh_size(self) -> Size:
        return unknown_size(next(self._fresh))

    def _equated(self, extent: Extent) -> Extent:
        return replace_atoms(extent, lambda a: self._equal.get(a) if isinstance(a, Dim) else None) if self._equal else extent

    def _note(self) -> None:
        """Store the computed shapes in the model's values, and describe each assumed condition on sizes in `assumptions`."""
        for value, shape in self.shapes.items():
            value.shape = ir.Shape([n if isinstance(n, int) else ir.SymbolicDim(describe_inferred_sizes(n)) for n in shape])
        for left, right in self._equal.items():
            self.assumptions[
                f"The model runs only where {describe_inferred_sizes(size(left))} is {describe_inferred_sizes(right)}."
            ] = None
        for condition in self._held:
            self.assumptions[f"The model runs only where {describe_inferred_sizes(condition)}."] = None

    # ------------------------------------------------------------ shapes

    def _shapes_of(self, node: ir.Node) -> Sequence[Shape | None]:
        inputs = [None if v is None else self.shapes.get(v) for v in node.inputs]
        if node.op_identifier() in self.model.functions or node.op_type in CONTROL:
            return [self._seed(v) for v in node.outputs]
        if not is_standard(node, self.opset):
            return self._of_spec(node) or [self._seed(v) for v in node.outputs]
        rule = "broadcast" if node.op_type in BROADCAST else _SHAPES.get(node.op_type)
        found: Sequence[Shape | None] | None = None
        if rule is not None:
            try:
                found = getattr(self, f"_{rule}")(node, inputs)
            except (ShapeError, ZeroDivisionError, LookupError, ValueError, TypeError):
                found = None
        if found is None:
            found = self._by_schema(node)
        return [self._seed(v) if s is None and v.name else s for v, s in itertools.zip_longest(node.outputs, found)]

    def _of_spec(self, node: ir.Node) -> Sequence[Shape | None] | None:
        """Return the result shapes of a non-standard operator according to its definition in specs/. Return None if there is no
        definition.
        """
        lifted = lift_node(node, [None if v is None else self.leaf(v) for v in node.inputs], self.opset, self.content)
        if lifted is None:
            return None
        first = next((v.type for v in node.inputs if v is not None), None)
        for value in node.outputs:
            value.type = value.type or first
        shapes = dict(zip(results_of(node, self.opset), (term.shape for term in lifted), strict=False))
        return [shapes.get(value) for value in node.outputs]

    def leaf(self, value: ir.Value) -> Term | None:
        """Return a variable that stands for the value in terms, or None. The variable's extents may be expressions over the
        dynamic dimensions.

        The result is None if the shape or the type of the value is not known, or if a variable cannot have this shape or type.
        """
        shape = self.shapes.get(value)
        if shape is None or all(isinstance(n, int) for n in shape):
            value.shape = None if shape is None else ir.Shape(_ints(shape))
            return leaf_of(value)
        condition, position = value.dtype == ir.DataType.BOOL, BITS.get(value.dtype, 0)
        if value.name is None or not (condition or position or value.dtype in FLOATS):
            return None
        extents = tuple(normal(n, 1) for n in shape)
        if any(isinstance(n, int) and n < 1 for n in extents) or any(is_unknown(a) for n in extents for a in atoms(n)):
            return None
        return variable(value.name, extents, condition=condition, position=position)

    def _by_schema(self, node: ir.Node) -> Sequence[Shape | None]:
        """Return the result shapes that the package onnx infers for this node in isolation.

        For this inference, each distinct expression in the shapes of the inputs is replaced by a name. This method also sets
        missing element types of the results.
        """
        given = [v for v in node.inputs if v is not None]
        if any(v.dtype is None or not v.name or v not in self.shapes for v in given):
            return [None] * len(node.outputs)
        names: dict[Extent, str] = {}
        types: dict[str, TypeProto] = {}
        data = {}
        for value in given:
            shape = [n if isinstance(n, int) else names.setdefault(n, f"e{len(names)}") for n in self.shapes[value]]
            types[value.name or ""] = helper.make_tensor_type_proto(int(value.dtype or 0), shape)
            tensor = constant_tensor(value)
            if tensor is not None and tensor.size <= MODEL.max_inferred_elements:
                data[value.name or ""] = serialize_tensor(tensor)
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset)
            found = infer_node_outputs(schema, serialize_node(node), types, data)
        except Exception:  # noqa: BLE001
            return [None] * len(node.outputs)
        extents = {name: extent for extent, name in names.items()}
        return [self._told(value, found.get(value.name or ""), extents) for value in node.outputs]

    def _told(self, value: ir.Value, kind: TypeProto | None, extents: Mapping[str, Extent]) -> Shape | None:
        if kind is None or not kind.HasField("tensor_type"):
            return None
        if value.type is None:
            value.type = ir.TensorType(ir.DataType(kind.tensor_type.elem_type))
        if not kind.tensor_type.HasField("shape"):
            return None
        dims = kind.tensor_type.shape.dim
        return tuple(
            d.dim_value if d.HasField("dim_value") else extents[d.dim_param] if d.dim_param in extents else self._fresh_size()
            for d in dims
        )

    def _broadcast(self, _: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        return [self._together([_given(s) for s in inputs])]

    def _together(self, shapes: Sequence[Shape]) -> Shape:
        columns = itertools.zip_longest(*map(reversed, shapes), fillvalue=1)
        return tuple(functools.reduce(self._common, column) for column in columns)[::-1]

    def _common(self, one: Extent, other: Extent) -> Extent:
        """Return the extent that results from broadcasting two extents together. If the extents are not known to broadcast, the
        extents are assumed to broadcast.

        Raises:
            ShapeError: the two extents cannot be broadcast together.
        """
        if one == other or other == 1:
            return one
        if one == 1:
            return other
        if isinstance(one, int) and isinstance(other, int):
            raise ShapeError(f"the extents {one} and {other} cannot be broadcast together")
        if prove_equal(one, other, 0):
            return one
        self._demand(disjunction(same(one, other), same(one, 1), same(other, 1)))
        for extent in (one, other):
            if isinstance(extent, int):
                return extent  # the other extent is 1, or equal to this extent
        return choose(same(one, 1), other, one)

    def _demand(self, demand: Cond) -> None:
        """Assume the conditions on sizes that follow from `demand`. The model runs only at sizes for which `demand` is true."""
        if not self._runs:
            return
        for bracket in dict.fromkeys(a for s in sides(demand) for a in s.atoms() if isinstance(a, Indicator)):
            for condition in (bracket.condition, negation(bracket.condition)):
                if prove(disjunction(condition, negation(demand)), 0):
                    self._held[condition] = None
                    break

    def _agree(self, one: Extent, other: Extent) -> Extent:
        """Assume that two extents are equal, and return one of them. The node requires that they are equal."""
        if isinstance(other, int):
            one, other = other, one
        if not prove_equal(one, other, 0) and self._runs:
            self._demand(same(one, other))
            self._equate(one, other)
        return one

    def _equate(self, one: Extent, other: Extent) -> None:
        """If one of two equal extents is a dynamic dimension of an input, record that the extents are equal.

        From then on, the other extent replaces the dimension in all expressions.
        """
        for left, right in ((one, other), (other, one)):
            base = _single(left)
            if base is not None and not is_unknown(base) and base not in set(atoms(right)):
                value: dict[Atom, Extent] = {base: right}
                self._equal = {k: replace_atoms(v, value.get) for k, v in self._equal.items()}
                self._equal[base] = self._equated(right)
                return

    def _alike(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        first = node.inputs[0]
        node.outputs[0].type = node.outputs[0].type or (None if first is None else first.type)
        return [_given(inputs[0])]

    def _matmul(self, _: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x, y = (_given(s) for s in inputs[:2])
        rows, columns = x[-2:-1], y[-1:] if len(y) > 1 else ()
        self._agree(x[-1], y[-2] if len(y) > 1 else y[0])
        return [(*self._together([x[:-2], y[:-2]]), *rows, *columns)]

    def _gemm(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x, y = (_given(s) for s in inputs[:2])
        x = x[::-1] if node.attributes.get_int("transA", 0) else x
        y = y[::-1] if node.attributes.get_int("transB", 0) else y
        self._agree(x[1], y[0])
        return [(x[0], y[1])]

    def _einsum(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        left, arrow, right = node.attributes["equation"].as_string().replace(" ", "").partition("->")
        extents: dict[str, Extent] = {}
        for labels, shape in zip(left.split(","), map(_given, inputs), strict=True):
            for label, extent in zip(labels, shape, strict=True):
                extents[label] = self._common(extents.get(label, 1), extent)
        once = "".join(sorted(c for c in extents if left.count(c) == 1))
        return [tuple(extents[label] for label in (right if arrow else once))]

    def _concat(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        shapes = [_given(s) for s in inputs]
        rank = len(shapes[0])
        axis = node.attributes["axis"].as_int() % rank
        whole = [functools.reduce(self._agree, (s[a] for s in shapes)) if a != axis else 0 for a in range(rank)]
        whole[axis] = _total(s[axis] for s in shapes)
        return [tuple(whole)]

    def _conv(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x, w = (_given(s) for s in inputs[:2])
        kernel = _ints(w[2:])
        return [(x[0], w[0], *self._windows(node, x[2:], kernel))]

    def _pool(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x = _given(inputs[0])
        result = (*x[:2], *self._windows(node, x[2:], tuple(node.attributes["kernel_shape"].as_ints())))
        return [result] * len(node.outputs)

    def _windows(self, node: ir.Node, image: Shape, kernel: Sequence[int]) -> Shape:
        """Return the number of windows along each axis of an image.

        ONNX Runtime deviates from ONNX in two cases. The first case is a pooling with dilations and `auto_pad=SAME_*`: here,
        the number of windows counts as unknown. The second case is a pooling in which the padded image is smaller than a
        window: this case is assumed not to occur.
        """
        count = len(kernel)
        strides = _attribute(node, "strides", (1,) * count)
        dilations = _attribute(node, "dilations", (1,) * count)
        pads = _attribute(node, "pads", (0,) * (2 * count))
        auto_pad = node.attributes.get_string("auto_pad", "NOTSET")
        pools = node.op_type != "Conv"
        result: list[Extent] = []
        for axis, (n, k, s, d) in enumerate(zip(image, kernel, strides, dilations, strict=True)):
            reach = (k - 1) * d + 1
            if auto_pad.startswith("SAME"):
                result.append(self._fresh_size() if pools and d != 1 else floor_quotient(n + s - 1, s))
                continue
            before, after = (0, 0) if auto_pad == "VALID" else (pads[axis], pads[axis + count])
            whole = n + before + after - reach
            fits = at_least(whole, 0)
            if pools and s > 1 and self._runs and not prove(fits, 1):
                self.assumptions[
                    f"The windows of {node.op_type} fit into the padded image: {describe_inferred_sizes(fits)}."
                ] = None
            if node.attributes.get_int("ceil_mode", 0):
                found = floor_quotient(whole + s - 1, s) + 1
                found = found - indicator(at_least((found - 1) * s, n + before))
            else:
                found = floor_quotient(whole, s) + 1
            result.append(found)
        return tuple(result)

    def _conv_transpose(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x, w = (_given(s) for s in inputs[:2])
        kernel, count = _ints(w[2:]), len(w) - 2
        channels = w[1] * node.attributes.get_int("group", 1)
        if "output_shape" in node.attributes:
            return [(x[0], channels, *_attribute(node, "output_shape", ()))]
        strides = _attribute(node, "strides", (1,) * count)
        dilations = _attribute(node, "dilations", (1,) * count)
        longer = _attribute(node, "output_padding", (0,) * count)
        pads = _attribute(node, "pads", (0,) * (2 * count))
        auto_pad = node.attributes.get_string("auto_pad", "NOTSET")
        image: list[Extent] = []
        for axis, (n, k, s, d, o) in enumerate(zip(x[2:], kernel, strides, dilations, longer, strict=True)):
            if auto_pad.startswith("SAME"):
                image.append(n * s + min(0, (k - 1) * d + 1 + o - s))
            else:
                cut = 0 if auto_pad == "VALID" else pads[axis] + pads[axis + count]
                image.append(s * (n - 1) + o + (k - 1) * d + 1 - cut)
        return [(x[0], channels, *image)]

    def _reshape(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        asked = self._numbers(node, 1, "shape")
        x = inputs[0]
        copies = not node.attributes.get_int("allowzero", 0)
        result: list[Extent] = []
        inferred_at: int | None = None
        for axis, n in enumerate(asked):
            if n == -1:
                inferred_at = axis
                result.append(1)
            elif copies and n == 0:
                result.append(_given(x)[axis])
            elif not prove(at_least(n, 0), 0):
                raise ShapeError(f"the extent {n} in the new shape of a Reshape might be -1, so the inferred axis is not known")
            elif copies and x is not None and axis < len(x):
                result.append(n if n == x[axis] or prove(at_least(n, 1), 0) else choose(same(n, 0), x[axis], n))
            else:
                result.append(n)
        if inferred_at is not None:
            result[inferred_at] = self._rest(_given(x), [n for a, n in enumerate(result) if a != inferred_at])
        return [tuple(result)]

    def _rest(self, shape: Shape, others: Sequence[Extent]) -> Extent:
        """Return the extent that -1 stands for in a Reshape of `shape`. `others` contains all other extents of the new shape.

        Extents that occur in `shape` and in `others` cancel. The cancelled extents are not 0, because a Reshape with -1 fails
        if another extent is 0.
        """
        left, right = [*shape], []
        for n in others:
            if n in left:
                left.remove(n)
            else:
                right.append(n)
        return floor_quotient(_product(left), _product(right))

    def _flatten(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x = _given(inputs[0])
        axis = node.attributes.get_int("axis", 1)
        axis += len(x) if axis < 0 else 0
        return [(_product(x[:axis]), _product(x[axis:]))]

    def _squeeze(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape | None]:
        x = _given(inputs[0])
        axes = self._optional(node, 1, "axes")
        if axes is None:
            if not all(isinstance(n, int) or prove(at_least(n, 2), 0) for n in x):
                return [None]
            return [tuple(n for n in x if n != 1)]
        dropped = {a % len(x) for a in _ints(axes)}
        return [tuple(n for a, n in enumerate(x) if a not in dropped)]

    def _unsqueeze(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x, axes = _given(inputs[0]), _ints(self._numbers(node, 1, "axes"))
        rank = len(x) + len(axes)
        new = {a % rank for a in axes}
        old = iter(x)
        return [tuple(1 if a in new else next(old) for a in range(rank))]

    def _slice(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x = [*_given(inputs[0])]
        starts, ends = self._slot(node, 1, "starts"), self._slot(node, 2, "ends")
        axes = self._optional(node, 3, "axes")
        if axes is None:
            given = node.inputs[1] if len(node.inputs) > 1 else None
            count = len(starts or ()) if given is None else _ints(_given(self.shapes.get(given))[:1])[0]
            places = tuple(range(count))
        else:
            places = _ints(axes)
        steps = self._slot(node, 4, "steps") if len(node.inputs) > 4 and node.inputs[4] is not None else (1,) * len(places)
        for at, axis in enumerate(places):
            n = x[axis]
            first, last, step = (None if numbers is None else numbers[at] for numbers in (starts, ends, steps))
            x[axis] = _cut(n, first, last, step) if None not in (first, last) and isinstance(step, int) else self._fresh_size()
        return [tuple(x)]

    def _slot(self, node: ir.Node, position: int, name: str) -> Sequence[Extent] | None:
        """Return the integers in an operand or attribute, as `_numbers` does, or None if the integers are not known."""
        try:
            return self._numbers(node, position, name)
        except ShapeError:
            return None

    def _split(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x = _given(inputs[0])
        axis, count = node.attributes.get_int("axis", 0) % len(x), len(node.outputs)
        sizes = self._optional(node, 1, "split")
        if sizes is None:
            part = floor_quotient(x[axis] + count - 1, count)
            sizes = [part] * (count - 1) + [x[axis] - part * (count - 1)]
        return [(*x[:axis], n, *x[axis + 1 :]) for n in sizes]

    def _pad(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x = [*_given(inputs[0])]
        pads, axes = self._numbers(node, 1, "pads"), self._optional(node, 3, "axes")
        places = range(len(x)) if axes is None else _ints(axes)
        for at, axis in enumerate(places):
            x[axis] = x[axis] + pads[at] + pads[at + len(places)]
        return [tuple(x)]

    def _tile(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        return [tuple(a * b for a, b in zip(_given(inputs[0]), self._numbers(node, 1, "repeats"), strict=True))]

    def _expand(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        return [self._together([_given(inputs[0]), tuple(self._numbers(node, 1, "shape"))])]

    def _gather(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x, indices = _given(inputs[0]), _given(inputs[1])
        axis = node.attributes.get_int("axis", 0) % len(x)
        return [(*x[:axis], *indices, *x[axis + 1 :])]

    def _top(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x = _given(inputs[0])
        axis, (count,) = node.attributes.get_int("axis", -1) % len(x), self._numbers(node, 1, "k")
        return [(*x[:axis], count, *x[axis + 1 :])] * 2

    def _range(self, node: ir.Node, _: Sequence[Shape | None]) -> Sequence[Shape]:
        (start,), (limit,), (step,) = (self._numbers(node, position, "") for position in range(3))
        if not isinstance(step, int) or not step or any(not isinstance(c, int) for _, c in terms_of(limit - start)):
            raise ShapeError("the start, limit and step of a Range are not known to be integers")
        count = -floor_quotient(-(limit - start), step) if step > 0 else -floor_quotient(-(start - limit), -step)
        return [(maximum(count, 0),)]

    def _filled(self, node: ir.Node, _: Sequence[Shape | None]) -> Sequence[Shape]:
        return [tuple(self._numbers(node, 0, ""))]

    def _resize(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        x = [*_given(inputs[0])]
        at = {"scales": 1, "sizes": 3} if node.op_type == "Upsample" or len(node.inputs) < 3 else {"scales": 2, "sizes": 3}
        axes = _attribute(node, "axes", tuple(range(len(x))))
        if node.attributes.get_string("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise ShapeError(
                f"{node.op_type} keeps the aspect ratio, so the sizes of axes depend on each other (keep_aspect_ratio_policy)"
            )
        wanted = self._optional(node, at["sizes"], "sizes")
        if wanted:
            for axis, n in zip(axes, wanted, strict=True):
                x[axis] = n
            return [tuple(x)]
        for axis, factor in zip(axes, self._scales(node, at["scales"]), strict=True):
            if factor.denominator != 1:
                self._float()
            scaled = x[axis] * factor
            x[axis] = floor_quotient(scaled * factor.denominator, factor.denominator)
        return [tuple(x)]

    def _scales(self, node: ir.Node, position: int) -> list[Fraction]:
        value = node.inputs[position] if position < len(node.inputs) else None
        tensor = None if value is None else constant_tensor(value)
        given = tensor.numpy().tolist() if tensor is not None else [*_attribute(node, "scales", ())]
        factors = [Fraction(float(f)) for f in given]
        if not factors or any(not _is_exact(f) for f in factors):
            raise ShapeError(f"the scales of {node.op_type} are not known exactly")
        return factors

    def _to_space(self, node: ir.Node, inputs: Sequence[Shape | None]) -> Sequence[Shape]:
        n, c, h, w = _given(inputs[0])
        b = node.attributes["blocksize"].as_int()
        if node.op_type == "DepthToSpace":
            return [(n, floor_quotient(c, b * b), h * b, w * b)]
        return [(n, c * b * b, floor_quotient(h, b), floor_quotient(w, b))]

    # ------------------------------------------------------------ operands that are numbers

    def _numbers(self, node: ir.Node, position: int, name: str) -> Sequence[Extent]:
        """Return the integers in the operand at `position`. In older opsets, the attribute `name` contains the integers
        instead.

        Raises:
            ShapeError: the integers are not known.
        """
        found = self._optional(node, position, name)
        if found is None:
            raise ShapeError(f"{node.op_type} has no {name or f'input {position}'}")
        return found

    def _optional(self, node: ir.Node, position: int, name: str) -> Sequence[Extent] | None:
        """Return the integers in the operand at `position`. In older opsets, the attribute `name` contains the integers
        instead.

        Returns None if the node has neither the operand nor the attribute.

        Raises:
            ShapeError: the integers are not known.
        """
        if name in node.attributes:
            return tuple(node.attributes[name].as_ints())
        value = node.inputs[position] if position < len(node.inputs) else None
        if value is None:
            return None
        found = self._elements(value)
        if found is None:
            raise ShapeError(f"the elements of {value.name} are not known")
        return [_whole(e) for e in found.ravel().tolist()]

    def _elements(self, value: ir.Value) -> Contents | None:
        """Return the elements of a small tensor as expressions. Return None if the tensor is too large, or if elements of its
        type are not tracked.

        For an element that is not known, a symbol for an unknown integer is returned. Repeated calls return the same symbol.
        """
        tensor = constant_tensor(value)
        if tensor is not None and value.dtype in (*BITS, ir.DataType.BOOL, *FLOATS):
            few = MODEL.max_tracked_floats if value.dtype in FLOATS else MODEL.max_tracked_elements
            return None if tensor.size > few else _exact_elements(tensor.numpy())
        if value in self.contents:
            return self.contents[value]
        shape = self.shapes.get(value)
        if shape is None or not all(isinstance(n, int) for n in shape) or value.dtype not in (*BITS, ir.DataType.BOOL):
            return None
        extents = tuple(int(str(n)) for n in shape)
        if math.prod(extents) > MODEL.max_tracked_elements:
            return None
        elements = np.empty(extents, dtype=object)
        for place in np.ndindex(extents):
            unknown = unknown_integer(next(self._fresh))
            elements[place] = negation(same(unknown, 0)) if value.dtype == ir.DataType.BOOL else unknown
        self.contents[value] = elements
        return elements

    # ------------------------------------------------------------ contents

    def _fill(self, node: ir.Node, outputs: Sequence[ir.Value]) -> None:
        """Compute the elements of the node's results as expressions, if the results are small and the operands are known."""
        if node.domain not in STANDARD or node.op_identifier() in self.model.functions or not outputs:
            return
        if node.op_type in FOLDED and outputs[0].const_value is None and node.op_type not in ("Shape", "Size"):
            array = constant_value(node, self.opset)
            if array is not None:
                self._store(outputs[0], array)
                return
        rule = _CONTENTS.get(node.op_type)
        if rule is None or outputs[0].dtype not in (*BITS, ir.DataType.BOOL, *FLOATS):
            return
        try:
            found = rule(self, node)
        except (ShapeError, ZeroDivisionError, LookupError, ValueError, TypeError, OverflowError):
            return
        for value, elements in zip(outputs, found if isinstance(found, list) else [found], strict=False):
            if elements is not None:
                self._keep(value, elements)

    def _keep(self, value: ir.Value, elements: Contents) -> None:
        many = MODEL.max_tracked_floats if value.dtype in FLOATS else MODEL.max_tracked_elements
        if elements.size > many:
            return
        reduced = np.empty(elements.shape, dtype=object)
        for place, element in np.ndenumerate(elements):
            reduced[place] = self._reduced(element, value.dtype)
        if all(isinstance(e, bool | int | Fraction) for e in reduced.ravel()) and value.dtype is not None:
            self._store(value, reduced.astype(value.dtype.numpy()))
        else:
            self.contents[value] = reduced
            self.shapes.setdefault(value, reduced.shape)

    def _reduced(self, element: Element, dtype: ir.DataType | None) -> Element:
        if dtype == ir.DataType.BOOL:
            condition = normal_condition(self._given_condition(_condition(element)))
            long = not isinstance(condition, bool) and is_long(*sides(condition))
            return negation(same(unknown_integer(next(self._fresh)), 0)) if long else condition
        number = _whole(element)
        if dtype in FLOATS:
            return number
        found = normal(self._assumed(number), 0)
        return unknown_integer(next(self._fresh)) if is_long(found) else found

    def _store(self, value: ir.Value, array: npt.NDArray[Any]) -> None:
        """Record that the value equals the array at all sizes of the dynamic dimensions."""
        value.const_value = ir.tensor(array, name=value.name)
        value.type = ir.TensorType(value.const_value.dtype)
        self.shapes[value] = array.shape
        self.contents.pop(value, None)

    def _operands(self, node: ir.Node) -> list[Contents]:
        """Return the elements of all operands of the node as expressions.

        Raises:
            ShapeError: the elements of an operand are not known.
        """
        found = [None if v is None else self._elements(v) for v in node.inputs]
        if any(f is None for f in found):
            raise ShapeError(f"the elements of an operand of {node.op_type} are not known")
        return [f for f in found if f is not None]

    def _length(self, node: ir.Node) -> Contents:
        shape = _given(self.shapes.get(node.inputs[0])) if node.inputs[0] is not None else ()
        if node.op_type == "Size":
            return _array(_product(shape))
        first, last = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(shape))
        return _array(list(shape[slice(first, last)]))

    def _moved(self, node: ir.Node) -> Contents:
        """Return the elements of the result of a node that only moves elements: an Identity, Transpose, Gather or reshaping
        node.

        The indices of a Gather and the shape of the result must be the same at all sizes. The moved elements can be
        expressions.
        """
        source, *_ = node.inputs
        assert source is not None
        elements = self._elements(source)
        if elements is None:
            raise ShapeError(f"the elements of the first operand of {node.op_type} are not known")
        match node.op_type:
            case "Identity":
                return elements
            case "Transpose":
                return elements.transpose(_attribute(node, "perm", tuple(reversed(range(elements.ndim)))))
            case "Gather":
                indices = self._constant(node, 1)
                axis = node.attributes.get_int("axis", 0)
                return _array(np.take(elements, indices % elements.shape[axis], axis=axis))
            case _:
                shape = self.shapes.get(node.outputs[0])
                return elements.reshape(_ints(_given(shape)))

    def _constant(self, node: ir.Node, position: int) -> npt.NDArray[Any]:
        value = node.inputs[position]
        tensor = None if value is None else constant_tensor(value)
        if tensor is None:
            raise ShapeError(f"input {position} of {node.op_type} is not constant")
        return tensor.numpy()

    def _cut(self, node: ir.Node) -> Contents:
        (elements, *_) = [self._elements(v) for v in node.inputs[:1] if v is not None]
        if elements is None:
            raise ShapeError(f"the elements of the first operand of {node.op_type} are not known")
        starts, ends = (_ints(self._numbers(node, p, name)) for p, name in ((1, "starts"), (2, "ends")))
        axes = self._optional(node, 3, "axes")
        steps = self._optional(node, 4, "steps")
        places = _ints(axes) if axes is not None else tuple(range(len(starts)))
        bounds = [slice(None)] * elements.ndim
        for at, axis in enumerate(places):
            step = 1 if steps is None else _ints(steps)[at]
            n, first, last = elements.shape[axis], starts[at], ends[at]
            require_end(last, step)
            begin, end = (v + n if v < 0 else v for v in (first, last))
            if step > 0:
                bounds[axis] = slice(min(max(begin, 0), n), min(max(end, 0), n), step)
            else:
                end = min(max(end, -1), n - 1)
                bounds[axis] = slice(min(max(begin, 0), n - 1), None if end < 0 else end, step)
        return elements[tuple(bounds)]

    def _parts(self, node: ir.Node) -> list[Contents]:
        (elements,) = self._operands(node)[:1]
        axis = node.attributes.get_int("axis", 0)
        sizes = [_ints(_given(self.shapes.get(v)))[axis] for v in node.outputs]
        return np.split(elements, list(itertools.accumulate(sizes))[:-1], axis=axis)

    def _joined(self, node: ir.Node) -> Contents:
        return np.concatenate(self._operands(node), axis=node.attributes["axis"].as_int())

    def _spread(self, node: ir.Node) -> Contents:
        """Return the elements of the result of an Expand or Tile.

        The shape of the Expand, or the repeats of the Tile, must not depend on the dynamic dimensions.
        """
        elements = self._elements(node.inputs[0]) if node.inputs[0] is not None else None
        numbers = _ints(self._numbers(node, 1, "shape"))
        if elements is None or math.prod(numbers) > MODEL.max_tracked_elements:
            raise ShapeError(f"the operand of {node.op_type} is not known, or the result has too many elements")
        if node.op_type == "Tile":
            return np.tile(elements, numbers)
        return _array(np.broadcast_to(elements, np.broadcast_shapes(elements.shape, numbers)))

    def _full(self, node: ir.Node) -> Contents:
        shape = _ints(self._numbers(node, 0, ""))
        if math.prod(shape) > MODEL.max_tracked_elements:
            raise ShapeError(f"the result of {node.op_type} has too many elements")
        given = node.attributes["value"].as_tensor().numpy().item() if "value" in node.attributes else 0.0
        elements = _exact_elements(np.asarray(given))
        if elements is None:
            raise ShapeError(f"the value of {node.op_type} is not finite")
        return np.broadcast_to(elements, shape).astype(object)

    def _stepped(self, node: ir.Node) -> Contents:
        (start,), _, (step,) = (self._numbers(node, position, "") for position in range(3))
        (count,) = _ints(self._range(node, ())[0])
        if count > MODEL.max_tracked_elements or node.outputs[0].dtype in FLOATS:
            raise ShapeError("a Range has too many elements, or has floating-point elements")
        return _array([start + position * step for position in range(count)])

    def _elementwise(self, node: ir.Node) -> Contents:
        operands = self._operands(node)
        shape = np.broadcast_shapes(*(o.shape for o in operands))
        if math.prod(shape) > MODEL.max_tracked_elements:
            raise ShapeError(f"the result of {node.op_type} has too many elements")
        floats = any(v is not None and v.dtype in FLOATS for v in (*node.inputs, *node.outputs))
        if any(v is not None and v.dtype == ir.DataType.FLOAT16 for v in (*node.inputs, *node.outputs)):
            raise ShapeError(f"{node.op_type} computes in half precision, which does not represent sizes exactly")
        _require_exact(node, operands)
        function = functools.partial(_FUNCTIONS[node.op_type], self, node, floats)
        spread = [np.broadcast_to(o, shape) for o in operands]
        result = np.empty(shape, dtype=object)
        for place in np.ndindex(shape):
            result[place] = function(*(o[place] for o in spread))
        return result

    def _reduction(self, node: ir.Node) -> Contents:
        (elements,) = self._operands(node)[:1]
        axes = self._optional(node, 1, "axes")
        if not axes and node.attributes.get_int("noop_with_empty_axes", 0) != 0:
            return elements
        over = tuple(a % elements.ndim for a in _ints(axes)) if axes else tuple(range(elements.ndim))
        if elements.size and node.inputs[0] is not None and node.inputs[0].dtype in FLOATS:
            raise ShapeError(f"the result of {node.op_type} on floating-point numbers may be rounded")
        kept = node.attributes.get_int("keepdims", 1) != 0
        _require_exact(node, [elements])
        combine = _REDUCTIONS[node.op_type]
        rest = [a for a in range(elements.ndim) if a not in over]
        shape = tuple(elements.shape[a] for a in rest)
        result = np.empty(shape, dtype=object)
        for place in np.ndindex(shape):
            where: list[slice | int] = [slice(None)] * elements.ndim
            for axis, position in zip(rest, place, strict=True):
                where[axis] = position
            result[place] = combine([_whole(e) for e in elements[tuple(where)].ravel().tolist()])
        return result.reshape([1 if a in over else n for a, n in enumerate(elements.shape)]) if kept else result

    def _float(self) -> None:
        """Record the assumption that sizes are small enough for exact floating-point arithmetic."""
        self.assumptions[f"Sizes, and what the model computes from them in floating point, are below {EXACT:,}."] = None


# ---------------------------------------------------------------- elements


def _array(given: Contents | Sequence[Element] | Element) -> Contents:
    if isinstance(given, list):
        result = np.empty(len(given), dtype=object)
        result[:] = given
    elif isinstance(given, np.ndarray):
        result = np.empty(given.shape, dtype=object)
        result[...] = given
    else:
        result = np.empty((), dtype=object)
        result[()] = given
    return result


def _exact_elements(array: npt.NDArray[Any]) -> Contents | None:
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            return None
        exact = [Fraction(x) for x in array.astype(np.float64).ravel().tolist()]
        flat = _array([int(x) if x.denominator == 1 else x for x in exact])
    else:
        flat = _array(array.ravel().tolist())
    return flat.reshape(array.shape)


def _whole(element: Element) -> Extent:
    """Return an element of a tensor as a number. A condition becomes an expression with the values 0 and 1."""
    if isinstance(element, bool):
        return int(element)
    return element if isinstance(element, int | Fraction | Size | float) else indicator(element)


def _condition(element: Element) -> Cond:
    """Return an element of a tensor as a condition. A number becomes the condition that the number is not 0."""
    if isinstance(element, bool) or not isinstance(element, int | Fraction | Size | float):
        return element
    return negation(same(element, 0))


def _given(shape: Shape | None) -> Shape:
    if shape is None:
        raise ShapeError("the shape of an input or an output of a node is not known")
    return shape


def _ints(extents: Iterable[Extent]) -> tuple[int, ...]:
    found = tuple(extents)
    if not all(isinstance(n, int) for n in found):
        raise ShapeError("a shape, an axis or another number must be constant, but depends on the dynamic dimensions")
    return tuple(int(str(n)) for n in found)


def _attribute(node: ir.Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(node.attributes[name].value) if name in node.attributes else default


def _product(extents: Iterable[Extent]) -> Extent:
    result: Extent = 1
    for extent in extents:
        result = result * extent
    return result


def _total(extents: Iterable[Extent]) -> Extent:
    result: Extent = 0
    for extent in extents:
        result = result + extent
    return result


def _single(extent: Extent) -> Dim | None:
    """Return the dynamic dimension if the expression consists of a single dynamic dimension, and None otherwise."""
    if not isinstance(extent, Size) or len(extent.terms) != 1:
        return None
    ((monomial, coefficient),) = extent.terms
    return monomial[0] if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Dim) else None


def _cut(n: Extent, first: Extent | None, last: Extent | None, step: int) -> Extent:
    """Return the number of positions in the slice from `first` to `last` in steps of `step` along an axis of extent `n`."""
    assert first is not None
    assert last is not None
    require_end(last, step)
    low, high = (0, n) if step > 0 else (-1, n - 1)
    begin = minimum(maximum(slice_bound(first, n, step), 0), high if step > 0 else n - 1)
    end = minimum(maximum(slice_bound(last, n, step), low), high)
    span = end - begin if step > 0 else begin - end
    return maximum(-floor_quotient(-span, abs(step)), 0)


def _is_exact(extent: Extent) -> bool:
    """Return whether float32 represents the values of the expression exactly. The values and all sizes are assumed to be below
    `EXACT`.

    The expression counts as exact if its coefficients are multiples of 1/8. The expression also counts as exact if it is a
    single product of sizes with a coefficient `k / 2**n`, where `k` is at most 8 in magnitude.
    """
    coefficients = [Fraction(c) for _, c in terms_of(extent) if isinstance(c, int | Fraction)]
    if all(c.denominator in (1, 2, 4, 8) for c in coefficients):
        return True
    return len(coefficients) == 1 and coefficients[0].denominator.bit_count() == 1 and abs(coefficients[0].numerator) <= 8


def describe_inferred_sizes(given: Extent | Cond) -> str:
    """Return an expression or a condition as readable text.

    Dimensions are shown by their names in the model. Negative terms of a comparison are moved to the other side.
    """
    match given:
        case Compare(relation, left):
            more, less = (collect([(m, sign * c) for m, c in left.terms if (c > 0) == (sign > 0)]) for sign in (1, -1))
            return f"{describe_inferred_sizes(more)} {relation} {describe_inferred_sizes(less)}"
        case AllOf(parts):
            return " and ".join(map(describe_inferred_sizes, parts))
        case AnyOf(parts):
            return " or ".join(map(describe_inferred_sizes, parts))
        case _:
            return re.sub(r"%(.*?)\.shape\[0\]", r"\1", str(given))


def _scaled(*extents: Extent) -> tuple[Extent, ...]:
    """Multiply the expressions by the least common denominator of all coefficients, so that the coefficients become integers,
    and return the products.
    """
    by = math.lcm(*(Fraction(c).denominator for e in extents for _, c in terms_of(e) if isinstance(c, int | Fraction)))
    return tuple(e * by for e in extents)


def _rounded_down(extent: Extent) -> Extent:
    by = math.lcm(*(Fraction(c).denominator for _, c in terms_of(extent) if isinstance(c, int | Fraction)), 1)
    whole = extent * by
    return floor_quotient(collect([(m, int(c)) for m, c in terms_of(whole)]), by)


Function: TypeAlias = "Callable[..., Element]"


def _require_exact(node: ir.Node, operands: Sequence[Contents]) -> None:
    """Raise a `ShapeError` if an operand may have overflowed and the node is not computed modulo a power of two."""
    if node.op_type not in _MODULAR and any(_may_overflow(e) for o in operands for e in o.ravel().tolist()):
        raise ShapeError(f"an operand of {node.op_type} is computed from data and may have overflowed")


def _may_overflow(element: Element) -> bool:
    """Return whether the element is computed from integers that depend on data, and is not itself one of these integers."""
    data = [size(a) for a in element.atoms() if isinstance(a, Sym) and is_unknown(a)] if isinstance(element, Size) else []
    return bool(data) and element not in data


def _arithmetic(function: Callable[..., Extent]) -> Function:
    def compute(values: ShapeValues, node: ir.Node, floats: bool, *operands: Element) -> Element:
        numbers = [_whole(o) for o in operands]
        if floats:
            values._float()
            if not all(map(_is_exact, numbers)):
                raise ShapeError(f"a floating-point operand of {node.op_type} may be rounded")
        result = functools.reduce(function, numbers)
        if floats and not _is_exact(result):
            raise ShapeError(f"the floating-point result of {node.op_type} may be rounded")
        return result

    return compute


def _comparison(function: Callable[[Extent, Extent], Cond]) -> Function:
    def compute(values: ShapeValues, node: ir.Node, floats: bool, one: Element, other: Element) -> Element:
        if isinstance(_whole(one), Fraction) or isinstance(_whole(other), Fraction) or floats:
            values._float()
            if not (_is_exact(_whole(one)) and _is_exact(_whole(other))):
                raise ShapeError(f"a floating-point operand of {node.op_type} may be rounded")
        return normal_condition(function(*_scaled(_whole(one), _whole(other))))

    return compute


def _logic(function: Callable[..., Cond]) -> Function:
    return lambda _v, _n, _f, *operands: function(*map(_condition, operands))


def _divided(values: ShapeValues, _: ir.Node, floats: bool, one: Element, other: Element) -> Element:
    a, b = _whole(one), _whole(other)
    if not floats:
        if decide(same(b, 0), 0) is True:
            raise ShapeError(f"the integer {a} is divided by 0")
        return truncated_quotient(a, b)
    values._float()
    if not isinstance(b, int | Fraction) or not b or not _is_exact(a):
        raise ShapeError("a floating-point Div needs a constant divisor other than 0, and a dividend without rounding errors")
    result = a * (1 / Fraction(b))
    if not _is_exact(result) and not (isinstance(b, int) and all(isinstance(c, int) for _, c in terms_of(a))):
        raise ShapeError("the floating-point result of Div may be rounded")
    return result


def _modulo(_: ShapeValues, node: ir.Node, floats: bool, one: Element, other: Element) -> Element:
    a, b = _whole(one), _whole(other)
    if floats:
        raise ShapeError("the floating-point result of Mod may be rounded")
    return truncated_remainder(a, b) if node.attributes.get_int("fmod", 0) else remainder(a, b)


def _powered(values: ShapeValues, node: ir.Node, floats: bool, base: Element, exponent: Element) -> Element:
    power = _whole(exponent)
    if not isinstance(power, int) or not 0 <= power <= 8:
        raise ShapeError("the exponent of Pow is not a constant integer from 0 to 8")
    result: Element = _arithmetic(lambda a, b: a * b)(values, node, floats, 1, *[base] * power)
    return result


def _cast(values: ShapeValues, node: ir.Node, floats: bool, element: Element) -> Element:
    target = ir.DataType(node.attributes["to"].as_int())
    if target == ir.DataType.BOOL:
        return _condition(element)
    number = _whole(element)
    given = None if node.inputs[0] is None else node.inputs[0].dtype
    if (
        given not in FLOATS
        and BITS.get(target, 0) < BITS.get(given, max(BITS.values()))
        and any(map(is_unknown, atoms(number)))
    ):
        raise ShapeError("a data-dependent integer might not fit into the target type of a Cast")
    if not floats or target in FLOATS:
        if floats:
            values._float()
        return number
    values._float()
    low = _rounded_down(number)
    return low if prove(at_least(low, 0), 0) else choose(at_least(low, 0), low, -_rounded_down(-number))


def _floored(values: ShapeValues, _: ir.Node, floats: bool, element: Element) -> Element:
    if floats:
        values._float()
    return _rounded_down(_whole(element))


def _ceiled(values: ShapeValues, node: ir.Node, floats: bool, element: Element) -> Element:
    return -_whole(_floored(values, node, floats, -_whole(element)))


def _where(_v: ShapeValues, node: ir.Node, _f: bool, condition: Element, then: Element, other: Element) -> Element:
    held = normal_condition(_condition(condition))
    if isinstance(held, bool):
        return then if held else other
    if node.outputs[0].dtype == ir.DataType.BOOL:
        return disjunction(conjunction(held, _condition(then)), conjunction(negation(held), _condition(other)))
    return choose(held, _whole(then), _whole(other))


def _equal(a: Extent, b: Extent) -> Cond:
    return same(a, b)


def _xor(a: Cond, b: Cond) -> Cond:
    return disjunction(conjunction(a, negation(b)), conjunction(negation(a), b))


def _same_elements(_v: ShapeValues, node: ir.Node, floats: bool, one: Element, other: Element) -> Element:
    if isinstance(_whole(one), Size | int | Fraction):
        return _comparison(_equal)(_v, node, floats, one, other)
    raise ShapeError(f"the operands of {node.op_type} are conditions, and conditions cannot be compared")


def _sign(_v: ShapeValues, _n: ir.Node, _f: bool, element: Element) -> Element:
    (number,) = _scaled(_whole(element))
    return indicator(at_least(number, 1)) - indicator(at_least(-1, number))


def _minimum(a: Extent, b: Extent) -> Extent:
    return minimum(a, b)


def _maximum(a: Extent, b: Extent) -> Extent:
    return maximum(a, b)


def _clipped(values: ShapeValues, node: ir.Node, floats: bool, *operands: Element) -> Element:
    number, *bounds = operands
    if len(bounds) != len(node.inputs) - 1 or len(bounds) != 2:
        raise ShapeError("the lower or the upper bound of Clip is missing")
    low = _arithmetic(_maximum)(values, node, floats, number, bounds[0])
    return _arithmetic(_minimum)(values, node, floats, low, bounds[1])


def _absolute(_v: ShapeValues, _n: ir.Node, _f: bool, element: Element) -> Element:
    number = _whole(element)
    if isinstance(number, int | Fraction):
        return -number if number < 0 else number
    if all(isinstance(c, int) for _, c in terms_of(number)):
        return absolute(number)
    raise ShapeError(f"the sign of {number} is not known")


_FUNCTIONS: Mapping[str, Function] = {
    "Abs": _absolute,
    "Add": _arithmetic(lambda a, b: a + b),
    "Sub": _arithmetic(lambda a, b: a - b),
    "Mul": _arithmetic(lambda a, b: a * b),
    "Sum": _arithmetic(lambda a, b: a + b),
    "Min": _arithmetic(_minimum),
    "Max": _arithmetic(_maximum),
    "Clip": _clipped,
    "Neg": lambda _v, _n, _f, element: -_whole(element),
    "Div": _divided,
    "Mod": _modulo,
    "Pow": _powered,
    "Sign": _sign,
    "Floor": _floored,
    "Ceil": _ceiled,
    "Cast": _cast,
    "Where": _where,
    "Equal": _same_elements,
    "Greater": _comparison(lambda a, b: at_least(a, b + 1)),
    "Less": _comparison(lambda a, b: at_least(b, a + 1)),
    "GreaterOrEqual": _comparison(at_least),
    "LessOrEqual": _comparison(lambda a, b: at_least(b, a)),
    "And": _logic(conjunction),
    "Or": _logic(disjunction),
    "Not": _logic(negation),
    "Xor": _logic(_xor),
}
_MODULAR = frozenset({"Add", "And", "Mul", "Neg", "Not", "Or", "Pow", "ReduceProd", "ReduceSum", "Sub", "Sum", "Where", "Xor"})
"""Operators whose results are right even if integers overflow. The reason is that sums and products modulo a power of two obey
the same laws as sums and products of integers.
"""
_REDUCTIONS: Mapping[str, Callable[[list[Extent]], Extent]] = {
    "ReduceProd": _product,
    "ReduceSum": _total,
    "ReduceMax": lambda numbers: functools.reduce(_maximum, numbers),
    "ReduceMin": lambda numbers: functools.reduce(_minimum, numbers),
}
_CONTENTS: Mapping[str, Callable[[ShapeValues, ir.Node], Contents | list[Contents]]] = {
    **dict.fromkeys(_FUNCTIONS, ShapeValues._elementwise),
    **dict.fromkeys(_REDUCTIONS, ShapeValues._reduction),
    **dict.fromkeys(("Shape", "Size"), ShapeValues._length),
    **dict.fromkeys(("Identity", "Gather", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"), ShapeValues._moved),
    **dict.fromkeys(("Expand", "Tile"), ShapeValues._spread),
    "Slice": ShapeValues._cut,
    "Split": ShapeValues._parts,
    "Concat": ShapeValues._joined,
    "ConstantOfShape": ShapeValues._full,
    "Range": ShapeValues._stepped,
}
_SHAPES: Mapping[str, str] = {
    "MatMul": "matmul",
    "Einsum": "einsum",
    "Gemm": "gemm",
    "Concat": "concat",
    "Conv": "conv",
    "ConvTranspose": "conv_transpose",
    "MaxPool": "pool",
    "AveragePool": "pool",
    "LpPool": "pool",
    "Reshape": "reshape",
    "Flatten": "flatten",
    "Squeeze": "squeeze",
    "Unsqueeze": "unsqueeze",
    "Slice": "slice",
    "Split": "split",
    "Pad": "pad",
    "Tile": "tile",
    "Expand": "expand",
    "Gather": "gather",
    "TopK": "top",
    "Range": "range",
    "ConstantOfShape": "filled",
    "Resize": "resize",
    "Upsample": "resize",
    "DepthToSpace": "to_space",
    "SpaceToDepth": "to_space",
    **dict.fromkeys(ALIKE, "alike"),
}
"""Operators whose result shapes are computed in this module, each with the name of the method that computes the shapes.

The package onnx infers the shapes of all other operators.
"""


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield each input of the model, and each result of a node. For a clone of the model, the values are in the same order."""
    for graph in [model.graph]:
        yield from graph.inputs
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from attribute.as_graph().inputs
            elif attribute.type == ir.AttributeType.GRAPHS:
                for graph in attribute.as_graphs():
                    yield from graph.inputs
