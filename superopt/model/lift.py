"""Lifting: read ONNX nodes as terms of the algebra, using the operator definitions in specs/.

A node whose operator has no definition cannot be lifted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import zip_longest
from math import copysign, isfinite, prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx.defs
import onnx_ir as ir

from superopt.algebra.integers import maximum, minimum, normal, prove, prove_equal
from superopt.algebra.operators import Operator, apply, fraction_of, registry
from superopt.algebra.terms import Extent, Term, at_least, variable
from superopt.errors import NotationError, ShapeError
from superopt.model.keepdims import hoist_unit_axes
from superopt.model.positions import drop_unusable_integers
from superopt.notation.parsing import parse
from superopt.policy import MODEL
from superopt.speclib.slice_bounds import require_end, slice_bound

Array = npt.NDArray[Any]
FLOATS = frozenset({ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})
BITS: Mapping[ir.DataType | None, int] = {ir.DataType.INT32: 32, ir.DataType.INT64: 64}
SMALLEST_OPSET = 7
STANDARD = ("", "ai.onnx")
_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional
UNIFORM = {"zeros": 0.0, "ones": 1.0}
"""Operators of the algebra that fill a tensor with a single number. The values of the mapping are these numbers."""


Contents: TypeAlias = "Callable[[ir.Value], npt.NDArray[np.object_] | None]"
"""A function that returns the known integers of a value, as expressions over the dynamic dimensions."""


def _unknown(_: ir.Value) -> None:
    return None


def lift_node(
    node: ir.Node, inputs: Sequence[Term | None], opset: int, contents: Contents = _unknown
) -> tuple[Term, ...] | None:
    """Return the terms of the node's outputs, or None if no definition in specs/ covers the node.

    `inputs` contains a term or None for every input of the node. None means that the input is absent, that its shape is not
    known, or that the algebra does not have its type. Constant operands (axes, shapes, numbers) are read from the node itself.
    The function `contents` returns the elements of integer operands that depend only on the dynamic dimensions.
    """
    if opset < SMALLEST_OPSET or node.overload:
        return None
    if node.domain not in STANDARD:
        return _lifted(_Node(node, inputs, opset, contents), f"{node.domain}.{node.op_type}")
    if node.op_type == "Identity" or _is_inactive_dropout(node, opset) or _is_number_of_condition(node) or _keeps_type(node):
        return None if inputs[0] is None else (inputs[0],)
    if node.op_type == "Where" and inputs[0] is not None:
        chosen = _chosen(_Node(node, inputs, opset, contents))
        if chosen is not None:
            return (chosen,)
    pieces = _pieces(_Node(node, inputs, opset, contents)) if node.op_type == "Gather" else None
    if pieces is not None:
        return (pieces,)
    whole = (_Rows if _picks_rows(node) else _Node)(node, drop_unusable_integers(node.op_type, inputs), opset, contents)
    if node.op_type in CLAMPED and whole.inputs[0] is not None and not all(isinstance(n, int) for n in whole.inputs[0].shape):
        try:
            return (CLAMPED[node.op_type](whole),)
        except ShapeError:
            return None
    return _lifted(whole, whole.op_type)


def _sliced(node: _Node) -> Term:
    """Return the term of a Slice. A bound that may lie beyond the axis is clamped to the axis by minima and maxima."""
    x = node.operand(0)
    starts, ends = node.attribute("starts"), node.attribute("ends")
    axes, steps = node.attribute("axes", tuple(range(len(starts)))), node.attribute("steps", (1,) * len(starts))
    for axis, first, last, step in zip(axes, starts, ends, steps, strict=True):
        n = x.shape[axis]
        if not isinstance(step, int):
            raise ShapeError(f"{node.op_type}: the step depends on the dynamic dimensions")
        require_end(last, step)
        begin, end = (slice_bound(v, n, step) for v in (first, last))
        start, stop = (_clamped(v, n) for v in ((begin, end) if step > 0 else (end + 1, begin + 1)))
        x = apply("slice", x, axis=axis, start=start, stop=stop) if (start, stop) != (0, n) else x
        x = apply("reverse", x, axis=axis) if step < 0 else x
        x = apply("stride", x, axis=axis, step=abs(step)) if abs(step) > 1 else x
    return x


def _clamped(bound: Extent, extent: Extent) -> Extent:
    return minimum(maximum(bound, 0, 1), extent, 1)


def _picked(node: _Node) -> Term:
    """Return the term of a Gather with constant positions.

    Consecutive positions give a slice, and other positions give a gather.
    """
    x, axis = node.operand(0), node.attribute("axis", 0)
    axis = axis if axis < 0 else axis - x.rank
    numbers, shape = node.integers(1)
    n = x.shape[axis]
    if isinstance(n, int) or len({i < 0 for i in numbers}) != 1:
        (term,) = _lifted(node, node.op_type) or (None,)
        if term is None:
            raise ShapeError(f"{node.op_type}: the algebra does not have this form of the operator")
        return term
    if not prove(at_least(n, max(-i if i < 0 else i + 1 for i in numbers))) and len(numbers) > 1:
        raise ShapeError(f"{node.op_type}: the positions may lie outside the axis at some sizes")
    wanted = (*x.shape[:axis], *shape, *x.shape[axis:][1:])
    first = numbers[0] + n if numbers[0] < 0 else numbers[0]
    if list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))):
        picked = apply("slice", x, axis=axis, start=first, stop=first + len(numbers))
    else:
        indices = node.constant(1)
        flat = apply("reshape", indices, shape=(prod(shape),)) if len(shape) != 1 else indices
        picked = apply("gather", x, flat, axis=axis)
    return apply("reshape", picked, shape=wanted) if picked.shape != wanted else picked


def _pieces(node: _Node) -> Term | None:
    """Return a Gather with constant positions as a concatenation of a few slices, or None if this is not possible.

    The positions must consist of runs of consecutive positions that ascend or descend, such as the positions of a reflected
    border. If the positions ascend in a single run, the result is also None. A slice copies a block of rows at once, and a
    Gather copies rows one by one.
    """
    x, array = node.inputs[0], node.positions(1)
    if x is None or array is None or array.ndim != 1 or not len(array):
        return None
    axis = node.attribute("axis", 0)
    axis = axis if axis < 0 else axis - x.rank
    n = x.shape[axis]
    if not isinstance(n, int) or array.min() < -n or array.max() >= n:
        return None
    runs = _runs(array % n, n, min(MODEL.max_gathered_slices, len(array) // 2))
    if runs is None or (len(runs) == 1 and runs[0][0] < runs[0][1]):
        return None
    parts = [apply("slice", x, axis=axis, start=min(run), stop=max(run) + 1) for run in runs]
    parts = [
        part if start <= stop else apply("reverse", part, axis=axis) for part, (start, stop) in zip(parts, runs, strict=True)
    ]
    return reduce(lambda rest, part: apply("concat", part, rest, axis=axis), reversed(parts))


def _runs(positions: Array, extent: int, most: int) -> list[tuple[int, int]] | None:
    """Cut the positions into runs. In a run, all positions ascend in steps of 1, or all positions descend in steps of 1.

    Returns the first and the last position of each run, or None if there are more than `most` runs. If all positions of the
    axis occur in order somewhere, as for a padded axis, these positions become one run. Cutting from left to right could divide
    this run.
    """
    starts = np.flatnonzero((positions[: max(len(positions) - extent + 1, 0)] == 0) & (positions[extent - 1 :] == extent - 1))
    whole = next((start for start in starts if np.array_equal(positions[start : start + extent], np.arange(extent))), None)
    if whole is None:
        return _plain_runs(positions, most)
    before, after = (_plain_runs(some, most) for some in (positions[:whole], positions[whole + extent :]))
    found = None if before is None or after is None else [*before, (0, extent - 1), *after]
    return None if found is None or len(found) > most else found


def _plain_runs(positions: Array, most: int) -> list[tuple[int, int]] | None:
    """Cut the positions into runs from left to right, each run as long as possible. The result is as in `_runs`."""
    steps = np.diff(positions)
    runs: list[tuple[int, int]] = []
    first = 0
    while first < len(positions):
        if len(runs) == most:
            return None
        step = steps[first] if first < len(steps) and abs(steps[first]) == 1 else 0
        ends = np.flatnonzero(steps[first:] != step) if step else np.zeros(1, int)
        last = first + int(ends[0]) if len(ends) else len(positions) - 1
        runs.append((int(positions[first]), int(positions[last])))
        first = last + 1
    return runs


CLAMPED: Mapping[str, Callable[[_Node], Term]] = {"Slice": _sliced, "Gather": _picked}
"""Operators that read positions on an axis, each with the function that lifts the operator if extents are dynamic.

