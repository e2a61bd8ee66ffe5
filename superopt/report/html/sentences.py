"""The sentences, tables and charts of a page, from the values in `superopt.report.html.page`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from superopt.policy import REPORT
from superopt.report import statements
from superopt.report.html.page import PageContent, change_text, time_text
from superopt.report.number_texts import counted
from superopt.report.optimization import Report, Timing

Number = TypeVar("Number", int, float)
UNCHANGED = "Safe: the model that was written is a copy of the original."


@dataclass(frozen=True)
class Headline:
    """The headline of a page: the gain in words, figures, changes, safety of the result, and whether the model is faster."""

    text: str
    figures: str
    changed: str
    safe: str
    faster: bool


@dataclass(frozen=True)
class IntervalStrip:
    """Positions on a strip, in percent of its width: the speedup and its interval, the noise interval, and the speedup 1."""

    low: float
    high: float
    speedup: float
    noise_low: float
    noise_high: float
    same: float


@dataclass(frozen=True)
class Fact:
    """A short fact: its name, and a text or several texts."""

    name: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class PairBar:
    """A row of a bar chart: a name, two texts, and two lengths in percent."""

    name: str
    texts: tuple[str, str]
    lengths: tuple[float, float]


@dataclass(frozen=True)
class FallBar:
    """A row of a waterfall: a name, a text, the start and the length in percent, and the kind (whole or saved)."""

    name: str
    text: str
    start: float
    length: float
    kind: str


def model_display_name(report: Report) -> str:
    """Return the model's name for the title of the HTML page: the file's name without the folder, or the model's own name."""
    return Path(report.model).name or report.model


def headline(report: Report) -> Headline:
    """Return the headline of the page."""
    t, p = report.timing, report.prediction
    figures = ""
    if t is not None:
        figures = f"{change_text(t.original, t.optimized)} per run · {_interval(t)}"
    elif p is not None and p.original is not None and p.optimized is not None and p.doubt is not None:
        figures = f"{change_text(p.original, p.optimized)} per run, predicted · {time_text(p.doubt)} in doubt"
    if not report.accepted:
        return Headline("Nothing faster was found", figures, "", UNCHANGED, faster=False)
    predicted = "Predicted to be " if p is not None else ""
    device = f"{report.environment.device}, {counted(report.environment.threads, 'thread')}"
    changed = (
        f"{statements.node_changes(report)}. Measured on {device}." if t is not None else f"{statements.node_changes(report)}."
    )
    safe = f"Safe: {statements.outcome_of_checks(report)}." if report.rounding is not None else ""
    return Headline(f"{predicted}{report.speedup:.2f} times as fast", figures, changed, safe, faster=True)


def _interval(t: Timing) -> str:
    return f"95 % interval {t.low:.2f} to {t.high:.2f} · measurement noise {t.noise:.1%}"


def interval_strip(report: Report) -> IntervalStrip | None:
    """Return the picture of the measured interval. If no models were compared, return None."""
    t = report.timing
    if t is None:
        return None
    least, most = min(t.low, 1 - t.noise, 1.0), max(t.high, 1 + t.noise, 1.0)
    edge = 0.06 * (most - least) or 0.01

    def at(ratio: float) -> float:
        return round(100 * (ratio - least + edge) / (most - least + 2 * edge), 2)

    return IntervalStrip(at(t.low), at(t.high), at(t.speedup), at(1 - t.noise), at(1 + t.noise), at(1.0))


# ---------------------------------------------------------------- is it safe


def safety(page: PageContent) -> tuple[Fact, ...]:
    """Return facts that support the result: errors, proofs, arithmetic, and the certificate.

    If the model was not rewritten, the facts say why.
    """
    return tuple(_safe(page) if page.report.accepted else _unchanged(page.report))


