"""Statements about a result that both the terminal and the HTML page show: changes, errors, proofs and arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from superopt.policy import REPORT
from superopt.report.number_texts import counted, ratio
from superopt.report.optimization import AppliedRule, Arithmetic, KernelUse, Report, Rounding

FLAG_MEANINGS = {
    "reassoc": "sums and products may be regrouped",
    "contract": "a product and a sum may be rounded once",
    "arcp": "a division may become a multiplication",
    "nsz": "the sign of a zero may change",
}
"""The change of results that each of these floating-point flags permits (docs/floating-point.md)."""
BOUNDED = frozenset({"nnan", "ninf", "range", "cancel"})
"""The flags that the mode `relaxed` allows only at places where an analysis of the model shows that values are bounded."""
ANALYSED = "rewrites that need finite or bounded values are used only where an analysis of the model guarantees such values"
EXAMPLE = "example "
"""The prefix of the names of inputs that the user gave."""


def node_changes(report: Report) -> str:
    """Return a statement on how the node counts change: the total, and the count of each operator with a large change."""
    listed = [*report.operator_counts.items()]
    changed = [f"{name} {old} to {new}" for name, (old, new) in listed[: REPORT.max_changed_operators]]
    if len(listed) > REPORT.max_changed_operators:
        changed.append(counted(len(listed) - REPORT.max_changed_operators, "other operator"))
    same = report.nodes == report.nodes_after
    nodes = f"{report.nodes} nodes, as many as before" if same else f"{report.nodes} nodes became {report.nodes_after}"
    return f"{nodes} ({', '.join(changed)})" if changed else f"{nodes}, of the same operators"


def outcome_of_checks(report: Report) -> str:
    """Return a statement on whether the result passed the check, and on how the outputs of the result and the original may
    differ.
    """
    if report.rounding is None:
        return "no numerical check was made"
    differences = {
        "precise": "its outputs have the bits of the original's outputs, but for signs of zeros",
        "fast": "on ordinary inputs, its outputs differ only by rounding from the original's outputs",
    }
    usual = "its outputs differ only by rounding from the original's outputs"
    return f"the result passed the numerical check; {differences.get(report.arithmetic.mode, usual)}"


def node_shares(report: Report) -> str:
    """Return a statement with three counts: nodes that can be rewritten, parts with such nodes, and remaining nodes.

    The remaining nodes cannot be rewritten, or only compute constants or sizes.
    """
    outside = sum(row.nodes for row in report.uncovered)
    others = report.nodes - report.nodes_in_islands - outside
    parts = f"{report.nodes_in_islands} can be rewritten, in {counted(report.islands, 'part')} of the model"
    kinds = [f"{outside} cannot"] if outside else []
    kinds += [f"{others} only compute constants or sizes"] if others > 0 else []
    return f"{counted(report.nodes, 'node')}: {', '.join([parts, *kinds])}"


def keep_step(source: str) -> str:
    """Return the sentence with which a report advises to keep the original. The file name is between backticks."""
    return f"keep `{source}`: no faster model was found for this machine"


def use_step(source: str, target: str) -> str:
    """Return the sentence with which a report advises to use the result in place of the original.

    File names are between backticks.
    """
    return f"use `{target}` in place of `{source}`: its inputs and outputs have the same names and types"


def kernels(use: KernelUse) -> str:
    """Return the sentence about the kernels of a result."""
    count = f"{use.islands} compiled kernel{'s' * (use.islands != 1)} replace{'s' * (use.islands == 1)} {use.nodes} nodes"
    gain = f"{ratio(use.low)} to {ratio(use.high)} times as fast as without the library"
    alone = f"which is {ratio(use.without)} times as fast as the original"
    return f"{count}: {gain}, {alone} (compiled in {use.compile_seconds:.1f} s)"


def library_step(library: str) -> str:
    """Return the sentence that says how to register the library of kernels.

    If the name of a library has no folder, ONNX Runtime does not search the current folder for the library.
    """
    path = f"./{library}" if Path(library).name == library else library
    return f"register the kernels in each session: options.register_custom_ops_library({path!r})"


def comparison_step(source: str, target: str) -> str:
    """Return the sentence that says how to compare the two models on the user's inputs.

    The command is between backticks.
    """
    return f"`superopt compare {source} {target} --input FILE.npz` compares speed and outputs on your own inputs"


def errors(rounding: Rounding) -> Iterator[str]:
    """Yield statements on how large the errors of the result are, and on the inputs of the check."""
    r = rounding
    if r.reference == "float64":
        own = f"the original's own error is {r.original:.1e}"
        yield f"compared with float64, the largest error is {r.optimized:.1e} of the output's magnitude; {own}"
        limit = f"up to {r.tolerance:.3g} times the original's error is allowed"
    else:
        yield f"the largest difference from the original is {r.optimized:.1e} of the output's magnitude ({r.reference})"
        limit = f"the limit is {r.tolerance:.3g} times the original's own variation"
    given = sum(name.startswith(EXAMPLE) for name in r.inputs)
    inputs = f"{counted(len(r.inputs) - given, 'set')} of random and extreme inputs"
    yield f"checked on {inputs}{f' and {given} given' if given else ''}; {limit}"
    if r.left_out:
        more = len(r.left_out) - REPORT.max_left_out
        yield f"not checked: {', '.join(r.left_out[: REPORT.max_left_out])}{f' and {more} more' if more > 0 else ''}"


def proofs(rules: tuple[AppliedRule, ...]) -> Iterator[str]:
    """Yield statements on how many of the applied rules are proved, and how many have no stored proof."""
    proved = sum(rule.stored for rule in rules)
    others = len(rules) - proved
    if proved:
        rewrites = f"{counted(proved, 'rewrite rule')} {'is' if proved == 1 else 'are'}"
        yield f"{rewrites} proved: the nodes before and after a rewrite are equal for all sizes, apart from rounding"
    if others:
        kinds = "a subgraph became an equal operator, or an operator was computed in another way"
        yield f"{counted(others, 'other rewrite')} without a stored proof ({kinds}), which the numerical check covers"


def rewrite_outline(text: str) -> str:
    """Return the text of both sides of a rule without attributes, as in `relu(x) + 0 becomes relu(x)`.

    Returns an empty text if the outline is too long, or if `text` is the description of a step and not a rule.
    """
    before, arrow, after = text.partition(" for ")[0].partition(" => ")
    if not arrow:
        return ""
    try:
        sides = [_without_attributes(side) for side in (before, after)]
    except SyntaxError:
        return ""
    outline = " becomes ".join(sides)
    return outline if len(outline) <= REPORT.max_outline_characters else ""


def _without_attributes(expression: str) -> str:
    tree = ast.parse(expression.strip(), mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords.clear()
    return ast.unparse(tree)


def freedoms(arithmetic: Arithmetic) -> str:
    """Return a statement on how the rewrites may change floating-point results.

    If no flag permits changes, return an empty text.
    """
    free = [FLAG_MEANINGS[flag] for flag in arithmetic.flags if flag in FLAG_MEANINGS]
    if BOUNDED.intersection(arithmetic.flags):
        relaxed = arithmetic.mode == "relaxed"
        free.append(ANALYSED if relaxed else "values are assumed to be finite and of ordinary magnitude")
    return f"mode {arithmetic.mode}: {'; '.join(free)}" if free else ""
