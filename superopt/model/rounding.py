"""Whether a candidate's output is right: finite where the original's is, and off by no more than rounding, element by element.

An element may be off by a few times its own noise. The noise shows in how far the original is off from float64 there, and in
how far its result moves once its inputs change in their last places. A single sample of noise may be small by chance, so the
noise of the quieter elements in the same row, column or plane counts as well. The magnitude of other rows does not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from superopt.model.session import Array, is_floating

_FLOOR_ULPS, _LEAST_ULPS, _DIRECT_ULPS = 16, 4, 1024
_LEAST_SHARE = 1e-3
_QUIET, _LARGEST = 0.1, 5.0
"""The share of a row's elements that are its quieter ones, and the standard deviations that the largest of many errors has."""
_FEW, _MANY = 16, 256
"""Elements that a row has at least for its noise to be known, and at most that are looked at."""
_ISOLATED, _RARE = 4.0, 1e-3
"""By how much more a rare element may be off, all samples of whose noise are small by chance; and the share that is rare."""
ELSEWHERE = "NaN or infinity does not stand where the original has it"
"""What is wrong where the original is not finite, and the candidate is, or is something else that is not."""
_ON_PURPOSE, _MUCH = 0.01, 16.0
"""Where as many elements of an original are off by a large part of their size, it may round on purpose; a candidate that is
off by so much less does not round as it does.
"""


@dataclass(frozen=True)
class Errors:
    """Errors of one output: relative to the largest finite magnitude of what is exact or, of what is no float, the share of
    elements that are off.

    `least` is what the original's error counts as at least on all inputs together, by how far it moves with the last places of
    its inputs. Without a float64 run the candidate is compared with the original (`direct`).

    `off` counts the elements, of `elements`, in which the original is off by a large part of the output's size; `own` and
    `other` are the sums of the squares of both models' errors there, in that size.
    """

    original: float = 0.0
    candidate: float = 0.0
    least: float = 0.0
    direct: bool = False
    floating: bool = True
    off: int = 0
    elements: int = 0
    own: float = 0.0
    other: float = 0.0

    def does_not_round(self) -> str:
        """How the candidate fails to round where the original is meant to; empty where it does not fail."""
        if self.off < _ON_PURPOSE * self.elements or self.other * _MUCH**2 >= self.own:
            return ""
        return (
            f"the original rounds on purpose: {self.off / self.elements:.1%} of the elements are far from float64, by "
            f"{math.sqrt(self.own / self.off):.2g} of their size, and the candidate's by {math.sqrt(self.other / self.off):.2g}"
        )

    def strayed(self, factor: float) -> str:
        """How the candidate's error is too large; empty where it is not."""
        allowed = factor * max(self.original, self.least)
        if self.candidate <= allowed:
            return ""
        if self.floating:
            than = "the original" if self.direct else f"float64, where the original is off by {self.original:.2g}"
            return f"off by {self.candidate:.2g} of the output's magnitude from {than} (allowed {allowed:.2g})"
        return f"{self.candidate:.2%} of the elements are wrong, {self.original:.2%} of the original's"

    def joined(self, other: Errors) -> Errors:
        """The largest of each, of one output on several inputs."""
        largest = {name: max(getattr(self, name), getattr(other, name)) for name in ("original", "candidate", "least")}
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("off", "elements", "own", "other")}
        return replace(self, **largest, **sums, direct=self.direct or other.direct)


