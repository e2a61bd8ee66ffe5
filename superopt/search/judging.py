"""The decision whether a candidate model is correct and faster, by measured times or by predicted times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from superopt.algebra.dim_binding import DimBinding
from superopt.budget import is_stop_requested
from superopt.cost.forecast import ForecastClock, Forecasts, forecast_everywhere
from superopt.cost.measure import Clock
from superopt.errors import CheckFailedError, InvalidModelError, ProviderError, failure
from superopt.model.load import Model
from superopt.policy import COMPARISON, OPTIMIZATION, SEARCH
from superopt.protobuf.stored import Loadable
from superopt.runtime.cache import json_integer, json_list, json_number
from superopt.runtime.check import Check, CheckSettings
from superopt.runtime.input_source import InputSource
from superopt.runtime.multi_shape import ComparisonSettings, SizeComparisons, cached_check, compare_at_all_sizes
from superopt.runtime.result_cache import cached_result, digest_of_packages
from superopt.runtime.session import Device
from superopt.search.passes import SearchedModel
from superopt.search.segments import Passes


@dataclass(frozen=True, eq=False)
class ModelCandidate:
    """A candidate for the optimized model, with some of the gains that the search found. The candidate is judged as a whole.

    A gain is the search result for one segment (a part of the model) and its copies (equal segments).

    Attributes:
        searched: The search that found the gains.
        passes: The gains of each pass (search over the whole model). Empty if the search found nothing to judge.
        model: The model with these gains, if the model has already been made.
        check_first: Whether to check the model before it is timed, because the model is likely to fail the check.
        fallback: Whether a candidate with more gains was judged before.
    """

    searched: SearchedModel
    passes: Passes = ()
    model: Model | None = None
    check_first: bool = False
    fallback: bool = False


@dataclass(frozen=True)
class JudgingSeconds:
    """The seconds that all checks and comparisons of candidates took so far. Quick comparisons are not counted."""

    checking: float = 0.0
    comparing: float = 0.0

    @property
    def total(self) -> float:
        """The seconds of all checks and comparisons of candidates together."""
        return self.checking + self.comparing


@dataclass(frozen=True, eq=False)
class ModelOutcome:
    """The outcome of judging a candidate (a model that the search proposes).

    Attributes:
        candidate: The candidate.
        spent: The seconds of checks and comparisons so far, including the checks and comparisons of this candidate.
        compared: The timing of the candidate against the original model, if the candidate did not fail.
        compared_alone: The timing in sessions of one thread, if sessions of several threads are compared.
        checked: The result of the check, which compares the candidate's outputs with the original's outputs. None if the
            candidate is not faster, or if the candidate failed.
        failed: The reason why the candidate fails the check of outputs or cannot be run. None if the candidate does not fail.
    """

    candidate: ModelCandidate
    spent: JudgingSeconds
    compared: SizeComparisons | Forecasts | None = None
    checked: Check | None = None
    failed: str | None = None
    compared_alone: SizeComparisons | None = None

    @property
    def accepted(self) -> bool:
        """Whether the candidate passes the check of its outputs and is faster than the original model."""
        return self.compared is not None and self.compared.faster


@dataclass(frozen=True, eq=False)
class CandidateJudge:
    """Checks the outputs of candidate models against one original model on one device, and compares the speed of the models.

    Earlier results for models with equal bytes are read from the `cache`. If a result is cached, the seconds that were needed
    to compute the result count as spent time. If a candidate is judged again, the decisions are therefore equal, even if the
    decisions depend on the spent time.

    Attributes:
        original: The original model.
        device: The device that runs the models.
        sizings: The sizes of dynamic dimensions at which speed is compared. The check also runs the models at other sizes.
        cache: The cache of results.
        settings: The settings of the check.
        forecaster: Predicts the times. If None, the times are measured.
        source: The source of the inputs.
        phase: A function that maps "check", "measure" or "predict" to the context manager in which this work runs.
        progress: Receives the finished share of a comparison.
        run_bytes: The memory in bytes that a run of the original needs, as in `compare_settings`.
    """

    original: Loadable
    device: Device
    sizings: Sequence[DimBinding]
    cache: Path
    settings: CheckSettings
    forecaster: ForecastClock | None
    source: InputSource
    phase: Callable[[str], AbstractContextManager[None]]
    progress: Callable[[float], None]
    run_bytes: int = 0

    def judge(self, candidate: ModelCandidate, rewritten: Loadable, seconds: float, spent: JudgingSeconds) -> ModelOutcome:
        """Compare the candidate's speed with the original's speed within about `seconds`. If the candidate is faster, check the
        candidate's outputs. Return the outcome.

        Most rejected candidates are not faster, so the check of outputs comes last unless the candidate's `check_first` is set.
        `rewritten` is the candidate's model. `spent` contains the seconds of earlier checks and comparisons.

        Raises:
            ProviderError: See `compare_settings`.
        """
        compared: SizeComparisons | Forecasts | None = None
        checked: Check | CheckFailedError | None = None
        try:
            if candidate.check_first:
                checked, spent = self._check(rewritten, spent)
            if not isinstance(checked, CheckFailedError):
                compared, spent = self._compare(rewritten, seconds, spent)
                if checked is None and compared.faster:
                    checked, spent = self._check(rewritten, spent)
        except Exception as error:  # noqa: BLE001
            checked = CheckFailedError(failure(error))
        if isinstance(checked, CheckFailedError):
            return ModelOutcome(candidate, spent, failed=failure(checked))
        faster = compared is not None and compared.faster
        alone = self._compare_alone(rewritten) if faster or not candidate.fallback else None
        return ModelOutcome(candidate, spent, compared, checked, compared_alone=alone)

    def _check(self, rewritten: Loadable, spent: JudgingSeconds) -> tuple[Check | CheckFailedError, JudgingSeconds]:
        """Check the candidate's outputs on one thread. Return the result, and the seconds of all checks and comparisons so far.

        Raises:
            InvalidModelError: See `check`.
        """
        with self.phase("check"):
            checked, seconds = cached_check(
                self.original, rewritten, self.device.one_thread, self.sizings, self.settings, self.cache, self.source
            )
        return checked, replace(spent, checking=spent.checking + seconds)

    def _compare(
        self, rewritten: Loadable, seconds: float, spent: JudgingSeconds
    ) -> tuple[SizeComparisons | Forecasts, JudgingSeconds]:
        """Compare the speed of the models within about `seconds`. If noise hides the result, compare a second time.

        Return the comparison, and the seconds of all checks and comparisons so far.

        Raises:
            InvalidModelError, ProviderError: See `compare_settings`.
        """
        with self.phase("measure" if self.forecaster is None else "predict"):
            if self.forecaster is not None:
                return forecast_everywhere(self.forecaster, self.original, rewritten, self.sizings), spent
            compared, own = self._compared(rewritten, seconds)
            spent = replace(spent, comparing=spent.comparing + own)
            if compared.promising and spent.comparing <= OPTIMIZATION.repeated_comparison_seconds and not is_stop_requested():
                compared, own = self._compared(rewritten, seconds)
                spent = replace(spent, comparing=spent.comparing + own)
            return compared, spent

    def _compare_alone(self, rewritten: Loadable) -> SizeComparisons | None:
        """Compare the speed of the models briefly in sessions of one thread.

        Return None if the device is a GPU, if the sessions have one thread anyway, if times are predicted, or if the user asked
        to stop. Also return None if the comparison fails. The comparison is only for the report.
        """
        if self.device.threads == 1 or self.device.provider != "cpu" or self.forecaster is not None or is_stop_requested():
            return None
        try:
            with self.phase("measure"):
                alone, _ = replace(self, device=self.device.one_thread)._compared(
                    rewritten, OPTIMIZATION.hurried_comparison_seconds
                )
        except (InvalidModelError, ProviderError):
            return None
        return alone

    def quick_ratio(self, before: Loadable, after: Loadable) -> tuple[float, float]:
        """Return the 95 % confidence interval of the ratio of the first model's time to the second model's time.

        A quick comparison is made at the first of the `sizings` (sizes for the dynamic dimensions). If ONNX Runtime cannot run
        one of the models, both ends of the interval are 0.
        """
        try:
            compared, _ = replace(self, original=before)._compared(
                after, 2 * OPTIMIZATION.glance_seconds, loads=2, at=self.sizings[:1]
            )
        except (InvalidModelError, ProviderError):
            return 0.0, 0.0
        return compared.least.low, compared.least.high

    def is_promising(self, candidate: Loadable, clock: Clock) -> bool:
        """Return whether quick comparisons suggest that the candidate is worth a full comparison.

        Up to two quick comparisons are made at the first of the `sizings` (sizes for the dynamic dimensions). In the last
        comparison, the candidate's gain must exceed the noise, or the median gain must be at least half of the required margin.
        The first comparison is skipped if the summed times of single nodes already show a gain, or if the clock times whole
        graphs instead of single nodes. If neither the node count nor the summed time changes, the result is False, and no
        comparison is made. For models with long run times, the summed times decide, because a quick comparison is too noisy.

        Raises:
            InvalidModelError, ProviderError: See `compare_settings`.
        """
        more, ratio, seconds = self._by_nodes(candidate, clock)
        if not more and abs(ratio - 1) < OPTIMIZATION.equal_sum_share:
            return False
        if seconds >= COMPARISON.long_run_seconds:
            return ratio >= 1
        if not clock.together and ratio < 1 + COMPARISON.min_gain_margin_share:
            first, _ = self._compared(candidate, OPTIMIZATION.glance_seconds, loads=1, at=self.sizings[:1])
            if not first.open:
                return False
        second, _ = self._compared(candidate, 2 * OPTIMIZATION.glance_seconds, loads=2, at=self.sizings[:1])
        return second.faster or second.promising or second.least.ratio >= 1 + COMPARISON.min_gain_margin_share / 2

    def _by_nodes(self, candidate: Loadable, clock: Clock) -> tuple[int, float, float]:
        """Return the increase in the node count, the speedup according to summed node times, and the original's summed node
        times.

        The nodes are the nodes of the graphs that ONNX Runtime has optimized. All three numbers are 0 if dimensions are
        dynamic, or if the times of the nodes cannot be measured.
        """

        def measure() -> list[tuple[int, float]]:
            return [clock.nodes(model) for model in (self.original, candidate)]

        if any(sizing.numbers for sizing in self.sizings):
            return 0, 0.0, 0.0
        about = ["by nodes", digest_of_packages(("cost",)), *clock.settings]
        try:
            record, _ = cached_result(self.cache, about, [self.original, candidate], measure)
        except (InvalidModelError, ProviderError):
            return 0, 0.0, 0.0
        (before, own), (after, other) = (
            (json_integer(count), json_number(seconds)) for count, seconds in map(json_list, json_list(record))
        )
        return after - before, own / max(other, SEARCH.min_seconds), own

    def _compared(
        self,
        candidate: Loadable,
        seconds: float,
        *,
        loads: int = COMPARISON.max_loads,
        at: Sequence[DimBinding] = (),
    ) -> tuple[SizeComparisons, float]:
        settings = ComparisonSettings(seconds, self.settings.seed, loads, self.run_bytes)
        return compare_at_all_sizes(
            self.original, candidate, self.device, at or self.sizings, settings, self.progress, self.source
        )
