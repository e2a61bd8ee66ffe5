"""Export rules to other tools: as a module of onnxscript rewrite rules, or as pairs of ONNX functions for onnxsim.

The ONNX pattern of a rule consists of the nodes that compute the rule's left side at one choice of sizes. The method `check` of
an onnxscript rule tests all conditions on sizes and attributes when a match is found. A pair of functions cannot test
conditions, so only rules without conditions are exported as pairs. In a pair, each attribute of the replacement must be a
constant or be copied from the pattern. Each pair is tested with broadcast operands of many ranks.
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

import numpy as np

from superopt.algebra.terms import Term, subterms, variables
from superopt.errors import InstantiationError, ShapeError, StoreError
from superopt.files import write_bytes_atomically, write_text_atomically
from superopt.model.functions import FunctionPair, function_library, lowered_sides_agree, pair
from superopt.model.lower import lower
from superopt.notation.parsing import Equation
from superopt.policy import MODEL
from superopt.protobuf.nodes import Lowered, NodeText
from superopt.rules.instances import Instance, instantiations, term_at
from superopt.rules.rule import Rule

OPSET = 18
SEED = 0
WIDTH = 120

HEAD = '''"""Rewrite rules for onnxscript.rewriter that superopt found and proved; what they state stands in their docstrings.

    import onnx_ir as ir
    model = ir.load("in.onnx")
    apply(model)
    ir.save(model, "out.onnx")

A rule is applied where its preconditions hold at the shapes at hand and where it executes no more nodes and arithmetic than
before and less of one of them, or as much with less memory traffic. Needs onnxscript and superopt.
"""

from __future__ import annotations

import onnx_ir as ir
from onnxscript.rewriter import RewriteRuleClassBase, RewriteRuleSet

from superopt.model.exported_rules import applied, emitted, improvement


class FoundRule(RewriteRuleClassBase):
    """A rule whose text says what it asks for and what it makes of the nodes that `pattern` finds."""

    STATEMENT = ""
    LEAVES: tuple[str, ...] = ()

    def check(self, context, **values):
        """Whether the rule applies and pays."""
        opset = context.graph_or_function.opset_imports[""]
        leaves = [values[name] for name in self.LEAVES if values.get(name) is not None]
        self.found = improvement(self.STATEMENT, list(context.output_values), leaves, opset)
        return self.found is not None

    def rewrite(self, op, **_values):
        """The nodes that compute the same for less."""
        return emitted(op, self.found)
'''


COMMUTATIVE = frozenset({"Add", "And", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"})
"""The commutative operators. onnxscript also matches a node of such an operator with the two inputs swapped.

