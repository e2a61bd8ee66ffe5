"""The report of one optimization: the applied rules, their gains, the checks, and the reason for the verdict."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from superopt.model.coverage import UncoveredNodes
from superopt.policy import REPORT


@dataclass(frozen=True)
class AppliedRule:
    """A rule that was applied to the model.

    `times` is the number of applications of the rule. `gain` is the sum of the seconds that these applications save in a run of
    the model, by the cost model. An application that only prepares another application may have a negative gain.
    """

    name: str
    text: str
    times: int
    gain: float


@dataclass(frozen=True)
class SegmentGain:
    """The result of the search of one segment (a part of the model that one search rewrites).

    Equal segments, which differ only in names and weights, are searched once. `copies` is their number. `before` and `after`
    are the seconds that the cost model predicts for a run of one copy.
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
    """The comparison of the original and the optimized model, which were run in alternation.

    `original` and `optimized` are median end-to-end times in seconds per run. `speedup` is the ratio of the times, and `low`
    and `high` are the bounds of its 95 % interval. `control` is the ratio of the times of two sessions of the original. `noise`
    is the larger distance from 1 of the 95 % bounds of `control`.
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
class OutputRounding:
    """The largest errors of one output of the original and of the optimized model, relative to the output's magnitude."""

    name: str
    original: float
    optimized: float


@dataclass(frozen=True)
class Rounding:
    """The largest errors that the numerical check found, relative to the largest magnitude of the output.

    Errors are differences from the reference, a run in float64 if possible. `reference` names the reference. The error of the
    optimized model may be `tolerance` times the error of the original. `outputs` has the outputs with the largest errors.
    """

    original: float
    optimized: float
    reference: str
    inputs: tuple[str, ...]
    tolerance: float
    outputs: tuple[OutputRounding, ...] = ()


