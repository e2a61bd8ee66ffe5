"""The report of one optimization: the applied rules, their gains, the checks, and the reason for the verdict.

`superopt.report.optimization_summary` shows a report in a terminal.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from superopt.model.coverage import OperatorShare, UncoveredNodes


@dataclass(frozen=True)
class AppliedRule:
    """A rule that was applied to the model.

    `stored` says whether the rule is a stored rule, which has a proof. There are two kinds of rules that are not stored. A rule
    of the first kind replaces a term by an operator that computes the values of the term. A rule of the second kind replaces an
    operator by a corrected mutant. (A mutant equals an operator at some output positions.) `times` is the number of
    applications of the rule. `gain` is the predicted saving of these applications in seconds per run of the model. An
    application that only prepares another application may have a negative gain.
    """

    name: str
    text: str
    times: int
    gain: float
    stored: bool = True


@dataclass(frozen=True)
class SegmentGain:
    """The result of the search of one segment (a part of the model that one search rewrites).

    Equal segments, which differ only in names and weights, are searched once. `copies` is the number of equal segments.
    `before` and `after` are the seconds that the cost model predicts for a run of one copy.
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
    """The comparison of the original and the optimized model, which were timed alternately.

    `original` and `optimized` are median end-to-end times in seconds per run. `speedup` is the ratio of these times. `low` and
    `high` are the bounds of the 95 % interval of the speedup. `control` is the ratio of the times of two sessions of the
    original, which would be 1 without noise. The 95 % interval of `control` has two ends, and `noise` is the distance of the
    farther end from 1.
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
class KernelUse:
    """The kernels of an optimized model.

    `islands` is the number of nodes that call kernels, and `nodes` is the number of nodes that these calls replace.
    `compile_seconds` is the time that the compiler took. The speedup by kernels is the time of the model without kernels,
    divided by the time of the model with kernels. `low` and `high` are the bounds of the 95 % interval of this speedup.
    `without` is the speedup of the model without kernels over the original.
    """

    islands: int
    nodes: int
    compile_seconds: float
    low: float
    high: float
    without: float


@dataclass(frozen=True)
class OutputRounding:
    """The largest error of one output in the original and in the optimized model, relative to the output's magnitude."""

    name: str
    original: float
    optimized: float


