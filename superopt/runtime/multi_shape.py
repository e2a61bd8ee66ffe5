"""Numerical checks and comparisons of two models at several representative sizes of their dynamic dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from superopt.algebra.dim_binding import DimBinding
from superopt.budget import active_time, is_stop_requested
from superopt.errors import CheckFailedError
from superopt.policy import CHECK, COMPARISON
from superopt.protobuf.stored import Loadable
from superopt.runtime.cache import Json
from superopt.runtime.check import Check, CheckSettings, CheckSizes, check_all
from superopt.runtime.compare import DECIDED, Comparison, compare_settings
from superopt.runtime.input_source import DRAWN, InputSource
from superopt.runtime.result_cache import cached_result, from_fields
from superopt.runtime.session import Device
from superopt.runtime.trial_runs import require_loads


@dataclass(frozen=True)
class ComparisonSettings:
    """The settings of a comparison.

    Attributes:
        seconds: The time limit of the comparison in seconds, for all sizes together.
        seed: The seed of the inputs.
        loads: The largest number of times that the models are loaded, as in `compare_in_turns`.
        run_bytes: The memory in bytes that a run of one model needs, as in `compare_settings`.
    """

    seconds: float
    seed: int = 0
    loads: int = COMPARISON.max_loads
    run_bytes: int = 0


@dataclass(frozen=True)
class SizeComparisons:
    """Comparisons of a candidate with the original, one for each choice of sizes of the dynamic dimensions."""

    at: tuple[tuple[DimBinding, Comparison], ...]

    @property
    def least(self) -> Comparison:
        """The comparison at the sizes where the candidate gains the least."""
        return min((comparison for _, comparison in self.at), key=lambda c: c.ratio)

    @property
    def faster(self) -> bool:
        """Whether the candidate is faster at some sizes, and slower at no sizes.

        The candidate counts as slower if its slowdown exceeds the comparison's `noise` or `COMPARISON.max_loss_share`.
        """
        found = [comparison for _, comparison in self.at]
        return any(c.faster() for c in found) and all(c.ratio >= 1 - min(c.noise, COMPARISON.max_loss_share) for c in found)

    @property
    def promising(self) -> bool:
        """Whether the property `faster` is False, but the median gain at some sizes suffices for acceptance."""
        return not self.faster and any(c.ratio >= 1 + COMPARISON.min_gain_margin_share for _, c in self.at)

    @property
    def open(self) -> bool:
        """Whether the candidate may be faster at some sizes, according to the upper ends of the confidence intervals."""
        return any(c.high >= 1 + COMPARISON.min_gain_margin_share for _, c in self.at)


def check_all_sizes(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[DimBinding],
    settings: CheckSettings,
    source: InputSource = DRAWN,
) -> Check:
    """Run the numerical check of the candidate against the original at each choice of sizes of the dynamic dimensions.

    Raises:
        CheckFailedError, InvalidModelError: see `check_all`.
    """
    seconds = (CHECK.hurried_check_seconds if is_stop_requested() else CHECK.check_seconds) / len(sizings)
    trials = [CheckSizes(str(sizing) if sizing.numbers else "", sizing.numbers, seconds) for sizing in sizings]
    return check_all(original, candidate, device, trials, settings, source)


def cached_check(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[DimBinding],
    settings: CheckSettings,
    cache: Path,
    source: InputSource = DRAWN,
) -> tuple[Check | CheckFailedError, float]:
    """Return the result of `check_all_sizes` and the time of the check in seconds, from the cache if possible.

    If the check fails, the `CheckFailedError` is returned, not raised. See `cached_result`.

    Raises:
        InvalidModelError: see `check_all`.
    """

    def find() -> Json:
        try:
            return asdict(check_all_sizes(original, candidate, device, sizings, settings, source))
        except CheckFailedError as error:
            return str(error)

    about = ["checked everywhere", device.identity, *astuple(settings), source.digest, [str(sizing) for sizing in sizings]]
    record, seconds = cached_result(cache, about, [original, candidate], find)
    if isinstance(record, str):
        return CheckFailedError(record), seconds
    return from_fields(Check, record), seconds


def compare_at_all_sizes(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[DimBinding],
    settings: ComparisonSettings,
    progress: Callable[[float], None] | None = None,
    source: InputSource = DRAWN,
) -> tuple[SizeComparisons, float]:
    """Compare the models at each choice of sizes in `sizings`, and return the comparisons and their total time in seconds.

    On the CPU, the candidate is loaded in a child process first, in case ONNX Runtime crashes.

    Timing stops when further rounds are unlikely to change whether the candidate counts as faster. Comparisons of whole models
    are never cached, because a comparison on a busy machine would otherwise determine the result of all later runs.

    Raises:
        InvalidModelError, ProviderError: see `compare_settings`.
    """
    start = active_time()
    require_loads(candidate, device)
    compared = compare_settings(
        (original, device),
        [(candidate, device)],
        at=[sizing.numbers for sizing in sizings],
        seconds=settings.seconds,
        seed=settings.seed,
        source=source,
        loads=settings.loads,
        run_bytes=settings.run_bytes,
        until=DECIDED,
        progress=progress,
    )
    found = (comparison for (comparison,) in compared)
    return SizeComparisons(tuple(zip(sizings, found, strict=True))), active_time() - start
