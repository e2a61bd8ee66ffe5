"""Assemble a tensor from rectangular boxes: adjacent boxes are concatenated, and alternating boxes are interleaved."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term
from superopt.partial.arrange import concat_parts
from superopt.partial.box import Box, Run
from superopt.partial.field import Array
from superopt.policy import MUTANT

Label = TypeVar("Label")
Window: TypeAlias = "tuple[tuple[int, int], ...]"
Make: TypeAlias = "Callable[[Box, Label], Term]"


@dataclass(frozen=True, eq=False)
class Cells(Generic[Label]):
    """A division of a tensor into a grid of cells, and a label for each cell. Cell i of an axis spans the positions from
    edges[axis][i] to edges[axis][i + 1] - 1.
    """

    edges: tuple[tuple[int, ...], ...]
    labels: Array

    @classmethod
    def of(cls, sizes: Sequence[int], labelled: Sequence[tuple[Box, Label]], other: Label) -> Cells[Label]:
        """Return cells in which each position has the label of the last box that contains the position. The label `other` is
        used for positions outside all boxes.
        """
        edges = []
        for axis, n in enumerate(sizes):
            runs = [box.runs[axis] for box, _ in labelled]
            ends = {end for run in runs for p in _pieces(run) for end in p}
            edges.append(tuple(sorted({0, n, *ends})))
        labels = np.full([len(e) - 1 for e in edges], None, dtype=object)
        labels[...] = other
        for box, label in labelled:
            labels[
                np.ix_(*([i for i, e in enumerate(es[:-1]) if e in run] for es, run in zip(edges, box.runs, strict=True)))
            ] = label
        return cls(tuple(edges), labels)

    @property
    def whole(self) -> Window:
        """The window of all cells: for each axis, the range from the first cell to the last cell."""
        return tuple((0, n) for n in self.labels.shape)

    def box(self, window: Window) -> Box:
        """Return the box of positions that the cells in `window` span. A window is a range of cells for each axis."""
        return Box(tuple(Run(e[a], e[b] - e[a]) for e, (a, b) in zip(self.edges, window, strict=True)))

    def uniform(self, window: Window) -> bool:
        """Return whether all cells in `window` have the same label. A window is a range of cells for each axis."""
        part = self.labels[tuple(slice(a, b) for a, b in window)]
        return bool((part == part.flat[0]).all())

    def label(self, window: Window) -> Label:
        """Return the label of the first cell in `window`. A window is a range of cells for each axis."""
        label: Label = self.labels[tuple(a for a, _ in window)]
        return label


def _pieces(run: Run) -> Iterator[tuple[int, int]]:
    if run.step == 1 or run.count == 1:
        yield run.start, run.last + 1
    else:
        yield from ((p, p + 1) for p in map(int, run.positions()))


def assemble_boxes(sizes: Sequence[int], labelled: Sequence[tuple[Box, Label]], other: Label, make: Make[Label]) -> Term:
    """Return a tensor of these sizes, assembled from tensors `make(box, label)`.

    Each position has the label of the last box in `labelled` that contains the position. Positions outside all boxes have the
    label `other`. Straight cuts divide the tensor into few boxes with a single label each, and `make` is called for each of
    these boxes. A box in `labelled` may take every `step`-th position of an axis. If the extent of this axis is a multiple of
    `step`, each residue class of positions is assembled separately.
    """
    for axis, n in enumerate(sizes):
        step = math.lcm(*(box.runs[axis].step for box, _ in labelled if box.runs[axis].count > 1), 1)
        if 1 < step <= MUTANT.max_interleaved_count and n % step == 0 and n > step:
            return _interleaved(sizes, labelled, other, make, axis, step)
    return _side_by_side(Cells.of(sizes, labelled, other), make)


def _interleaved(
    sizes: Sequence[int], labelled: Sequence[tuple[Box, Label]], other: Label, make: Make[Label], axis: int, step: int
) -> Term:
    """Return the tensor that `assemble_boxes` describes. Each residue class of positions modulo `step` along `axis` is
    assembled separately.

    All arguments except `axis` and `step` are those of `assemble_boxes`.
    """
    shape = [n // step if a == axis else n for a, n in enumerate(sizes)]
    stacked = []
    for first in range(step):
        every = Run(first, shape[axis], step)

        def placed(box: Box, label: Label, every: Run = every) -> Term:
            run = box.runs[axis]
            return make(box.along(axis, Run(every.start + run.start * step, run.count, run.step * step)), label)

        found = [(box, box.runs[axis].intersect(every), label) for box, label in labelled]
        inside = [(box.along(axis, _counted(run, every)), label) for box, run, label in found if run is not None]
        part = assemble_boxes(shape, inside, other, placed)
        stacked.append(apply("reshape", part, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :])))
    return apply("reshape", concat_parts(stacked, axis - len(sizes)), shape=tuple(sizes))


def _counted(run: Run, every: Run) -> Run:
    """Return the positions of `run` as indices into the progression `every`. For example, the number 7 is at index 2 in the
    progression 3, 5, 7, 9. All positions of `run` must be in `every`.
    """
    return Run((run.start - every.start) // every.step, run.count, max(run.step // every.step, 1))


def _side_by_side(cells: Cells[Label], make: Make[Label]) -> Term:
    """Divide the grid `cells` into boxes by straight cuts, and return the concatenation of the tensors `make(box, label)`.

    All cells in a box have the same label. On small grids, the number of boxes is the smallest possible.
    """
    few = math.prod(n * (n + 1) // 2 for n in cells.labels.shape) <= MUTANT.max_assembly_windows

    @functools.cache
    def best(window: Window) -> tuple[int, tuple[int, Window, Window] | None]:
        if cells.uniform(window):
            return 1, None
        cuts = ((axis, *_cut(window, axis, at)) for axis, (a, b) in enumerate(window) for at in range(a + 1, b))
        if few:
            return min(((best(c[1])[0] + best(c[2])[0], c) for c in cuts), key=lambda found: found[0])
        first = next(c for c in cuts if not _alike(cells, c))
        return best(first[1])[0] + best(first[2])[0], first

    def made(window: Window) -> Term:
        cut = best(window)[1]
        if cut is None:
            return make(cells.box(window), cells.label(window))
        axis, low, high = cut
        return apply("concat", made(low), made(high), axis=axis - len(window))

    return made(cells.whole)


def _cut(window: Window, axis: int, at: int) -> tuple[Window, Window]:
    a, b = window[axis]
    return (*window[:axis], (a, at), *window[axis + 1 :]), (*window[:axis], (at, b), *window[axis + 1 :])


def _alike(cells: Cells[Label], cut: tuple[int, Window, Window]) -> bool:
    """Return whether each cell before a cut has the same label as the adjacent cell after the cut."""
    axis, low, high = cut
    before, after = low[axis][1] - 1, high[axis][0]
    sides = [cells.labels[tuple(place if a == axis else slice(*low[a]) for a in range(len(low)))] for place in (before, after)]
    return bool(np.all(sides[0] == sides[1]))


def piecewise_constant(sizes: Sequence[int], labelled: Sequence[tuple[Box, Fraction]], other: Fraction) -> Term:
    """Return a constant tensor. Each element in a labelled box equals the label of the box. Each element outside all boxes
    equals `other`.

    The term has no variables, so constant folding can evaluate it.
    """
    cells = Cells.of(sizes, labelled, other)
    vary = [a for a in range(len(sizes)) if not np.all(cells.labels == np.take(cells.labels, [0], axis=a))]
    edges = tuple(cells.edges[a] for a in vary)
    labels = np.asarray(cells.labels[tuple(slice(None) if a in vary else 0 for a in range(len(sizes)))], dtype=object)
    held = _side_by_side(Cells(edges, labels), _filled) if vary else _filled(Box(()), cells.labels.flat[0])
    axes = tuple(a - len(sizes) for a in vary)
    return held if len(vary) == len(sizes) else apply("expand", held, shape=tuple(sizes), axes=axes)


def _filled(box: Box, number: Fraction) -> Term:
    """Return a tensor of the box's shape. Each element is `number`."""
    if number in (0, 1):
        return apply("ones" if number else "zeros", shape=box.shape)
    return apply("scale", apply("ones", shape=box.shape), factor=number)