@dataclass(frozen=True)
class Rounding:
    """The largest errors that the numerical check found, relative to the largest magnitude of the output.

    If `reference` is `float64`, errors are differences from a run of the original in float64. In this case, the error of the
    optimized model may be at most `tolerance` times the error of the original. If no float64 run was possible, `reference` is
    the reason, and the errors of the optimized model are differences from the original. `outputs` contains the outputs with the
    largest errors. `left_out` states the inputs and sizes that the check left out, for example because the original fails on
    these inputs.
    """

    original: float
    optimized: float
    reference: str
    inputs: tuple[str, ...]
    tolerance: float
    outputs: tuple[OutputRounding, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arithmetic:
    """The ways in which the rewrites of an optimization may change floating-point results (docs/floating-point.md).

    Attributes:
        mode: The floating-point mode.
        flags: The floating-point flags (like fast-math flags) that the rewrites need.
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
        note: A sentence for the reader: nothing was measured on the device, and times are predicted.
        device: The device that the model was optimized for.
        provider: The execution provider on the device.
        threads: The number of threads on the device.
        versions: The software versions for which the profile is valid.
        original: The predicted time of the original. This time and all figures below are None if no candidate's time was
            predicted.
        optimized: The predicted time of the optimized model.
        speedup: The ratio of the two times.
        doubt: The number of seconds by which the true saving may be below the predicted saving, because of errors of the
            profile.
        known: The share of the predicted time that belongs to measured nodes. A measured node was timed on the device.
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
    """The session settings that tuning chose, the speedup by all chosen settings together, and the speedup by each tried
    setting.

    Attributes:
        entries: The configuration entries for the session.
        timing: The comparison of two sessions of the original: with default settings, and with the chosen settings.
        tried: A mapping from each tried setting to its comparison. A setting is given as `option=value`, or as the name of an
            ONNX Runtime optimizer that is switched off.
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
        nodes_in_islands: The number of the original's nodes that are in islands (the regions that the search can rewrite).
        islands: The number of islands.
        nodes_after: The number of nodes of the rewritten model.
        rules: The rules that were applied.
        segments: The results for the segments (parts of islands) that were searched.
        timing: The comparison of candidate and original. The value is None if no candidate was compared. If the models were
            compared at several sizes of dynamic dimensions, `timing` is the comparison with the smallest gain.
        one_thread: The comparison in sessions of one thread, at the sizes with the smallest gain. The value is None if all
            sessions have one thread.
        rounding: The result of the numerical check. The value is None if no candidate was checked. Only faster candidates are
            checked.
        seconds: The seconds spent in each phase.
        environment: The device and versions for which the measurements are valid.
        budget: The time budget in seconds.
        seed: The random seed.
        stopped: The reason why the search ended.
        shapes: The timing at each of the requested sizes of the dynamic dimensions.
        tuning: The session settings that tuning found, or None if tuning was not requested.
        prediction: The predicted times, if the model was optimized for a device that is not present. In that case, `timing` is
            None.
        forgone: The seconds per run that ONNX Runtime's contrib operators would save, or 0 if contrib operators were allowed.
        failed: The reason why no candidate passed the numerical check. The text is empty if there is no reason to report.
        windows_left: The number of windows (parts of long islands) that could not be searched and stay unchanged, by reason.
        arithmetic: The ways in which the rewrites may change floating-point results.
        assumptions: The statements about dynamic dimensions on which the rewrites rely.
        fixed: The fixed values of inputs and fixed sizes of dimensions, as text. The rewritten model is right only for these
            values and sizes.
        inlined: The number of inlined branches. These branches of the original are always taken.
        uncovered: The nodes that the search cannot rewrite, by operator and reason. If the nodes were not timed, the shares are
            0.
        hints: Sentences with next steps for the user, such as options that may lead to a larger gain.
        searched: The date and time of the search if the report comes from the time cache. Otherwise, the text is empty.
        why: Sentences that explain the verdict. The sentences name the operators with the longest run times, the nodes that
            cannot be rewritten, and the refused improvements.
        operators: The share of each operator in the run time of the original, if the nodes of the model were timed.
        refused: The number of improvements that were found but not used, by reason.
        rewrites_tried: The number of tried rewrites. A rewrite of a part of the model counts as tried if the run time of the
            rewritten part is estimated.
        candidates_measured: The number of measured candidates. A candidate is a rewritten part of the model.
        progress: The improvements of the search. Each improvement is a pair of numbers. The first number is the time of the
            improvement, in seconds since the start of the search. The second number is the saving of the improved result in
            seconds per run, according to the cost model. The saving decreases if a measurement of the whole model shows a
            smaller saving.
        operator_counts: For each operator whose node count changes, the counts in the original and in the result.
        kernels: The kernels of the result. The value is None if the result has no kernels.
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
    why: tuple[str, ...] = ()
    operators: tuple[OperatorShare, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    rewrites_tried: int = 0
    candidates_measured: int = 0
    progress: tuple[tuple[float, float], ...] = ()
    operator_counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    kernels: KernelUse | None = None

    @property
    def speedup(self) -> float:
        """The time of the original divided by the time of the returned model.

        If nothing was measured, predicted times are used. The value is 1 if the original is returned.
        """
        figures = self.timing or self.prediction
        return (figures.speedup if figures is not None and self.accepted else None) or 1.0

    def json(self) -> str:
        """Return the report as a JSON object with a final newline. The object has a key for each field, and `speedup`."""
        return json.dumps({**dataclasses.asdict(self), "speedup": self.speedup}, indent=2, ensure_ascii=False) + "\n"
