"""The decision whether a candidate model is right and faster: checked and measured, or predicted for another device."""

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
from superopt.runtime.check import Check
from superopt.runtime.multi_shape import CheckSettings, ComparisonSettings, SizeComparisons, cached_check, cached_comparison
from superopt.runtime.result_cache import cached_result
from superopt.runtime.session import Device
from superopt.search.passes import SearchedModel
from superopt.search.segments import Passes


@dataclass(frozen=True, eq=False)
class ModelCandidate:
    """Gains that are taken together and judged as one model.

    Attributes:
        searched: The search that found the gains.
        passes: The gains of each pass; none if the search found nothing to judge.
        model: The model with these gains, if it was made already.
        check_first: Whether to check the model before it is compared, because it may well fail the check.
        fallback: Whether a candidate with more gains was judged before.
    """

    searched: SearchedModel
    passes: Passes = ()
    model: Model | None = None
    check_first: bool = False
    fallback: bool = False


@dataclass(frozen=True)
class JudgingSeconds:
    """The seconds of all checks and comparisons so far, without quick comparisons."""

    checking: float = 0.0
    comparing: float = 0.0

    @property
    def total(self) -> float:
        """The seconds of checking and comparing together."""
        return self.checking + self.comparing


@dataclass(frozen=True, eq=False)
class ModelOutcome:
    """The outcome of judging a candidate.

    Attributes:
        candidate: The candidate.
        spent: The seconds of judging so far, this candidate included.
        compared: The comparison with the original, if the candidate did not fail.
        checked: The check; None if the candidate is not faster, or failed.
        failed: Why the candidate fails the check or cannot be run; None if it does not fail.
    """

    candidate: ModelCandidate
    spent: JudgingSeconds
    compared: SizeComparisons | Forecasts | None = None
    checked: Check | None = None
    failed: str | None = None

    @property
    def accepted(self) -> bool:
        """Return whether the candidate is right and faster."""
        return self.compared is not None and self.compared.faster


@dataclass(frozen=True, eq=False)
class CandidateJudge:
    """Checks candidates against one original on one device, and compares their speed, at the `sizings`.

    The check runs at other sizes too. With a `forecaster`, times are predicted. Earlier results for models of the same bytes
    are read from the `cache` and count as if they were found now, so that decisions that depend on time stay the same. Checks
    and comparisons are each a `phase` of their name; `progress` receives the finished share of a comparison.
    """

    original: Loadable
    device: Device
    sizings: Sequence[DimBinding]
    cache: Path
    settings: CheckSettings
    forecaster: ForecastClock | None
    phase: Callable[[str], AbstractContextManager[None]]
    progress: Callable[[float], None]

    def judge(self, candidate: ModelCandidate, rewritten: Loadable, seconds: float, spent: JudgingSeconds) -> ModelOutcome:
        """Compare the candidate within about `seconds` and, if it is faster, check it.

        Most rejected candidates are not faster, so the check comes last unless `check_first` is set. `rewritten` is the
        candidate's model, and `spent` the seconds of judging before.

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
        return ModelOutcome(candidate, spent, compared, checked)

    def _check(self, rewritten: Loadable, spent: JudgingSeconds) -> tuple[Check | CheckFailedError, JudgingSeconds]:
        """Return the result of the check, and the seconds of judging so far.

        Raises:
            InvalidModelError: See `check`.
        """
        with self.phase("check"):
            checked, seconds = cached_check(self.original, rewritten, self.device, self.sizings, self.settings, self.cache)
        return checked, replace(spent, checking=spent.checking + seconds)

    def _compare(
        self, rewritten: Loadable, seconds: float, spent: JudgingSeconds
    ) -> tuple[SizeComparisons | Forecasts, JudgingSeconds]:
        """Compare the models within about `seconds`, or in twice the time if a second comparison may resolve the noise.

        Raises:
            InvalidModelError, ProviderError: See `compare_settings`.
        """
        with self.phase("measure" if self.forecaster is None else "predict"):
            if self.forecaster is not None:
                return forecast_everywhere(self.forecaster, self.original, rewritten, self.sizings), spent
            compared, own = self._compared(rewritten, seconds)
            spent = replace(spent, comparing=spent.comparing + own)
            if compared.promising and spent.comparing <= OPTIMIZATION.repeated_comparison_seconds and not is_stop_requested():
                compared, own = self._compared(rewritten, seconds, again=True)
                spent = replace(spent, comparing=spent.comparing + own)
            return compared, spent

    def is_promising(self, candidate: Loadable, clock: Clock) -> bool:
        """Return whether a quick benchmark suggests the candidate is worth a full comparison.

        The candidate must be faster, or faster but for the noise, or faster by half the required margin, in the second of two
        quick comparisons. The first comparison is skipped if sums over nodes already show a gain, or if nodes are short. A
        candidate with as many nodes and the same sum is rejected. For models that take long, a quick comparison says little,
        and the sums over nodes decide. Of several sizes, the first is compared.

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
        """Return the growth in ONNX Runtime's nodes, the speedup by sums over nodes, and the original's seconds.

        All are 0 if a sum is unknown or sizes are dynamic.
        """

        def measure() -> list[tuple[int, float]]:
            try:
                return [clock.nodes(model) for model in (self.original, candidate)]
            except (InvalidModelError, ProviderError):
                return [(0, 0.0), (0, 0.0)]

        if any(sizing.numbers for sizing in self.sizings):
            return 0, 0.0, 0.0
        record, _ = cached_result(self.cache, ["by nodes", *clock.settings], [self.original, candidate], measure)
        (before, own), (after, other) = record
        return after - before, own / max(other, SEARCH.min_seconds), own

    def _compared(
        self,
        candidate: Loadable,
        seconds: float,
        *,
        loads: int = COMPARISON.max_loads,
        again: bool = False,
        at: Sequence[DimBinding] = (),
    ) -> tuple[SizeComparisons, float]:
        settings = ComparisonSettings(seconds, self.settings.seed, loads, again)
        return cached_comparison(self.original, candidate, self.device, at or self.sizings, settings, self.cache, self.progress)
