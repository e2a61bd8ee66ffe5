"""The report of one optimization for a terminal: the verdict, a summary with the reasons and the next steps, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from superopt.policy import REPORT
from superopt.protobuf.kernels import library_files
from superopt.report import statements
from superopt.report.number_texts import counted, duration, percent, ratio
from superopt.report.optimization import AppliedRule, Prediction, Report, SessionTuning, Timing


def verdict(report: Report) -> Text:
    """Return the verdict as one sentence."""
    return Text(f"{report.model}: {report.reason}", style="bold green" if report.accepted else "bold yellow")


def summary(report: Report, *, target: str = "", verbose: bool = False) -> RenderableType:
    """Return the report for a terminal: the verdict, a summary, and (if `verbose` is True) tables.

    `target` is the path of the written file. The text is empty if no file was written.

    The summary names the few rules with the largest gains, the reasons for the verdict, and next steps for the user. The tables
    list all rules, the segments that gained, and the operators that cannot be rewritten.
    """
    parts: list[RenderableType] = [verdict(report), Text(), labelled_rows(_rows(report, target, verbose=verbose))]
    if verbose:
        tables = [_rules(report)] if report.rules else []
        tables += [_segments(report)] if any(segment.after < segment.before for segment in report.segments) else []
        tables += [_uncovered(report)] if report.uncovered else []
        parts += [part for table in tables for part in (Text(), table)]
    return Group(*parts)


def labelled_rows(rows: Iterable[tuple[str, str]]) -> Table:
    """Return labels and plain texts as two columns.

    If successive rows have equal labels, only the first row shows the label.
    """
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    before = ""
    for label, text in rows:
        table.add_row("" if label == before else label, escape(text))
        before = label
    return table


def data_table(title: str, names: str, *numbers: str) -> Table:
    """Return an empty table. The first column is for names, and the other columns are for numbers. All columns wrap."""
    table = Table(title=title, title_justify="left")
    table.add_column(names, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _rows(report: Report, target: str, *, verbose: bool) -> Iterator[tuple[str, str]]:
    if target:
        yield "result", f"{target}, {'with the same inputs and outputs' if report.accepted else 'a copy of the original'}"
    yield from _result_rows(report)
    if target and not report.accepted:
        yield "changed", "nothing: the file is a copy of the original"
        yield "safe", "its outputs are the outputs of the original"
    if report.accepted:
        yield from (("changed", text) for text in _changes(report))
        yield from (("safe", text) for text in _safety(report))
    yield from (("why", sentence) for sentence in report.why)
    if not verbose:
        yield from (("cannot rewrite", text) for text in _uncovered_lines(report))
    if target and report.accepted:
        if report.kernels is not None:
            yield "next", statements.library_step(str(library_files(target)[0]))
        yield "next", statements.use_step(report.model, target).replace("`", "")
        if report.kernels is None:
            yield "next", statements.comparison_step(report.model, target).replace("`", "")
    if target and not report.accepted:
        yield "next", statements.keep_step(report.model).replace("`", "")
    yield from (("next", sentence) for sentence in report.hints)
    yield from _condition_rows(report)
    yield from _effort_rows(report)


def _changes(report: Report) -> Iterator[str]:
    """Yield lines that state how the nodes changed, and which rules have the largest gains."""
    yield statements.node_changes(report)
    measured = report.timing.original - report.timing.optimized if report.timing is not None else 0.0
    yield from _contributions(report.rules, measured)


def _safety(report: Report) -> Iterator[str]:
    yield statements.outcome_of_checks(report)
    yield from statements.proofs(report.rules)
    if report.rounding is not None:
        yield from statements.errors(report.rounding)
    if free := statements.freedoms(report.arithmetic):
        yield free


def _result_rows(report: Report) -> Iterator[tuple[str, str]]:
    """Yield rows about the measured or predicted times."""
    for shape, timing in report.shapes.items() or [("", report.timing)]:
        if timing is not None:
            where = f" at {shape}" if shape else ""
            change = f"{duration(timing.original)} to {duration(timing.optimized)} a run{where}, {_speedup(timing)}"
            yield "speed", change
    if report.one_thread is not None:
        yield "one thread", _speedup(report.one_thread)
    if report.kernels is not None:
        yield "kernels", statements.kernels(report.kernels)
    if report.prediction is not None:
        yield from _predicted(report.prediction)


def _speedup(timing: Timing) -> str:
    interval = f"95 % interval {ratio(timing.low)} to {ratio(timing.high)}"
    return f"{ratio(timing.speedup)} times as fast ({interval}, measurement noise {percent(timing.noise)})"


def _predicted(p: Prediction) -> Iterator[tuple[str, str]]:
    if p.original is not None and p.optimized is not None and p.doubt is not None and p.known is not None:
        change = f"{duration(p.original)} to {duration(p.optimized)}, {ratio(p.speedup or 1.0)} times as fast"
        saved = f"{duration(p.original - p.optimized)} saved, {duration(p.doubt)} of it in doubt"
        yield "predicted", f"{change} ({saved}; {percent(p.known)} of the time in nodes measured there)"
    yield "note", p.note


def _contributions(rules: Iterable[AppliedRule], measured: float) -> Iterator[str]:
    """Yield lines that name the rules with the largest predicted gains, and a line with the count of the remaining rules.

    `measured` is the measured gain in seconds, or 0 if there is none.
    """
    listed = list(rules)
    gaining, enabling = _by_gain(listed)
    if not gaining:
        reason = "no rule gains by itself" if enabling else "no rule was applied"
        yield f"{reason}: the same computation is written in other nodes, which ONNX Runtime runs faster"
        return
    if (saved := sum(rule.gain for rule in listed)) > 0 and len(listed) > 1:
        whole = f"; {duration(measured)} was measured for the whole model" if measured > 0 else ""
        yield f"{len(listed)} rules, by which the parts should save {duration(saved)} a run{whole}; the largest predictions:"
    first, others = gaining[: REPORT.max_contributions], gaining[REPORT.max_contributions :]
    for rule in first:
        outline = statements.rewrite_outline(rule.text)
        yield f"{duration(rule.gain)} by {rule.name} ({_times(rule.times)}){f': {outline}' if outline else ''}"
    if others:
        gain, uses = sum(rule.gain for rule in others), sum(rule.times for rule in others)
        yield f"{duration(gain)} by {counted(len(others), 'other rule')} ({_times(uses)})"
    if enabling:
        times = _times(sum(rule.times for rule in enabling))
        yield f"{counted(len(enabling), 'more rule')} ({times}): steps that made the others possible"


def _by_gain(rules: Iterable[AppliedRule]) -> tuple[list[AppliedRule], list[AppliedRule]]:
    """Divide the rules into rules that save time by themselves, and rules that only make further rules applicable."""
    listed = list(rules)
    return [rule for rule in listed if rule.gain > 0], [rule for rule in listed if rule.gain <= 0]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _condition_rows(report: Report) -> Iterator[tuple[str, str]]:
    """Yield rows about the conditions under which the result holds."""
    if report.fixed and report.accepted:
        fixed = ", ".join(f"{name}={value}" for name, value in report.fixed.items())
        yield "fixed", f"{fixed}: the result fails at run time with other values"
    if report.inlined:
        yield "branches", f"{report.inlined} always taken, and inlined"
    if not report.accepted:
        yield "arithmetic", f"mode {report.arithmetic.mode}"
    if report.tuning is not None:
        yield "session", _session(report.tuning)
    yield from (("assumes", sentence) for sentence in report.assumptions)


def _effort_rows(report: Report) -> Iterator[tuple[str, str]]:
    """Yield rows about the model, the search and the device."""
    yield "nodes", statements.node_shares(report)
    tried = f"{counted(report.rewrites_tried, 'rewrite')} tried, {counted(report.candidates_measured, 'candidate')} measured"
    recalled = "results of an earlier search were read from the cache" if report.segments else ""
    counts = f"; {tried if report.rewrites_tried else recalled}".rstrip("; ")
    yield "search", f"{report.stopped} (budget {duration(report.budget)}, seed {report.seed}){counts}"
    if report.windows_left:
        reasons = "; ".join(f"{n} x {why}" for why, n in [*report.windows_left.items()][: REPORT.max_reasons])
        yield "left", f"{sum(report.windows_left.values())} windows were left as they are: {reasons}"
    yield "time", ", ".join(f"{phase} {duration(spent)}" for phase, spent in report.seconds.items())
    measured_on = report.environment
    versions = ", ".join(f"{name} {version}" for name, version in measured_on.versions.items())
    yield "on", f"{measured_on.device}, {measured_on.provider}, {counted(measured_on.threads, 'thread')}, {versions}"


def _session(tuning: SessionTuning) -> str:
    tried = ", ".join(f"{name} {ratio(timing.speedup)}" for name, timing in tuning.tried.items()) or "none"
    if tuning.timing is None:
        return f"its defaults are best (speedup by each choice alone: {tried})"
    interval = f"({ratio(tuning.timing.low)} to {ratio(tuning.timing.high)})"
    return f"{tuning.told}: the original alone is {ratio(tuning.timing.speedup)} times as fast {interval}"


def _uncovered_lines(report: Report) -> Iterator[str]:
    """Yield lines on nodes that cannot be rewritten: a line for each operator and reason, and a line for other nodes."""
    slow = [row for row in report.uncovered if row.share >= REPORT.min_hint_share or not report.operators]
    rows = slow[: REPORT.max_uncovered_operators]
    for row in rows:
        share = f"{percent(row.share)} of the time, " if row.share >= REPORT.min_hint_share else ""
        yield f"{row.nodes} x {row.operator}: {share}{row.reason}"
    if others := [row for row in report.uncovered if row not in rows]:
        nodes = counted(sum(row.nodes for row in others), "other node" if rows else "node")
        yield f"{nodes}, {percent(sum(row.share for row in others))} of the time"


# ---------------------------------------------------------------- tables


def _rules(report: Report) -> Table:
    table = data_table("Rules applied" if report.accepted else "Rules tried", "rule", "times", "predicted gain")
    gaining, enabling = _by_gain(report.rules)
    for rule in gaining:
        table.add_row(escape(rule.name), str(rule.times), duration(rule.gain))
    if enabling:
        table.add_section()
        title = "steps that made the others possible:" if gaining else "steps without a gain of their own:"
        table.add_row(title, str(sum(rule.times for rule in enabling)), "", style="bold")
        for rule in sorted(enabling, key=lambda rule: (-rule.times, rule.name)):
            table.add_row(escape(rule.name), str(rule.times), "")
    return table


def _segments(report: Report) -> Table:
    table = data_table("Segments that gained (predicted, per run)", "ends at", "nodes", "copies", "before", "after", "ratio")
    for segment in report.segments:
        if segment.after < segment.before:
            share = ratio(segment.before / segment.after) if segment.after else "all gone"
            ends = ", ".join(segment.outputs[: REPORT.max_reasons]) + (
                ", …" if len(segment.outputs) > REPORT.max_reasons else ""
            )
            costs = duration(segment.before), duration(segment.after)
            table.add_row(escape(ends), str(segment.nodes), str(segment.copies), *costs, share)
    return table


def _uncovered(report: Report) -> Table:
    table = data_table("Operators that cannot be rewritten", "operator", "nodes", "share of the time")
    table.add_column("reason", overflow="fold")
    for row in report.uncovered:
        table.add_row(escape(row.operator), str(row.nodes), percent(row.share), escape(row.reason))
    return table
