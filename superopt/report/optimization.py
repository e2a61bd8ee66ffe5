"""The report of one optimization: what was applied, what it gained, how it was checked, and why it was accepted or not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

MOST_REASONS = 3
"""Reasons for which windows were left that the terminal shows; the JSON report has all."""


@dataclass(frozen=True)
class AppliedRule:
    """A rule of the accepted rewriting: how often it was applied, and the seconds per run that the cost model credits it with.

    A step that only prepares another one has a negative gain of its own.
    """

    name: str
    text: str
    times: int
    gain: float


@dataclass(frozen=True)
class SegmentGain:
    """A segment that was searched, once for all `copies` of it that are equal up to names and weights.

    `before` and `after` are the cost model's seconds per run of one copy.
    """

    outputs: tuple[str, ...]
    nodes: int
    copies: int
    before: float
    after: float
    rules: tuple[str, ...]
    states: int
    stopped: str


@dataclass(frozen=True)
class Timing:
    """End-to-end medians in seconds a run, both models interleaved, and their ratio with its 95 % bounds.

    `control` is the ratio of two sessions of the original, and `noise` how far from 1 its bounds reach.
    """

    original: float
    optimized: float
    speedup: float
    low: float
    high: float
    control: float
    noise: float
    rounds: int


@dataclass(frozen=True)
class Rounding:
    """Largest errors met, relative to the output's largest magnitude, against `reference`: a float64 run where possible.

    `tolerance` is how many times the original's error was allowed.
    """

    original: float
    optimized: float
    reference: str
    inputs: tuple[str, ...]
    tolerance: float


@dataclass(frozen=True)
class Arithmetic:
    """The floating-point mode of a run, the flags that the rewrites taken need (docs/floating-point.md), and the assumptions
    on values under which the mode admitted them.
    """

    mode: str = "relaxed"
    flags: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """What the measurements hold for."""

    device: str
    provider: str
    threads: int
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Prediction:
    """The device that a model was optimized for though it is not here, and the seconds a run that its profile predicts there.

    `note` says that nothing was measured. `doubt` is how many of the saved seconds its errors may take away, `known` the
    share of the time in nodes that were measured on that device. There are no figures where no candidate was priced.
    """

    note: str
    device: str
    provider: str
    threads: int
    versions: Mapping[str, str]
    original: float | None = None
    optimized: float | None = None
    speedup: float | None = None
    doubt: float | None = None
    known: float | None = None


@dataclass(frozen=True)
class SessionTuning:
    """Configuration entries, options and options of the CUDA provider that a session should have, what they gain, and what each
    choice that was tried does alone: to leave out the optimizer of that name, or to set an option.

    Timings are of the original in the plain session and, as optimized, in that with the choices. `chosen` names those that were
    taken, and `told` is all that they come to, as `name=value`.
    """

    entries: Mapping[str, str]
    timing: Timing | None
    tried: Mapping[str, Timing]
    options: Mapping[str, int] = field(default_factory=dict)
    provider_options: Mapping[str, str] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    told: str = ""


@dataclass(frozen=True)
class Report:
    """One run of `superopt.optimize`.

    `accepted` says whether the returned model is the rewritten one; `reason` says why, or why not. `seconds` are by phase.
    `timing` and `rounding` are absent where no candidate reached them: what is not faster is not checked. There is a
    `prediction` where the model was optimized for a device that is not here, and then no `timing`. `stopped` says what ended
    the search. Where dimensions are open, `shapes` has the timings at the sizes that were asked for, and `timing` is the one
    that gains least. `forgone` are the seconds a run that operators of ONNX Runtime's own would save, where these were not
    allowed. `windows_left` counts the windows that could not be searched, timed or lowered, and were left as they are for that,
    by the reason. `failed` is what the check says of what was found, where nothing of it passes: errors of rounding that add
    up, or a rule that is wrong. `arithmetic` is the freedom taken with floating-point arithmetic, and `assumptions` are the
    sentences about dynamic dimensions that the rewriting rests on.
    """

    model: str
    accepted: bool
    reason: str
    nodes: int
    nodes_in_islands: int
    islands: int
    nodes_after: int
    rules: tuple[AppliedRule, ...]
    segments: tuple[SegmentGain, ...]
    timing: Timing | None
    rounding: Rounding | None
    seconds: Mapping[str, float]
    environment: Environment
    budget: float
    seed: int
    stopped: str
    shapes: Mapping[str, Timing] = field(default_factory=dict)
    tuning: SessionTuning | None = None
    prediction: Prediction | None = None
    forgone: float = 0.0
    failed: str = ""
    windows_left: Mapping[str, int] = field(default_factory=dict)
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    assumptions: tuple[str, ...] = ()

    @property
    def speedup(self) -> float:
        """Time of the original over that of the returned model, measured, or predicted where there is a `prediction`; 1 where
        the original is returned.
        """
        figures = self.timing or self.prediction
        return (figures.speedup if figures is not None and self.accepted else None) or 1.0

    def json(self) -> str:
        """The report as a JSON object, one key per field, with a final newline."""
        return json.dumps({**dataclasses.asdict(self), "speedup": self.speedup}, indent=2, ensure_ascii=False) + "\n"


def summary(report: Report) -> RenderableType:
    """The report as tables for a terminal: the verdict, then the rules applied and the segments that gained."""
    parts: list[RenderableType] = []
    if report.rules:
        parts.append(_rules(report))
        parts.append(_segments(report))
    parts.append(_run(report))
    parts.append(Text(f"{report.model}: {report.reason}", style="bold green" if report.accepted else "bold yellow"))
    return Group(*parts)


def _rules(report: Report) -> Table:
    table = Table(title="Rules applied" if report.accepted else "Rules tried", title_justify="left")
    table.add_column("rule")
    table.add_column("times", justify="right")
    table.add_column("predicted gain", justify="right")
    for rule in report.rules:
        table.add_row(escape(rule.name), str(rule.times), duration(rule.gain))
    return table


def _segments(report: Report) -> Table:
    table = Table(title="Segments that gained (predicted, per run)", title_justify="left")
    table.add_column("ends at", overflow="fold")
    for heading in ("nodes", "copies", "before", "after", "ratio"):
        table.add_column(heading, justify="right")
    for segment in report.segments:
        if segment.after < segment.before:
            ratio = f"{segment.before / segment.after:.2f}" if segment.after else "all gone"
            ends = ", ".join(segment.outputs[:3]) + (", …" if len(segment.outputs) > 3 else "")
            costs = duration(segment.before), duration(segment.after)
            table.add_row(escape(ends), str(segment.nodes), str(segment.copies), *costs, ratio)
    return table


def _run(report: Report) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for shape, t in report.shapes.items() or [("", report.timing)]:
        if t is not None:
            change = f"{duration(t.original)} to {duration(t.optimized)}, {t.speedup:.3f}x"
            where = f" at {shape}" if shape else ""
            table.add_row("measured", f"{change} ({t.low:.3f} to {t.high:.3f}), noise {t.noise:.1%}, {t.rounds} rounds{where}")
    if report.prediction is not None:
        _predicted(table, report.prediction)
    if report.rounding is not None:
        r = report.rounding
        errors = f"{r.optimized:.1e} of the output's magnitude, the original's {r.original:.1e}"
        table.add_row("error", f"{errors}, against {escape(r.reference)} (tolerance {r.tolerance:g})")
    flags = ", ".join(report.arithmetic.flags) or "none"
    table.add_row("arithmetic", f"{report.arithmetic.mode} (flags needed: {flags})")
    if report.tuning is not None:
        table.add_row("session", _session(report.tuning))
    if report.forgone > 0:
        table.add_row("forgone", f"about {duration(report.forgone)} a run, which --allow-contrib would save")
    nodes = f"{report.nodes}, {report.nodes_in_islands} of them in {report.islands} islands, {report.nodes_after} afterwards"
    table.add_row("nodes", nodes)
    table.add_row("search", f"{report.stopped} (budget {report.budget:g} s, seed {report.seed})")
    if report.windows_left:
        count = sum(report.windows_left.values())
        reasons = "; ".join(f"{number} x {escape(why)}" for why, number in [*report.windows_left.items()][:MOST_REASONS])
        table.add_row("left", f"{count} windows were left as they are: {reasons}")
    for place, sentence in enumerate(report.assumptions):
        table.add_row("" if place else "assumes", escape(sentence))
    table.add_row("seconds", ", ".join(f"{phase} {spent:.1f}" for phase, spent in report.seconds.items()))
    measured_on = report.environment
    versions = ", ".join(f"{name} {version}" for name, version in measured_on.versions.items())
    table.add_row("on", f"{measured_on.device}, {measured_on.provider}, {measured_on.threads} threads, {versions}")
    return table


def _predicted(table: Table, p: Prediction) -> None:
    if p.original is not None and p.optimized is not None and p.doubt is not None and p.known is not None:
        change = f"{duration(p.original)} to {duration(p.optimized)}, {p.speedup:.3f}x"
        saved = f"{duration(p.original - p.optimized)} saved, {duration(p.doubt)} of it in doubt"
        table.add_row("predicted", f"{change} ({saved}; {p.known:.0%} of the time in nodes measured there)")
    table.add_row("note", escape(p.note))


def _session(tuning: SessionTuning) -> str:
    tried = ", ".join(f"{name} {timing.speedup:.3f}x" for name, timing in tuning.tried.items()) or "none"
    if tuning.timing is None:
        return f"its defaults are best (each choice alone: {tried})"
    interval = f"({tuning.timing.low:.3f} to {tuning.timing.high:.3f})"
    return f"{escape(tuning.told)}: {tuning.timing.speedup:.3f}x for the original alone {interval}"


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
