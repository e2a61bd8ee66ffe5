"""Whether what was made of a model is right, and faster: checked and measured, or predicted for a device that is elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superopt.active import stopping
from superopt.dim_binding import DimBinding
from superopt.errors import CheckFailedError, InvalidModelError, ProviderError
from superopt.model.check import Check
from superopt.model.compare import LOADS, LONG, MARGIN
from superopt.model.everywhere import Compared, check_once, compare_once
from superopt.model.forecast import ForecastClock, Forecasts, forecast_everywhere
from superopt.model.measure import Clock
from superopt.model.once import once
from superopt.model.session import Device
from superopt.model.stored import Loadable
from superopt.search import SHORTEST

COMPARING, GLANCING = 7.0, 1.0
"""Seconds that a comparison takes, and a first one of what is likely to make no difference."""
ALIKE = 0.005
"""Relative differences of sums over nodes that are none."""
PATIENCE = 18.0
"""Seconds of comparing after which nothing is looked at once more."""


@dataclass
class Judge:
    """Checks candidates against one original on one device, and compares them with it, at the `sizings` that matter; the check
    is at other sizes too, its `tolerance`, and whether values are `adversarial`, as in `check`. With a `forecaster`, times are
    predicted by it.

    `checking` and `comparing` are the seconds that these took so far, glances aside. What was found before of models of the
    same bytes is taken from the `cache`, and counts as if it were found now: nothing that time decides is then decided
    otherwise. Checks and comparisons are each a `phase` of their name; `told` is given the share of a comparison that
    is done.
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
        """What checking and comparing took so far."""
        return self.checking + self.comparing

    def judged(self, candidate: Loadable, seconds: float, *, doubtful: bool) -> tuple[Compared | Forecasts, Check | None]:
        """How the two compare and, where the candidate is faster, what the check says. What is `doubtful` is checked before
        it is compared, and everything else after that: most of what is refused is not faster.

        Raises:
            CheckFailedError: see `check`; or the candidate cannot be run.
            ProviderError: see `compare`.
        """
        checked = self.check(candidate) if doubtful else None
        try:
            compared = self.compare(candidate, seconds)
        except InvalidModelError as error:
            raise CheckFailedError(str(error)) from error
        return compared, checked or (self.check(candidate) if compared.faster else None)

    def check(self, candidate: Loadable) -> Check:
        """What the check says.

        Raises:
            CheckFailedError, InvalidModelError: see `check`.
        """
        how: dict[str, Any] = {"cache": self.cache, "factor": self.tolerance, "seed": self.seed}
        how["adversarial"] = self.adversarial
        with self.phase("check"):
            checked, seconds = check_once(self.original, candidate, self.device, self.sizings, **how)
        self.checking += seconds
        if isinstance(checked, CheckFailedError):
            raise checked
        return checked

    def compare(self, candidate: Loadable, seconds: float = COMPARING) -> Compared | Forecasts:
        """How the two compare within about so many seconds; or in as many more, where a second look may show what noise hides.

        Raises:
            InvalidModelError, ProviderError: see `compare_settings`.
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
        """Whether the candidate is faster, or would be but for the noise, or by half of what a result has to be, at a second
        glance; and at a first one may be, which is left out where sums over nodes say so, or nodes are short. Of as many nodes
        that take the same it is not. Of what takes long, a glance says little, and sums over nodes say whether it is. Of
        several sizes, glances are at the first.

        Raises:
            InvalidModelError, ProviderError: see `compare_settings`.
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
        """How many nodes more ONNX Runtime makes of the candidate, how many times as fast it is by sums over them, and the
        original's seconds; all 0 where that is not known, or sizes are open.
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
    ) -> tuple[Compared, float]:
        how: dict[str, Any] = {"cache": self.cache, "seconds": seconds, "seed": self.seed, "loads": loads, "again": again}
        return compare_once(self.original, candidate, self.device, at or self.sizings, progress=self.told, **how)
