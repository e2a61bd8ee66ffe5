"""Render the report of `superopt verify`: a line for each method by which rewrite steps were verified, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superopt.policy import REPORT


@dataclass(frozen=True)
class EvidenceKind:
    """The rewrite steps that were verified by one method, such as a proof. `how` names this method.

    `roots` is the number of terms that the steps replaced. `rules` are the names of the rules of the steps.
    """

    how: str
    steps: int
    roots: int
    rules: tuple[str, ...]


@dataclass(frozen=True)
class Verification:
    """The report of a successful verification.

    Attributes:
        original: The name of the original model.
        optimized: The name of the optimized model.
        kinds: The rewrite steps, grouped by the method by which the steps were verified.
        segments: The number of segments (parts of the model that were rewritten).
        mode: The floating-point mode.
        assumptions: The assumptions in the certificate.
        weights: The number of unchanged weights, the number of new weights that equal their terms, and the number of new
            weights without a term.
        linked: Three counts of comparisons between the terms of segments and values from a run of a model. The first count is
            for the terms before the rewrite steps, which are compared with values of the original. The second count is for the
            terms after the rewrite steps, which are compared with values of the optimized model. The third count is for omitted
            comparisons.
        run: The counts of sizes, inputs and elements for which the outputs of both models were compared.
        compared_nodes: Whether the nodes outside the segments were compared.
        changed: Whether the models differ outside the segments: in weights, fixed inputs and sizes, or calls of kernels.
    """

    original: str
    optimized: str
    kinds: Sequence[EvidenceKind]
    segments: int = 0
    mode: str = ""
    assumptions: tuple[str, ...] = ()
    weights: tuple[int, int, int] = (0, 0, 0)
    linked: tuple[int, int, int] = (0, 0, 0)
    run: tuple[int, int, int] = (0, 0, 0)
    compared_nodes: bool = True
    changed: bool = False


def verification_lines(found: Verification) -> list[str]:
    """Return the report's lines: counts of steps, weights, segments (rewritten parts of a model) and runs, and the verdict."""
    lines = [_kind(kind) for kind in found.kinds]
    if found.segments:
        kept, computed, small = found.weights
        lines.append(
            f"weights: {kept} as they were, {computed} what their terms say, {small} shapes and numbers without a term"
        )
        before, after, left_out = found.linked
        checked = f"terms of {before} before and {after} after their steps give the values of a run"
        lines.append(f"segments: {checked}" + (f", {left_out} were not evaluated" if left_out else ""))
    if not found.compared_nodes:
        lines.append("nodes: not compared, because the original has local functions or the opset was converted")
    if any(found.run):
        sizes, inputs, values = found.run
        special = "ordinary values alone" if found.mode == "fast" else "masks, infinities and magnitudes far apart among them"
        lines.append(
            f"run: {_count(values, 'element')} agree on {_count(inputs, 'input')} at {_count(sizes, 'size')}, {special}"
        )
    lines += [f"assumed: {assumption}" for assumption in found.assumptions]
    steps = sum(kind.steps for kind in found.kinds)
    unsegmented = "it is the same model" if found.compared_nodes and not found.changed else "their runs agree"
    what = f"{_count(steps, 'step')} in {_count(found.segments, 'segment')} hold" if found.segments else unsegmented
    return [*lines, f"{found.optimized} computes what {found.original} does: {what}"]


def _kind(kind: EvidenceKind) -> str:
    steps = f"{kind.how}: {_count(kind.steps, 'step')} at {_count(kind.roots, 'place')}"
    rules = ", ".join(kind.rules[: REPORT.max_verified_rules])
    return f"{steps} ({rules}{', …' if len(kind.rules) > REPORT.max_verified_rules else ''})"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
