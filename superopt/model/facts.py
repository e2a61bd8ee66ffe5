"""Value analysis of a model: bounds of each value, and whether the value may be infinite or NaN.

The analysis of terms (`superopt.algebra.value_analysis`) is applied to the model's inputs, weights and nodes.

The elements of an input are assumed to be ordinary (at most `MODEL.max_ordinary_magnitude` in magnitude) unless the input may
be a mask. A mask has infinite or hugely negative elements. An input may be a mask if its elements reach an operand of one of
two kinds, either directly or through operators that give large results for large operands (`PASSING`). The first kind is an
operand of an operator that absorbs infinities, such as softmax, maximum, Where, Clip or Relu (`ABSORBING`). The second kind is
an operand that is not assumed to be ordinary: the operand of a logarithm, a divisor that is not constant, or the base or the
exponent of a power. A power whose exponent is a natural number has no operand of the second kind.

Exporters guard attention with `Where(IsNaN(p), 0, p)`, because the softmax of a row is NaN if infinities mask the entire row.
This guard has no effect if the masks are finite, or if there is no mask.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir

from superopt.algebra.terms import Attribute, Term, subterms, variables
from superopt.algebra.value_analysis import (
    ANYTHING,
    ORDINARY_INPUT,
    UNBOUNDED,
    UNKNOWN,
    ZERO_OR_ONE,
    Facts,
    facts_of,
    large_summands_cancel,
)
from superopt.errors import InvalidModelError, ShapeError
from superopt.model.bodies import bodies_in
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
"""Operators whose results can contain elements as large as an operand's elements, including infinite elements."""
PARTIAL = frozenset(
    {
        "Acos", "Acosh", "Asin", "Atanh", "Cosh", "Det", "Div", "Exp", "Log", "Mod", "Pow", "ReduceLogSum", "Reciprocal",
        "Sinh", "Sqrt", "Tan",
    }
)
"""Operators that may give NaN or an infinity for ordinary operands (finite operands of moderate magnitude).

If a node has one of these operators and the algebra cannot express the node, nothing is known about its results.
"""
# fmt: on
INTEGER = Facts(-MODEL.max_ordinary_magnitude, MODEL.max_ordinary_magnitude)
"""The facts of a value that contains integers. The integers are assumed to be axis positions, whose magnitude is ordinary."""
KNOWN_DOMAINS = frozenset({*STANDARD, "ai.onnx.ml"})
"""Domains whose operators, except those in PARTIAL, give ordinary results (finite, of moderate magnitude) for ordinary
operands.

Nothing is known about the results of operators that are in any other domain or have graphs as attributes.
"""
SUMS = frozenset({"add", "sub"})
PRODUCTS = frozenset({"mul", "matmul"})
# fmt: off
MOVING = frozenset(
    {
        "concat", "depth_to_space", "expand", "gather", "ones", "pixel_shuffle", "repeat", "reshape", "reverse", "slice",
        "space_to_depth", "stride", "tile", "transpose", "zeros",
    }
)
# fmt: on
"""Operators of the algebra that only move elements or fill tensors, and do no arithmetic."""
GraphOrNone: TypeAlias = "ir.Graph | ir.Function | None"
Moves: TypeAlias = "tuple[tuple[str, int, tuple[tuple[str, Attribute], ...]], ...]"
"""The operators that move the elements of a sum's operand before the sum is computed. Each item consists of an operator, the
position of the operand that the operator moves, and the operator's attributes.
"""


# fmt: off
_PASSES_ZEROS = frozenset(
    {
        "Add", "Cast", "Clip", "Concat", "Div", "Expand", "Flatten", "Gather", "Identity", "LeakyRelu", "Max", "Min", "Mul",
        "Neg", "PRelu", "Pad", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Reshape", "Slice", "Split", "Sqrt",
        "Squeeze", "Sub", "Sum", "Tanh", "Tile", "Transpose", "Unsqueeze", "Where",
    }
)
# fmt: on
"""ONNX operators for which the sign of a zero in an operand can determine the sign of a zero in the result."""
_TELLS_TINY_APART = ("ArgMax", "ArgMin", "Log", "TopK")
"""ONNX operators that give different results for different tiny elements of their first operand."""
_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


