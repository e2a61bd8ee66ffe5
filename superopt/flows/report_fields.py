"""Convert the results of an optimization to the fields of its report."""

from __future__ import annotations

import importlib.metadata
import platform
from collections import Counter, defaultdict
from collections.abc import Iterable

from superopt.algebra.value_analysis import ASSUMPTIONS
from superopt.cost.forecast import ForecastClock, Forecasts
from superopt.model.load import Model, all_nodes
from superopt.policy import REPORT
from superopt.report.number_texts import percent, ratio
from superopt.report.optimization import (
    AppliedRule,
    Arithmetic,
    OutputRounding,
    Prediction,
    Rounding,
    RunEnvironment,
    SegmentGain,
    SessionTuning,
    Timing,
)
from superopt.rules.fp_flags import ALL_FLAGS, FpFlag, FpMode
from superopt.rules.fusion import FLAGS, RECOGNIZED, fusions, recognition_text
from superopt.rules.rule import Rule
from superopt.runtime.check import Check
from superopt.runtime.compare import Comparison
from superopt.runtime.multi_shape import SizeComparisons
from superopt.runtime.session import Device, runtime
from superopt.runtime.tuning import Tuning
from superopt.search.apply import PARTLY
from superopt.search.judging import ModelOutcome
from superopt.search.segments import Gain, Passes
from superopt.speclib.recurrence import recurrences

REGROUPED = frozenset({FpFlag.REASSOC, FpFlag.CONTRACT})
"""The floating-point flags (freedoms to change rounding) of a step that adds in a different order."""


def verdict_reason(outcome: ModelOutcome, details: str, failed: str, threads: int) -> str:
    """Return the report's sentence on why the rewritten model or the original is returned.

    `threads` is the number of threads of the sessions that were compared.
    """
    compared, accepted = outcome.compared, outcome.accepted
    if failed:
        return f"the rewritten model fails the check ({failed}); the original is kept"
    if compared is None:
        return f"nothing faster was found{details}; the original is kept"
    ratios = sorted(c.ratio for _, c in compared.at)
    span = ratio(ratios[0]) if len(ratios) == 1 else f"{ratio(ratios[0])} to {ratio(ratios[-1])}"
    if isinstance(compared, Forecasts):
        verdict = f"predicted to be {span} times as fast as the original"
        doubt = "which is within the errors of the prediction, or the margin; the original is kept"
        return f"{verdict}{details}" if accepted else f"{verdict}, {doubt}"
    alone = outcome.compared_alone
    if accepted:
        slower = alone is not None and any(c.slower() for _, c in alone.at)
        loss = f" at {threads} threads, but {ratio(alone.least.ratio)} times at one thread" if alone and slower else ""
        return f"{span} times as fast as the original{loss}{details}"
    gain = f"; at one thread (--threads 1), {ratio(alone.least.ratio)} times as fast" if alone and alone.faster else ""
    return (
        f"{ratio(ratios[0])} times as fast as the original, which is within the noise or the margin; the original is kept{gain}"
    )


def reason_details(*, apart: bool, found: int, taken: int, too_large: int, small: float) -> str:
    """Return text that is appended to the report's sentence on why a model was accepted or rejected.

    A segment is a part of the model that one search rewrites.

    Args:
        apart: Whether both models were measured in sessions with tuned settings.
        found: The number of segments for which an improvement was found.
        taken: The number of segments whose improvements are in the reported candidate model.
        too_large: The number of improvements that are not in the candidate model because the weights would grow too much.
        small: The share of the run time that all improvements save, if this share is too small to measure. Otherwise 0.
    """
    sessions = ", both in tuned sessions" if apart else ""
    some = taken < found and not small
    left_out = f", with {taken} of {found} improved segments (all of them together did not pass)" if some else ""
    large = f", with {too_large} improved segments left out for the growth of weights" if too_large else ""
    little = f" (the improvements that were found would save {percent(small)} of a run)" if small else ""
    return sessions + left_out + large + little


def prediction(clock: ForecastClock | None, compared: SizeComparisons | Forecasts | None) -> Prediction | None:
    """Return the predicted times and their device for the report. If times were measured (`clock` is None), return None."""
    if clock is None:
        return None
    profile = clock.prices.profile
    device = f"{profile.name}, {profile.provider}, {profile.threads} threads"
    note = f"nothing was measured on the target device ({device}): times are predicted from its profile"
    if not isinstance(compared, Forecasts):
        return Prediction(note, profile.name, profile.provider, profile.threads, profile.versions)
    least = compared.least
    figures = (least.original, least.candidate, least.ratio, least.doubt, least.known)
    return Prediction(note, profile.name, profile.provider, profile.threads, profile.versions, *figures)


def timing(c: Comparison) -> Timing:
    """Return the comparison of two models in the form of the report."""
    return Timing(c.original, c.candidate, c.ratio, c.low, c.high, c.control, c.noise, c.rounds)


def rounding_report(checked: Check | None, tolerance: float) -> Rounding | None:
    """Return the rounding errors that a numerical check found. If `checked` is None, return None.

    The result contains `tolerance`, the allowed ratio of the candidate's error to the original's error.
    """
    if checked is None:
        return None
    worst = sorted(checked.outputs, key=lambda row: -row[2])[: REPORT.max_listed_outputs]
    outputs = tuple(OutputRounding(name, original, candidate) for name, original, candidate in worst)
    found = checked.original_error, checked.candidate_error, checked.reference, checked.inputs
    return Rounding(*found, tolerance, outputs, checked.left_out)


