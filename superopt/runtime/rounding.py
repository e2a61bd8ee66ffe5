"""The check of one output of a candidate, element by element: rounding must explain the error of each element.

The candidate must also be finite wherever the original is finite. The error of an element may be a few times the noise of the
element. Noise is the error that rounding causes in the original. The noise is estimated from the original's error against
float64, and from the changes in the original's output when inputs change in their last bits. A single sample of noise may be
small by chance. So the estimate for an element also uses elements with little noise in the same row, column or plane. Large
noise in other rows does not increase the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from superopt.policy import CHECK
from superopt.runtime.session import Array, is_floating

ELSEWHERE = "NaN or infinities are not at the same positions as in the original"
"""The message if an element of the original is infinite or NaN, and the candidate's element has a different value."""


@dataclass(frozen=True)
class OutputErrors:
    """The errors of one output of the original and of the candidate.

    The errors of a floating-point output are relative to the largest finite magnitude of the exact output. The error of any
    other output is the share of wrong elements.

    Attributes:
        original: the original's error.
        candidate: the candidate's error.
        least: the smallest error that is assumed for the original. When the two errors are compared, the original's error
            counts as at least this number. For a floating-point output, the number is the larger of two errors. The first error
            is the largest change of the output when inputs change in their last bits. The second error is a few units in the
            last place.
        direct: whether the candidate is compared with the original, because there is no float64 run.
        floating: whether the output is floating-point.
        off: the number of elements with a large error in the original. The error is measured relative to the mean magnitude of
            the element's row.
        elements: the number of elements.
        own: the sum of the squares of the original's relative errors. The sum is over the elements with a large error (see
            `off`).
        other: the sum of the squares of the candidate's relative errors. The sum is over the same elements as in `own`.
        vanishes: whether the output may contain only rounding errors, because the exact output is 0 or very small.
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
    vanishes: bool = False

    def does_not_round(self) -> str:
        """Return a message if the original rounds on purpose and the candidate does not. Otherwise, return an empty text."""
        if (
            self.off < max(CHECK.deliberate_rounding_share * self.elements, CHECK.min_deliberate_rounding_count)
            or self.other * CHECK.deliberate_rounding_factor**2 >= self.own
        ):
            return ""
        return (
            f"the original rounds on purpose: {self.off / self.elements:.1%} of the elements are far from float64, "
            f"by {math.sqrt(self.own / self.off):.2g} of their size (in the candidate: {math.sqrt(self.other / self.off):.2g})"
        )

    def strayed(self, factor: float) -> str:
        """Return a message if the candidate's error exceeds `factor` times the original's error.

        Otherwise, return an empty text.
        """
        allowed = factor * max(self.original, self.least)
        if self.candidate <= allowed:
            return ""
        if self.floating:
            than = "the original" if self.direct else f"float64, where the original is off by {self.original:.2g}"
            return f"the candidate is off by {self.candidate:.2g} of the output's magnitude from {than} (allowed {allowed:.2g})"
        return f"{self.candidate:.2%} of the elements are wrong in the candidate, and {self.original:.2%} in the original"

    def joined(self, other: OutputErrors) -> OutputErrors:
        """Return the combination of two sets of errors: the largest errors, and the sums of the counts."""
        largest = {name: max(getattr(self, name), getattr(other, name)) for name in ("original", "candidate", "least")}
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("off", "elements", "own", "other")}
        return replace(self, **largest, **sums, direct=self.direct or other.direct)


@dataclass(frozen=True)
class OutputPair:
    """One output of the original and of the candidate on one input.

    Attributes:
        original: the original's output.
        candidate: the candidate's output.
        nudged: outputs that differ from the original's output only by rounding, such as the original's outputs on inputs that
            are changed in their last bits.
        exact: the output of a float64 run, or None if there is none.
        ordinary: whether the inputs are finite and random. If so, NaN and infinities must be at the same positions in both
            outputs. A NaN or an infinity that rounding can change is exempt.
        direct: whether there is no float64 run. If so, the error of the candidate may be up to 1024 units in the last place.
        spread: a boolean array. Where the array is True, the candidate may be infinite or NaN although the original is finite.
    """

    original: Array
    candidate: Array
    nudged: Sequence[Array]
    exact: Array | None
    ordinary: bool = True
    direct: bool = False
    spread: Array | None = None

    def fault(self, factor: float) -> str:
        """Return a message if the candidate's output is wrong. Otherwise, return an empty text.

        An element may differ from the original's element by up to `factor` times the rounding noise of the element.
        """
        if changed := self._changed_type():
            return changed
        if not self.original.size:
            return ""
        if not is_floating(self.original.dtype):
            return self._wrong_share(factor)
        with np.errstate(all="ignore"):
            return self._not_finite() or self._strays(factor)

    def _changed_type(self) -> str:
        """Return a message if the two outputs differ in type or shape. Otherwise, return an empty text."""
        before, after = (f"{one.dtype}{list(one.shape)}" for one in (self.original, self.candidate))
        return "" if before == after else f"{before} became {after}"

    def difference(self) -> str:
        """Return a message if the two outputs have different bits. Otherwise, return an empty text.

        Signs of zeros and bits of NaN are not compared.
        """
        original, candidate = self.original, self.candidate
        if changed := self._changed_type():
            return changed
        differs = ~_same(original, candidate) if is_floating(original.dtype) else np.asarray(original != candidate)
        if not differs.any():
            return ""
        at = tuple(int(i) for i in np.argwhere(differs)[0])
        return (
            f"the candidate has {candidate[at]!s} instead of {original[at]!s} at {list(at)}, and must have the same bits "
            f"({int(np.count_nonzero(differs))} such of {differs.size} elements)"
        )

    def errors(self, factor: float) -> OutputErrors:
        """Return the errors of the original's and the candidate's output, relative to the largest magnitude of the output.

        Errors as small as subnormal numbers count as 0. `factor` is the allowed ratio between the candidate's error and the
        original's error.
        """
        reference = self.original if self.exact is None else self.exact
        if not self.original.size or self.original.shape != self.candidate.shape:
            return OutputErrors()
        if not is_floating(self.original.dtype):
            before, after = (float(np.mean(a != reference)) for a in (self.original, self.candidate))
            own, other = (float(np.count_nonzero(a != reference)) for a in (self.original, self.candidate))
            counts = int(own), self.original.size, own, other
            return OutputErrors(before, after, max(self._moved_share(), CHECK.min_wrong_share), False, False, *counts)  # noqa: FBT003
        with np.errstate(all="ignore"):
            exact, original, candidate = (a.astype(np.float64) for a in (reference, self.original, self.candidate))
            finite = np.isfinite(original) & np.isfinite(exact)
            if not finite.any():
                return OutputErrors()
            largest = float(np.max(np.abs(exact[finite]), initial=0.0))
            scale = largest or 1.0
            beyond = (np.abs(a - exact)[finite] - _smallest(self.original.dtype) for a in (original, candidate))
            before, after = (float(np.max(error, initial=0.0)) / scale for error in beyond)
            moved = float(np.max(_noise(original, self.nudged)[finite], initial=0.0)) / scale
            off = self._far_off(original, candidate, exact)
        ulps = CHECK.direct_ulp_count / factor if self.direct else CHECK.min_error_ulp_count
        least = max(moved, ulps * ulp_of(self.original.dtype))
        vanishes = not largest or max(before, moved) >= CHECK.vanishing_error_share
        return OutputErrors(before, after, least, self.direct, True, *off, vanishes=vanishes)  # noqa: FBT003

    def _far_off(self, original: Array, candidate: Array, exact: Array) -> tuple[int, int, float, float]:
        """Return four numbers about elements of the original that are far from the float64 run.

        The first number counts these elements, and the second number counts all elements. The third number is the sum of the
        original's squared errors, and the fourth number is the sum of the candidate's squared errors. Both sums are over the
        elements that are far from the float64 run. Errors are relative to the mean magnitude of the row.
        """
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
        wrong = f"{after:.2%} of the elements are wrong in the candidate, and {before:.2%} in the original"
        return wrong if after > factor * max(before, self._moved_share(), CHECK.min_wrong_share) else ""

    def _not_finite(self) -> str:
        original, candidate = (np.where(np.isfinite(a), 0, a) for a in (self.original, self.candidate))
        differs = ~_same(original, candidate)
        if not differs.any():
            return ""
        unsettled = self._unsettled()
        wrong = np.isfinite(self.original) & ~np.isfinite(self.candidate)
        if self.spread is not None:
            wrong &= ~self.spread
        if self.exact is not None:  # a wider range may give a number where float32 overflows to infinity
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
                f"the candidate has {self.candidate[at]:g} instead of {self.original[at]:g} at {list(at)} "
                f"({count} such of {wrong.size} elements)"
            )
        return ELSEWHERE if self.ordinary and (differs & ~unsettled).any() else ""

    def _unsettled(self) -> Array:
        """Return a boolean array that marks the elements of the original that are not finite and that rounding can change."""
        changed = np.zeros(self.original.shape, bool)
        for other in self.nudged:
            changed |= ~_same(self.original, other)
        found: Array = changed & ~np.isfinite(self.original)
        return found

    def _strays(self, factor: float) -> str:
        """Return a message if the candidate differs too much from both the original and the float64 run.

        Otherwise, return an empty text.
        """
        kind = self.original.dtype
        ulp, least = ulp_of(kind), _smallest(kind)
        original, candidate = self.original.astype(np.float64), self.candidate.astype(np.float64)
        where = np.isfinite(original) & np.isfinite(candidate)
        noise, count = _noise(original, self.nudged), max(len(self.nudged), 1)
        ulps = CHECK.direct_ulp_count / factor if self.direct else CHECK.min_noise_ulp_count
        excess = _excess(candidate, original, noise, count, factor, ulps * ulp, least)
        if self.exact is not None and (excess[where] > 1).any():
            exact = self.exact.astype(np.float64)
            own = np.fmax(noise, np.abs(original - exact))
            other = _excess(candidate, exact, own, count + 1, factor, CHECK.min_noise_ulp_count * ulp, least)
            excess = np.fmin(excess, other)
            where &= self.ordinary | ~np.isnan(exact)  # kernels for LSTM and Relu turn some NaN into numbers
        excess = np.where(where, excess, 0.0)
        worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
        most = CHECK.rare_error_factor if np.count_nonzero(excess > 1) <= max(1.0, CHECK.rare_share * excess.size) else 1.0
        if excess[worst] <= most:
            return ""
        at = [int(i) for i in worst]
        than = "" if self.exact is None else f" and {self.exact[worst]:.8g} in float64"
        return (
            f"the candidate is off by {excess[worst]:.2g} times what rounding explains at {at}: {candidate[worst]:.8g}, "
            f"where the original has {original[worst]:.8g}{than} "
            f"({int(np.count_nonzero(excess > 1))} such of {excess.size} elements)"
        )


def _same(first: Array, second: Array) -> Array:
    """Return a boolean array that marks the positions where two arrays are equal or both NaN."""
    same: Array = (first == second) | (np.isnan(first) & np.isnan(second))
    return same


def _noise(original: Array, nudged: Sequence[Array]) -> Array:
    """Return, for each element, the largest difference between the original and one of the arrays in `nudged`.

    Differences that are not finite count as 0.
    """
    noise = np.zeros(original.shape)
    for other in nudged:
        moved = np.abs(original - other.astype(np.float64))
        noise = np.fmax(noise, np.where(np.isfinite(moved), moved, 0.0))
    return noise


def _excess(value: Array, center: Array, noise: Array, samples: int, factor: float, floor: float, least: float) -> Array:
    """Return an array with the ratio of each element's error to the element's allowed error.

    The ratio is 0 where the error is allowed, and NaN where the error is not finite. The error is the distance between `value`
    and `center`. The allowed error is `factor` times the rounding noise, plus `least`. The noise of an element counts as at
    least `floor` times the magnitude of `center`.
    """
    error = np.abs(value - center)
    noise = np.where(np.isfinite(noise), noise, 0.0)
    allowed = factor * np.fmax(noise, floor * np.abs(center)) + least
    if (error > allowed).any():
        allowed = np.fmax(allowed, factor * np.minimum(_pooled(noise, samples), np.max(noise)))
    return np.where(error > allowed, error / allowed, np.where(np.isfinite(error), 0.0, np.nan))


def _pooled(noise: Array, samples: int) -> Array:
    """Return an estimate of the largest noise in the row, column or plane of each element.

    The estimate is computed from the elements with the least noise. Each element has several samples of its rounding error.
    `noise` contains the largest sample of each element, and `samples` is the number of samples of each element. The samples of
    all elements in a row are assumed to have the same normal distribution. Under this assumption, the standard deviation
    follows from the lowest decile of the row, and the largest noise follows from the standard deviation.
    """
    quantile = math.sqrt(2) * _inverse_erf(CHECK.quiet_share ** (1 / samples))
    found: Array = np.full((1,) * noise.ndim, np.inf)
    axes = [axis for axis, extent in enumerate(noise.shape) if extent >= CHECK.min_row_elements]
    for axis in axes:
        found = np.minimum(found, _quiet(noise, axis))
    if not axes:
        found[...] = _quiet(noise.ravel(), 0) if noise.size >= CHECK.min_row_elements else 0.0
    return found * (CHECK.largest_error_sigmas / quantile)


def _quiet(noise: Array, axis: int) -> Array:
    """Return the lowest decile of the rounding noise along an axis, or 0 where few elements have noise.

    Elements without noise are left out.
    """
    extent = noise.shape[axis]
    some = np.take(noise, np.arange(0, extent, -(-extent // CHECK.max_row_elements)), axis)
    ordered = np.sort(np.where(some > 0, some, np.inf), axis)
    count = np.count_nonzero(some, axis, keepdims=True)
    chosen = np.take_along_axis(ordered, (count * CHECK.quiet_share).astype(np.int64), axis)
    return np.where(count >= min(CHECK.min_row_elements // 2, extent), chosen, 0.0)


def _inverse_erf(value: float) -> float:
    """Return the inverse of the error function, by bisection."""
    low, high = 0.0, 6.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < value else (low, middle)
    return low


def ulp_of(dtype: np.dtype[Any]) -> float:
    """Return the relative distance between neighbouring numbers in a floating-point type."""
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-7


def largest_of(dtype: np.dtype[Any]) -> float:
    """Return the largest number of a floating-point type."""
    return float(np.finfo(dtype).max) if dtype.kind == "f" else (2 - 2.0**-7) * 2.0**127


def _smallest(dtype: np.dtype[Any]) -> float:
    """Return the largest error that kernels for the type cause by flushing subnormal numbers to 0."""
    if dtype.name == "float16":
        return 16 * float(np.finfo(dtype).smallest_subnormal)
    return float(np.finfo(dtype if dtype.kind == "f" else np.float32).tiny)
