"""Checks and comparisons of two models at all the sizes of their open dimensions that matter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from superopt.model.cache import Cache, Json
from superopt.model.check import FACTOR, Check, Trial, check_all
from superopt.model.compare import DECIDED, MARGIN, Comparison, compare_settings
from superopt.model.dimensions import Sizing
from superopt.model.save import identity
from superopt.model.session import Device, Loadable

CHECKING = 5.0
"""Seconds after which a check begins no further input."""


@dataclass(frozen=True)
class Compared:
    """Comparisons at the sizings that matter, in their order, and the seconds that they took, models loaded."""

    at: tuple[tuple[Sizing, Comparison], ...]
    seconds: float = 0.0

    @property
    def least(self) -> Comparison:
        """The one in which the candidate gains least."""
        return min((comparison for _, comparison in self.at), key=lambda c: c.ratio)

    @property
    def faster(self) -> bool:
        """Whether the candidate is faster at one sizing at least, and at none slower by more than the noise."""
        found = [comparison for _, comparison in self.at]
        return any(c.faster() for c in found) and all(c.ratio >= 1 - c.noise for c in found)

    @property
    def promising(self) -> bool:
        """Whether the candidate would be faster but for the noise."""
        return not self.faster and any(c.ratio >= 1 + MARGIN for _, c in self.at)

    @property
    def record(self) -> Any:
        """The comparisons as JSON values."""
        return [self.seconds, [asdict(comparison) for _, comparison in self.at]]

    @staticmethod
    def of(record: Any, sizings: Sequence[Sizing]) -> Compared:
        """The comparisons that were recorded at these sizings."""
        seconds, found = record
        return Compared(tuple((sizing, Comparison(**one)) for sizing, one in zip(sizings, found, strict=True)), seconds)


def check_everywhere(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[Sizing],
    others: Iterable[Sizing],
    *,
    factor: float = FACTOR,
    seed: int = 0,
) -> Check:
    """`check` at every sizing, and at those of the `others` at which the original runs.

    Raises:
        CheckFailedError, InvalidModelError: as `check`.
    """
    trials = [Trial(str(sizing) if sizing.numbers else "", sizing.numbers, CHECKING / len(sizings)) for sizing in sizings]
    trials += [Trial(str(sizing), sizing.numbers, 0.0, required=False) for sizing in others]
    return check_all(original, candidate, device, trials, factor=factor, seed=seed)


def compare_everywhere(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[Sizing],
    *,
    seconds: float,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Compared:
    """The two compared at every sizing, for about `seconds` altogether, until it is decided at each whether one is faster."""
    how: dict[str, Any] = {"seconds": seconds, "seed": seed, "progress": progress, "until": DECIDED}
    numbers = [sizing.numbers for sizing in sizings]
    start = time.monotonic()
    found = compare_settings((original, device), [(candidate, device)], at=numbers, **how)
    at = tuple((sizing, comparison) for sizing, (comparison,) in zip(sizings, found, strict=True))
    return Compared(at, time.monotonic() - start)


def compare_once(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[Sizing],
    *,
    cache: Path,
    seconds: float,
    seed: int = 0,
    again: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Compared:
    """`compare_everywhere`, or what came of it before, where the cache has it that the same two were compared; `again` is for
    a second look at them.
    """
    with closing(Cache(cache)) as known:
        models = [*map(identity, (original, candidate))]
        at = [sizing.numbers for sizing in sizings]
        key: list[Json] = ["compared everywhere", device.identity, seed, seconds, again, *models, at]
        record = known.get(key) if all(models) else None
        if record is not None:
            return Compared.of(record, sizings)
        compared = compare_everywhere(original, candidate, device, sizings, seconds=seconds, seed=seed, progress=progress)
        if all(models):
            known.put(key, compared.record)
        return compared
