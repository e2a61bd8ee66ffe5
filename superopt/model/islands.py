"""Islands: the convex regions of a model's graphs that the algebra can express.

A node is called liftable if the algebra can express the node's results as terms. Only liftable nodes can be in an island. Each
node has a level. On a path from the inputs, the level rises by one each time the path leaves the liftable nodes and returns to
them. The level also rises at a node that would extend a sum or product beyond `MODEL.max_chain_operands` operands. An island is
a connected set of liftable nodes that have the same level and the same floating-point type. Nodes that read the same value
count as connected. Because all nodes of an island have the same level, no path leaves an island and returns to it. So the model
has no cycle after the island's outputs are replaced.

Some nodes use only the shape of a value. If the shape is known, such a node no longer reads the value after rewriting.
Therefore, a liftable node counts as a reader of a value only if the value is a variable of the node's terms.

Nodes that only combine weights, or only move integers, are not in any island. If an island uses the results of such nodes, the
island's terms include the computation of these results.

The top graph and every control flow body have their own islands. A value that a body captures from an outer graph counts as an
input of the body's islands.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from superopt.algebra.dim_binding import FIXED, DimBinding
from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import Term, subterms, variables
from superopt.algebra.value_analysis import UNKNOWN, Facts
from superopt.errors import ShapeError
from superopt.model.bodies import TOP, Scope, bodies_in, control_flow_graphs
from superopt.model.constant_folding import fold_known_values
from superopt.model.facts import MOVING, ModelFacts, is_guard
from superopt.model.lift import BITS, FLOATS, STANDARD, constant_tensor, is_stored, results_of, structured_weight
from superopt.model.load import Model
from superopt.model.lower import lower
from superopt.model.positions import is_position
from superopt.model.quantized import nodes_before_rounding, nodes_in_integers
from superopt.model.views import Views
from superopt.policy import MODEL
from superopt.rules.fp_flags import FpMode

RANDOM = frozenset({"Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"})
"""Operators that have inputs and can give random results."""


@dataclass(frozen=True, eq=False)
class Island:
    """A region of a graph that the algebra can express: its nodes, and the terms that the nodes compute.

    No path leaves the region and returns to it. The variables of the terms stand for values from outside the region. The term
    attribute `constant` is True for a variable that stands for a weight. `condition` is True for a variable that stands for
    booleans. `position` is positive for a variable that stands for integers (indices along an axis). All other variables stand
    for numbers of type `dtype`.

    Attributes:
        nodes: the island's nodes, in topological order.
        values: the term of every value that the nodes produce.
        outputs: the terms of the values that are used outside the island: by other nodes, in a subgraph, or as graph outputs.
        dtype: the floating-point type of the island.
        conditions: names of the outputs that are booleans.
        sizings: bindings of the dynamic dimensions to sample sizes.
        scope: the location of the graph that contains the nodes.
        facts: the bounds of each variable, by name, and whether the variable can be infinite or NaN.
        signed: whether the sign of a zero in the island can determine the sign of an infinity that the model computes.
        relative: whether a value of the island needs a small relative error, for example because the value is a divisor.
    """

    nodes: tuple[ir.Node, ...]
    values: Mapping[str, Term]
    outputs: Mapping[str, Term]
    dtype: ir.DataType
    conditions: frozenset[str] = frozenset()
    sizings: tuple[DimBinding, ...] = FIXED
    scope: Scope = TOP
    facts: Mapping[str, Facts] = field(default_factory=dict)
    signed: bool = False
    relative: bool = False

    @property
    def reads(self) -> dict[ir.Node, tuple[ir.Node | str, ...]]:
        """A mapping from each node to the sources that the node reads. Weights do not count as sources.

        A source is another node of the island, or the name of a value from outside the island.
        """
        inside = set(self.nodes)
        outside = {x.name for x in variables(*self.values.values()) if not x.constant}

        def sources(node: ir.Node) -> Iterator[ir.Node | str]:
            for value in node.inputs:
                producer = None if value is None else value.producer()
                if producer in inside:
                    yield producer
                elif value is not None and value.name in outside:
                    yield _name(value)

        return {node: tuple(dict.fromkeys(sources(node))) for node in self.nodes}

    @property
    def kinds(self) -> list[Hashable]:
        """A list with a key for each node. The key consists of the operator and the shapes of the results, so nodes that differ
        only in attributes have equal keys.
        """
        return [_kind(node) for node in self.nodes]


class Chart:
    """A copy of a model for analysis, divided into islands (the convex regions that the algebra can express).

    Args:
        model: the model.
        views: the `Views` object of the model, if the caller has one.
        mode: the floating-point mode. See `chart_of` for the relaxed mode.
        rounding: nodes whose rounding must not change, such as the nodes of a sum whose purpose is to round a number. No island
            contains these nodes.
        native_half: whether kernels compute in float16. If False, no island contains float16 values in the precise mode.
    """

    def __init__(
        self,
        model: Model,
        views: Views | None = None,
        mode: FpMode = FpMode.FAST,
        rounding: frozenset[ir.Node] = frozenset(),
        *,
        native_half: bool = False,
    ) -> None:
        self.mode, self._rounding, self._native_half = mode, rounding, native_half
        self.views = Views(model) if views is None else views
        self.model, self.opset = self.views.model, self.views.opset
        self._scopes = {graph: scope for scope, graph in control_flow_graphs(self.model).items()}
        nodes = [node for graph in self._scopes for node in graph]
        self._only = _float_type([v for node in nodes for v in node.outputs])
        self._inlined: dict[ir.Value, Term] = {}
        self._structured: dict[ir.Value, Term | None] = {}
        self._levels: dict[ir.Node, int] = {}
        self._reach: dict[tuple[ir.Graph, str | None], int] = {}
        self._widths: dict[tuple[ir.Graph, str, str], int] = {}
        self._inland: set[ir.Value] = set()
        self._settled: set[ir.Value] = set()
        self._outside: set[ir.Node] = set()
        self.facts = ModelFacts(self.model)
        for node in nodes:
            self._place(node)

    def covers(self, node: ir.Node) -> bool:
        """Return whether the node is in an island or needs no island.

        A node needs no island if the node's results are constant, or if the terms of other nodes include the computation of
        these results.
        """
        return node in self._levels or all(v in self._inlined or v in self._settled or is_stored(v) for v in node.outputs)

    def islands(self) -> list[Island]:
        """Return all islands of the model, ordered by their first nodes."""
        return [self.island(nodes) for nodes in self._connected]

    def parallel_islands(self) -> list[Island]:
        """Return one region for each group of equal islands that do not read the same values, such as equal branches that begin
        at different inputs. The region contains the nodes of all islands of the group.

        Islands count as equal if they are in one graph, their levels and floating-point types are equal, and their nodes, in
        topological order, have equal operators and equal result shapes. As for a single island, no path leaves the region and
        returns to it, because all nodes have the same level.
        """
        alike: dict[Hashable, list[list[ir.Node]]] = {}
        for nodes in self._connected:
            first = nodes[0]
            key = self._levels[first], self._float_type(first), first.graph, tuple(map(_kind, nodes))
            alike.setdefault(key, []).append(nodes)
        return [self.island([node for nodes in several for node in nodes]) for several in alike.values() if len(several) > 1]

    @functools.cached_property
    def _connected(self) -> list[list[ir.Node]]:
        """The nodes of each island in topological order. The islands are ordered by their first nodes."""
        together = _Partition()
        for node, level in self._levels.items():
            kind = self._float_type(node)
            for value in (*node.inputs, *node.outputs):
                if value is not None and not self._is_weight(value):
                    together.join(node, (level, kind, node.graph, value))
        groups: dict[object, list[ir.Node]] = {}
        for node in self._levels:
            groups.setdefault(together.of(node), []).append(node)
        return [*groups.values()]

    def island(self, nodes: Sequence[ir.Node]) -> Island:
        """Return an `Island` that contains only the given nodes of one island.

        The nodes must be consecutive in the topological order of their island, so that the result is also convex.
        """
        terms: dict[ir.Value, Term] = {}
        for node in nodes:
            lifted = self._lifted(node, terms)
            assert lifted is not None, "a node of an island lifts"
            terms.update(lifted)
        inside = set(nodes)
        dtype = self._float_type(nodes[0])
        assert dtype is not None, "a node of an island has a floating-point type"
        outputs = {v: t for v, t in terms.items() if self._used_outside(v, inside)}
        conditions = frozenset(_name(v) for v in outputs if v.dtype == ir.DataType.BOOL)
        values, wanted = ({_name(v): t for v, t in found.items()} for found in (terms, outputs))
        graph = _graph_of(nodes[0])
        scope = self._scopes[graph]
        facts = {x.name: self.facts.named(x.name, graph) for x in variables(*values.values())}
        signed, relative = (any(value in some for value in terms) for some in (self._signed_zeros, self._relative_values))
        return Island(tuple(nodes), values, wanted, dtype, conditions, self.views.small, scope, facts, signed, relative)

    @functools.cached_property
    def _signed_zeros(self) -> frozenset[ir.Value]:
        return self.facts.signed_zeros()

    @functools.cached_property
    def _relative_values(self) -> frozenset[ir.Value]:
        return self.facts.relative_values()

    def _used_outside(self, value: ir.Value, inside: set[ir.Node]) -> bool:
        if value.is_graph_output():
            return True
        return any(use.node not in inside and not self._is_idle(use.node, inside) for use in value.uses())

    def _is_idle(self, node: ir.Node, inside: set[ir.Node]) -> bool:
        """Return whether the node is an IsNaN or IsInf whose result is known to be false and is used only by the nodes in
        `inside`.
        """
        if not is_guard(node) or any(v.is_graph_output() for v in node.outputs):
            return False
        return node.outputs[0] in self._inlined and all(use.node in inside for use in node.outputs[0].uses())

    def _is_weight(self, value: ir.Value) -> bool:
        leaf = self._inlined.get(value) or self.views.leaf(value)
        return leaf is not None and leaf.constant

    def _place(self, node: ir.Node) -> None:
        """Decide whether the node can be in an island (a convex region of the model), and record the result.

        If the node can be in an island, this method records the node's level. If a path leaves the nodes that can be in an
        island and later reaches such a node again, this node has a higher level. Only nodes of equal level can be in one
        island. If the node only combines weights or moves integers, this method records the node's terms, so that the terms of
        other nodes can include them.
        """
        lifted = self._lifted(node, {})
        self.facts.tell(node, lifted)
        if lifted is not None and not self._keeps_rounding(node, lifted):
            lifted = None
        if lifted is not None and not self._lowers(lifted):
            lifted = None
        if lifted is not None and all(term.constant for term in lifted.values()):
            self._inlined.update(lifted)
            return
        if lifted is not None and any(map(is_position, lifted.values())):
            self._inlined.update(lifted)
            lifted = None
        if settled := self._is_settled(node):
            self._settled.update(node.outputs)
            if lifted is None:
                self._leave(node)
        graph = _graph_of(node)
        if lifted is not None:
            level = max((self._reach.get((graph, x.name), 0) for x in variables(*lifted.values())), default=0)
            level += self._is_too_wide(graph, lifted)
            self._levels[node] = level
            self._inland.update(node.outputs)
        elif settled:
            level = 0
        else:
            read = (v for v in values_read(node) if v.graph is graph)
            level = max((self._reach.get((graph, v.name), 0) + (v in self._inland) for v in read), default=0)
        self._reach.update(((graph, value.name), level) for value in node.outputs)

    def _is_too_wide(self, graph: ir.Graph, lifted: Mapping[ir.Value, Term]) -> bool:
        """Return whether the node extends a sum or product of earlier nodes beyond `MODEL.max_chain_operands` operands.

        An island is a convex region of the model. Nested sums in one island become a single sum of all operands, so the island
        must end before a node that makes this sum too long. Products are treated in the same way. This method also records the
        operand count of each result that is a sum or product.
        """
        cut = False
        for term in lifted.values():
            if not term.is_variable and operator(term.op).commutative:
                width = sum(self._widths.get((graph, term.op, a.name), 1) if a.is_variable else 1 for a in term.args)
                cut = cut or len(term.args) < width > MODEL.max_chain_operands
        for value, term in lifted.items():
            if not term.is_variable and operator(term.op).commutative:
                widths = (self._widths.get((graph, term.op, a.name), 1) if a.is_variable and not cut else 1 for a in term.args)
                self._widths[graph, term.op, _name(value)] = sum(widths)
        return cut

    def _is_settled(self, node: ir.Node) -> bool:
        """Return whether the node's result does not depend on the model's inputs.

        ONNX Runtime computes such a result only once, when it loads the model.
        """
        plain = node.domain in STANDARD and node.op_type not in RANDOM and node.op_identifier() not in self.model.functions
        known = (v is None or v in self._settled or self._is_weight(v) or self._is_constant(v) for v in node.inputs)
        return plain and bool(node.inputs) and all(known) and next(bodies_in(node), None) is None

    def _is_constant(self, value: ir.Value) -> bool:
        """Return whether the value is constant.

        If the model has dynamic dimensions, only initializers and the results of Constant nodes count as constant.
        """
        return is_stored(value) or (not self.views.dynamic and constant_tensor(value) is not None)

    def _leave(self, node: ir.Node) -> None:
        """Exclude a node, and all nodes on which this node depends, from the islands, because the algebra cannot express the
        node.

        The node must not depend on the model's inputs. ONNX Runtime computes all these nodes once, when it loads the model.
        """
        leaving = [node]
        while leaving:
            one = leaving.pop()
            if one not in self._outside:
                self._outside.add(one)
                self._levels.pop(one, None)
                self._inland.difference_update(one.outputs)
                producers = (value.producer() for value in one.inputs if value is not None and value in self._settled)
                leaving += (producer for producer in producers if producer is not None)

    def _lowers(self, lifted: Mapping[ir.Value, Term]) -> bool:
        """Return whether ONNX nodes can compute the terms at all sizes of the dynamic dimensions.

        The result is False if the shape of a weight-only term depends on the dynamic dimensions.
        """
        if not self.views.dynamic:
            return True
        if any(t.constant and not all(isinstance(n, int) for n in t.shape) for t in lifted.values()):
            return False
        try:
            lower({_name(v): t for v, t in lifted.items()}, self.views.opset)
        except ShapeError:
            return False
        return True

    def _lifted(self, node: ir.Node, terms: Mapping[ir.Value, Term]) -> dict[ir.Value, Term] | None:
        """Return the terms of the node's results, or None if the algebra cannot express the node.

        An operand in `terms` is replaced by its term, and any other operand becomes a variable. The algebra can express a node
        if a definition in `specs/` covers its operator, the shapes of its results are known, and all its floating-point values
        have the same type. Constants of another type, such as the scales of a Resize, must not occur in the terms. If the node
        has boolean results, this type must be the model's only floating-point type. If all elements of the operand of an IsNaN
        or IsInf are known to be finite, the term of the result is a tensor of zeros.
        """
        results = results_of(node, self.opset)
        if node.op_identifier() in self.model.functions or (self._float_type(node) is None and not _moves_integers(node)):
            return None
        operands = [
            None if v is None or _is_number_of_other_type(node, v) else terms.get(v) or self._inlined.get(v) or self._leaf(v)
            for v in node.inputs
        ]
        if is_guard(node) and operands[0] is not None and self._is_number(node.inputs[0]):
            return {value: apply("zeros", shape=operands[0].shape) for value in results}
        lifted = self.views.lift(node, operands)
        if lifted is None:
            return None
        return dict(zip(results, lifted, strict=True))

    def _leaf(self, value: ir.Value) -> Term | None:
        """Return the term of a value that no term computes: a variable, or the result of `structured_weight` for a weight."""
        if value not in self._structured:
            leaf = self.views.leaf(value)
            self._structured[value] = leaf if leaf is None or not leaf.constant else structured_weight(value, leaf)
        return self._structured[value]

    def _is_number(self, value: ir.Value | None) -> bool:
        """Return whether every element of the value is defined in real arithmetic, and no element is NaN in IEEE arithmetic."""
        known = UNKNOWN if value is None else self.facts.of(value)
        return known.defined and not known.nan

    def _keeps_rounding(self, node: ir.Node, lifted: Mapping[ir.Value, Term]) -> bool:
        """Return whether the floating-point mode permits computing the node's results from its terms.

        Computing results from terms can change rounding, because terms flatten nested sums, and because the terms for some ONNX
        operators consist of several operators. In the precise mode, the terms may contain any number of operators that only
        move elements, but at most one other operator. An operand of a sum must not be a sum, and an operand of a product must
        not be a product. Constants may be moved or negated, but no other operator may be applied to constants, because the
        results would be computed in float64. If the node computes, no constant may have another floating-point type than its
        result. The operator must not be a reciprocal, because a product with a reciprocal becomes a Div. In ONNX Runtime's
        kernel for the operator, the rounding of an element must not depend on its position, because a rewrite may move
        elements.

        On a CPU, ONNX Runtime computes in float32 instead of float16, and rounds a value to float16 only if the next node reads
        float16. So moving a node can change the rounding of its neighbours.
        """
        if self.mode is not FpMode.PRECISE or node in self._rounding:
            return node not in self._rounding
        if not self._native_half and self._float_type(node) == ir.DataType.FLOAT16:
            return False
        computing = [t for t in subterms(*lifted.values()) if t.op not in MOVING and variables(t) and not t.is_variable]
        computing = [t for t in computing if not _is_negated_weight(t)]
        if len(computing) > 1 or any(t.constant or t.op == "reciprocal" for t in computing):
            return False
        if computing and any(v is not None and _is_number_of_other_type(node, v) for v in node.inputs):
            return False
        kind = self._float_type(node)
        if kind is not None and any(_computed_in(kind) in operator(t.op).rounds_by_position for t in computing):
            return False
        graph = _graph_of(node)
        commutative = [t for t in computing if operator(t.op).commutative]
        return not any(len(t.args) > 2 or self.facts.is_nested(t, graph) for t in commutative)

    def _float_type(self, node: ir.Node) -> ir.DataType | None:
        """Return the floating-point type with which the node computes, or None if there is not exactly one such type.

        A node with boolean results computes with the only floating-point type of the model. None is returned if the model does
        not have exactly one such type, or if the node also has values of another floating-point type. Constant inputs of a type
        other than that of the result do not count.
        """
        own = _float_type([*node.outputs, *(v for v in node.inputs if v is not None and not _is_number_of_other_type(node, v))])
        if any(v.dtype == ir.DataType.BOOL for v in node.outputs):
            return self._only if own in (None, self._only) else None
        return own


def _is_negated_weight(term: Term) -> bool:
    return term.constant and term.op == "scale" and term["factor"] == -1


def _computed_in(kind: ir.DataType) -> str:
    """Return the type in which ONNX Runtime computes elementwise functions on a CPU if the operands have the given type."""
    return "float64" if kind == ir.DataType.DOUBLE else "float32"


def chart_of(model: Model, views: Views, mode: FpMode, *, native_half: bool = False) -> Chart:
    """Return the model's `Chart`.

    Except in the fast mode, no island contains nodes that ONNX Runtime may compute in integers. In the relaxed mode, no island
    contains nodes of three further kinds. The first kind are nodes before an operator that rounds, such as QuantizeLinear (see
    `superopt.model.quantized`). The second kind are the nodes of sums whose purpose is to round a number (see
    `ModelFacts.rounding_sums`). The third kind are the nodes of chains that compute the operand of a step function, as in
    `floor(p * 0.7 / 0.7)` (see `ModelFacts.stepped_chains`).
    """
    rounding = frozenset[ir.Node]() if mode is FpMode.FAST else nodes_in_integers(views.model.graph)
    if mode is FpMode.RELAXED:
        rounding |= nodes_before_rounding(views.model.graph)
    chart = Chart(model, views, mode, rounding, native_half=native_half)
    sums = chart.facts.rounding_sums() | chart.facts.stepped_chains() if mode is FpMode.RELAXED else rounding
    return chart if sums <= rounding else Chart(model, views, mode, rounding | sums, native_half=native_half)


class Charts:
    """A cache of charts. A chart is a copy of a model for analysis, divided into islands.

    Models must not be changed while their charts are in the cache. The cache keeps the chart that was made first and the chart
    that was made last. `native_half` says whether kernels compute in float16, as GPU kernels do.
    """

    def __init__(self, mode: FpMode = FpMode.FAST, *, native_half: bool = False) -> None:
        self._mode, self._native_half = mode, native_half
        self._kept: list[tuple[Model, Chart]] = []

    def of(self, model: Model, views: Views | None = None) -> Chart:
        """Return the model's `Chart` (a copy divided into islands), from the cache if possible.

        `views` is the `Views` object of the model, if the caller has one.
        """
        for known, chart in self._kept:
            if known is model:
                return chart
        made = chart_of(model, Views(model) if views is None else views, self._mode, native_half=self._native_half)
        self._kept = [*self._kept[:1], (model, made)]
        return made

    def begun(self, model: Model) -> Model:
        """Return the model with constants folded by `fold_known_values`, and cache the `Chart` (a copy divided into islands) of
        the result.
        """
        views = Views(model)
        start = fold_known_values(model, views.model)
        self.of(start, views if start is model else None)
        return start


def _moves_integers(node: ir.Node) -> bool:
    """Return whether the node's first input contains integers and all results have the type of this input."""
    first = node.inputs[0] if node.inputs else None
    return first is not None and first.dtype in BITS and all(v.dtype == first.dtype for v in node.outputs)


