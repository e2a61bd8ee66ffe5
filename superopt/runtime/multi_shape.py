"""Numerical checks and comparisons of two models at all representative sizes of their dynamic dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from superopt.algebra.dim_binding import DimBinding
from superopt.budget import stopping
from superopt.errors import CheckFailedError
from superopt.policy import CHECK, COMPARISON
from superopt.protobuf.stored import Loadable
from superopt.runtime.cache import Json
from superopt.runtime.check import Check, CheckSizes, check_all
from superopt.runtime.compare import DECIDED, Comparison, compare_settings
from superopt.runtime.result_cache import once
from superopt.runtime.session import Device


@dataclass(frozen=True)
class SizeComparisons:
    """Comparisons at the representative sizings, in order."""

    at: tuple[tuple[DimBinding, Comparison], ...]

    @property
    def least(self) -> Comparison:
        """The comparison in which the candidate gains least."""
        return min((comparison for _, comparison in self.at), key=lambda c: c.ratio)

    @property
    def faster(self) -> bool:
        """Return whether the candidate is faster at one sizing or more, and slower at none.

        A slowdown counts if it exceeds the noise or `COMPARISON.max_loss_share`.
        """
        found = [comparison for _, comparison in self.at]
        return any(c.faster() for c in found) and all(c.ratio >= 1 - min(c.noise, COMPARISON.max_loss_share) for c in found)

    @property
    def promising(self) -> bool:
        """Return whether the candidate would be faster without the noise."""
        return not self.faster and any(c.ratio >= 1 + COMPARISON.min_gain_margin_share for _, c in self.at)

    @property
    def open(self) -> bool:
        """Return whether the measurements do not rule out that the candidate is faster."""
        return any(c.high >= 1 + COMPARISON.min_gain_margin_share for _, c in self.at)


def check_everywhere(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[DimBinding],
    *,
    factor: float = CHECK.max_error_factor,
    seed: int = 0,
    adversarial: bool = True,
) -> Check:
    """Check the candidate against the original at every sizing.

    Raises:
        CheckFailedError, InvalidModelError: as `check`.
    """
    seconds = (CHECK.hurried_check_seconds if stopping() else CHECK.check_seconds) / len(sizings)
    trials = [CheckSizes(str(sizing) if sizing.numbers else "", sizing.numbers, seconds) for sizing in sizings]
    return check_all(original, candidate, device, trials, factor=factor, seed=seed, adversarial=adversarial)


def compare_everywhere(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[DimBinding],
    *,
    seconds: float,
    seed: int = 0,
    loads: int = COMPARISON.max_loads,
    progress: Callable[[float], None] | None = None,
) -> SizeComparisons:
    """Compare the models at every sizing, for about `seconds` in total, until every sizing has a verdict."""
    how: dict[str, Any] = {"seconds": seconds, "seed": seed, "loads": loads, "progress": progress, "until": DECIDED}
    numbers = [sizing.numbers for sizing in sizings]
    found = compare_settings((original, device), [(candidate, device)], at=numbers, **how)
    return SizeComparisons(tuple((sizing, comparison) for sizing, (comparison,) in zip(sizings, found, strict=True)))


def check_once(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[DimBinding],
    *,
    cache: Path,
    factor: float = CHECK.max_error_factor,
    seed: int = 0,
    adversarial: bool = True,
) -> tuple[Check | CheckFailedError, float]:
    """Return the result of `check_everywhere` and the seconds that it took, from the cache if possible; see `once`.

    A failed check is returned, not raised.

    Raises:
        InvalidModelError: as `check`.
    """
    how: dict[str, Any] = {"factor": factor, "seed": seed, "adversarial": adversarial}

    def found() -> Json:
        try:
            return asdict(check_everywhere(original, candidate, device, sizings, **how))
        except CheckFailedError as error:
            return str(error)

    about = ["checked everywhere", device.identity, factor, seed, adversarial, [str(sizing) for sizing in sizings]]
    record, seconds = once(cache, about, [original, candidate], found)
    if isinstance(record, str):
        return CheckFailedError(record), seconds
    names = {key: tuple(record[key]) for key in ("inputs", "left_out")}
    return Check(**{**record, **names}), seconds


def compare_once(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[DimBinding],
    *,
    cache: Path,
    seconds: float,
    seed: int = 0,
    loads: int = COMPARISON.max_loads,
    again: bool = False,
    progress: Callable[[float], None] | None = None,
) -> tuple[SizeComparisons, float]:
    """Return the result of `compare_everywhere` and the seconds that it took, from the cache if possible; see `once`.

    With `again`, the result is that of a second comparison of the same two models.
    """
    how: dict[str, Any] = {"seconds": seconds, "seed": seed, "loads": loads, "progress": progress}

    def found() -> Json:
        return [asdict(one) for _, one in compare_everywhere(original, candidate, device, sizings, **how).at]

    about = ["compared everywhere", device.identity, seed, seconds, loads, again, [sizing.numbers for sizing in sizings]]
    record, taken = once(cache, about, [original, candidate], found)
    return SizeComparisons(tuple((sizing, Comparison(**one)) for sizing, one in zip(sizings, record, strict=True))), taken
