"""Value analysis of a model: bounds of each value, and whether the value may be infinite or NaN.

The analysis of terms (`superopt.algebra.value_analysis`) is applied to the model's inputs, weights and nodes.

An input counts as ordinary unless the input may be a mask. A mask has infinite or hugely negative elements. An input may be a
mask if its elements reach one of the following through operators that pass the magnitude of elements on:

- operators that absorb infinities: softmax, minimum, maximum, Where, Clip, Relu, maximum pooling,
- operands that have any magnitude in models: a logarithm's operand, a divisor that is not constant, a power whose exponent is
  not a natural number.

Exporters guard attention with `Where(IsNaN(p), 0, p)`, because the softmax of a row that is entirely masked by infinities is
NaN. Such a guard does nothing if the masks are finite, or if there is no mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir

from superopt.algebra.terms import Term, subterms, variables
from superopt.algebra.value_analysis import ANYTHING, ORDINARY_INPUT, UNBOUNDED, UNKNOWN, ZERO_OR_ONE, Facts, facts_of
from superopt.errors import InvalidModelError, ShapeError
from superopt.model.fold import fold
from superopt.model.lift import FLOATS, STANDARD, Array, constant_array, constant_tensor
from superopt.model.operands import fold_literal_term
from superopt.policy import MODEL

GUARDS = frozenset({"IsNaN", "IsInf"})
"""Operators that test elements for NaN or infinity."""
# fmt: off
ABSORBING = frozenset(
    {
        "ArgMax", "ArgMin", "Clip", "Equal", "GlobalMaxPool", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "LogSoftmax",
        "Max", "MaxPool", "Min", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "Relu", "Softmax", "TopK", "Where",
    }
)
"""Operators that give a finite result for some infinite operands."""
PASSING = frozenset(
    {
        "Abs", "Add", "Cast", "Clip", "Concat", "Div", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
        "Identity", "Max", "Min", "Mul", "Neg", "Pad", "Relu", "Reshape", "ScatterElements", "ScatterND", "Slice", "Split",
        "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Unsqueeze", "Where",
    }
)
"""Operators that pass the magnitude of an operand's elements, and infinite elements, on to their results."""
PARTIAL = frozenset(
    {"Acos", "Acosh", "Asin", "Atanh", "Div", "Exp", "Log", "Mod", "Pow", "ReduceLogSum", "Reciprocal", "Sqrt"}
)
"""Operators that may give NaN or an infinity for ordinary operands.

If the algebra cannot express a node with such an operator, nothing is known about the node's results.
"""
# fmt: on
INTEGER = Facts(-MODEL.max_ordinary_magnitude, MODEL.max_ordinary_magnitude)
"""The facts of an integer input: its elements are axis positions and therefore finite numbers."""
SUMS = frozenset({"Add", "Sum"})


