"""Sizes of dynamic dimensions at which the numerical check runs both models.

A rewrite may be right at some sizes and wrong at other sizes. So the check uses the sizes 0 to 4, sizes with different
residues, and unequal sizes for dimensions with different names. If the model compares a size with a constant, or slices at a
constant, the check also uses sizes just below and above the constant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from superopt.policy import CHECK
from superopt.protobuf.graphs import attribute_values
from superopt.protobuf.names import dimension_key

Array = npt.NDArray[Any]

_DECIDES = frozenset(
    {"Slice", "Min", "Max", "Mod", "Div", "Clip", "Where", "TopK", "Split", "Range", "Equal", "Less", "Greater"}
    | {"LessOrEqual", "GreaterOrEqual"}
)
"""Operators whose constants may be thresholds. Models may behave differently for sizes below and above a threshold."""
_SHIFTS_SIZES = frozenset({"Add", "Sub", "Mul", "Pad", "Gather", "Expand", "Tile", "Resize", "Reshape", "ConstantOfShape"})
_FACTORS = frozenset({"Mul", "Div", "Mod"})
_FOLDED = frozenset(
    {"Abs", "Add", "And", "Cast", "Ceil", "Concat", "Div", "Equal", "Floor", "Gather", "Greater", "GreaterOrEqual", "Identity"}
    | {"Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "ReduceMax", "ReduceMin", "ReduceProd"}
    | {"ReduceSum", "Reshape", "Round", "Slice", "Sqrt", "Squeeze", "Sub", "Sum", "Transpose", "Unsqueeze", "Where"}
)
"""Operators that are evaluated if all of their operands are constants. None of these operators computes a large result from
small operands.
"""
_READ = frozenset({TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BOOL})
"""The types of constants whose elements are read."""
_ATTRIBUTES = ("starts", "ends", "strides", "kernel_shape", "split", "pads", "blocksize")


def dynamic_dimension_keys(model: ModelProto) -> list[str]:
    """Return the keys (names, or texts such as `x[0]`) of the dynamic dimensions of a model's inputs, without repetitions."""
    weights = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, None] = {}
    for port in model.graph.input:
        if port.name not in weights:
            for axis, extent in enumerate(port.type.tensor_type.shape.dim):
                if not extent.HasField("dim_value") or extent.dim_value < 0:
                    found[dimension_key(port.name, axis, extent.dim_param)] = None
    return list(found)