For dynamic extents, superopt cannot always decide whether a position lies beyond the axis.
"""


UNDEFINED_BUT_LIFTED = frozenset({"Cast", "CastLike", "Dropout", "Identity", "IsInf", "IsNaN"})
"""Operators without a definition in specs/ for which some nodes can still be expressed as terms."""
MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that can occur while a node with attributes of the wrong kind is read. ONNX Runtime ignores some of these attributes.
"""


def _lifted(lifted: _Node, name: str) -> tuple[Term, ...] | None:
    """Return the terms of the node's outputs. The terms are from the first definition for the operator `name` that covers the
    node.

    Returns None if no definition covers the node.
    """
    for spec in _bindings(name):
        assert spec.lift is not None
        try:
            found = spec.lift(lifted)
        except (ShapeError, NotationError, *MALFORMED):
            continue
        if found is not None:
            terms = tuple(map(hoist_unit_axes, found)) if isinstance(found, tuple) else (hoist_unit_axes(found),)
            return terms if len(terms) == lifted.outputs else None
    return None


def results_of(node: ir.Node, opset: int) -> list[ir.Value]:
    """Return the node's results. Optional results that nothing uses, such as the mask of a Dropout, are left out."""
    named = [value for value in node.outputs if value.name]
    if len(named) < 2 or not is_standard(node, opset):
        return named
    formal = onnx.defs.get_schema(node.op_type, opset).outputs
    optional = {value for value, kind in zip(node.outputs, formal, strict=False) if kind.option == _OPTIONAL}
    return [value for value in named if value not in optional or value.uses() or value.is_graph_output()]


