"""By how much outputs are off: an original's error of rounding, a candidate's, and when the candidate's is too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from superopt.errors import CheckFailedError
from superopt.model.session import Array, is_floating

_FLOOR_ULPS, _LEAST_ULPS, _DIRECT_ULPS = 16, 4, 1024
_LEAST_SHARE = 1e-3


@dataclass(frozen=True)
class Errors:
    """Errors of one output: relative to the largest finite magnitude of what is exact or, of what is no float, the share of
    elements that are off.

    `moved` is by how much the original's results move with the last places of its inputs. `floor` is what its error counts as
    at least on one input, `least` what it does on all inputs together; where the candidate was held against the original
    (`direct`), by so much it may be off.
    """

    original: float = 0.0
    candidate: float = 0.0
    moved: float = 0.0
    floor: float = 0.0
    least: float = 0.0
    direct: bool = False
    floating: bool = True

    def allowed(self, factor: float) -> float:
        """What the candidate's error may be."""
        own = self.floor if self.direct else factor * max(self.original, self.floor)
        return max(factor * self.moved, own)

    def strayed(self, factor: float) -> str:
        """How the candidate's error is too large; empty where it is not."""
        if self.candidate <= (allowed := self.allowed(factor)):
            return ""
        if self.floating:
            return strayed(self.candidate, None if self.direct else self.original, allowed)
        return f"{self.candidate:.2%} of the elements are wrong, {self.original:.2%} of the original's"

    def joined(self, other: Errors) -> Errors:
        """The largest of each, of one output on several inputs."""
        names = ("original", "candidate", "moved", "floor", "least")
        return replace(self, **{name: max(getattr(self, name), getattr(other, name)) for name in names})


def strayed(after: float, before: float | None, allowed: float) -> str:
    """By how much a candidate is off, and the original, where there is a float64 run."""
    than = "the original" if before is None else f"float64, where the original is off by {before:.2g}"
    return f"off by {after:.2g} of the output's magnitude from {than} (allowed {allowed:.2g})"


def errors_of(what: str, arrays: Sequence[Array], *, direct: bool) -> Errors:
    """The errors in one output; its `arrays` are the original's, the candidate's, the exact one, and the original's on inputs a
    little different.

    Raises:
        CheckFailedError: the candidate's has another type or shape, or is not finite where the original's is, or the reverse.
    """
    original, candidate, exact, nudged = arrays
    if original.shape != candidate.shape or original.dtype != candidate.dtype:
        raise CheckFailedError(
            f"{what}: {original.dtype}{list(original.shape)} became {candidate.dtype}{list(candidate.shape)}"
        )
    if not original.size:
        return Errors()
    if not is_floating(original.dtype):
        before, after, moved = (float(np.mean(a != b)) for a, b in ((original, exact), (candidate, exact), (original, nudged)))
        return Errors(before, after, moved, _LEAST_SHARE, max(moved, _LEAST_SHARE), floating=False)
    ulp = ulp_of(original.dtype)
    original, candidate, exact, nudged = (a.astype(np.float64) for a in arrays)
    finite = np.isfinite(original)
    if not _same_infinities(original, candidate):
        raise CheckFailedError(f"{what}: NaN or infinity does not stand where the original has it")
    if not np.any(finite):
        return Errors()
    finite &= np.isfinite(exact)
    scale = float(np.max(np.abs(exact[finite]), initial=0.0)) or 1.0
    before = _farthest(original, exact, finite) / scale
    after = _farthest(candidate, exact, finite) / scale
    moved = _farthest(original, nudged, finite & np.isfinite(nudged)) / scale
    floor, least = (_DIRECT_ULPS * ulp,) * 2 if direct else (_FLOOR_ULPS * ulp, _LEAST_ULPS * ulp)
    return Errors(before, after, moved, floor, max(moved, least), direct)


def ulp_of(dtype: np.dtype[Any]) -> float:
    """The relative distance of neighbouring numbers of a floating-point type."""
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-7


def _farthest(one: Array, other: Array, where: Array) -> float:
    return float(np.max(np.abs(one[where] - other[where]), initial=0.0))


def _same_infinities(original: Array, candidate: Array) -> bool:
    before, after = (np.where(np.isfinite(a), 0, a) for a in (original, candidate))
    return bool(np.array_equal(before, after, equal_nan=True))