If a node of such an operator does not have two inputs, onnxscript raises an error.
"""


@dataclass(frozen=True)
class Left:
    """The ONNX pattern for the left side of a rule.

    `nodes` are the nodes of the pattern, and `outputs` are the names of their results. `leaves` are the names of the pattern's
    inputs, which match any value.
    """

    nodes: tuple[NodeText, ...]
    leaves: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class ExportedRules:
    """Exported rules, as the text of an onnxscript module or as pairs of ONNX functions.

    `written` contains the names of the exported rules. `left_out` contains the names of all other rules, each with the reason
    why the rule was not exported.
    """

    written: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    text: str = ""
    pairs: tuple[FunctionPair, ...] = ()

    def save(self, path: Path) -> None:
        """Write the text of the module to `path`. For pairs, write a model that has no nodes and contains the functions of all
        pairs.

        Raises:
            TargetError: The file cannot be written; an existing file is unchanged.
        """
        if self.pairs:
            write_bytes_atomically(function_library(self.pairs, OPSET).SerializeToString(), path)
        else:
            write_text_atomically(self.text, path)


def export(rules: Sequence[Rule], form: str) -> ExportedRules:
    """Export the rules in the given form: "onnxscript" for a module, or "functions" for pairs of ONNX functions.

    Raises:
        StoreError: No rule can be written in this form.
    """
    found = onnxscript_module(rules) if form == "onnxscript" else export_function_pairs(rules)
    if not found.written:
        raise StoreError(f"none of the {len(rules)} rules can be written as {form}")
    return found


def reasons(exported: ExportedRules) -> list[tuple[str, int]]:
    """Return pairs (reason why rules were left out, count of these rules), the most frequent reason first."""
    return Counter(reason for _, reason in exported.left_out).most_common()


# ---------------------------------------------------------------- onnxscript


def onnxscript_module(rules: Sequence[Rule]) -> ExportedRules:
    """Write the rules as a Python module for onnxscript.

    The module defines one class for each ONNX pattern of each rule. The module also defines the rule set `RULES` and the
    function `apply(model)`.
    """
    classes: list[str] = []
    names: list[str] = []
    fixed_order: list[str] = []
    left_out: list[tuple[str, str]] = []
    for rule in rules:
        forms = list(dict.fromkeys(filter(None, map(_form, rule.equations))))
        if not forms:
            left_out.append((rule.name, "the left side cannot be written as ONNX nodes"))
        for number, form in enumerate(forms, 1):
            name = _class_name(rule.name) + (f"Form{number}" if number > 1 else "")
            names.append(name)
            if any(node.op_type in COMMUTATIVE and len(node.inputs) != 2 for node in form.nodes):
                fixed_order.append(name)
            classes.append(_class_text(name, rule, form))
    commuted = "".join(f"        {name}.rule(),\n" for name in names if name not in fixed_order)
    others = "".join(f"        {name}.rule(),\n" for name in fixed_order)
    tail = (
        f"COMMUTED = [\n    rule\n    for given in [\n{commuted}    ]\n    for rule in given.commute()\n]\n"
        f"RULES = RewriteRuleSet(\n    [\n        *COMMUTED,\n{others}    ]\n)\n\n\n"
        "def apply(model: ir.Model) -> int:\n"
        '    """How often a rule was applied until none pays; the model\'s nodes stand in topological order."""\n'
        "    return applied(RULES, model)\n"
    )
    written = tuple(r.name for r in rules if r.name not in dict(left_out))
    text = "\n\n".join([HEAD, *classes, tail]) if classes else ""
    return ExportedRules(written, tuple(left_out), text=text)


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


def _class_text(name: str, rule: Rule, form: Left) -> str:
    text = re.sub(r"\s+", " ", str(rule.statement))
    shown = "\n    ".join(wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))
    pieces = wrap(text, WIDTH - 12, break_long_words=False, break_on_hyphens=False)
    stated = "\n".join(f"        {piece + ' ' * (piece is not pieces[-1])!r}" for piece in pieces)
    leaves = "".join(f"{leaf!r}, " for leaf in form.leaves).strip()
    lines = [f"        {node.outputs[0]} = {_call(node)}" for node in form.nodes]
    return (
        f'class {name}(FoundRule):\n    """{shown}"""\n\n'
        f"    STATEMENT = (\n{stated}\n    )\n    LEAVES = ({leaves})\n\n"
        f"    def pattern(self, op, {', '.join(form.leaves)}):\n"
        + "\n".join(lines)
        + f"\n        return {', '.join(form.outputs)}\n"
    )


def _call(node: NodeText) -> str:
    inputs = "".join(f"{name}, " for name in node.inputs)
    return f"op.{node.op_type}({inputs}_allow_other_inputs=True, _allow_other_attributes=True)"


def _form(equation: Equation) -> Left | None:
    """Return the ONNX pattern of the equation's left side at one random choice of small sizes for all dimensions.

    Returns None if there are no such sizes, or if ONNX nodes cannot express the left side.
    """
    for instance in _instances(equation, 1):
        left = [term_at(t, instance) for t in equation.left]
        try:
            lowered = lower(_titled(left), OPSET)
        except ShapeError:
            return None
        shaped = any(t.op == "reshape" for t in subterms(*equation.left))
        return _pattern(lowered, {v.name for v in variables(*left)}, len(left), shaped=shaped)
    return None


def _titled(terms: Sequence[Term]) -> dict[str, Term]:
    return {f"out{number}": term for number, term in enumerate(terms)}