def _safe(page: PageContent) -> Iterator[Fact]:
    report = page.report
    r = report.rounding
    yield Fact("Verdict", (_sentence(statements.outcome_of_checks(report)),))
    if r is not None:
        yield Fact("Numbers", tuple(map(_sentence, statements.errors(r))))
    else:
        yield Fact("Numbers", ("No numerical check was made.",))
    if told := tuple(map(_sentence, statements.proofs(report.rules))):
        yield Fact("Proofs", told)
    if free := statements.freedoms(report.arithmetic):
        yield Fact("Arithmetic", (_sentence(free),))
    if report.fixed:
        fixed = ", ".join(f"{name}={value}" for name, value in report.fixed.items())
        yield Fact("Fixed", (f"The result is right only for {fixed}. It fails at run time with other values.",))
    steps = f"Every step is in {page.certificate}." if page.certificate else "--certificate FILE writes every step to a file."
    yield Fact("Certificate", (f"{steps} superopt verify checks the steps independently of the search.",))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _unchanged(report: Report) -> Iterator[Fact]:
    yield Fact("Why", tuple(map(_sentence, (report.reason, *report.why))))
    saved = math.fsum((s.before - s.after) * s.copies for s in report.segments if s.after < s.before)
    if report.rules:
        names = f"{len(report.rules)} rule{'s' * (len(report.rules) != 1)}"
        yield Fact("Tried", (f"Rewrites by {names}, by which parts of the model should save {time_text(saved)} a run.",))
    yield Fact("Searched", (_sentence(statements.node_shares(report)), f"The search ended because {_ended(report)}."))
    rows = report.uncovered[: REPORT.max_uncovered_operators]
    if rows:
        shares = (f", {row.share:.0%} of the time" if row.share >= REPORT.min_hint_share else "" for row in rows)
        texts = (f"{row.nodes} × {row.operator}{share}: {row.reason}" for row, share in zip(rows, shares, strict=True))
        yield Fact("Not rewritten", (*texts,))


def _ended(report: Report) -> str:
    return report.stopped or "every part was searched"


def next_steps(page: PageContent) -> tuple[str, ...]:
    """Return the next steps for the reader: the hints of the report, and sentences on how to use the written files and
    settings.

    Commands are between backticks.
    """
    report = page.report
    steps: list[str] = []
    if report.accepted:
        source, target = page.source or "in.onnx", page.target or "out.onnx"
        steps.append(_sentence(statements.use_step(source, target)))
        steps.append(statements.comparison_step(source, target) + ".")
        if page.certificate:
            steps.append(
                f"Check the result on any machine: `superopt verify {source} {target} --certificate {page.certificate}`."
            )
    else:
        steps.append(_sentence(statements.keep_step(page.source or "in.onnx")))
    steps += [_sentence(hint) for hint in report.hints]
    tuning = report.tuning
    if tuning is not None and tuning.timing is not None and tuning.chosen:
        gain = f"alone they make the original {tuning.timing.speedup:.2f} times as fast"
        steps.append(f"Use the session settings `{tuning.told}`: {gain}.")
    return tuple(steps)


# ---------------------------------------------------------------- charts


def operator_bars(values: Mapping[str, tuple[Number, Number]], *, seconds: bool) -> tuple[PairBar, ...]:
    """Return a row for each operator, in descending order of the values.

    If there are too many operators, the last row sums up the remaining operators.
    """
    ordered = sorted(values.items(), key=lambda item: (-max(item[1]), item[0]))
    rows = ordered[: REPORT.max_page_rows]
    rest = ordered[REPORT.max_page_rows :]
    if rest:
        rows.append((f"{len(rest)} others", (sum(v[0] for _, v in rest), sum(v[1] for _, v in rest))))
    longest = max((max(pair) for _, pair in rows), default=0) or 1

    def text(value: Number) -> str:
        return (time_text(value) if value else "–") if seconds else str(value or "–")

    return tuple(PairBar(n, (text(a), text(b)), (_percent(a, longest), _percent(b, longest))) for n, (a, b) in rows)


def _percent(value: float, whole: float) -> float:
    return round(100 * value / whole, 2)


def waterfall(page: PageContent) -> tuple[FallBar, ...]:
    """Return the rows of a waterfall chart, from the time of the original to the predicted and measured time of the result."""
    report, savings = page.report, page.savings
    t = report.timing
    saved = math.fsum(seconds for _, seconds in savings)
    base = t.original if t is not None else report.prediction.original if report.prediction is not None else None
    if base is None or not any(seconds for _, seconds in savings):
        return ()
    whole = max(base, t.optimized if t else 0.0)
    rows = [FallBar("original", time_text(base), 0.0, _percent(base, whole), "whole")]
    left = base
    for name, seconds in _joined(savings):
        after = max(left - seconds, 0.0)
        low, high = min(left, after), max(left, after)
        kind = "saved" if seconds >= 0 else "lost"
        rows.append(FallBar(name, f"−{time_text(seconds)}", _percent(low, whole), _percent(high - low, whole), kind))
        left = after
    rows.append(FallBar("predicted", time_text(base - saved), 0.0, _percent(max(left, 0.0), whole), "predicted"))
    if t is not None:
        rows.append(FallBar("measured", time_text(t.optimized), 0.0, _percent(t.optimized, whole), "measured"))
    return tuple(rows)


