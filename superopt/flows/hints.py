"""Hints for the user of a model for which nothing faster was found: which options may open more of the model."""

from __future__ import annotations

from collections.abc import Sequence

from superopt.algebra.operators import Operator, registry
from superopt.budget import active_time, expired
from superopt.model.available_fusions import exists_at_opset, fusions_at_opset, newest_opset
from superopt.model.coverage import CONTROL, UNSIZED, UncoveredNodes
from superopt.policy import REPORT
from superopt.protobuf.nodes import schema_of
from superopt.search.apply import first_rewrite
from superopt.search.recognition import recognized_rules
from superopt.search.ruleset import RuleSet
from superopt.search.segments import Segment


def hints(
    uncovered: Sequence[UncoveredNodes],
    islands: Sequence[Segment],
    opset: int,
    dimensions: Sequence[str],
    *,
    budget: float,
    cut_short: bool,
) -> tuple[str, ...]:
    """Return sentences that say which options may lead to a gain.

    Args:
        uncovered: The nodes that the search cannot rewrite.
        islands: The parts of the model that the search can rewrite.
        opset: The opset of the model.
        dimensions: The names of the dynamic dimensions.
        budget: The seconds that the search was given.
        cut_short: Whether the search ended before every part was searched.
    """
    found = []
    if cut_short:
        found.append(f"the search was not finished: --budget {2 * max(1, round(budget))}s or more may find a gain")
    unsized = [row for row in uncovered if row.reason in (UNSIZED, CONTROL)]
    share, count = sum(row.share for row in unsized), sum(row.nodes for row in unsized)
    if unsized and share >= REPORT.min_hint_share:
        listed = [*dimensions[: REPORT.max_reasons], *(["…"] if len(dimensions) > REPORT.max_reasons else [])]
        sizes = f"--fix NAME=SIZE for dimensions that never change ({', '.join(listed)}), or " if dimensions else ""
        fixed = f"{sizes}--fix NAME=VALUE for inputs that never change"
        found.append(f"{fixed}, may open {count} nodes whose sizes or conditions are not known ({share:.0%} of the time)")
    newer = _newer_operators(islands, opset)
    if newer:
        found.append(f"--opset {newer[0]} would allow {', '.join(newer[1])}, of which the model has other forms")
    return (*found,)


def _newer_operators(islands: Sequence[Segment], opset: int) -> tuple[int, list[str]] | None:
    """Return an opset and operators of this opset that the given opset lacks, if terms of the model equal these operators."""
    newest = newest_opset()
    newer = [spec for spec in registry().values() if _exists(spec, newest) and not _exists(spec, opset)]
    rules = RuleSet([rule for rule in fusions_at_opset(newest) if operator_of(rule.name) in newer])
    until = active_time() + REPORT.hint_seconds
    found: dict[Operator, None] = {}
    for island in islands:
        if not expired(until):
            stated = first_rewrite(island.state, rules)
            names = [rule.name for rule in recognized_rules(island.state, [spec.name for spec in newer], until)]
            found |= dict.fromkeys(map(operator_of, [*names, *([stated[0]] if stated else [])]))
    titles = [name for spec in found for name in spec.onnx if "." not in name]
    return (max(schema_of(name, newest).since_version for name in titles), titles) if titles else None


def operator_of(name: str) -> Operator:
    """Return the operator that a fusion or recognition, such as `gelu.recognized`, puts in place of a term."""
    return registry()[name.partition(".")[0]]


def _exists(spec: Operator, opset: int) -> bool:
    """Return whether a standard ONNX operator of this opset computes the operator."""
    return any(exists_at_opset(name, opset) for name in spec.onnx)
