"""Checks and comparisons of two models at all the sizes of their open dimensions that matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from superopt.errors import InvalidModelError
from superopt.model.cache import Cache, Json
from superopt.model.check import FACTOR, Check, check, index_bounds
from superopt.model.compare import LOADS, MARGIN, Comparison, compare
from superopt.model.dimensions import Sizing
from superopt.model.save import identity, parsed
from superopt.model.session import Device, Loadable, Session, random_inputs

CHECKING = 5.0
"""Seconds after which a check begins no further input."""


@dataclass(frozen=True)
class Compared:
    """Comparisons at the sizings that matter, in their order."""

    at: tuple[tuple[Sizing, Comparison], ...]

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
        return [asdict(comparison) for _, comparison in self.at]

    @staticmethod
    def of(record: Any, sizings: Sequence[Sizing]) -> Compared:
        """The comparisons that were recorded at these sizings."""
        return Compared(tuple((sizing, Comparison(**one)) for sizing, one in zip(sizings, record, strict=True)))


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
    checks: list[tuple[Sizing, Check]] = []
    for sizing in sizings:
        how: dict[str, Any] = {"factor": factor, "seed": seed, "sizes": sizing.numbers}
        checks.append((sizing, check(original, candidate, device, seconds=CHECKING / len(sizings), **how)))
    for sizing in _running(original, device, [*others], seed):
        how = {"factor": factor, "seed": seed, "sizes": sizing.numbers}
        checks.append((sizing, check(original, candidate, device, seconds=0.0, **how)))
    worst = max((c for _, c in checks), key=lambda c: c.candidate_error)
    named = [f"{name} ({sizing})" if sizing.numbers else name for sizing, c in checks for name in c.inputs]
    before = max(c.original_error for _, c in checks)
    return replace(worst, original_error=before, inputs=tuple(named))


def _running(model: Loadable, device: Device, sizings: Sequence[Sizing], seed: int) -> list[Sizing]:
    """Those of the sizings at which the model runs."""
    if not sizings:
        return []
    session, high = Session(model, device, exact=True), index_bounds(parsed(model, external=False))
    found: list[Sizing] = []
    for sizing in sizings:
        with suppress(InvalidModelError):
            session.run(random_inputs(session.inputs, seed, sizes=sizing.numbers, high=high))
            found.append(sizing)
    return found


def compare_everywhere(
    original: Loadable,
    candidate: Loadable,
    device: Device,
    sizings: Sequence[Sizing],
    *,
    seconds: float,
    seed: int = 0,
    high: Mapping[str, int] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Compared:
    """`compare` at every sizing, for about `seconds` altogether, the models loaded about as often as for one."""
    found: list[tuple[Sizing, Comparison]] = []
    for position, sizing in enumerate(sizings):

        def share(done: float, position: int = position) -> None:
            if progress is not None:
                progress((position + done) / len(sizings))

        how: dict[str, Any] = {"seconds": seconds / len(sizings), "loads": max(1, LOADS // len(sizings))}
        comparison = compare(original, candidate, device, seed=seed, sizes=sizing.numbers, high=high, progress=share, **how)
        found.append((sizing, comparison))
    return Compared(tuple(found))


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
        key: list[Json] = ["compared", device.identity, seed, seconds, again, *models, [sizing.numbers for sizing in sizings]]
        record = known.get(key) if all(models) else None
        if record is not None:
            return Compared.of(record, sizings)
        compared = compare_everywhere(original, candidate, device, sizings, seconds=seconds, seed=seed, progress=progress)
        if all(models):
            known.put(key, compared.record)
        return compared