class _Partition:
    """Disjoint sets that can be merged (union-find). Each set has one representative member."""

    def __init__(self) -> None:
        self._parent: dict[object, object] = {}

    def of(self, member: object) -> object:
        """Return the representative member of the set that contains `member`."""
        root = member
        while (parent := self._parent.get(root, root)) is not root:
            root = parent
        while member is not root:
            self._parent[member], member = root, self._parent[member]
        return root

    def join(self, one: object, other: object) -> None:
        """Merge two sets: the set with the member `one`, and the set with the member `other`."""
        self._parent[self.of(one)] = self.of(other)


def _kind(node: ir.Node) -> Hashable:
    """Return the operator of the node and the shapes of its results."""
    return (*node.op_identifier(), *(str(value.shape) for value in node.outputs))


def _name(value: ir.Value) -> str:
    assert value.name, "a lifted value has a name"
    return value.name


def _float_type(values: Sequence[ir.Value | None]) -> ir.DataType | None:
    """Return the floating-point type of the values, or None if the values do not have exactly one such type."""
    types = {v.dtype for v in values if v is not None and v.dtype in FLOATS}
    return types.pop() if len(types) == 1 else None


def _is_number_of_other_type(node: ir.Node, value: ir.Value) -> bool:
    """Return whether an input of the node is a constant whose floating-point type is not that of the node's result.

    The scales of a Resize are an example: they are float32 in every model.
    """
    kind = _float_type(node.outputs)
    return kind is not None and value.dtype in FLOATS and value.dtype != kind and constant_tensor(value) is not None


def _graph_of(node: ir.Node) -> ir.Graph:
    assert isinstance(node.graph, ir.Graph), "a node of a model is in a graph"
    return node.graph


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that the node and the nodes of its subgraphs read, including values that the subgraphs compute."""
    yield from (v for v in node.inputs if v is not None)
    for graph in bodies_in(node):
        yield from graph.outputs
        for inner in graph:
            yield from values_read(inner)