@dataclass(frozen=True)
class Arithmetic:
    """The freedom that an optimization takes with floating-point arithmetic (docs/floating-point.md).

    Attributes:
        mode: The floating-point mode.
        flags: The flags that the rewrites need.
        assumptions: The assumptions about values under which the mode permitted the rewrites.
    """

    mode: str = "relaxed"
    flags: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunEnvironment:
    """The device, provider, threads and versions for which the measurements are valid."""

    device: str
    provider: str
    threads: int
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Prediction:
    """The predictions of a device profile for a device that is not present. Times are in seconds per run.

    Attributes:
        note: The statement that nothing was measured.
        device: The device that the model was optimized for.
        provider: The execution provider on the device.
        threads: The number of threads on the device.
        versions: The software versions for which the profile is valid.
        original: The predicted time of the original. It is None, like all other figures, if no candidate's time was predicted.
        optimized: The predicted time of the optimized model.
        speedup: The ratio of the two times.
        doubt: The number of seconds by which the saved time may be smaller than predicted, because of errors of the profile.
        known: The share of the predicted time that belongs to nodes that were measured on the device.
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
    """The session settings that tuning chose, the speedup by all settings together, and the speedup by each setting alone.

    Attributes:
        entries: The configuration entries for the session.
        timing: The comparison of two sessions of the original: with default settings, and with the chosen settings.
        tried: The comparison for each single setting. The key is the name of an ONNX Runtime optimizer that the setting
            switches off, or `option=value`.
        options: The session options.
        provider_options: The options of the CUDA provider.
        chosen: The names of the chosen settings.
        told: All chosen settings as `name=value`.
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
    """The report of one run of `superopt.optimize`.

    Attributes:
        model: The name of the model.
        accepted: Whether the rewritten model is returned.
        reason: The reason why the rewritten model was accepted or rejected.
        nodes: The number of nodes of the original.
        nodes_in_islands: The number of nodes of the original in islands (the regions that the search can rewrite).
        islands: The number of islands.
        nodes_after: The number of nodes of the rewritten model.
        rules: The rules that were applied.
        segments: The results for the segments (parts of islands) that were searched.
        timing: The comparison of candidate and original, or None if no candidate was compared. If the models were compared at
            several sizes of dynamic dimensions, this is the comparison with the smallest gain.
        one_thread: The comparison in sessions of one thread, at the sizes with the smallest gain, or None if sessions have one
            thread anyway.
        rounding: The result of the numerical check, or None if no candidate was checked. Candidates that are not faster are not
            checked.
        seconds: The seconds spent in each phase.
        environment: The device and versions for which the measurements are valid.
        budget: The time budget in seconds.
        seed: The random seed.
        stopped: The reason why the search ended.
        shapes: With dynamic dimensions, the timing at each of the requested sizes.
        tuning: The session settings that were found, if tuning was requested.
        prediction: The predicted times, if the model was optimized for a device that is not present. In that case, `timing` is
            None.
        forgone: The seconds per run that ONNX Runtime's contrib operators would save, or 0 if contrib operators were allowed.
        failed: The reason why no candidate passed the numerical check, or an empty text.
        windows_left: The number of windows (parts of long islands) that could not be searched, by reason. They do not change.
        arithmetic: The freedom taken with floating-point arithmetic.
        assumptions: The statements about dynamic dimensions on which the rewriting relies.
        fixed: The values of inputs and sizes of dimensions, as text, at which alone the rewritten model is right.
        inlined: The number of branches of the original that are always taken and were inlined.
        uncovered: If nothing faster was found, the nodes that the search cannot rewrite, by operator and reason.
        hints: If nothing faster was found, sentences that say which options may lead to a gain.
        searched: The date and time of the search, if the report comes from the time cache, or else an empty text.
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
    environment: RunEnvironment
    budget: float
    seed: int
    stopped: str
    one_thread: Timing | None = None
    shapes: Mapping[str, Timing] = field(default_factory=dict)
    tuning: SessionTuning | None = None
    prediction: Prediction | None = None
    forgone: float = 0.0
    failed: str = ""
    windows_left: Mapping[str, int] = field(default_factory=dict)
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    assumptions: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    inlined: int = 0
    uncovered: tuple[UncoveredNodes, ...] = ()
    hints: tuple[str, ...] = ()
    searched: str = ""

    @property
    def speedup(self) -> float:
        """The time of the original divided by the time of the returned model.

        Measured times are used if there are any, or else predicted times. The value is 1 if the original is returned.
        """
        figures = self.timing or self.prediction
        return (figures.speedup if figures is not None and self.accepted else None) or 1.0

    def json(self) -> str:
        """Return the report as a JSON object with a final newline. The object has a key for each field, and `speedup`."""
        return json.dumps({**dataclasses.asdict(self), "speedup": self.speedup}, indent=2, ensure_ascii=False) + "\n"


def summary(report: Report) -> RenderableType:
    """Return the report as tables for a terminal: applied rules, improved segments, facts about the run, and the verdict."""
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
    if report.one_thread is not None:
        t = report.one_thread
        table.add_row("one thread", f"{t.speedup:.3f}x ({t.low:.3f} to {t.high:.3f}), noise {t.noise:.1%}")
    if report.prediction is not None:
        _predicted(table, report.prediction)
    if report.rounding is not None:
        r = report.rounding
        errors = f"{r.optimized:.1e} of the output's magnitude, the original's {r.original:.1e}"
        table.add_row("error", f"{errors}, against {escape(r.reference)} (tolerance {r.tolerance:g})")
    if report.fixed and report.accepted:
        fixed = ", ".join(f"{name}={value}" for name, value in report.fixed.items())
        table.add_row("fixed", f"{escape(fixed)}: the result fails at run time with other values")
    if report.inlined:
        table.add_row("branches", f"{report.inlined} always taken, and inlined")
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
        reasons = "; ".join(f"{number} x {escape(why)}" for why, number in [*report.windows_left.items()][: REPORT.max_reasons])
        table.add_row("left", f"{count} windows were left as they are: {reasons}")
    for place, row in enumerate(report.uncovered[: REPORT.max_uncovered_operators]):
        share = f"{row.share:.0%} of the time, " if row.share >= REPORT.min_hint_share else ""
        table.add_row("" if place else "not rewritten", f"{row.nodes} x {escape(row.operator)}: {share}{row.reason}")
    for place, hint in enumerate(report.hints):
        table.add_row("" if place else "try", escape(hint))
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
    """Return a time in seconds as text in s, ms, us or ns. For example, 0.0025 gives `2.5 ms`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
