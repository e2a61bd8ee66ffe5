"""Statements about a result that both the terminal and the page show: what changed, errors, proofs and arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

from superopt.policy import REPORT
from superopt.report.number_texts import counted
from superopt.report.optimization import AppliedRule, Arithmetic, Report, Rounding

FLAG_MEANINGS = {
    "reassoc": "sums and products may be regrouped",
    "contract": "a product and a sum may be rounded once",
    "arcp": "a division may become a multiplication",
    "nsz": "the sign of a zero may change",
    "nnan": "values are assumed not to be NaN",
    "ninf": "values are assumed not to be infinite",
    "range": "an intermediate result may overflow or underflow",
    "cancel": "one side may lose significant digits",
}
"""The freedom or the assumption that each floating-point flag stands for (docs/floating-point.md)."""
BOUNDED = frozenset({"nnan", "ninf", "range", "cancel"})
"""The flags that the mode `relaxed` admits only where an analysis of the model allows it."""


def node_changes(report: Report) -> str:
    """Return the numbers of nodes before and after, in all and of the operators of which the number changes most."""
    listed = [*report.operator_counts.items()]
    changed = [f"{name} {old} to {new}" for name, (old, new) in listed[: REPORT.max_changed_operators]]
    if len(listed) > REPORT.max_changed_operators:
        changed.append(counted(len(listed) - REPORT.max_changed_operators, "other operator"))
    nodes = f"{report.nodes} nodes became {report.nodes_after}"
    return f"{nodes} ({', '.join(changed)})" if changed else f"{nodes}, of the same operators"


def outcome_of_checks(report: Report) -> str:
    """Return whether the result passed the check, and how its outputs may differ from the outputs of the original."""
    if report.rounding is None:
        return "no numerical check was made"
    differences = {
        "precise": "its outputs have the bits of the original's outputs, but for signs of zeros",
        "fast": "on ordinary inputs, its outputs differ only by rounding from the original's outputs",
    }
    usual = "its outputs differ only by rounding from the original's outputs"
    return f"the result passed the numerical check; {differences.get(report.arithmetic.mode, usual)}"


def comparison_step(source: str, target: str) -> str:
    """Return how to compare the two model files on the user's inputs. The command is between backticks."""
    return f"`superopt compare {source} {target} --input FILE.npz` compares speed and outputs on your own inputs"


def errors(rounding: Rounding) -> Iterator[str]:
    """Yield how large the errors of the result are, and on which inputs they were found."""
    r = rounding
    if r.reference == "float64":
        yield f"the largest error is {r.optimized:.1e} of the output's magnitude; the original's own error is {r.original:.1e}"
        limit = f"up to {r.tolerance:.3g} times the original's error is allowed"
    else:
        yield f"the largest difference from the original is {r.optimized:.1e} of the output's magnitude ({r.reference})"
        limit = f"the limit is {r.tolerance:.3g} times the original's own variation"
    yield f"checked on {counted(len(r.inputs), 'set')} of random, extreme or given inputs; {limit}"


def proofs(rules: tuple[AppliedRule, ...]) -> Iterator[str]:
    """Yield how many of the applied rules are proved, and how many steps are of another kind."""
    proved = sum(rule.stored for rule in rules)
    others = len(rules) - proved
    if proved:
        noun = "the rule that was applied is" if proved == 1 else f"the {proved} rules that were applied are"
        yield f"{noun} proved for all sizes, over the real numbers"
    if others:
        yield f"{counted(others, 'step')} of other kinds: definitions of operators read backwards, or corrected mutants"


def freedoms(arithmetic: Arithmetic) -> str:
    """Return what the mode of arithmetic allowed the rewrites."""
    if not arithmetic.flags:
        return f"mode {arithmetic.mode}: the rewrites need no freedom of floating-point arithmetic"
    meant = "; ".join(f"{FLAG_MEANINGS.get(flag, flag)} ({flag})" for flag in arithmetic.flags)
    bounded = [flag for flag in arithmetic.flags if flag in BOUNDED]
    limits = (
        f". {', '.join(bounded)}: only where an analysis of the model allows it"
        if bounded and arithmetic.mode == "relaxed"
        else ""
    )
    return f"mode {arithmetic.mode}: {meant}{limits}"