def _joined(savings: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    rows, rest = [*savings[: REPORT.max_page_rows]], savings[REPORT.max_page_rows :]
    return rows + ([(f"{len(rest)} other parts", math.fsum(seconds for _, seconds in rest))] if rest else [])


# ---------------------------------------------------------------- details


def details(page: PageContent) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
    """Return the tables of details, each with a title."""
    report = page.report
    tables = [
        ("Measurement", (*_measured(report),)),
        ("Numerical check", (*_checked(report),)),
        ("Search", (*_search(report),)),
        ("Environment", (*_environment(report),)),
    ]
    return tuple((title, facts) for title, facts in tables if facts)


def _measured(report: Report) -> Iterator[Fact]:
    for shape, t in report.shapes.items():
        yield Fact(f"at {shape}", (_timing(t),))
    if report.timing is not None and not report.shapes:
        yield Fact("whole model", (_timing(report.timing),))
    if report.one_thread is not None:
        yield Fact("with one thread", (_timing(report.one_thread),))
    yield Fact("threads", (str(report.environment.threads),))
    if report.tuning is not None:
        yield Fact("session settings", (report.tuning.told or "the defaults are best",))
    if report.prediction is not None:
        yield Fact("note", (report.prediction.note,))


def _timing(t: Timing) -> str:
    change = f"{change_text(t.original, t.optimized)}, {t.speedup:.3f} times as fast"
    return f"{change} ({t.low:.3f} to {t.high:.3f}), A/A {t.control:.3f}, noise {t.noise:.1%}, {t.rounds} rounds"


def _checked(report: Report) -> Iterator[Fact]:
    r = report.rounding
    if r is not None:
        yield Fact("reference", (r.reference,))
        yield Fact("largest error", (f"original {r.original:.2e}", f"result {r.optimized:.2e}", f"tolerance {r.tolerance:g} ×"))
        if r.outputs:
            rows = (f"{o.name}: original {o.original:.2e}, result {o.optimized:.2e}" for o in r.outputs)
            yield Fact("by output", (*rows,))
        yield Fact("inputs", (", ".join(r.inputs),))
    if report.failed:
        yield Fact("failed", (report.failed,))
    assumed = (*report.arithmetic.assumptions, *report.assumptions)
    if assumed:
        yield Fact("assumptions", assumed)


def _search(report: Report) -> Iterator[Fact]:
    changed = f"{report.nodes} before, {report.nodes_after} after"
    rewritable = f"{report.nodes_in_islands} in regions that can be rewritten (islands: {report.islands})"
    yield Fact("nodes", (changed, rewritable))
    yield Fact("segments", (f"{len(report.segments)} searched, {sum(s.states for s in report.segments)} states",))
    yield Fact("ended", (f"{_ended(report)} (budget {report.budget:g} s, seed {report.seed})",))
    if report.windows_left:
        yield Fact("not searched", tuple(f"{count} × {why}" for why, count in report.windows_left.items()))
    if report.inlined:
        yield Fact("branches", (f"{report.inlined} always taken, and inlined",))
    if report.uncovered:
        yield Fact("not understood", tuple(f"{row.nodes} × {row.operator}: {row.reason}" for row in report.uncovered))
    yield Fact("seconds", (", ".join(f"{phase} {spent:.1f}" for phase, spent in report.seconds.items()),))
    if report.searched:
        yield Fact("searched on", (report.searched,))


def _environment(report: Report) -> Iterator[Fact]:
    e = report.environment
    yield Fact("device", (e.device,))
    yield Fact("provider", (e.provider,))
    yield Fact("versions", (", ".join(f"{name} {version}" for name, version in e.versions.items()),))