@dataclass(frozen=True)
class Output:
    """One output on one input: the original's, the candidate's, the original's on inputs that differ in their last places, and
    the one in float64, where that is known.

    Attributes:
        ordinary: the inputs are finite and random; NaN and infinities must be where they were, but where rounding decides.
        direct: there is no float64 run; the candidate may be off by 1024 units in the last place.
        spread: elements that need not be finite, though the original's are.
    """

    original: Array
    candidate: Array
    nudged: Sequence[Array]
    exact: Array | None
    ordinary: bool = True
    direct: bool = False
    spread: Array | None = None

    def fault(self, factor: float) -> str:
        """What is wrong with the candidate's; empty if nothing is."""
        original, candidate = self.original, self.candidate
        if original.shape != candidate.shape or original.dtype != candidate.dtype:
            return f"{original.dtype}{list(original.shape)} became {candidate.dtype}{list(candidate.shape)}"
        if not original.size:
            return ""
        if not is_floating(original.dtype):
            return self._wrong_share(factor)
        with np.errstate(all="ignore"):
            return self._not_finite() or self._strays(factor)

    def errors(self, factor: float) -> Errors:
        """By how much both are off, relative to the largest magnitude of the output."""
        reference = self.original if self.exact is None else self.exact
        if not self.original.size or self.original.shape != self.candidate.shape:
            return Errors()
        if not is_floating(self.original.dtype):
            before, after = (float(np.mean(a != reference)) for a in (self.original, self.candidate))
            own, other = (float(np.count_nonzero(a != reference)) for a in (self.original, self.candidate))
            counts = int(own), self.original.size, own, other
            return Errors(before, after, max(self._moved_share(), _LEAST_SHARE), False, False, *counts)  # noqa: FBT003
        with np.errstate(all="ignore"):
            exact, original, candidate = (a.astype(np.float64) for a in (reference, self.original, self.candidate))
            finite = np.isfinite(original) & np.isfinite(exact)
            if not finite.any():
                return Errors()
            scale = float(np.max(np.abs(exact[finite]), initial=0.0)) or 1.0
            before, after = (float(np.max(np.abs(a - exact)[finite], initial=0.0)) / scale for a in (original, candidate))
            moved = float(np.max(_noise(original, self.nudged)[finite], initial=0.0)) / scale
            off = self._far_off(original, candidate, exact)
        ulps = _DIRECT_ULPS / factor if self.direct else _LEAST_ULPS
        return Errors(before, after, max(moved, ulps * ulp_of(self.original.dtype)), self.direct, True, *off)  # noqa: FBT003

    def _far_off(self, original: Array, candidate: Array, exact: Array) -> tuple[int, int, float, float]:
        """How many elements of the original are far from float64, of how many; and the squares of both errors."""
        size = np.fmax(np.abs(original), np.abs(exact))
        size = np.where(np.isfinite(size), size, 0.0)
        size = np.mean(size, axis=-1, keepdims=True) if size.ndim else size
        off = np.abs(original - exact) > math.sqrt(ulp_of(self.original.dtype)) * size
        own, other = (float(np.sum(np.square((a - exact) / size)[off])) for a in (original, candidate))
        return int(np.count_nonzero(off)), original.size, own, other

    def _moved_share(self) -> float:
        moved = np.zeros(self.original.shape, bool)
        for other in self.nudged:
            moved |= self.original != other
        return float(np.mean(moved))

    def _wrong_share(self, factor: float) -> str:
        exact = self.original if self.exact is None else self.exact
        before, after = (float(np.mean(a != exact)) for a in (self.original, self.candidate))
        wrong = f"{after:.2%} of the elements are wrong, {before:.2%} of the original's"
        return wrong if after > factor * max(before, self._moved_share(), _LEAST_SHARE) else ""

    def _not_finite(self) -> str:
        original, candidate = (np.where(np.isfinite(a), 0, a) for a in (self.original, self.candidate))
        differs = ~_same(original, candidate)
        if not differs.any():
            return ""
        unsettled = self._unsettled()
        wrong = np.isfinite(self.original) & ~np.isfinite(self.candidate)
        if self.spread is not None:
            wrong &= ~self.spread
        if self.exact is not None:  # of what is infinite because float32 ends, a larger range may make a number
            wrong |= (
                np.isinf(self.original)
                & (self.exact == self.original)
                & ~np.isnan(self.candidate)
                & (self.candidate != self.original)
                & ~unsettled
            )
        if wrong.any():
            at, count = tuple(int(i) for i in np.argwhere(wrong)[0]), int(np.count_nonzero(wrong))
            return (
                f"{self.candidate[at]:g} instead of {self.original[at]:g} at {list(at)} ({count} such of {wrong.size} elements)"
            )
        return ELSEWHERE if self.ordinary and (differs & ~unsettled).any() else ""

    def _unsettled(self) -> Array:
        """Where the original is not finite, and rounding alone makes it something else."""
        changed = np.zeros(self.original.shape, bool)
        for other in self.nudged:
            changed |= ~_same(self.original, other)
        found: Array = changed & ~np.isfinite(self.original)
        return found

    def _strays(self, factor: float) -> str:
        """Where the candidate is near neither the original nor the float64 run."""
        kind = self.original.dtype
        ulp, least = ulp_of(kind), _smallest(kind)
        original, candidate = self.original.astype(np.float64), self.candidate.astype(np.float64)
        where = np.isfinite(original) & np.isfinite(candidate)
        noise, count = _noise(original, self.nudged), max(len(self.nudged), 1)
        ulps = _DIRECT_ULPS / factor if self.direct else _FLOOR_ULPS
        excess = _excess(candidate, original, noise, count, factor, ulps * ulp, least)
        if self.exact is not None and (excess[where] > 1).any():
            exact = self.exact.astype(np.float64)
            own = np.fmax(noise, np.abs(original - exact))
            other = _excess(candidate, exact, own, count + 1, factor, _FLOOR_ULPS * ulp, least)
            excess = np.fmin(excess, other)
            where &= self.ordinary | ~np.isnan(exact)  # such a NaN is a number by chance: kernels for LSTM and Relu drop it
        excess = np.where(where, excess, 0.0)
        worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
        most = _ISOLATED if np.count_nonzero(excess > 1) <= max(1.0, _RARE * excess.size) else 1.0
        if excess[worst] <= most:
            return ""
        at = [int(i) for i in worst]
        than = "" if self.exact is None else f" and {self.exact[worst]:.8g} in float64"
        return (
            f"off by {excess[worst]:.2g} times what rounding explains at {at}: {candidate[worst]:.8g}, where the original has "
            f"{original[worst]:.8g}{than} ({int(np.count_nonzero(excess > 1))} such of {excess.size} elements)"
        )