class ModelFacts:
    """The bounds of a model's values, and whether a value may be infinite or NaN.

    The caller passes the nodes to `tell` in topological order.
    """

    def __init__(self, model: ir.Model) -> None:
        nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
        values = (v for node in nodes for v in (*node.inputs, *node.outputs) if v is not None)
        self._named = {v.name: v for v in (*model.graph.inputs, *values)}
        self._masks, self._padded = _masks(nodes)
        self._known: dict[ir.Value, Facts] = {}

    @property
    def masks(self) -> frozenset[str]:
        """The names of the values that may be masks. An element of a mask may be any number or infinite."""
        return frozenset(value.name for value in self._masks if value.name)

    def of(self, value: ir.Value) -> Facts:
        """Return the bounds and other facts of a value.

        The value is an input, a weight, or the result of a node that was passed to `tell`.
        """
        if value not in self._known:
            self._known[value] = self._outside(value)
        return self._known[value]

    def named(self, name: str) -> Facts:
        """Return the bounds and other facts of the value with this name, or UNKNOWN if there is no such value."""
        value = self._named.get(name)
        return UNKNOWN if value is None else self.of(value)

    def tell(self, node: ir.Node, terms: Mapping[ir.Value, Term] | None) -> None:
        """Derive and record the bounds and other facts of a node's results.

        `terms` contains the terms of the results over values whose facts are recorded already. `terms` is None if the algebra
        cannot express the node.
        """
        if terms is None:
            self._known.update((v, self._opaque(node, v)) for v in node.outputs)
            return
        for value, term in terms.items():
            self._known[value] = facts_of(term, {x.name: self.named(x.name) for x in variables(term)}, self._folded)

    def rounds_on_purpose(self, node: ir.Node) -> bool:
        """Return whether the node adds at least three operands, directly or through other additions, and two of them cancel.

        Models round numbers by such sums, as in `(x + 1e6) - 1e6`. Two operands cancel if they are a value and its negative, or
        if one is a large positive constant and the other is a large negative constant.
        """
        summands = (
            [*islice(_summands(node), MODEL.max_cancelling_summands)]
            if node.domain in STANDARD and node.op_type in SUMS
            else []
        )
        if len(summands) < 3:
            return False
        known = [known for known in map(self.of, summands) if known.finite]
        if any(one.low > MODEL.max_ordinary_magnitude for one in known) and any(
            one.high < -MODEL.max_ordinary_magnitude for one in known
        ):
            return True
        negated = (v.producer() for v in summands)
        return any(p is not None and p.op_type == "Neg" and p.inputs[0] in summands for p in negated)

    def _opaque(self, node: ir.Node, result: ir.Value) -> Facts:
        """Return the bounds and other facts of a result of a node that the algebra cannot express.

        The facts follow from the operator and from the facts of its operands.
        """
        if result.dtype not in FLOATS:
            return self._outside(result)
        read = [self.of(v) for v in node.inputs if v is not None]
        if node.op_type in PARTIAL or not all(one.defined for one in read):
            return UNKNOWN
        if not all(one.finite for one in read):
            return ANYTHING
        bound = max(
            [
                MODEL.max_ordinary_magnitude,
                *(one.magnitude for one, v in zip(read, filter(None, node.inputs), strict=True) if v.dtype in FLOATS),
            ]
        )
        return Facts(-bound, bound, sure=all(one.sure for one in read))

    def _folded(self, term: Term) -> Facts:
        """Return the bounds and other facts of a term over weights, from the term's value.

        Returns UNKNOWN if the term has variables that are not weights, or if the evaluation fails or is too expensive.
        """
        weights = {x.name: self._named.get(x.name) for x in variables(term)}
        arrays = {name: constant_array(value) for name, value in weights.items() if value is not None}
        known = {name: array for name, array in arrays.items() if array is not None}
        fixed = all(isinstance(n, int) for t in subterms(term) for n in t.shape)
        if not fixed or len(known) < len(weights) or sum(array.size for array in known.values()) > MODEL.max_folded_elements:
            return UNKNOWN
        try:
            return _of_array(fold([term], known)[term])
        except (InvalidModelError, ShapeError):
            return UNKNOWN

    def _outside(self, value: ir.Value) -> Facts:
        """Return the bounds and other facts of a value that no recorded node computes: an input, a weight, or integers or
        booleans.
        """
        if value.dtype == ir.DataType.BOOL:
            return ZERO_OR_ONE
        if value.dtype not in FLOATS:
            return UNKNOWN if value.dtype is None else INTEGER
        tensor = constant_tensor(value)
        if tensor is not None:
            return _of_weight(tensor)
        if value in self._padded:
            return ANYTHING
        return UNBOUNDED if value in self._masks else ORDINARY_INPUT