def is_standard(node: ir.Node, opset: int) -> bool:
    """Return whether the ONNX standard defines the node's operator at this opset.

    ONNX Runtime also runs some operators that are in the standard domain although the standard does not define them.
    """
    try:
        return node.domain in STANDARD and bool(onnx.defs.get_schema(node.op_type, opset))
    except onnx.defs.SchemaError:
        return False


def leaf_of(value: ir.Value) -> Term | None:
    """Return a variable that stands for the value in terms, or None.

    The variable has the value's name and shape. The term attribute `constant` is True if the value is a weight. `condition` is
    True if the value contains booleans. `position` is the bit width of integers, or 0 for any other type. The result is None if
    an extent of the value is 0 or not a number, if the value is a constant of integers, or if the algebra does not have its
    type.
    """
    shape, condition, position = value.shape, value.dtype == ir.DataType.BOOL, BITS.get(value.dtype, 0)
    if value.name is None or shape is None or not (condition or position or value.dtype in FLOATS):
        return None
    if position and constant_tensor(value) is not None:
        return None
    extents = tuple(d for d in shape if isinstance(d, int) and d > 0)
    if len(extents) != len(shape):
        return None
    return variable(value.name, extents, constant=is_stored(value), condition=condition, position=position)


def structured_weight(value: ir.Value, leaf: Term) -> Term:
    """Return a term that equals the weight `value` and shows the weight's structure, or the weight's variable `leaf`.

    The term of a weight of zeros is `zeros`. The term of a matrix with ones on one side of a diagonal and zeros on the other
    side is a triangle of `ones`. A product with this matrix is a cumulative sum. If the second half of the last axis equals the
    first half or its negative, the term is a concatenation that reads the first half twice. If neighbours on the last axis are
    equal or opposite in pairs, the term reads the first of each pair twice. For example, tables of rotary embeddings contain
    each number twice. A weight that is read from an external file does not stay in memory.
    """
    tensor = constant_tensor(value)
    if tensor is None or leaf.condition or leaf.position:
        return leaf
    unread = tensor if isinstance(tensor, ir.ExternalTensor) and tensor.raw is None else None
    found = _structured(tensor.numpy(), leaf)
    if unread is not None:
        unread.release()
    return found