def _same(first: Array, second: Array) -> Array:
    """Where two arrays are equal or both NaN."""
    same: Array = (first == second) | (np.isnan(first) & np.isnan(second))
    return same


def _noise(original: Array, nudged: Sequence[Array]) -> Array:
    """By how much each element moves at most; 0 where it or the others are not finite."""
    noise = np.zeros(original.shape)
    for other in nudged:
        moved = np.abs(original - other.astype(np.float64))
        noise = np.fmax(noise, np.where(np.isfinite(moved), moved, 0.0))
    return noise


def _excess(value: Array, center: Array, noise: Array, samples: int, factor: float, floor: float, least: float) -> Array:
    """By how many times each element is further from the center than it may be; NaN where something is not finite."""
    error = np.abs(value - center)
    noise = np.where(np.isfinite(noise), noise, 0.0)
    allowed = factor * np.fmax(noise, floor * np.abs(center)) + least
    if (error > allowed).any():
        allowed = np.fmax(allowed, factor * np.minimum(_pooled(noise, samples), np.max(noise)))
    return np.where(error > allowed, error / allowed, np.where(np.isfinite(error), 0.0, np.nan))


def _pooled(noise: Array, samples: int) -> Array:
    """The largest error that elements as quiet as the quieter ones of the same row, column or plane are to be expected to have.

    Of `samples` samples, a tenth of elements with the same noise have a largest one below a quantile that is known.
    """
    quantile = math.sqrt(2) * _inverse_erf(_QUIET ** (1 / samples))
    found: Array = np.full((1,) * noise.ndim, np.inf)
    axes = [axis for axis, extent in enumerate(noise.shape) if extent >= _FEW]
    for axis in axes:
        found = np.minimum(found, _quiet(noise, axis))
    if not axes:
        found[...] = _quiet(noise.ravel(), 0) if noise.size >= _FEW else 0.0
    return found * (_LARGEST / quantile)


def _quiet(noise: Array, axis: int) -> Array:
    """The noise of an element along an axis below which a tenth of them are, those without any left out."""
    extent = noise.shape[axis]
    some = np.take(noise, np.arange(0, extent, -(-extent // _MANY)), axis)
    ordered = np.sort(np.where(some > 0, some, np.inf), axis)
    count = np.count_nonzero(some, axis, keepdims=True)
    chosen = np.take_along_axis(ordered, (count * _QUIET).astype(np.int64), axis)
    return np.where(count >= min(_FEW // 2, extent), chosen, 0.0)


def _inverse_erf(value: float) -> float:
    """The inverse of the error function, by bisection."""
    low, high = 0.0, 6.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < value else (low, middle)
    return low


def ulp_of(dtype: np.dtype[Any]) -> float:
    """The relative distance of neighbouring numbers of a floating-point type."""
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-7


def largest_of(dtype: np.dtype[Any]) -> float:
    """The largest number of a floating-point type."""
    return float(np.finfo(dtype).max) if dtype.kind == "f" else (2 - 2.0**-7) * 2.0**127


def _smallest(dtype: np.dtype[Any]) -> float:
    """What may be lost where numbers below the normal ones are taken for 0."""
    if dtype.name == "float16":
        return 16 * float(np.finfo(dtype).smallest_subnormal)
    return float(np.finfo(dtype if dtype.kind == "f" else np.float32).tiny)
