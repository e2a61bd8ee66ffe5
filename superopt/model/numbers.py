"""What values of a model are numbers, whatever numbers its inputs hold: none is infinite, and none is no number (NaN).

Exporters guard attention by `Where(IsNaN(p), 0, p)`, for a softmax over a row that is masked as a whole by infinities has no
value. Where masks are finite, or there is none, there is nothing to guard against. That a sum overflows is outside, as
everywhere in superopt (README, Limits).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from superopt.errors import InvalidModelError, ShapeError
from superopt.graph import Term, subterms, variables
from superopt.model.fold import fold
from superopt.model.lift import FLOATS, STANDARD, Array, constant_array
from superopt.ranges import ANY, NONE, Range, range_of

GUARDS = frozenset({"IsNaN", "IsInf"})
"""Operators that say where there is no number."""
# fmt: off
TOTAL = frozenset(
    {
        "Abs", "Add", "Atan", "Cast", "Ceil", "Concat", "Cos", "Expand", "Flatten", "Floor", "Gather", "GatherElements",
        "GatherND", "Identity", "MatMul", "Mul", "Neg", "Reshape", "Round", "Sign", "Sin", "Slice", "Split", "Squeeze", "Sub",
        "Transpose", "Unsqueeze", "Where",
    }
)
# fmt: on
"""Operators that make numbers of numbers, whatever these are; looked at where a node does not lift."""
MOST = 1 << 18
"""Elements of weights up to which it is computed what comes of them where nothing else shows that it is numbers."""


class Numbers:
    """Of values of a model whose nodes are told in topological order, between what numbers they lie.

    Nothing is found out where the model guards against nothing.
    """

    def __init__(self, model: ir.Model) -> None:
        nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
        self._inputs = {*model.graph.inputs}
        self._guarded = any(map(is_guard, nodes))
        self._named = {v.name: v for node in nodes for v in (*node.inputs, *node.outputs) if v is not None}
        self._known: dict[ir.Value, Range] = {}

    def certain(self, value: ir.Value | None) -> bool:
        """Whether the value surely holds numbers alone."""
        return value is not None and self._of(value).number

    def tell(self, node: ir.Node, terms: Mapping[ir.Value, Term] | None) -> None:
        """What the node computes, in terms of values told of before, of inputs and of weights; None if that is not known."""
        if not self._guarded:
            return
        if terms is None:
            total = node.domain in STANDARD and node.op_type in TOTAL
            numbers = total and all(self.certain(value) for value in node.inputs if value is not None)
            self._known.update((v, ANY if numbers else self._outside(v)) for v in node.outputs)
            return
        for value, term in terms.items():
            read = ((x.name, self._named.get(x.name)) for x in variables(term))
            self._known[value] = range_of(term, {name: self._of(v) for name, v in read if v is not None}, self._computed)

    def _computed(self, term: Term) -> Range:
        """Of a term of weights, what comes out of it where that is soon computed."""
        weights = {x.name: self._named.get(x.name) for x in variables(term)}
        arrays = {name: constant_array(value) for name, value in weights.items() if value is not None}
        known = {name: array for name, array in arrays.items() if array is not None}
        fixed = all(isinstance(n, int) for t in subterms(term) for n in t.shape)
        if not fixed or len(known) < len(weights) or sum(array.size for array in known.values()) > MOST:
            return NONE
        try:
            return _of_array(fold([term], known)[term])
        except (InvalidModelError, ShapeError):
            return NONE

    def _of(self, value: ir.Value) -> Range:
        if value not in self._known:
            self._known[value] = self._outside(value)
        return self._known[value]

    def _outside(self, value: ir.Value) -> Range:
        """Of a value that no term tells of: inputs of the model hold numbers, weights what they hold."""
        if value.dtype not in FLOATS:
            return NONE if value.dtype is None else ANY
        array = constant_array(value)
        if array is None:
            return ANY if value in self._inputs else NONE
        return _of_array(array)


def _of_array(array: Array) -> Range:
    if not np.isfinite(array).all():
        return NONE
    return Range(float(array.min()), float(array.max()), bool((array == 0).any())) if array.size else ANY


def is_guard(node: ir.Node) -> bool:
    return node.domain in STANDARD and node.op_type in GUARDS
