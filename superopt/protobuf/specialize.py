"""Specialize a model to inputs with fixed values, dimensions with fixed sizes, and Ifs with known conditions.

The functions change only the structure of a model. The caller decides which conditions are known.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from superopt.policy import REPORT
from superopt.protobuf.names import dimension_key

Array = npt.NDArray[Any]
STANDARD = ("", "ai.onnx")
KEEPS, FAILS = 0, -2
"""Entries of the target shape of a Reshape. 0 keeps the extent of an axis, and -2 makes the Reshape fail in ONNX Runtime."""

COMPARED = frozenset(map(ir.DataType.__getitem__, ("BOOL", "INT32", "INT64", "FLOAT", "DOUBLE", "STRING")))
"""The element types for which ONNX Runtime has a kernel of the operator Equal."""


@dataclass(frozen=True, eq=False)
class Specialization:
    """The inputs and sizes of a model that are fixed, and the branches that are therefore always taken.

    Attributes:
        values: The fixed values of inputs, by name.
        sizes: The fixed sizes of dynamic dimensions. The key is a dimension's name or, for an unnamed dimension, the input and
            the axis, such as `x[0]`.
        branches: For each round of inlining, the conditions of the model's Ifs, in the order of `if_nodes`. Each condition is
            True or False, or None if the condition is not known.
    """

    values: Mapping[str, Array] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    branches: Sequence[Sequence[bool | None]] = ()

    def __bool__(self) -> bool:
        return bool(self.values or self.sizes or self.branches)

    def of(self, model: ir.Model) -> ir.Model:
        """Apply the specialization to the model, and return the new model. Return the model itself if nothing is fixed or
        known.

        Raises:
            ValueError: The model lacks a fixed input, or does not have the expected number of Ifs.
        """
        special = fix_inputs(model, self.values, self.sizes)
        for taken in self.branches:
            special = inline_branches(special, taken)
        return special

    def described(self) -> dict[str, str]:
        """Return a mapping from names to the fixed values and sizes as text. For a value with many elements, the text gives
        only its type and shape.
        """

        def text(array: Array) -> str:
            return str(array.tolist()) if array.size <= REPORT.max_fixed_elements else f"{array.dtype}{[*array.shape]}"

        return {**{name: text(array) for name, array in self.values.items()}, **{n: str(s) for n, s in self.sizes.items()}}

    def as_json(self) -> dict[str, object]:
        """Return the specialization as a JSON object."""
        values = {
            name: {"type": str(array.dtype), "shape": [*array.shape], "elements": array.ravel().tolist()}
            for name, array in self.values.items()
        }
        return {"values": values, "sizes": {**self.sizes}, "branches": [[*taken] for taken in self.branches]}


# ---------------------------------------------------------------- fixed inputs


def fix_inputs(model: ir.Model, values: Mapping[str, Array], sizes: Mapping[str, int]) -> ir.Model:
    """Return a copy of the model that is valid only for the given values of inputs and sizes of dimensions.

    The copy has the same inputs as the model. If a fixed input has a different value at run time, the run fails: an added node
    reshapes an output of the model, and the target shape is then invalid. ONNX Runtime itself rejects inputs whose sizes differ
    from the fixed sizes. The entry `superopt.fixed` in the copy's metadata lists the fixed values and sizes. The model itself
    is returned if nothing is fixed.

    Args:
        model: The model.
        values: The value of each fixed input, by name. The value has the type and shape of the input.
        sizes: The size of each fixed dimension. The keys are described in `Specialization`.

    Raises:
        ValueError: The model lacks one of the inputs, or has no output to which the test of the values can be added.
    """
    if not (values or sizes):
        return model
    copy = model.clone()
    for value in copy.graph.inputs:
        if value.shape is not None and not value.is_initializer():
            value.shape = ir.Shape([_fixed_extent(value, axis, n, sizes) for axis, n in enumerate(value.shape)])
    inputs = {value.name: value for value in copy.graph.inputs}
    taken = {value.name for graph in copy.graphs() for value in defined_values(graph)}
    same: list[ir.Value] = []
    for name, array in values.items():
        if name not in inputs or inputs[name].is_initializer():
            raise ValueError(f"the model has no input {name!r}")
        weight = _weight(copy.graph, f"{name}.fixed", array, taken)
        inputs[name].replace_all_uses_with(weight)
        same.append(_is_equal(copy.graph, inputs[name], weight, taken))
    if same:
        _require(copy.graph, same, taken)
    fixed = Specialization(values, sizes).described()
    copy.metadata_props["superopt.fixed"] = ", ".join(f"{name}={text}" for name, text in fixed.items())
    return copy


def _fixed_extent(value: ir.Value, axis: int, extent: object, sizes: Mapping[str, int]) -> int | ir.SymbolicDim:
    if isinstance(extent, int) and extent >= 0:
        return extent
    name = (extent.value if isinstance(extent, ir.SymbolicDim) else None) or ""
    fixed = sizes.get(dimension_key(value.name or "", axis, name))
    return ir.SymbolicDim(name or None) if fixed is None else fixed


def _is_equal(graph: ir.Graph, value: ir.Value, weight: ir.Value, taken: set[str | None]) -> ir.Value:
    """Add nodes that test whether the value equals the weight, and return their result, a boolean of shape [] or [1]."""
    assert weight.const_value is not None
    count, rank = weight.const_value.size, len(weight.const_value.shape)
    if weight.dtype not in COMPARED:
        integral = weight.dtype is not None and weight.dtype.is_integer()
        wide = int(ir.DataType.INT64 if integral else ir.DataType.FLOAT)
        value, weight = (_computed(graph, "Cast", [v], f"{v.name}.wide", taken, to=wide) for v in (value, weight))
    equal = _computed(graph, "Equal", [value, weight], f"{value.name}.equal", taken)
    if count == 1 and rank < 2:
        return equal
    whole = _weight(graph, f"{value.name}.shape", np.array([count], np.int64), taken)
    flat = _computed(graph, "Reshape", [equal, whole], f"{value.name}.flat", taken)
    if count == 1:
        return flat
    number = _computed(graph, "Cast", [flat], f"{value.name}.number", taken, to=int(ir.DataType.INT32))
    least = _computed(graph, "ReduceMin", [number], f"{value.name}.least", taken)
    return _computed(graph, "Cast", [least], f"{value.name}.all", taken, to=int(ir.DataType.BOOL))


def _require(graph: ir.Graph, same: Sequence[ir.Value], taken: set[str | None]) -> None:
    """Add nodes that test the booleans in the list `same`. A run of the graph fails if one of the booleans is False.

    The booleans have the shape [] or [1].

    Raises:
        ValueError: The graph has no output of a known rank of at least 1.
    """
    every = same[0]
    for other in same[1:]:
        every = _computed(graph, "And", [every, other], "inputs.equal", taken)
    tensors = (v for v in graph.outputs if isinstance(v.type, ir.TensorType) and v.producer() is not None)
    output = next((v for v in tensors if v.shape is not None and len(v.shape)), None)
    if output is None or output.shape is None:
        raise ValueError("cannot fix inputs to constant values: no output of the model has a declared rank of at least 1")
    name, rank = output.name, len(output.shape)
    output.name = _fresh(f"{name}.unchecked", taken)
    keeps, fails = (
        _weight(graph, f"{name}.{title}", np.full(rank, entry, np.int64), taken)
        for title, entry in (("keeps", KEEPS), ("fails", FAILS))
    )
    shape = _computed(graph, "Where", [every, keeps, fails], f"{name}.shape", taken)
    checked = ir.node("Reshape", [output, shape])
    result = checked.outputs[0]
    result.name, result.type, result.shape = name, output.type, output.shape
    graph.append(checked)
    for place, value in enumerate(graph.outputs):
        if value is output:
            graph.outputs[place] = result


def _computed(
    graph: ir.Graph, operator: str, inputs: Sequence[ir.Value], name: str, taken: set[str | None], **attributes: int
) -> ir.Value:
    node = ir.node(operator, inputs, attributes or None)
    node.outputs[0].name = _fresh(name, taken)
    graph.append(node)
    return node.outputs[0]


def _weight(graph: ir.Graph, name: str, array: Array, taken: set[str | None]) -> ir.Value:
    name = _fresh(name, taken)
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


def _fresh(name: str, taken: set[str | None]) -> str:
    found = next(one for n in itertools.count() if (one := f"{name}.{n}" if n else name) not in taken)
    taken.add(found)
    return found


# ---------------------------------------------------------------- branches


def if_nodes(model: ir.Model) -> list[ir.Node]:
    """Return the model's If nodes, which `inline_branches` can replace. An If comes before the Ifs in its branches."""
    every = ir.traversal.RecursiveGraphIterator(model.graph)
    return [node for node in every if node.op_type == "If" and node.domain in STANDARD]