def box_covers(sizes: Sequence[int], boxes: Sequence[Box]) -> list[tuple[Box, ...]]:
    """Return several covers of the boxes. A cover is a tuple of boxes that together contain all the given boxes.

    The first cover consists of the given boxes. The second cover consists of a single box, the smallest box that contains all
    given boxes. In each further cover, the given boxes are extended to the full extent of some axes. Boxes inside other boxes
    are then dropped. A cover is left out if the total number of positions in its boxes is at least the number of positions of
    the tensor.
    """
    whole = [Run(0, n) for n in sizes]
    found = {tuple(sorted(boxes)): None, (functools.reduce(Box.hull, boxes),): None}
    for count in range(1, len(sizes)):
        for axes in itertools.combinations(range(len(sizes)), count):
            wide = {Box(tuple(whole[a] if a in axes else run for a, run in enumerate(box.runs))) for box in boxes}
            found[tuple(sorted(b for b in wide if not any(c != b and is_box_within(b, c) for c in wide)))] = None
    return [cover for cover in found if sum(box.size for box in cover) < math.prod(sizes)]


def is_box_within(inner: Box, outer: Box) -> bool:
    """Return whether the box `outer` contains every position of the box `inner`."""
    common = outer.intersect(inner)
    return common is not None and common.size == inner.size
