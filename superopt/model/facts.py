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

import collections
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir

from superopt.algebra.terms import Attribute, Term, subterms, variables
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
SUMS = frozenset({"add", "sub"})
# fmt: off
MOVING = frozenset(
    {
        "concat", "depth_to_space", "expand", "gather", "ones", "pixel_shuffle", "repeat", "reshape", "reverse", "slice",
        "space_to_depth", "stride", "tile", "transpose", "zeros",
    }
)
# fmt: on
"""Operators of the algebra that only move elements or fill tensors, and do no arithmetic."""
Moves: TypeAlias = "tuple[tuple[str, int, tuple[tuple[str, Attribute], ...]], ...]"
"""The operators that move an operand's elements on their way to a sum: operator, position of the operand and attributes."""


class Summand(NamedTuple):
    """An operand of a sum.

    Attributes:
        sign: 1 if the operand is added, -1 if the operand is subtracted.
        moves: the operators that move the operand's elements before they are added.
        term: the operand before the moves.
        facts: the bounds and other facts of `term`.
    """

    sign: int
    moves: Moves
    term: Term
    facts: Facts


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
        self._terms: dict[str, Term] = {}
        self._nodes: dict[Term, list[ir.Node]] = {}

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
            self._known[value] = self._of_term(term)
            self._nodes.setdefault(term, []).append(node)
            if value.name:
                self._terms[value.name] = term

    def rounding_sums(self) -> frozenset[ir.Node]:
        """Return the nodes whose results are part of a sum that rounds on purpose.

        Models round numbers by sums of at least three operands, two of which cancel, as in `(x + 1e6) - 1e6`. Two operands
        cancel if one is the negative of the other, or if one is large and positive and the other is large and negative. The
        operands of a sum include the operands of inner sums, also where operators between the sums move or negate elements.
        """
        found: set[ir.Node] = set()
        for term in self._nodes:
            if term.op in SUMS:
                sums, operands = self._sum(term)
                if _cancel(operands):
                    found.update(node for inner in sums for node in self._nodes.get(inner, ()))
        return frozenset(found)

    def is_nested(self, term: Term) -> bool:
        """Return whether an operand of the commutative operator at the root is the result of the same operator."""
        return any(self._without_copies(arg).op == term.op for arg in term.args)

    def _sum(self, root: Term) -> tuple[list[Term], list[Summand]]:
        """Return a sum and its inner sums, and the operands of all these sums that are no sums themselves."""
        sums: list[Term] = []
        operands: list[Summand] = []
        stack: list[tuple[Term, int, Moves]] = [(root, 1, ())]
        while stack and len(operands) < MODEL.max_cancelling_summands:
            term, sign, moves = stack.pop()
            if term.is_variable and term.name in self._terms:
                stack.append((self._terms[term.name], sign, moves))
            elif term.op in SUMS:
                sums.append(term)
                first, *others = term.args
                stack += [(first, sign, moves), *((arg, -sign if term.op == "sub" else sign, moves) for arg in others)]
            elif term.op == "scale" and term["factor"] == -1:
                stack.append((term.args[0], -sign, moves))
            elif term.op in MOVING and term.args:
                stack += [(arg, sign, (*moves, (term.op, place, term.attributes))) for place, arg in enumerate(term.args)]
            else:
                operands.append(Summand(sign, moves, term, self._of_term(term)))
        return sums, operands

    def _without_copies(self, term: Term) -> Term:
        """Return the term that computes the variable's value, or the term itself if it is not the result of a node."""
        while term.is_variable and term.name in self._terms:
            term = self._terms[term.name]
        return term

    def _of_term(self, term: Term) -> Facts:
        """Return the bounds and other facts of a term over values whose facts are recorded."""
        return facts_of(term, {x.name: self.named(x.name) for x in variables(term)}, self._folded)

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


def _cancel(operands: list[Summand]) -> bool:
    """Return whether a sum of these operands has at least three operands, two of which cancel."""
    if len(operands) < 3:
        return False
    large = {one.sign * one.facts.large_sign for one in operands}
    signs = collections.defaultdict(set)
    for one in operands:
        signs[one.moves, one.term].add(one.sign)
    return {-1, 1} <= large or any(len(both) > 1 for both in signs.values())


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