def _pattern(lowered: Lowered, named: set[str], outputs: int, *, shaped: bool) -> Left | None:
    """Return the nodes as a pattern in which all names are valid in Python. If the nodes cannot be a pattern, return None.

    `named` contains the names of the variables on the rule's left side. `shaped` says whether the left side contains a reshape.
    If `shaped` is False, a Reshape node whose input is a variable only prepares this variable for broadcasting. Such a node is
    removed, and the variable replaces the node's result.
    """
    if any(len(node.outputs) > 1 for node in lowered.nodes):
        return None
    names = {name: name + "_" if keyword.iskeyword(name) else name for name in sorted(named)}
    fresh = (f"t{n}" for n in itertools.count(1))
    constants = (f"c{n}" for n in itertools.count(1))
    nodes: list[NodeText] = []
    for node in lowered.nodes:
        if node.op_type == "Reshape" and node.inputs[0] in named and not shaped:
            names[node.outputs[0]] = names[node.inputs[0]]
            continue
        inputs = list(node.inputs)
        while inputs and (inputs[-1] in lowered.initializers or not inputs[-1]) and len(inputs) > 1 and not _operand(node):
            inputs.pop()
        for name in inputs:
            if name not in names:
                names[name] = next(constants)
        names[node.outputs[0]] = next(fresh)
        nodes.append(NodeText(node.op_type, tuple(names[i] for i in inputs), (names[node.outputs[0]],)))
    results = tuple(names.get(f"out{n}", "") for n in range(outputs))
    made = {node.outputs[0] for node in nodes}
    if not nodes or not set(results) <= made:
        return None
    leaves = tuple(dict.fromkeys(name for node in nodes for name in node.inputs if name not in made))
    return Left(tuple(nodes), leaves, results)


def _operand(node: NodeText) -> bool:
    """Return whether every input of the node is an operand, and no input is a parameter such as a shape or an axis."""
    return node.op_type in {"Add", "Sub", "Mul", "Div", "MatMul", "Gemm", "Conv", "Max", "Min", "Pow", "Where", "Concat"}


# ---------------------------------------------------------------- pairs of functions


def export_function_pairs(rules: Sequence[Rule]) -> ExportedRules:
    """Write each rule that holds without conditions as a pair of ONNX functions: a pattern and its replacement.

    The replacement does not have more nodes than the pattern.
    """
    pairs: list[FunctionPair] = []
    left_out: list[tuple[str, str]] = []
    for rule in rules:
        found = _pair(rule)
        if isinstance(found, str):
            left_out.append((rule.name, found))
        else:
            pairs.append(found)
    return ExportedRules(tuple(p.name for p in pairs), tuple(left_out), pairs=tuple(pairs))


def _pair(rule: Rule) -> FunctionPair | str:
    """Return the rule as a pair of ONNX functions, or the reason why the rule cannot be written as a pair."""
    if rule.statement.where:
        return "the rule has conditions, which a pair of functions cannot check"
    equation = rule.equations[-1]
    drawn = list(_instances(equation, MODEL.exported_instance_count))
    try:
        left, right = (
            [lower(_titled([term_at(t, i) for t in side]), OPSET) for i in drawn] for side in (equation.left, equation.right)
        )
    except ShapeError as error:
        return str(error)
    if not drawn:
        return "the rule has no instance of small sizes"
    found = pair(rule.name, left, right, [v.name for v in variables(*equation.left)], len(equation.left), OPSET)
    if isinstance(found, str):
        return found
    shapes = [{name: i.shapes[name] for name in found.pattern.input} for i in drawn]
    return (
        found
        if lowered_sides_agree((left[0], right[0]), shapes, OPSET, SEED)
        else "the rule needs a check of the operands' shapes, which a pair of functions cannot make"
    )


# ---------------------------------------------------------------- instances


def _instances(equation: Equation, count: int) -> Iterator[Instance]:
    try:
        yield from itertools.islice(instantiations(equation, np.random.default_rng(SEED)), count)
    except InstantiationError:
        return