def _structured(array: Array, leaf: Term) -> Term:
    n = leaf.shape[-1] if leaf.rank else 1
    if not array.any() and not np.signbit(array).any():
        return apply("zeros", shape=leaf.shape)
    triangle = _triangle(array, leaf)
    if triangle is not None:
        return triangle
    if not isinstance(n, int) or n % 2 or n < MODEL.min_repeated_extent:
        return leaf
    half, flat = n // 2, array.reshape(-1, n)
    for one, other in ((slice(0, half), slice(half, n)), (slice(0, n, 2), slice(1, n, 2))):
        for sign in (1, -1):
            if not all(np.array_equal(rows[:, one], sign * rows[:, other]) for rows in (flat[:1], flat)):
                continue
            if np.array_equal(flat[:, one][:, 1:], flat[:, one][:, :-1]):
                return leaf
            first = apply("slice", leaf, axis=-1, start=0, stop=one.stop - (one.step is not None))
            if one.step is not None:
                first = apply("reshape", apply("stride", first, axis=-1, step=2), shape=(*leaf.shape[:-1], half, 1))
            twice = apply("concat", first, first if sign == 1 else apply("scale", first, factor=-1), axis=-1)
            return apply("reshape", twice, shape=leaf.shape) if twice.shape != leaf.shape else twice
    return leaf


def _triangle(array: Array, leaf: Term) -> Term | None:
    """Return the weight as a triangle of ones, or None if the weight is not a matrix of this form."""
    if array.ndim != 2 or min(array.shape) < MODEL.min_repeated_extent or array.all():
        return None
    if not all(np.isin(rows, (0, 1)).all() for rows in (array[0], array)):
        return None
    for name, matrix, sign in (("lower_triangle", array, 1), ("upper_triangle", array.T, -1)):
        row = int(np.argmax(matrix[:, 0] != 0))
        offset = int(np.count_nonzero(matrix[row])) - 1 - row
        if np.array_equal(matrix, np.tril(np.ones_like(matrix), offset)):
            return apply(name, apply("ones", shape=leaf.shape), offset=sign * offset)
    return None


def constant_array(value: ir.Value) -> Array | None:
    """Return the elements of a constant value as an array, or None if the value is not constant (see `constant_tensor`)."""
    tensor = constant_tensor(value)
    return None if tensor is None else tensor.numpy()


