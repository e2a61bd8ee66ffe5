"""The decision whether a candidate model is right and faster: checked and measured, or predicted for another device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from superopt.algebra.dim_binding import DimBinding
from superopt.budget import stopping
from superopt.cost.forecast import ForecastClock, Forecasts, forecast_everywhere
from superopt.cost.measure import Clock
from superopt.errors import CheckFailedError, InvalidModelError, ProviderError
from superopt.protobuf.stored import Loadable
from superopt.runtime.check import Check
from superopt.runtime.compare import LOADS, LONG, MARGIN
from superopt.runtime.multi_shape import CheckSettings, ComparisonSettings, SizeComparisons, check_once, compare_once
from superopt.runtime.result_cache import once
from superopt.runtime.session import Device
from superopt.search.segment_search import SHORTEST

COMPARING, GLANCING = 7.0, 1.0
"""Seconds of a comparison, and of a quick first comparison of a candidate that is unlikely to make a difference."""
ALIKE = 0.005
"""The relative difference between sums over nodes below which the sums count as equal."""
PATIENCE = 18.0
"""Seconds of comparing after which no comparison is repeated."""


@dataclass
class CandidateJudge:
    """Checks candidates against one original on one device, and compares their speed, at the `sizings`.

    The check runs at other sizes too; `tolerance` and `adversarial` are arguments of `check`. With a `forecaster`, times are
    predicted. Earlier results for models of the same bytes are read from the `cache` and count as if they were found now, so
    that decisions that depend on time stay the same. Checks and comparisons are each a `phase` of their name; `told` receives
    the finished share of a comparison.

    `checking` and `comparing` are the seconds spent so far, without quick comparisons.
    """

    original: Loadable
    device: Device
    sizings: Sequence[DimBinding]
    cache: Path
    seed: int
    tolerance: float
    adversarial: bool
    forecaster: ForecastClock | None
    phase: Callable[[str], AbstractContextManager[None]]
    told: Callable[[float], None]
    checking: float = 0.0
    comparing: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds of checking and comparing so far."""
        return self.checking + self.comparing

    def judged(
        self, candidate: Loadable, seconds: float, *, doubtful: bool
    ) -> tuple[SizeComparisons | Forecasts, Check | None]:
        """Compare the candidate and, if it is faster, check it.

        A `doubtful` candidate is checked before it is compared. Any other candidate is checked afterwards, because most
        rejected candidates are not faster.

        Raises:
            CheckFailedError: See `check`; or the candidate cannot be run.
            ProviderError: See `compare`.
        """
        checked = self.check(candidate) if doubtful else None
        try:
            compared = self.compare(candidate, seconds)
        except InvalidModelError as error:
            raise CheckFailedError(str(error)) from error
        return compared, checked or (self.check(candidate) if compared.faster else None)

    def check(self, candidate: Loadable) -> Check:
        """Return the result of the check.

        Raises:
            CheckFailedError, InvalidModelError: See `check`.
        """
        settings = CheckSettings(self.tolerance, self.seed, self.adversarial)
        with self.phase("check"):
            checked, seconds = check_once(self.original, candidate, self.device, self.sizings, settings, self.cache)
        self.checking += seconds
        if isinstance(checked, CheckFailedError):
            raise checked
        return checked

    def compare(self, candidate: Loadable, seconds: float = COMPARING) -> SizeComparisons | Forecasts:
        """Compare the models within about `seconds`, or in twice the time if a second comparison may resolve the noise.

        Raises:
            InvalidModelError, ProviderError: See `compare_settings`.
        """
        with self.phase("measure" if self.forecaster is None else "predict"):
            if self.forecaster is not None:
                return forecast_everywhere(self.forecaster, self.original, candidate, self.sizings)
            found, spent = self._compared(candidate, seconds)
            self.comparing += spent
            if found.promising and self.comparing <= PATIENCE and not stopping():
                found, spent = self._compared(candidate, seconds, again=True)
                self.comparing += spent
            return found

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
        if not more and abs(ratio - 1) < ALIKE:
            return False
        if seconds >= LONG:
            return ratio >= 1
        if not clock.together and ratio < 1 + MARGIN:
            first, _ = self._compared(candidate, GLANCING, loads=1, at=self.sizings[:1])
            if not first.open:
                return False
        second, _ = self._compared(candidate, 2 * GLANCING, loads=2, at=self.sizings[:1])
        return second.faster or second.promising or second.least.ratio >= 1 + MARGIN / 2

    def _by_nodes(self, candidate: Loadable, clock: Clock) -> tuple[int, float, float]:
        """Return the growth in ONNX Runtime's nodes, the speedup by sums over nodes, and the original's seconds.

        All are 0 if a sum is unknown or sizes are dynamic.
        """

        def found() -> list[tuple[int, float]]:
            try:
                return [clock.nodes(model) for model in (self.original, candidate)]
            except (InvalidModelError, ProviderError):
                return [(0, 0.0), (0, 0.0)]

        if any(sizing.numbers for sizing in self.sizings):
            return 0, 0.0, 0.0
        record, _ = once(self.cache, ["by nodes", *clock.settings], [self.original, candidate], found)
        (before, own), (after, other) = record
        return after - before, own / max(other, SHORTEST), own

    def _compared(
        self, candidate: Loadable, seconds: float, *, loads: int = LOADS, again: bool = False, at: Sequence[DimBinding] = ()
    ) -> tuple[SizeComparisons, float]:
        settings = ComparisonSettings(seconds, self.seed, loads, again)
        return compare_once(self.original, candidate, self.device, at or self.sizings, settings, self.cache, self.told)