_STEPS = frozenset({"Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "Round"})
_ROUNDED = frozenset({"Add", "Div", "Mul", "Sub"})
_CHAINED = _ROUNDED | {"Expand", "Flatten", "Identity", "Neg", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}


def _has_steps(node: ir.Node) -> bool:
    """Return whether the node computes a step function of floating-point numbers, such as Floor or a comparison."""
    if node.domain not in STANDARD or not node.inputs or node.inputs[0] is None or node.inputs[0].dtype not in FLOATS:
        return False
    return node.op_type in _STEPS or (node.op_type == "Cast" and node.outputs[0].dtype not in FLOATS)


def _chain(value: ir.Value | None) -> tuple[ir.Value | None, list[ir.Node]]:
    """Follow a chain of nodes from `value` back to the start of the chain. Return the value at the start, and the nodes.

    Each node of the chain has exactly one operand that is not constant.
    """
    chain: list[ir.Node] = []
    while value is not None and (producer := value.producer()) is not None:
        operands = [v for v in producer.inputs if v is not None and constant_tensor(v) is None]
        if producer.op_type not in _CHAINED or len(operands) != 1 or producer.domain not in STANDARD:
            break
        chain.append(producer)
        value = operands[0]
    return value, chain


def _is_exact(value: ir.Value) -> bool:
    """Return whether the value has no rounding errors: it is an input of the model, the result of a Range, or the result of a
    Cast from integers or booleans.
    """
    producer = value.producer()
    if producer is None:
        return value.is_graph_input()
    first = producer.inputs[0] if producer.inputs else None
    return producer.op_type == "Range" or (producer.op_type == "Cast" and first is not None and first.dtype not in FLOATS)


def _is_tiny(known: Facts) -> bool:
    return -MODEL.max_tiny_error < known.low <= known.high < MODEL.max_tiny_error


def _divides_by_constant(node: ir.Node | None) -> bool:
    divisor = None if node is None else node.inputs[-1]
    return divisor is not None and constant_tensor(divisor) is not None


def _divisors(node: ir.Node, *others: str) -> list[ir.Value]:
    """Return a list with one operand of the node: the divisor of a Div or Reciprocal, or the base of a Pow.

    The sign of a zero in such an operand determines the sign of an infinity in the result.

    The strings in `others` name more operators. For a node of these operators, the list contains the first operand. For any
    other node, and for a Pow whose exponent is a natural number, the list is empty.
    """
    if node.domain not in STANDARD:
        return []
    exponent = node.inputs[1] if node.op_type == "Pow" else None
    powers = None if exponent is None else constant_array(exponent)
    if powers is not None and bool(((powers >= 0) & (powers == np.rint(powers))).all()):
        return []
    place = {"Div": 1, "Reciprocal": 0, "Pow": 0, **dict.fromkeys(others, 0)}.get(node.op_type)
    value = None if place is None or len(node.inputs) <= place else node.inputs[place]
    return [] if value is None else [value]


class SumOperand(NamedTuple):
    """An operand of a sum.

    Attributes:
        sign: 1 if the operand is added, -1 if the operand is subtracted.
        moves: the operators that move the operand's elements before the sum is computed.
        source: the operand before the moves, as a value of the model or as a term.
        graph: the graph whose nodes compute the operand.
        constant: whether the operand does not depend on the model's inputs.
        facts: the bounds and other facts of `source`.
        ordinary: the largest magnitude of an ordinary constant. A larger constant may be in a sum whose purpose is to round a
            number (see `ModelFacts.rounding_sums`).
    """

    sign: int
    moves: Moves
    source: ir.Value | Term
    graph: GraphOrNone
    constant: bool
    facts: Facts
    ordinary: float

    @property
    def large_signs(self) -> set[int]:
        """The signs of the operand's large elements (see `Facts.large_signs`), negated if the operand is subtracted."""
        return {self.sign * sign for sign in self.facts.large_signs(constant=self.constant, ordinary=self.ordinary)}


class ModelFacts:
    """The bounds of a model's values, and whether a value may be infinite or NaN.

    The caller must call the method `tell` for each node, in topological order.
    """

    def __init__(self, model: ir.Model) -> None:
        nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
        self._top = model.graph
        self._outer: dict[GraphOrNone, GraphOrNone] = {graph: node.graph for node in nodes for graph in bodies_in(node)}
        self._named: dict[tuple[GraphOrNone, str | None], ir.Value] = {
            (graph, value.name): value
            for graph in (model.graph, *(body for node in nodes for body in bodies_in(node)))
            for value in (*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs))
        }
        self._masks, self._padded = _masks(nodes)
        self._known: dict[ir.Value, Facts] = {}
        self._terms: dict[ir.Value, Term] = {}
        self._nodes: dict[tuple[GraphOrNone, Term], list[ir.Node]] = {}

    @property
    def masks(self) -> frozenset[str]:
        """The names of the values that may be masks. An element of a mask may be any number or an infinity."""
        return frozenset(value.name for value in self._masks if value.name)

    def of(self, value: ir.Value) -> Facts:
        """Return the bounds and other facts of a value.

        The value must be an input, a weight, or the result of a node that was passed to `tell`.
        """
        if value not in self._known:
            self._known[value] = self._outside(value)
        return self._known[value]

    def named(self, name: str, graph: GraphOrNone = None) -> Facts:
        """Return the bounds and other facts of the value with this name, or UNKNOWN if there is no such value.

        The name is looked up in the graph (the top graph by default), and then in the graphs around this graph.
        """
        value = self._value(name, graph or self._top)
        return UNKNOWN if value is None else self.of(value)

    def _value(self, name: str, graph: GraphOrNone) -> ir.Value | None:
        """Find the value with this name that nodes of the graph can read. Return None if there is no such value."""
        while graph is not None:
            value = self._named.get((graph, name))
            if value is not None:
                return value
            graph = self._outer.get(graph)
        return None

    def tell(self, node: ir.Node, terms: Mapping[ir.Value, Term] | None) -> None:
        """Derive and record the bounds and other facts of a node's results.

        `terms` maps the results to their terms. `terms` is None if the algebra cannot express the node. The facts of the
        variables in the terms must be recorded already.
        """
        if terms is None:
            self._known.update((v, self._opaque(node, v)) for v in node.outputs)
            return
        for value, term in terms.items():
            self._known[value] = self._of_term(term, node.graph)
            self._nodes.setdefault((node.graph, term), []).append(node)
            self._terms[value] = term

    def rounding_sums(self) -> frozenset[ir.Node]:
        """Return the nodes of sums whose purpose is to round a number, as in `(x + 1e6) - 1e6`.

        A sum is assumed to have this purpose if the sum has at least three operands, and two of the operands cancel. Two
        operands cancel if one operand is the negative of the other operand. Two operands also cancel if, at some position, one
        may be large and positive and the other may be large and negative. The operands of a sum include the operands of inner
        sums, even if operators between the sums move or negate elements.

        The result also contains the nodes of sums that compute rounding errors, as in Dekker's product of two numbers
        (https://doi.org/10.1007/BF01397083). In such a sum, an operand is a product, and one of the nodes described above
        computes a factor of this product.
        """
        found: set[ir.Node] = set()
        seen: set[tuple[GraphOrNone, Term]] = set()
        whole: list[tuple[set[tuple[GraphOrNone, Term]], set[SumOperand]]] = []
        for value, term in reversed(self._terms.items()):
            graph = _graph_of(value)
            if term.op in SUMS and (graph, term) not in seen:
                sums, operands = self._sum(term, graph, _ordinary_constant(value.dtype))
                seen |= sums
                whole.append((sums, operands))
                if _cancel(operands):
                    found.update(node for inner in sums for node in self._computing(*inner))
        for sums, operands in reversed(whole) if found else ():
            if any(self._has_factor_of(operand, found) for operand in operands):
                found.update(node for inner in sums for node in self._computing(*inner))
        return frozenset(found)

    def _has_factor_of(self, operand: SumOperand, nodes: Collection[ir.Node]) -> bool:
        """Return whether the operand is a product with a factor that one of the nodes computes.

        Operators that move or negate elements may be between the node and the product.
        """
        if not isinstance(operand.source, Term) or operand.source.op not in PRODUCTS:
            return False
        stack = [(arg, operand.graph) for arg in operand.source.args]
        while stack:
            factor, graph = stack.pop()
            value = self._value(factor.name, graph) if factor.is_variable else None
            if value is not None and value.producer() in nodes:
                return True
            if value is not None and value in self._terms:
                factor, graph = self._terms[value], _graph_of(value)
            if factor.op in MOVING or factor.op == "scale":
                stack += [(arg, graph) for arg in factor.args]
        return False

    def stepped_chains(self) -> frozenset[ir.Node]:
        """Return the nodes of chains that compute the operand of a step function, such as Floor.

        Each chain starts at a value without rounding errors: an input, the result of a Range, or the result of a Cast from
        integers or booleans. All other operands in the chain are constants, and at least two nodes of the chain do arithmetic.

        For example, models compute positions with such chains, as in `floor(p * 0.7 / 0.7)`. If a rewrite changes the rounding
        in such a chain, a position at a step may change by one.
        """
        found: set[ir.Node] = set()
        for node in ir.traversal.RecursiveGraphIterator(self._top):
            for value in node.inputs if _has_steps(node) else ():
                source, chain = _chain(value)
                if source is not None and _is_exact(source) and sum(one.op_type in _ROUNDED for one in chain) > 1:
                    found.update(chain)
        return frozenset(found)

    def signed_zeros(self) -> frozenset[ir.Value]:
        """Return the values for which the sign of a zero can determine the sign of an infinity.

        The result contains each divisor that may be 0, and each base of a power that may be 0. If an operator such as a
        product, a sum or a move (`_PASSES_ZEROS`) computes one of these values, the result also contains each operand that may
        be 0. MatMul, Conv and other sums of many products are not traced back, because the sign of a zero matters only if all
        of the products are 0.
        """
        nodes = ir.traversal.RecursiveGraphIterator(self._top)
        divisors = [value for node in nodes for value in _divisors(node)]
        return self._traced(divisors, lambda known: known.zero, lambda node: node.op_type in _PASSES_ZEROS)

    def relative_values(self) -> frozenset[ir.Value]:
        """Return the products, quotients and differences that need a small relative error.

        A value needs a small relative error if it is a divisor, an operand of a logarithm, an operand of an operator that
        orders elements, or an operand of a comparison with tiny numbers. A quotient also needs a small relative error in three
        cases: the quotient is the operand of a square root, the quotient is multiplied by numbers that may exceed
        `MODEL.max_ordinary_magnitude`, or the dividend may exceed this magnitude. These three cases do not apply to quotients
        with a constant divisor.

        If a product, quotient, root, move, maximum, sum over axes or sum with tiny numbers needs a small relative error, its
        operands also need a small relative error. Values that are never near 0 are left out.
        """
        needed: list[ir.Value] = []
        enlarged: list[ir.Value] = []
        for node in ir.traversal.RecursiveGraphIterator(self._top):
            needed += _divisors(node, *_TELLS_TINY_APART)
            operands = [value for value in node.inputs if value is not None]
            if node.op_type in _COMPARISONS and any(_is_tiny(self.of(value)) for value in operands):
                needed += operands
            if node.op_type == "Sqrt" or (node.op_type == "Mul" and any(map(self._may_be_large, operands))):
                enlarged += operands
            elif node.op_type == "Div" and operands and self._may_be_large(operands[0]):
                enlarged += node.outputs

        def passes(node: ir.Node) -> bool:
            shifted = node.op_type == "Add" and any(v is not None and _is_tiny(self.of(v)) for v in node.inputs)
            return shifted or node.op_type in _PASSES_ZEROS - {"Add", "Sub", "Sum", "Tanh"}

        def near_zero(known: Facts) -> bool:
            return known.low < MODEL.max_tiny_error and known.high > -MODEL.max_tiny_error

        def computed_by(values: Iterable[ir.Value], *operators: str) -> set[ir.Value]:
            found = self._traced(values, near_zero, passes)
            return {v for v in found if (producer := v.producer()) is not None and producer.op_type in operators}

        quotients = {v for v in computed_by(enlarged, "Div", "Reciprocal") if not _divides_by_constant(v.producer())}
        return frozenset(computed_by(needed, "Div", "Mul", "Reciprocal", "Sub") | quotients)

    def _may_be_large(self, value: ir.Value) -> bool:
        """Return whether elements of the value may exceed the magnitude of ordinary inputs (`MODEL.max_ordinary_magnitude`).

        For the result of an Exp, the method returns whether the operand may exceed the logarithm of this magnitude.
        """
        producer = value.producer()
        if producer is None or producer.op_type != "Exp" or producer.inputs[0] is None:
            return not self.of(value).ordinary
        return self.of(producer.inputs[0]).high > math.log(MODEL.max_ordinary_magnitude)

    def _traced(
        self, values: Iterable[ir.Value], counts: Callable[[Facts], bool], passes: Callable[[ir.Node], bool]
    ) -> frozenset[ir.Value]:
        """Trace `values` back from results of nodes to operands. Return all values that are reached, including `values`.

        The trace continues only through nodes for which `passes` returns True.

        A value is left out and not traced if it is not floating-point, or if `counts` returns False for its facts.
        """
        stack, found = list(values), set[ir.Value]()
        while stack:
            value = stack.pop()
            if value in found or value.dtype not in FLOATS or not counts(self.of(value)):
                continue
            found.add(value)
            producer = value.producer()
            if producer is not None and passes(producer):
                stack += [operand for operand in producer.inputs if operand is not None]
        return frozenset(found)

    def is_nested(self, term: Term, graph: GraphOrNone) -> bool:
        """Return whether the term nests a commutative operator, as in `(a + b) + c`.

        `graph` is the graph whose nodes compute the term.
        """
        return any(self._without_copies(arg, graph).op == term.op for arg in term.args)

    def _computing(self, graph: GraphOrNone, term: Term) -> list[ir.Node]:
        """Return the nodes that compute the term, in the graph or in the graphs around this graph."""
        while graph is not None:
            if (graph, term) in self._nodes:
                return self._nodes[graph, term]
            graph = self._outer.get(graph)
        return []

    def _sum(self, root: Term, graph: GraphOrNone, ordinary: float) -> tuple[set[tuple[GraphOrNone, Term]], set[SumOperand]]:
        """Return two sets: the sum `root` with its inner sums, and the operands of these sums that are not sums themselves.

        `ordinary` is the largest magnitude of an ordinary constant (see `SumOperand`).
        """
        sums: set[tuple[GraphOrNone, Term]] = set()
        operands: set[SumOperand] = set()
        stack: list[tuple[Term, GraphOrNone, int, Moves]] = [(root, graph, 1, ())]
        done = {*stack}
        while stack and len(done) <= MODEL.max_cancelling_summands:
            term, graph, sign, moves = stack.pop()
            value = self._value(term.name, graph) if term.is_variable else None
            below: list[tuple[Term, GraphOrNone, int, Moves]] = []
            if value is not None and value in self._terms:
                below = [(self._terms[value], _graph_of(value), sign, moves)]
            elif term.op in SUMS:
                sums.add((graph, term))
                others = -sign if term.op == "sub" else sign
                below = [(arg, graph, others if place else sign, moves) for place, arg in enumerate(term.args)]
            elif term.op == "scale" and term["factor"] == -1:
                below = [(term.args[0], graph, -sign, moves)]
            elif term.op in MOVING and term.args:
                below = [(arg, graph, sign, (*moves, (term.op, place, term.attributes))) for place, arg in enumerate(term.args)]
            else:
                operands.add(SumOperand(sign, moves, value or term, graph, term.constant, self._of_term(term, graph), ordinary))
            stack += [one for one in below if one not in done]
            done.update(below)
        return sums, operands

    def _without_copies(self, term: Term, graph: GraphOrNone) -> Term:
        """If the term is a variable whose value a node computes, replace the variable by the node's term. Repeat this step as
        long as it is possible, and return the last term.
        """
        while term.is_variable and (value := self._value(term.name, graph)) is not None and value in self._terms:
            term, graph = self._terms[value], _graph_of(value)
        return term

    def _of_term(self, term: Term, graph: GraphOrNone) -> Facts:
        """Return the bounds and other facts of a term. The facts of the values of its variables must be recorded."""
        known = {x.name: self.named(x.name, graph) for x in variables(term)}
        return facts_of(term, known, lambda weights: self._folded(weights, graph))

    def _opaque(self, node: ir.Node, result: ir.Value) -> Facts:
        """Return the bounds and other facts of `result`, which is computed by a node that the algebra cannot express.

        The facts follow from the operator and from the facts of its operands.
        """
        if result.dtype not in FLOATS:
            return self._outside(result)
        if node.domain not in KNOWN_DOMAINS or any(True for _ in bodies_in(node)):
            return UNKNOWN
        if node.op_type == "ConstantOfShape":
            value = node.attributes.get("value")
            return _of_array(np.zeros(1) if value is None else value.as_tensor().numpy())
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

    def _folded(self, term: Term, graph: GraphOrNone) -> Facts:
        """Evaluate a term over weights, and return the bounds and other facts of its value.

        Returns UNKNOWN if the term has variables that are not weights, or if the evaluation fails or is too expensive.
        """
        weights = {x.name: self._value(x.name, graph) for x in variables(term)}
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
        """Return the bounds and other facts of an input, a weight, or a value that contains integers or booleans."""
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
    """Return two sets of values: values that may be masks, and values whose elements a Where may replace.

    A mask has infinite or hugely negative elements. A value may be a mask if its elements reach an operand of one of two kinds,
    either directly or through operators in `PASSING`. The first kind is an operand of an operator in `ABSORBING`. The second
    kind is an operand at a position that `_any_magnitude` yields, such as the operand of a Log.
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


def _ordinary_constant(kind: ir.DataType | None) -> float:
    """Return the largest magnitude of an ordinary constant of this type. A larger constant may be in a sum whose purpose is to
    round a number (see `ModelFacts.rounding_sums`).
    """
    return MODEL.max_ordinary_half_constant if kind == ir.DataType.FLOAT16 else MODEL.max_ordinary_magnitude


def _cancel(operands: Collection[SumOperand]) -> bool:
    """Return whether there are at least three operands, and two of them cancel in a sum.

    If the magnitude of a constant is ordinary, the constant and its negative do not count as operands that cancel. Only larger
    constants are assumed to round a number on purpose.
    """
    if len(operands) < 3:
        return False
    if large_summands_cancel([one.large_signs for one in operands]):
        return True
    signs = collections.defaultdict(set)
    for one in operands:
        if not (one.constant and one.facts.ordinary and one.facts.magnitude <= one.ordinary):
            signs[one.moves, one.source].add(one.sign)
    return any(len(both) > 1 for both in signs.values())


def _graph_of(value: ir.Value) -> GraphOrNone:
    """Return the graph whose node computes the value, or None if the value is an input or a weight."""
    producer = value.producer()
    return None if producer is None else producer.graph


def _any_magnitude(node: ir.Node) -> Iterator[int]:
    """Yield the positions of the operands that are not assumed to have an ordinary magnitude, such as the operand of a Log."""
    match node.op_type:
        case "Log" | "Reciprocal":
            yield 0
        case "Div" if _array(node, 1) is None:
            yield 1
        case "Pow":
            exponent = _array(node, 1)
            if exponent is None or exponent.size != 1 or exponent.item() < 0 or not float(exponent.item()).is_integer():
                yield from (0, 1)


def _array(node: ir.Node, place: int) -> Array | None:
    """Return the operand at this position as an array, or None if the operand is absent or not constant."""
    value = node.inputs[place]
    return None if value is None else constant_array(value)


_weights: WeakKeyDictionary[ir.TensorProtocol, Facts] = WeakKeyDictionary()
"""A cache of the facts of weights. The key is the tensor, because copies of a model share their tensors."""


def folded_literal_facts(term: Term) -> Facts:
    """Evaluate a term without variables, and return the bounds and other facts of its value.

    Returns UNKNOWN if an extent is not a number, or if the term is too large to be evaluated.
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
    """Return the bounds and other facts of the tensor's elements. If the tensor's file must be mapped into memory, the file is
    unmapped afterwards.
    """
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