def session_tuning(tuning: Tuning | None) -> SessionTuning | None:
    """Return the session settings from tuning, with the measured speedups. If `tuning` is None, return None."""
    if tuning is None:
        return None
    tried = {name: timing(comparison) for name, comparison in tuning.tried.items()}
    best = None if tuning.comparison is None else timing(tuning.comparison)
    chosen = tuning.settings
    return SessionTuning(chosen.entries, best, tried, chosen.options, chosen.provider_options, tuning.choices, str(chosen))


def run_environment(device: Device) -> RunEnvironment:
    """Return the device and the software versions with which the models were measured."""
    versions = {name: version_of(name) for name in ("superopt", "onnx", "onnx-ir", "numpy")}
    versions |= {"onnxruntime": runtime().__version__, "python": platform.python_version()}
    provider = f"{device.provider}, CUDA graph" if device.cuda_graph else device.provider
    return RunEnvironment(device.name, provider, device.threads, versions)


def version_of(package: str) -> str:
    """Return the version of an installed package, or "not installed"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def operator_counts(before: Model, after: Model) -> dict[str, tuple[int, int]]:
    """Return a mapping from each operator to the count of its nodes in the first model and in the second model."""
    first, second = (Counter(node.op_type for node in all_nodes(model)) for model in (before, after))
    return {name: (first[name], second[name]) for name in first | second}


def changed_operator_counts(before: Model, after: Model | None) -> dict[str, tuple[int, int]]:
    """Return the report's mapping from operators to their node counts before and after. Only changed counts are included, the
    largest change first.
    """
    if after is None:
        return {}
    changed = {name: pair for name, pair in operator_counts(before, after).items() if pair[0] != pair[1]}
    return dict(sorted(changed.items(), key=lambda entry: (-abs(entry[1][1] - entry[1][0]), entry[0])))


def rules_applied_by_gains(taken: Iterable[Gain], rules: Iterable[Rule]) -> tuple[AppliedRule, ...]:
    """Return the report's entries for the rules, definitions and corrected mutants that the steps of the gains use, with the
    largest saving first.

    A gain is the search result for one part of the model. A corrected mutant is a term that equals an operator at some output
    positions, with its wrong elements replaced.
    """
    times: dict[str, int] = defaultdict(int)
    saved: dict[str, float] = defaultdict(float)
    taken, rules = list(taken), list(rules)
    for gain in taken:
        for step, seconds in zip(gain.found.steps, gain.steps, strict=True):
            times[step.rule] += len(gain.copies)
            saved[step.rule] += seconds * gain.runs * gain.share_in_context
    stored = {rule.name for rule in rules}
    text = {**{r.name: r.text for r in recurrences()}, **{rule.name: rule.text for rule in (*fusions().values(), *rules)}}
    text |= {step.rule: step.text for gain in taken for step in gain.found.steps if step.rule.startswith(PARTLY)}
    text |= {name: recognition_text(name) for name in times if name.endswith(RECOGNIZED)}
    return tuple(
        AppliedRule(name, text[name], times[name], saved[name], name in stored)
        for name in sorted(times, key=lambda n: (-saved[n], n))
    )


def arithmetic_of_passes(passes: Passes, rules: Iterable[Rule], mode: FpMode) -> Arithmetic:
    """Return the report's entry for the floating-point flags that the passes need, and for the assumptions under which the mode
    admits their steps.

    A flag is an assumption about floating-point values, or a freedom to change results. A step that introduces a corrected
    mutant (a cheaper term that replaces an operator) is assumed to need all flags. A step that introduces a recurrence operator
    is assumed to need the flags for sums in a different order.
    """
    known = {rule.name: rule.flags for rule in (*fusions().values(), *rules)}
    flags: set[FpFlag] = set()
    for step in (step for taken in passes for gain in taken for step in gain.found.steps):
        recognized = FLAGS if step.rule.endswith(RECOGNIZED) else REGROUPED
        flags |= ALL_FLAGS if step.rule.startswith(PARTLY) else known.get(step.rule, recognized)
    assumed = mode is FpMode.RELAXED and not flags <= {*REGROUPED, FpFlag.ARCP, FpFlag.NSZ}
    return Arithmetic(str(mode), tuple(str(flag) for flag in FpFlag if flag in flags), ASSUMPTIONS if assumed else ())


def searched_segment_entries(searched: Iterable[Gain]) -> tuple[SegmentGain, ...]:
    """Return the report's entry for each segment (part of the model) that was searched."""
    return tuple(
        SegmentGain(
            outputs=tuple(gain.copies[0].island.outputs),
            nodes=len(gain.copies[0].island.nodes),
            copies=len(gain.copies),
            before=gain.found.before,
            after=gain.found.after,
            rules=tuple(step.rule for step in gain.found.steps),
            states=gain.found.expanded,
            stopped=gain.found.stopped,
        )
        for gain in searched
    )


def unsearched_segment_counts(searched: Iterable[Gain]) -> dict[str, int]:
    """Return the report's mapping from reasons to counts of segments.

    The count of a reason is the number of segments (parts of the model) that could not be searched or written as nodes for this
    reason.
    """
    found: Counter[str] = Counter()
    for gain in searched:
        if gain.left:
            found[gain.left] += len(gain.copies)
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