def constant_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor that the value always equals, or None if the value is not constant.

    A constant value is an initializer that no input can override, the result of a Constant node with one attribute, or a value
    that constant folding computed.
    """
    if value.is_graph_input():
        return None
    if value.const_value is None:
        producer = value.producer()
        if producer is None or producer.op_type != "Constant" or len(producer.attributes) == 1:
            value.const_value = ir.convenience.get_const_tensor(value)
    return value.const_value


def is_stored(value: ir.Value) -> bool:
    """Return whether the value is an initializer that no input can override, or the result of a Constant node."""
    producer = value.producer()
    return constant_tensor(value) is not None and (producer is None or producer.op_type == "Constant")


def has_definition(name: str) -> bool:
    """Return whether a definition in specs/ covers some nodes of the ONNX operator.

    The name of a non-standard operator begins with its domain.
    """
    return name in UNDEFINED_BUT_LIFTED or bool(_bindings(name))


def _bindings(name: str) -> list[Operator]:
    return [spec for spec in registry().values() if name in spec.onnx and spec.lift is not None]


def _is_inactive_dropout(node: ir.Node, opset: int) -> bool:
    """Return whether the node is a Dropout that returns its input unchanged.

    Such a Dropout is not in training mode, and nothing uses its mask.
    """
    training = node.inputs[2] if len(node.inputs) > 2 else None
    mode = constant_array(training) if training is not None else np.False_
    return node.op_type == "Dropout" and mode is not None and not mode.any() and len(results_of(node, opset)) == 1


def _is_number_of_condition(node: ir.Node) -> bool:
    """Return whether the node casts booleans to floating-point numbers.

    In the algebra, booleans are the numbers 0 and 1, so such a cast changes nothing.
    """
    source = node.inputs[0] if node.op_type == "Cast" else None
    return source is not None and source.dtype == ir.DataType.BOOL and node.outputs[0].dtype in FLOATS


def _keeps_type(node: ir.Node) -> bool:
    """Return whether the node casts its input to the type that the input already has. Exporters write such casts."""
    source = node.inputs[0] if node.op_type in ("Cast", "CastLike") else None
    return source is not None and source.dtype is not None and source.dtype == node.outputs[0].dtype


def _picks_rows(node: ir.Node) -> bool:
    """Return whether the node is a GatherND that selects only along the first axis, as a Gather at axis 0 does."""
    places = node.inputs[1] if node.op_type == "GatherND" else None
    shape = None if places is None else places.shape
    return shape is not None and len(shape) > 1 and shape[-1] == 1 and not node.attributes.get_int("batch_dims", 0)


def _chosen(node: _Node) -> Term | None:
    """Return the operand that a Where selects at every position.

    Return None if the elements of the condition are not known to be equal.
    """
    always = UNIFORM.get(node.operand(0).op, node.uniform(0))
    try:
        return None if always is None else node.broadcast()[1 if always else 2]
    except ShapeError:
        return None


@dataclass(frozen=True)
class _Node:
    """An onnx_ir node with the interface `op.Node`, through which the definitions in specs/ read nodes."""

    node: ir.Node
    inputs: Sequence[Term | None]
    opset: int
    contents: Contents = field(default=_unknown)

    @property
    def op_type(self) -> str:
        return self.node.op_type

    @property
    def outputs(self) -> int:
        return len(results_of(self.node, self.opset))

    def absent(self, position: int) -> bool:
        return position >= len(self.node.inputs) or self.node.inputs[position] is None

    def wanted(self, position: int) -> bool:
        return position < len(self.node.outputs) and self.node.outputs[position] in results_of(self.node, self.opset)

    def operand(self, position: int) -> Term:
        term = self.inputs[position] if position < len(self.inputs) else None
        if term is None:
            raise ShapeError(f"{self.op_type}: input {position} cannot be expressed in the algebra")
        return term

    def attribute(self, name: str, default: Any = None) -> Any:
        if name in self.node.attributes:
            value = self.node.attributes[name].value
            return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        schema = onnx.defs.get_schema(self.op_type, self.opset) if is_standard(self.node, self.opset) else None
        for position, formal in enumerate(schema.inputs if schema is not None else ()):
            given = self.node.inputs[position] if position < len(self.node.inputs) else None
            if formal.name == name and given is not None:
                return self._numbers(given)
        return default

    def _numbers(self, value: ir.Value) -> object:
        array = constant_array(value)
        if array is None:
            array = self.contents(value)
            if array is None or value.dtype not in BITS:
                raise ShapeError(f"{self.op_type}: input {value.name} is not constant")
            array = np.vectorize(lambda n: normal(n, 1), otypes=[object])(array) if array.size else array
        return tuple(array.tolist()) if array.ndim else array.item()

    def boolean(self, position: int) -> bool:
        value = self.node.inputs[position]
        return value is not None and value.dtype == ir.DataType.BOOL

    def scalar(self, position: int) -> float | None:
        value = self.node.inputs[position]
        tensor = None if value is None else constant_tensor(value)
        return float(tensor.numpy().item()) if tensor is not None and tensor.size == 1 else None

    def uniform(self, position: int) -> float | None:
        value = self.node.inputs[position] if position < len(self.node.inputs) else None
        array = None if value is None else constant_array(value)
        if array is None or not array.size or array.flat[0] != array.flat[-1]:
            return None
        equal = (array == array.flat[0]).all() and (np.signbit(array) == np.signbit(array.flat[0])).all()
        return float(array.flat[0]) if equal else None

    def integers(self, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        array = self._integer_array(position)
        return tuple(array.ravel().tolist()), array.shape

    def positions(self, position: int) -> Array | None:
        """Return the elements of an input that is a constant of integers, or None for any other input."""
        value = self.node.inputs[position] if position < len(self.node.inputs) else None
        array = None if value is None else constant_array(value)
        return array if array is not None and array.dtype.kind == "i" else None

    def _integer_array(self, position: int) -> Array:
        value = self.node.inputs[position]
        array = None if value is None else constant_array(value)
        if array is None or array.dtype.kind != "i":
            raise ShapeError(f"{self.op_type}: input {position} is not an integer constant")
        return array

    def constant(self, position: int) -> Term:
        value = self.node.inputs[position]
        assert value is not None
        assert value.name
        if not is_stored(value):
            raise ShapeError(f"{self.op_type}: input {value.name} is computed by the model, but must be a constant")
        return variable(value.name, self._integer_array(position).shape, constant=True)

    def broadcast(self) -> list[Term]:
        operands = [self.operand(position) for position in range(len(self.inputs))]
        columns = zip_longest(*(reversed(x.sizes) for x in operands), fillvalue=1)
        shape = tuple(_common(self.op_type, column) for column in columns)[::-1]
        return [self._number(position, shape) or self.expanded(x, shape) for position, x in enumerate(operands)]

    def _number(self, position: int, shape: tuple[int, ...]) -> Term | None:
        """Return a constant operand as a term of the given shape. All elements must be 0, or there must be only one element.

        The term is `zeros`, `ones` or a multiple of `ones`. For any other operand, such as -0.0, the result is None.
        """
        number = self.uniform(position)
        number = number if number == 0 else self.scalar(position)
        if number is None or not isfinite(number) or number == 0:
            return apply("zeros", shape=shape) if number == 0 and copysign(1, number) > 0 else None
        ones = apply("ones", shape=shape)
        return apply("scale", ones, factor=fraction_of(number)) if number != 1 else ones

    def expanded(self, x: Term, shape: tuple[int, ...]) -> Term:
        if x.shape == shape:
            return x
        if x.rank > len(shape):
            raise ShapeError(f"{self.op_type}: rank {x.rank} does not broadcast to rank {len(shape)}")
        if x.op in UNIFORM:
            return apply(x.op, shape=shape)
        axes = tuple(a for a in range(-x.rank, 0) if x.sizes[a] != 1)
        kept = tuple(x.shape[a] for a in axes)
        while x.shape != kept and x.op == "reshape":
            x = x.args[0]
            places = _places(x.sizes, axes, shape)
            if places is not None:
                return apply("expand", x, shape=shape, axes=places)
        return apply("expand", apply("reshape", x, shape=kept) if x.shape != kept else x, shape=shape, axes=axes)

    def window(self, kernel: Sequence[int]) -> Mapping[str, tuple[int, ...]]:
        once = (1,) * len(kernel)
        strides, dilations = self.attribute("strides", once), self.attribute("dilations", once)
        pads = self.attribute("pads", (0,) * (2 * len(kernel)))
        auto_pad = self.attribute("auto_pad", "NOTSET")
        image = self.operand(0).sizes[2:]
        if not len(image) == len(kernel) == len(strides) == len(dilations) == len(pads) / 2:
            raise ShapeError(f"{self.op_type}: the window and the image have different numbers of axes")
        if auto_pad == "VALID":
            pads = (0,) * len(pads)
        elif auto_pad != "NOTSET":
            if ignores_dilations(self.node):
                raise ShapeError(f"{self.op_type}: ONNX and ONNX Runtime disagree on the pads of dilated windows")
            needed = _needed_pads(image, kernel, strides, dilations)
            if self.op_type not in CLAMPING and any(n < 0 for n in needed):
                raise ShapeError(
                    f"{self.op_type}: the pads are negative, and runtimes disagree on the meaning of negative pads"
                )
            pads = _same_pads(needed, more_before=auto_pad == "SAME_LOWER")
        if self.attribute("ceil_mode", 0):
            pads = _ceil_pads(image, kernel, strides, dilations, pads)
        return {"strides": strides, "dilations": dilations, "pads": pads}

    def written(self, text: str, terms: Mapping[str, Term], **numbers: float) -> Term:
        (term,) = parse(" ".join(text.split()), terms, numbers=numbers)
        return term


@dataclass(frozen=True)
class _Rows(_Node):
    """A GatherND that selects only along the first axis, presented as a Gather.

    The indices of such a GatherND have a last axis of extent 1, which is removed.
    """

    @property
    def op_type(self) -> str:
        return "Gather"

    def operand(self, position: int) -> Term:
        term = super().operand(position)
        return apply("reshape", term, shape=term.shape[:-1]) if position == 1 else term

    def integers(self, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        numbers, shape = super().integers(position)
        return numbers, shape[:-1]

    def constant(self, position: int) -> Term:
        stored = super().constant(position)
        return apply("reshape", stored, shape=stored.shape[:-1])


def _common(op_type: str, extents: Sequence[int]) -> int:
    """Return the extent that results from broadcasting the given extents together.

    Raises:
        ShapeError: two of the extents are not 1, and are not proved to be equal at all sizes.
    """
    longest = next((n for n in extents if n != 1), 1)
    if not all(n == 1 or prove_equal(n, longest) for n in extents):
        raise ShapeError(
            f"{op_type}: the broadcasting of the extents {', '.join(map(str, extents))} depends on the dynamic dimensions"
        )
    return longest


def _places(sizes: tuple[int, ...], axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return a tuple that maps each axis of a tensor to an axis of `shape`, as broadcasting does. Return None if there is no
    such mapping.

    `sizes` are the extents of the tensor. An axis of extent 1 is mapped to an axis of `shape` with extent 1. The other axes are
    mapped to `axes`, in order.
    """
    if [n for n in sizes if n != 1] != [shape[a] for a in axes]:
        return None
    places: list[int] = []
    left, last = list(axes), 0
    for n in reversed(sizes):
        units = (a for a in range(last - 1, left[-1] if left else -len(shape) - 1, -1) if shape[a] == 1)
        place = left.pop() if n != 1 else next(units, None)
        if place is None:
            return None
        places.append(place)
        last = place
    return tuple(reversed(places))