def _masks(nodes: list[ir.Node]) -> tuple[set[ir.Value], set[ir.Value]]:
    """Return the values that may be masks, and the values whose elements a Where may replace.

    A mask has infinite or hugely negative elements. A value may be a mask if its elements reach, through operators that pass
    magnitudes on, an operator that absorbs infinities (`ABSORBING`) or an operand for which any magnitude is usual.
    """
    reaching: set[ir.Value] = set()
    padded: set[ir.Value] = set()
    for node in reversed(nodes):
        passed = node.domain in STANDARD and node.op_type in PASSING
        for place, value in enumerate(node.inputs):
            if value is None or value.dtype not in FLOATS:
                continue
            if passed and any(v in reaching for v in node.outputs):
                reaching.add(value)
            if passed and any(v in padded for v in node.outputs):
                padded.add(value)
            if node.domain not in STANDARD:
                continue
            if node.op_type in ABSORBING or place in _any_magnitude(node):
                reaching.add(value)
            if node.op_type == "Where":
                padded.add(value)
    return reaching, padded


def _summands(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the summands of an addition. If a summand is itself the result of an addition, the inner summands are yielded."""
    stack = [v for v in node.inputs if v is not None]
    while stack:
        value = stack.pop()
        producer = value.producer()
        if producer is not None and producer.domain in STANDARD and producer.op_type in SUMS:
            stack += [v for v in producer.inputs if v is not None]
        else:
            yield value


def _any_magnitude(node: ir.Node) -> Iterator[int]:
    """Yield the positions of the operands for which values of any magnitude are usual, such as the operand of a Log."""
    match node.op_type:
        case "Log" | "Reciprocal":
            yield 0
        case "Div" if _array(node, 1) is None:
            yield 1
        case "Pow":
            exponent = _array(node, 1)
            if exponent is None or exponent.size != 1 or float(exponent) < 0 or float(exponent) != int(exponent):
                yield from (0, 1)


def _array(node: ir.Node, place: int) -> Array | None:
    """Return the operand at this position as an array, or None if the operand is absent or not constant."""
    value = node.inputs[place]
    return None if value is None else constant_array(value)


_weights: WeakKeyDictionary[ir.TensorProtocol, Facts] = WeakKeyDictionary()
"""A cache of the facts of weights, by tensor. Several copies of a model share their tensors."""


def folded_literal_facts(term: Term) -> Facts:
    """Return the bounds and other facts of a term without variables, from the term's value.

    Return UNKNOWN if an extent is not a number, or if the term is too large to be evaluated.
    """
    every = [*subterms(term)]
    if not all(isinstance(n, int) for t in every for n in t.shape):
        return UNKNOWN
    if sum(math.prod(t.sizes) for t in every) > MODEL.max_narrowed_elements:
        return UNKNOWN
    return _of_array(fold_literal_term(term, np.float64))


def _of_weight(tensor: ir.TensorProtocol) -> Facts:
    try:
        known = _weights.get(tensor)
        if known is None:
            known = _weights[tensor] = _of_stored(tensor)
    except TypeError:  # a tensor without weak references, or without a hash
        return _of_array(tensor.numpy())
    return known


def _of_stored(tensor: ir.TensorProtocol) -> Facts:
    """Return the bounds and other facts of the tensor's elements. If the tensor is in a file, the file is unmapped again."""
    mapped = isinstance(tensor, ir.ExternalTensor) and tensor.raw is None
    found = _of_array(tensor.numpy())
    if mapped and isinstance(tensor, ir.ExternalTensor):
        tensor.release()
    return found


def _of_array(array: Array) -> Facts:
    if not array.size:
        return INTEGER
    low, high = float(array.min()), float(array.max())
    if np.isnan(low) or np.isnan(high):
        return Facts(nan=True)
    zero = low <= 0 <= high and not bool(array.all())
    return Facts(low, high, zero, defined=bool(np.isfinite(low) and np.isfinite(high)))


def is_guard(node: ir.Node) -> bool:
    """Return whether the node tests elements for NaN or infinity."""
    return node.domain in STANDARD and node.op_type in GUARDS
