"""Apply exported rules inside onnxscript: read matched nodes as terms, apply a rule, and write the new terms as nodes.

`superopt rules export --format onnxscript` writes a module with rules for onnxscript. The method `check` of each rule calls
`improvement`. A rule is applied only if its preconditions hold for the shapes and attributes of the matched nodes, and if the
new nodes are cheaper. New nodes are cheaper if neither the number of nodes nor the number of arithmetic operations increases,
and at least one of these numbers decreases. New nodes are also cheaper if neither number changes and the memory traffic
decreases. Therefore, rewriting terminates with any set of rules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from superopt.algebra.terms import Term
from superopt.errors import ShapeError
from superopt.model.lift import constant_tensor, leaf_of, lift_node, results_of
from superopt.model.lower import lower
from superopt.policy import MODEL
from superopt.protobuf.nodes import Lowered, materialize_initializer
from superopt.rules.match import Pattern
from superopt.rules.rule import parse_rule
from superopt.rules.work import total_work

OUTPUT = "superopt.output."


class RewriteContext(Protocol):
    """The context that onnxscript's rewriter passes to a rule."""

    def call_op(
        self, op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, object], *, outputs: int = 1
    ) -> ir.Value | Sequence[ir.Value]:
        """Add a node to the model, and return its output. If there are several outputs, return all of them."""


class AppliedRules(Protocol):
    """A set of rules of onnxscript's rewriter."""

    def apply_to_model(self, model: ir.Model) -> int:
        """Apply the rules to the nodes of the model, and return the number of applications."""


@dataclass(frozen=True)
class Improvement:
    """New nodes that replace the matched nodes of a rule.

    `lowered` contains the new nodes. `values` contains the values that the new nodes read, by name. `outputs` are the names of
    the new results, which replace the results of the matched nodes.
    """

    lowered: Lowered
    values: Mapping[str, ir.Value]
    outputs: tuple[str, ...]


@functools.cache
def exported_rule_patterns(statement: str) -> tuple[Pattern, ...]:
    """Return one pattern of the rule in `statement` for each choice of ranks for the rule's variables."""
    return tuple(Pattern.of(equation) for equation in parse_rule(f"rule: {statement}").equations)


def improvement(statement: str, outputs: Sequence[ir.Value], leaves: Iterable[ir.Value], opset: int) -> Improvement | None:
    """Apply the rule in `statement` to the nodes between the values `leaves` and the values `outputs`.

    Returns the new nodes, or None if the rule does not apply or the new nodes are not cheaper. New nodes are cheaper if neither
    the number of nodes nor the number of arithmetic operations increases, and at least one of these numbers decreases. New
    nodes are also cheaper if neither number changes and the memory traffic decreases.
    """
    graph = _Lifting({id(leaf) for leaf in leaves}, opset)
    roots = tuple(graph.term(value) for value in outputs)
    if any(root is None or root.is_variable for root in roots):
        return None
    terms = tuple(root for root in roots if root is not None)
    for pattern in exported_rule_patterns(statement):
        if len(pattern.left) != len(terms) or pattern.left[0].op != terms[0].op:
            continue
        for match in pattern.matches(terms[0], lambda op: [t for t in terms[1:] if t.op == op]):
            if match.roots == terms:
                found = _paying(terms, match.replacements, opset, outputs)
                if found is not None:
                    return Improvement(found, graph.values, tuple(f"{OUTPUT}{n}" for n in range(len(terms))))
    return None


def _paying(before: Sequence[Term], after: Sequence[Term], opset: int, outputs: Sequence[ir.Value]) -> Lowered | None:
    """Return the nodes that compute the terms `after`, or None if these nodes are not cheaper than the nodes of the terms
    `before`.
    """
    known, made = total_work(before), total_work(after)
    if made.flops > known.flops:
        return None
    kind = outputs[0].dtype
    dtype = np.dtype(np.float32) if kind is None else kind.numpy()
    try:
        old, new = _executed(before, opset), _executed(after, opset)
        if new > old or (new == old and made.flops == known.flops and made.bytes >= known.bytes):
            return None
        return lower(_titled(after), opset, dtype=dtype)
    except ShapeError:
        return None


def _titled(terms: Sequence[Term]) -> dict[str, Term]:
    return {f"{OUTPUT}{number}": term for number, term in enumerate(terms)}


def _executed(terms: Sequence[Term], opset: int) -> int:
    """Return the number of nodes that are executed at run time to compute the terms.

    Nodes that depend only on weights do not count, because constant folding replaces them before the run.
    """
    return len(lower(_titled(terms), opset, constant=lambda t: np.broadcast_to(np.float32(0), t.sizes)).nodes)


@dataclass
class _Lifting:
    """Translates the results of matched nodes to terms.

    A variable of the terms stands for a graph input, for a constant, or for a value whose `id` is in `leaves`. `leaves`
    contains the `id` of each value that the matched nodes read but do not compute.
    """

    leaves: set[int]
    opset: int

    def __post_init__(self) -> None:
        self.values: dict[str, ir.Value] = {}
        self.terms: dict[ir.Value, Term | None] = {}

    def term(self, value: ir.Value | None) -> Term | None:
        if value is None:
            return None
        if value not in self.terms:
            self.terms[value] = self._lifted(value)
        return self.terms[value]

    def _lifted(self, value: ir.Value) -> Term | None:
        node = value.producer()
        if id(value) in self.leaves or node is None or constant_tensor(value) is not None:
            return self._leaf(value)
        terms = lift_node(node, [self.term(v) for v in node.inputs], self.opset)
        return terms[results_of(node, self.opset).index(value)] if terms is not None else None

    def _leaf(self, value: ir.Value) -> Term | None:
        if value.name is None:
            value.name = f"superopt.value.{len(self.values)}"
        leaf = leaf_of(value)
        if leaf is not None:
            self.values[leaf.name] = value
        return leaf


def emitted(op: RewriteContext, found: Improvement) -> list[ir.Value]:
    """Add the new nodes to the model, and return the values that replace the outputs of the matched nodes."""
    known: dict[str, ir.Value] = dict(found.values)
    for name, array in found.lowered.initializers.items():
        constant = op.call_op("Constant", [], {"value": ir.tensor(materialize_initializer(array))})
        assert isinstance(constant, ir.Value)
        known[name] = constant
    for node in found.lowered.nodes:
        inputs = [known[name] if name else None for name in node.inputs]
        attributes = {name: list(v) if isinstance(v, tuple) else v for name, v in node.attributes}
        made = op.call_op(node.op_type, inputs, attributes, outputs=len(node.outputs))
        known.update(zip(node.outputs, [made] if isinstance(made, ir.Value) else made, strict=True))
    return [known[name] for name in found.outputs]


def applied(rules: AppliedRules, model: ir.Model) -> int:
    """Apply an onnxscript `RewriteRuleSet` until no rule applies any more, and return the number of applications.

    A rule applies only if the new nodes are cheaper. There are at most `MODEL.max_export_passes` passes over the model.
    Afterwards, the nodes are in topological order.
    """
    total = 0
    infer_shapes = ShapeInferencePass()
    for _ in range(MODEL.max_export_passes):
        infer_shapes(model)
        count = rules.apply_to_model(model)
        model.graph.sort()
        total += count
        if not count:
            break
    return total
