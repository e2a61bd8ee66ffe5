"""Render the report of `superopt replay`: the number of applied rewrites, and the reasons for omitted rewrites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from superopt.report.optimization import Rounding, Timing


@dataclass(frozen=True)
class ReplayReport:
    """The report of a replay: recorded rewrites that were applied to another model.

    A segment is a part of the model that was rewritten. If a rewrite was made in several equal segments, the rewrite counts
    once for each segment.

    Attributes:
        model: The name of the model.
        recorded: The number of segments in the certificate.
        applied: The number of segments that were rewritten.
        steps: The number of rewrite steps in these segments.
        left: A mapping from each reason to the segments that were not rewritten for this reason. A segment is given by its
            outputs.
        nodes: The number of nodes of the model.
        nodes_after: The number of nodes of the result.
        rounding: The rounding errors that the numerical check found, or None if nothing was rewritten.
        timing: The comparison of the model with the result, or None if no comparison was requested.
        seconds: The seconds of each phase.
    """

    model: str
    recorded: int
    applied: int
    steps: int
    left: Mapping[str, tuple[tuple[str, ...], ...]]
    nodes: int
    nodes_after: int
    rounding: Rounding | None = None
    timing: Timing | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """One sentence that says how many of the recorded rewrites were applied."""
        if not self.recorded:
            return "the certificate records no rewrites"
        said = f"{self.applied} of {self.recorded} recorded rewrites were applied"
        return said if self.applied else f"{said}; the model is unchanged"


def replay_lines(report: ReplayReport) -> list[str]:
    """Return the report's lines: the verdict, the reasons why segments (parts of a model) were not rewritten, and the check."""
    lines = [f"{report.model}: {report.reason}"]
    counts = Counter({reason: len(outputs) for reason, outputs in report.left.items()})
    for reason, count in counts.most_common():
        first = ", ".join(report.left[reason][0])
        lines.append(f"left as they were: {count} ({reason}; the first computes {first})")
    if report.rounding is not None:
        found = report.rounding
        errors = f"rounding error {found.optimized:.1e}, the original's is {found.original:.1e}"
        lines.append(f"nodes: {report.nodes} to {report.nodes_after}; check passed: {errors}")
    if report.timing is not None:
        time = report.timing
        lines.append(f"time: {time.speedup:.3f} times as fast ({time.low:.3f} to {time.high:.3f}), noise {time.noise:.1%}")
    return lines