CLAMPING = frozenset({"Conv", "ConvTranspose"})
"""Operators that treat negative pads as 0. With `auto_pad`, a window that is shorter than its stride needs negative pads."""


POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
"""Operators that pool the windows of an image."""


def ignores_dilations(node: ir.Node) -> bool:
    """Return whether ONNX Runtime ignores the dilations of a pooling when it computes the pads, contrary to ONNX."""
    dilated = any(d != 1 for d in node.attributes["dilations"].as_ints()) if "dilations" in node.attributes else False
    return dilated and node.op_type in POOLS and node.attributes.get_string("auto_pad", "NOTSET").startswith("SAME")


def _needed_pads(image: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Return, for each axis, the total padding that gives the output the extent ceil(image extent / stride)."""
    return [(-(-n // s) - 1) * s + (k - 1) * d + 1 - n for n, k, s, d in zip(image, kernel, strides, dilations, strict=True)]


def _same_pads(needed: Sequence[int], *, more_before: bool) -> tuple[int, ...]:
    """Return the pads of an image. On each axis, half of the padding in `needed` is before the image, and half is after it.

    If the padding of an axis is odd, the larger part is after the image or, if `more_before` is True, before the image.
    Negative padding counts as 0.
    """
    whole = [max(n, 0) for n in needed]
    less, more = [p // 2 for p in whole], [p - p // 2 for p in whole]
    return (*more, *less) if more_before else (*less, *more)


def _ceil_pads(
    image: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> tuple[int, ...]:
    """Return pads such that a pooling with `ceil_mode=0` gives the same result as a pooling with `ceil_mode=1` and the given
    pads.

    With `ceil_mode=1`, a partial last window counts if it begins within the image or within the pads before the image.
    """
    before, after = pads[: len(image)], list(pads[len(image) :])
    for axis, (n, k, s, d, p) in enumerate(zip(image, kernel, strides, dilations, before, strict=True)):
        reach = n + p + after[axis] - (k - 1) * d - 1
        missing = -reach % s
        if missing and reach + missing < n + p:
            after[axis] += missing
    return (*before, *after)