def sizes_to_check(model: ModelProto, start: Mapping[str, int], fixed: Container[str] = ()) -> Iterator[dict[str, int]]:
    """Yield mappings from some or all dynamic dimensions to sizes, the most significant mapping first.

    A dimension that a mapping leaves out may have any size at which the model runs.

    Args:
        model: the model. Weights may be in other files.
        start: a size for each dynamic dimension. The model runs at these sizes.
        fixed: dimensions that keep their size from `start`. The yielded mappings do not contain these dimensions.
    """
    names = [name for name in dynamic_dimension_keys(model) if name not in fixed]
    if not names:
        return
    constants = telling_constants(model)
    kinds: list[Iterator[dict[str, int]]] = [
        _unequal(names),
        _around(names, constants),
        _empty(names),
        ({name: size} for size in CHECK.small_sizes for name in names),
        (dict.fromkeys(names, size) for size in (*CHECK.mixed_sizes[:6], *CHECK.small_sizes)),
        (
            {name: size}
            for size in (*CHECK.mixed_sizes[:4], CHECK.large_size // CHECK.ladder_factor, CHECK.large_size)
            for name in names
        ),
        _growing_together(names, start),
    ]
    seen: set[tuple[tuple[str, int], ...]] = set()
    for sizes in _by_turns(kinds):
        if (key := tuple(sizes.items())) not in seen:
            seen.add(key)
            yield sizes


def _growing_together(names: Sequence[str], start: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield copies of `start` in which two dimensions are increased by the same number.

    If one dimension is the sum of two other dimensions, the model may run only if the sum and one summand grow equally.
    """
    for shift in CHECK.paired_size_increases:
        for pair in itertools.combinations(names, 2):
            yield {name: start[name] + (shift if name in pair else 0) for name in names}


def _unequal(names: Sequence[str]) -> Iterator[dict[str, int]]:
    for turn in range(len(CHECK.mixed_sizes)):
        yield {name: CHECK.mixed_sizes[(turn + 3 * place) % len(CHECK.mixed_sizes)] for place, name in enumerate(names)}


def _empty(names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Yield choices of sizes in which one or two dimensions are 0. The other dimensions are left out, or have unequal sizes.

    The size 0 must be tested, because proofs of rules hold only for sizes of at least 1.
    """
    yield from ({name: 0} for name in names)
    for sizes, count in itertools.product(itertools.islice(_unequal(names), 3), (1, 2)):
        for chosen in itertools.combinations(names, count) if count < len(names) else ():
            yield sizes | dict.fromkeys(chosen, 0)


def _around(names: Sequence[str], constants: Sequence[int]) -> Iterator[dict[str, int]]:
    """Yield sizes near each of the model's constants: the constant, the constant plus 1, and the constant minus 1.

    In each choice of sizes, either one dimension or all dimensions have one of these values. For a large constant, an eighth of
    the constant is yielded first, as the size of one dimension.
    """
    for constant in constants:
        if constant > CHECK.min_laddered_size:
            yield from ({name: constant // CHECK.ladder_factor} for name in names)
        for size in (constant, constant + 1, constant - 1):
            yield from ({name: size} for name in names)
            if len(names) > 1:
                yield dict.fromkeys(names, size)


def _by_turns(kinds: Sequence[Iterator[dict[str, int]]]) -> Iterator[dict[str, int]]:
    for row in itertools.zip_longest(*kinds):
        yield from (sizes for sizes in row if sizes is not None)


def telling_constants(model: ModelProto) -> list[int]:
    """Return positive integers with which the model compares, slices or computes, the most significant first.

    Each integer is stored in the model, or computed only from small constants, such as 2500 from `50 * 50`. Some of the
    integers are thresholds, such as constants in comparisons. If the model multiplies or divides by an integer, the product of
    this integer and each threshold is also included. For example, `N // 2 > 100` becomes true near N = 200, so 200 is included.
    """
    ranks: dict[int, int] = {}
    factors: dict[int, None] = {}
    for node, read in _reads(model):
        for value in itertools.chain(read, _attributes(node)):
            size = abs(value)
            if 1 < size <= CHECK.max_size:
                rank = 0 if node.op_type in _DECIDES else 1 if node.op_type in _SHIFTS_SIZES else 2
                ranks[size] = min(rank, ranks.get(size, rank))
                if node.op_type in _FACTORS:
                    factors[size] = None
    found = sorted(ranks, key=lambda size: (ranks[size], size <= max(CHECK.small_sizes), size))
    scaled = [size * factor for size in found if not ranks[size] for factor in factors if size != factor]
    return list(dict.fromkeys((*found[: CHECK.max_constants], *(size for size in scaled if size <= CHECK.max_size))))[
        : 2 * CHECK.max_constants
    ]


def _reads(model: ModelProto) -> Iterator[tuple[NodeProto, list[int]]]:
    """Yield each node of the model that reads a non-constant value, and the integers in the constants that the node reads.

    Nodes of nested graphs and of functions are included. If the constants of a node cannot be folded, the node is included too.
    """
    waiting: list[tuple[GraphProto | FunctionProto, _Constants]] = [(model.graph, _Constants(model.opset_import))]
    waiting += [(function, _Constants(function.opset_import)) for function in model.functions]
    while waiting:
        graph, outer = waiting.pop()
        constants = outer.inside(graph)
        for node in graph.node:
            if not constants.fold(node):
                values = (constants.values[name] for name in node.input if name in constants.values)
                yield node, [number for value in values for number in _whole_numbers(value)]
            waiting += [(body, constants) for a in node.attribute for body in (*((a.g,) if a.HasField("g") else ()), *a.graphs)]


@dataclass
class _Constants:
    """The constants that the nodes of a graph may read: the elements of small constants, and the extents of all constants.

    `opsets` are the opsets of the graph.
    """

    opsets: Iterable[OperatorSetIdProto]
    values: dict[str, Array] = field(default_factory=dict)
    extents: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def inside(self, graph: GraphProto | FunctionProto) -> _Constants:
        """Return the constants for nodes of a nested graph: the constants of this object, and the initializers of the graph."""
        found = _Constants(self.opsets, {**self.values}, {**self.extents})
        for name in graph.input if isinstance(graph, FunctionProto) else [port.name for port in graph.input]:
            found.values.pop(name, None)
            found.extents.pop(name, None)
        for tensor in () if isinstance(graph, FunctionProto) else graph.initializer:
            found.add(tensor.name, tensor)
        return found

    def add(self, name: str, tensor: TensorProto) -> None:
        """Add a stored tensor. If the tensor is large or outside of the ModelProto, only its extents are added."""
        self.values.pop(name, None)
        self.extents[name] = (*tensor.dims,)
        local = tensor.data_type in _READ and tensor.data_location != TensorProto.EXTERNAL
        if local and math.prod(tensor.dims) <= CHECK.max_constant_elements:
            self.values[name] = numpy_helper.to_array(tensor)

    def fold(self, node: NodeProto) -> bool:
        """If the node computes a small constant from constants, add its result. Return whether a result was added."""
        if node.domain not in ("", "ai.onnx"):
            return False
        if node.op_type == "Constant":
            for name, value in attribute_values(node).items():
                if name == "value":
                    self.add(node.output[0], value)
                elif name.startswith(("value_int", "value_float")):
                    self.add(node.output[0], numpy_helper.from_array(np.asarray(value)))
            return True
        result = self._result(node)
        if result is None or result.dtype.kind not in "biuf" or result.size > CHECK.max_constant_elements:
            return False
        self.values[node.output[0]], self.extents[node.output[0]] = result, result.shape
        return True

    def _result(self, node: NodeProto) -> Array | None:
        """Return the result of a node.

        If the operator is not in `_FOLDED`, or an operand is not a known constant, return None.
        """
        names = [*dict.fromkeys(filter(None, node.input))]
        if node.op_type == "Shape" and names and names[0] in self.extents:
            ends = attribute_values(node)
            return np.array(self.extents[names[0]][slice(ends.get("start", 0), ends.get("end"))], np.int64)
        if node.op_type not in _FOLDED or not names or len(node.output) != 1 or not self.values.keys() >= {*names}:
            return None
        given, made = ([helper.make_empty_tensor_value_info(name) for name in ports] for ports in (names, node.output))
        alone = helper.make_model(helper.make_graph([node], "constant", given, made), opset_imports=[*self.opsets])
        try:
            with np.errstate(all="ignore"):
                results: Any = ReferenceEvaluator(alone).run(None, {name: self.values[name] for name in names})
            return np.asarray(results[0])
        except Exception:  # noqa: BLE001
            return None


def _whole_numbers(constant: Array) -> list[int]:
    """Return the elements of a constant that are whole numbers and at most `CHECK.max_size` in magnitude."""
    return [int(value) for value in constant.ravel().tolist() if abs(value) <= CHECK.max_size and value == int(value)]


def _attributes(node: NodeProto) -> Iterator[int]:
    for name, value in attribute_values(node).items():
        if name in _ATTRIBUTES:
            yield from value if isinstance(value, list) else [value]