def inline_branches(model: ir.Model, taken: Sequence[bool | None]) -> ir.Model:
    """Return a copy of the model in which the nodes of one branch replace each If with a known condition.

    Unused nodes and weights are then removed.

    Args:
        model: The model.
        taken: For each of the `if_nodes`, the value of its condition, or None if the condition is not known.

    Raises:
        ValueError: The number of Ifs in the model differs from the length of `taken`.
    """
    copy = model.clone()
    copy.graph.sort()
    names = Counter(value.name for graph in copy.graphs() for value in defined_values(graph))
    for node, condition in reversed([*zip(if_nodes(copy), taken, strict=True)]):
        if condition is not None:
            _inline(node, node.attributes["then_branch" if condition else "else_branch"].as_graph(), names)
    RemoveUnusedNodesPass()(copy)
    return copy


def defined_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the inputs and weights of one graph, and the results of its nodes."""
    yield from (v for v in graph.inputs if not v.is_initializer())
    yield from graph.initializers.values()
    for node in graph:
        yield from (v for v in node.outputs if v.name)


def _inline(node: ir.Node, branch: ir.Graph, names: Counter[str | None]) -> None:
    """Replace an If by the nodes of `branch`. `names` maps each name to the number of the model's values with this name."""
    graph = node.graph
    assert isinstance(graph, ir.Graph), "a node of a model is in a graph"
    results = [*branch.outputs]
    branch.outputs.clear()
    weights = [*branch.initializers.values()]
    branch.initializers.clear()
    for value in (*weights, *(v for inner in branch for v in inner.outputs if v.name)):
        if names[value.name] > 1:
            names[value.name] -= 1
            value.name = next(fresh for n in itertools.count(1) if (fresh := f"{value.name}.{n}") not in names)
            names[value.name] += 1
    for weight in weights:
        graph.register_initializer(weight)
    moved = [*branch]
    branch.remove(moved)
    graph.insert_before(node, moved)
    for old, result in zip(node.outputs, results, strict=True):
        passed = ir.node("Identity", [result])
        new = passed.outputs[0]
        new.name, new.type, new.shape = old.name, old.type, old.shape
        graph.insert_before(node, passed)
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
