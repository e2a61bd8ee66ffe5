"""Boxes of tensor positions: one arithmetic progression of positions for each axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, order=True)
class Run:
    """An arithmetic progression of `count` positions along one axis: start, start + step, ... Both `count` and `step` are at
    least 1.
    """

    start: int
    count: int
    step: int = 1

    def __str__(self) -> str:
        by = f":{self.step}" if self.step != 1 and self.count > 1 else ""
        return f"{self.start}:{self.last + 1}{by}" if self.count > 1 else str(self.start)

    @property
    def last(self) -> int:
        """The largest position."""
        return self.start + (self.count - 1) * self.step

    def __contains__(self, position: int) -> bool:
        return self.start <= position <= self.last and (position - self.start) % self.step == 0

    def positions(self) -> Array:
        """Return every position of the run in order, as int64 of shape (count,)."""
        return self.start + self.step * np.arange(self.count, dtype=np.int64)

    def cut(self, points: Iterable[int]) -> tuple[Run, ...]:
        """Split the run before its i-th position, counted from 0, for each i in `points`. Each i is from 1 to count - 1."""
        edges = [0, *sorted(set(points)), self.count]
        return tuple(Run(self.start + a * self.step, b - a, self.step) for a, b in itertools.pairwise(edges))

    def classes(self, modulus: int) -> tuple[Run, ...]:
        """Split the run into `modulus` runs, each of which takes every modulus-th position. Empty runs are left out."""
        parts = min(modulus, self.count)
        return tuple(
            Run(self.start + k * self.step, -(-(self.count - k) // modulus), self.step * modulus) for k in range(parts)
        )

    def intersect(self, other: Run) -> Run | None:
        """Return the run of the positions that are in both runs, or None if the runs have no common position."""
        step = math.lcm(self.step, other.step)
        common = math.gcd(self.step, other.step)
        if (other.start - self.start) % common:
            return None
        turns = (other.start - self.start) // common * pow(self.step // common, -1, other.step // common)
        first = self.start + turns % (other.step // common) * self.step
        low, high = max(self.start, other.start), min(self.last, other.last)
        first += max(0, -(-(low - first) // step)) * step
        return Run(first, (high - first) // step + 1, step) if first <= high else None

    def hull(self, other: Run) -> Run:
        """Return the smallest run (arithmetic progression) that contains both runs."""
        steps = [run.step for run in (self, other) if run.count > 1]
        step = math.gcd(*steps, self.start - other.start) or 1
        start = min(self.start, other.start)
        return Run(start, (max(self.last, other.last) - start) // step + 1, step)


@dataclass(frozen=True, order=True)
class Box:
    """A box of tensor positions: the Cartesian product of one run (arithmetic progression of positions) per axis."""

    runs: tuple[Run, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.runs))}]"

    @property
    def rank(self) -> int:
        return len(self.runs)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of positions along each axis."""
        return tuple(run.count for run in self.runs)

    @property
    def size(self) -> int:
        """The number of positions in the box."""
        return math.prod(self.shape)

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """A pair for each axis: the first position, and the last position plus one."""
        return tuple((run.start, run.last + 1) for run in self.runs)

    @property
    def first(self) -> tuple[int, ...]:
        """For each axis, the first position of the box."""
        return tuple(run.start for run in self.runs)

    def contains(self, position: Sequence[int]) -> bool:
        """Return whether the box contains `position`, which has one number per axis."""
        return all(p in run for p, run in zip(position, self.runs, strict=True))

    def grid(self) -> tuple[Array, ...]:
        """Return the positions along each axis as index arrays that broadcast to `shape`."""
        axes = np.ix_(*(run.positions() for run in self.runs)) if self.runs else ()
        return tuple(np.asarray(a) for a in axes)

    def intersect(self, other: Box) -> Box | None:
        """Return the box of the positions that are in both boxes, or None if the boxes have no common position."""
        runs = [a.intersect(b) for a, b in zip(self.runs, other.runs, strict=True)]
        return Box(tuple(run for run in runs if run)) if all(runs) else None

    def hull(self, other: Box) -> Box:
        """Return the smallest box that contains both boxes."""
        return Box(tuple(a.hull(b) for a, b in zip(self.runs, other.runs, strict=True)))

    def along(self, axis: int, run: Run) -> Box:
        """Return the box with its positions along one axis replaced by `run`."""
        return replace(self, runs=(*self.runs[:axis], run, *self.runs[axis + 1 :]))


def full_box(shape: Sequence[int]) -> Box:
    """Return the box of all positions of a tensor with this shape."""
    return Box(tuple(Run(0, n) for n in shape))


def merge_boxes(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """Merge disjoint boxes. Return sorted disjoint boxes that cover the positions of the given boxes. Boxes that differ along
    only one axis are merged if the merge reduces the number of boxes.
    """
    found = sorted(set(boxes))
    while True:
        before = len(found)
        for axis in range(found[0].rank if found else 0):
            groups: dict[tuple[Run, ...], list[Run]] = {}
            for box in found:
                groups.setdefault((*box.runs[:axis], *box.runs[axis + 1 :]), []).append(box.runs[axis])
            found = [Box((*rest[:axis], run, *rest[axis:])) for rest, runs in groups.items() for run in _joined(runs)]
        if len(found) == before:
            return tuple(sorted(found))


def _joined(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the union of disjoint runs as fewer runs, merged greedily from the first position.

    If the number of runs does not decrease, return the given runs.
    """
    if len(runs) == 1:
        return runs
    positions = np.sort(np.concatenate([run.positions() for run in runs]))
    joined = list(_progressions([int(p) for p in positions]))
    return joined if len(joined) < len(runs) else runs


def _progressions(positions: Sequence[int]) -> Iterator[Run]:
    start = 0
    while start < len(positions):
        stop = start + 1
        step = positions[stop] - positions[start] if stop < len(positions) else 1
        while stop < len(positions) and positions[stop] - positions[stop - 1] == step:
            stop += 1
        yield Run(positions[start], stop - start, step)
        start = stop


def covering(flags: Array, box: Box, axes: Sequence[int]) -> Iterator[Box]:
    """Yield disjoint boxes that together contain exactly the positions of `box` whose flag is True.

    `flags` has one array axis for each axis in `axes`. Positions with the same indices along these axes have the same flag.
    """
    if not flags.any():
        return
    if not axes or flags.all():
        yield box
        return
    axis, start = axes[0], 0
    for stop in range(1, len(flags) + 1):
        if stop == len(flags) or not np.array_equal(flags[stop], flags[start]):
            run = box.runs[axis]
            part = Run(run.start + start * run.step, stop - start, run.step)
            yield from covering(flags[start], box.along(axis, part), axes[1:])
            start = stop
