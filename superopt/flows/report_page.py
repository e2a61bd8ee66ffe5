"""Collect the values of a page about an optimization: rewritten parts before and after, their rules, times by operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from superopt.errors import SuperoptError
from superopt.flows.certificate import RewriteStage
from superopt.flows.report_fields import operator_counts
from superopt.model.external_data import temporary_scratch
from superopt.model.load import Model, as_model
from superopt.model.node_graphs import part_of_model
from superopt.model.save import loadable
from superopt.policy import REPORT
from superopt.report.html.page import PageContent, RewrittenPart, UsedRule, figure_of, used_rule
from superopt.report.optimization import AppliedRule, Report
from superopt.rules.store import StoredRule, load
from superopt.runtime.input_source import InputSource
from superopt.runtime.operator_times import operator_seconds
from superopt.runtime.session import Device
from superopt.runtime.settings import with_choices
from superopt.search.segments import Gain

if TYPE_CHECKING:
    from superopt.flows.optimized import AnyModel, Optimized

PROFILED = (
    "Times in the kernels of ONNX Runtime, with its own optimizations, as its profiler measures them: the fastest of several "
    "runs after the comparison. The profiler adds to the times of short kernels."
)
ELSEWHERE = "Times by operator are measured only on CPUs that are present."
UNTIMED = "The operators were not timed."


@dataclass(frozen=True)
class PageFiles:
    """The files that a page names in its commands, and the command that repeats the optimization.

    A page does not show a field that is an empty text.
    """

    target: str = ""
    certificate: str = ""
    command: str = ""


def page_content(optimized: Optimized[AnyModel], files: PageFiles | None = None, *, profiled: bool = True) -> PageContent:
    """Return the values of the page about an optimization.

    If `profiled` is True, both models are run a few times in ONNX Runtime's profiler, to show the time of each operator.
    """
    named, report, evidence = files or PageFiles(), optimized.report, optimized.evidence
    before, after = evidence.original, as_model(optimized.model)
    known = {stored.rule.name: stored for stored in load()} if report.rules and report.accepted else {}
    applied = {rule.name: rule for rule in report.rules}
    ranked = sorted(_rewrites(evidence.stages()), key=lambda pair: -pair[1].seconds)
    several = len({stage.number for stage, _ in ranked}) > 1
    parts = [_part(stage, gain, applied, known, several=several) for stage, gain in ranked[: REPORT.max_drawn_parts]]
    times, note = dict[str, tuple[float, float]](), ELSEWHERE
    if profiled and report.prediction is None and report.environment.provider == "cpu":
        times, note = _times(before, after, report, evidence.sizes, optimized.inputs)
    elif not profiled:
        note = UNTIMED
    return PageContent(
        report=report,
        parts=tuple(parts),
        savings=tuple((_title(gain), gain.seconds) for _, gain in ranked),
        times=times,
        times_note=note,
        counts=operator_counts(before, after),
        command=named.command or _call(report, evidence.opset),
        source=report.model if named.target else "",
        target=named.target,
        certificate=named.certificate,
        rules=tuple(used_rule(rule, rule.times, known.get(rule.name)) for rule in report.rules) if report.accepted else (),
    )


def _rewrites(stages: Iterator[RewriteStage]) -> list[tuple[RewriteStage, Gain]]:
    """Return the rewrites of all stages.

    A rewrite without steps replaces nodes by new nodes for the same computation. Rewrites without steps are returned only if no
    rewrite has steps.
    """
    every = [(stage, gain) for stage in stages for gain in stage.taken]
    return [(stage, gain) for stage, gain in every if gain.found.steps] or every


def _part(
    stage: RewriteStage, gain: Gain, applied: Mapping[str, AppliedRule], known: Mapping[str, StoredRule], *, several: bool
) -> RewrittenPart:
    """Return the rewrite in the form that a page shows. `several` says whether more than one pass rewrote the model."""
    segment, found = gain.copies[0], gain.found
    outputs, inputs = [*segment.island.outputs], {term.name for term in segment.form.names.values()}
    scope = segment.island.scope
    times = Counter(step.rule for step in found.steps)
    rules = [used_rule(applied[name], count, known.get(name)) for name, count in times.items() if name in applied]
    return RewrittenPart(
        title=_title(gain),
        number=stage.number if several else 0,
        copies=len(gain.copies),
        before_seconds=found.before,
        after_seconds=found.after,
        saved=gain.seconds,
        before=figure_of(part_of_model(stage.before, scope, outputs, inputs)),
        after=figure_of(part_of_model(stage.after, scope, outputs, inputs)),
        rules=_distinct(rules),
    )


def _distinct(rules: Sequence[UsedRule]) -> tuple[UsedRule, ...]:
    return tuple({rule.name: rule for rule in rules}.values())


def _title(gain: Gain) -> str:
    island = gain.copies[0].island
    nodes = f"{len(island.nodes)} node{'s' * (len(island.nodes) != 1)}"
    return f"{nodes} ending at {next(iter(island.outputs), 'an output')}"


def _times(
    before: Model, after: Model, report: Report, sizes: Sequence[Mapping[str, int]], source: InputSource
) -> tuple[dict[str, tuple[float, float]], str]:
    """Return a mapping from each operator to its seconds in both models, and a note for the reader."""
    device = Device("cpu", report.environment.threads)
    if report.tuning is not None:
        device = with_choices(device, report.tuning.chosen)
    at = sizes[0] if sizes else {}
    try:
        with temporary_scratch() as scratch:
            first = operator_seconds(loadable(before, scratch), device, at, source)
            second = operator_seconds(loadable(after, scratch), device, at, source) if report.accepted else first
    except SuperoptError as error:
        return {}, f"{UNTIMED[:-1]}: {error}"
    if not (first and second):
        return {}, UNTIMED
    chosen = f" Sizes: {', '.join(f'{name}={extent}' for name, extent in at.items())}." if at else ""
    seconds = {name: (first.get(name, 0.0), second.get(name, 0.0)) for name in dict.fromkeys((*first, *second))}
    return seconds, PROFILED + chosen


def _call(report: Report, opset: int | None) -> str:
    """Return the call that repeats the optimization, with the options that every optimization has."""
    environment = report.environment
    given: dict[str, object] = {"provider": environment.provider.partition(",")[0], "threads": environment.threads}
    given |= {"budget": report.budget, "seed": report.seed, "fp": report.arithmetic.mode}
    given |= {} if opset is None else {"opset": opset}
    return f"superopt.optimize(model, {', '.join(f'{name}={value!r}' for name, value in given.items())})"
