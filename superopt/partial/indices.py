"""Abstract values for interpreting definitions. An abstract value represents an index or a condition at all positions of a box.

A position of a box is given by a vector q with one entry per axis. On an axis with `count` positions, the entry of q is an
integer from 0 to `count - 1`, and the index of the position is `start + step * q[axis]`. An index is an affine function of q: a
linear part, and an offset. The offset may depend on the summation indices, so the offset is an array with one axis per
summation index. A condition has one of three outcomes for each choice of summation indices: true at every q, false at every q,
or undecided. A box with an undecided condition must be cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from superopt.errors import Undecidable
from superopt.partial.box import Box, Run
from superopt.policy import MUTANT

Array = npt.NDArray[Any]
Vector: TypeAlias = "tuple[int, ...]"


class Cut(Exception):  # noqa: N818 (no error: the analysis starts again with the pieces)
    """Raised if the outcome of a condition or an integer quotient is not uniform in the whole box.

    `pieces` is a partition of the box. The analysis is repeated for each piece.
    """

    def __init__(self, pieces: Sequence[Box]) -> None:
        super().__init__()
        self.pieces = tuple(pieces)


def span(coefficients: Sequence[int], box: Box) -> tuple[int, int]:
    """Return the smallest and the largest dot product of the coefficients with a vector q of the box.

    The vector q has one entry per axis of the box. On an axis with `count` positions, the entry ranges from 0 to `count - 1`.
    """
    ends = [c * (run.count - 1) for c, run in zip(coefficients, box.runs, strict=True)]
    return sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)


class Affine:
    """An index that is an affine function of the position in a box.

    The vector q of a position has one entry per axis of the box: the number of steps from the first position of the box. The
    index is `dot(coefficients, q) + offsets`.

    The array `offsets` has one axis per summation index.
    """

    __slots__ = ("box", "coefficients", "offsets")
    __hash__ = object.__hash__

    def __init__(self, box: Box, coefficients: Vector, offsets: Array) -> None:
        self.box = box
        self.coefficients = coefficients
        self.offsets = offsets

    @property
    def fixed(self) -> bool:
        """Whether the index is the same at every position of the box."""
        return not any(self.coefficients)

    def span(self) -> tuple[int, int]:
        """Return the smallest and the largest dot product of the coefficients with a vector q of the box."""
        return span(self.coefficients, self.box)

    def _plus(self, other: Affine | int, sign: int) -> Affine:
        if not isinstance(other, Affine):
            return Affine(self.box, self.coefficients, self.offsets + sign * int(other))
        together = tuple(a + sign * b for a, b in zip(self.coefficients, other.coefficients, strict=True))
        return Affine(self.box, together, _affordable(self.offsets, other.offsets, lambda a, b: a + sign * b))

    def __add__(self, other: Affine | int) -> Affine:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Affine | int) -> Affine:
        return self._plus(other, -1)

    def __rsub__(self, other: int) -> Affine:
        return -self + other

    def __neg__(self) -> Affine:
        return self * -1

    def __mul__(self, other: Affine | int) -> Affine:
        if not isinstance(other, Affine):
            factor = int(other)
            return Affine(self.box, tuple(c * factor for c in self.coefficients), self.offsets * factor)
        if not (self.fixed and other.fixed):
            raise Undecidable("an index is not an affine function of the output position")
        return Affine(self.box, self.coefficients, _affordable(self.offsets, other.offsets, lambda a, b: a * b))

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Affine:
        quotient, _, floors = self._divided(int(divisor))
        return Affine(self.box, quotient, floors)

    def __mod__(self, divisor: int) -> Affine:
        _, rest, floors = self._divided(int(divisor))
        return Affine(self.box, rest, self.offsets - int(divisor) * floors)

    def _divided(self, divisor: int) -> tuple[Vector, Vector, Array]:
        """Divide the index by a positive number, rounding down.

        Returns:
            Vectors d and r, and an array f. At every position q of the box, the quotient is `dot(d, q) + f`, and the remainder
            is `dot(r, q) + offsets - divisor * f`.

        Raises:
            Cut: The quotient is not an affine function in the whole box.
        """
        quotient = tuple(int(math.copysign(abs(c) // divisor, c)) for c in self.coefficients)
        rest = tuple(c - divisor * d for c, d in zip(self.coefficients, quotient, strict=True))
        low, high = span(rest, self.box)
        floors = (self.offsets + low) // divisor
        if not (floors == (self.offsets + high) // divisor).all():
            raise Cut(self._pieces(rest, divisor))
        return quotient, rest, floors

    def _pieces(self, rest: Vector, divisor: int) -> list[Box]:
        """Cut the box along one axis.

        There are two kinds of cuts. The first kind cuts the axis where the quotient `(dot(rest, q) + offset) // divisor`
        changes, where q is the position in the box. The second kind divides the axis into residue classes. Of the possible
        cuts, the method chooses the cut that is expected to lead to the fewest pieces after all further cuts.
        """
        ways = [
            [self.box.along(axis, part) for part in parts]
            for axis, r in enumerate(rest)
            if r
            for parts in (self._jumps(rest, axis, divisor), self.box.runs[axis].classes(divisor // math.gcd(divisor, r)))
        ]

        def promise(pieces: Sequence[Box]) -> int:
            if len(pieces) > MUTANT.max_examined_pieces:
                return len(pieces) * MUTANT.undecided_piece_count
            return sum(MUTANT.undecided_piece_count if self._jumps_in(piece, rest, divisor) else 1 for piece in pieces)

        return min((pieces for pieces in ways if len(pieces) > 1), key=promise)

    def _jumps_in(self, piece: Box, rest: Vector, divisor: int) -> bool:
        """Return whether `(rest . q + offset) // divisor` is not an affine function of the position q in the part `piece`."""
        start, left = 0, []
        for r, whole, part in zip(rest, self.box.runs, piece.runs, strict=True):
            start += r * ((part.start - whole.start) // whole.step)
            step = r * (part.step // whole.step) if part.count > 1 else 0
            left.append(step - divisor * int(math.copysign(abs(step) // divisor, step)))
        low, high = span(left, piece)
        return bool(((self.offsets + start + low) // divisor != (self.offsets + start + high) // divisor).any())

    def _jumps(self, rest: Vector, axis: int, divisor: int) -> tuple[Run, ...]:
        """Cut the run of positions along the axis wherever `(rest . q + offset) // divisor` changes for some offset.

        Here, q is the position in the box. Along the remaining axes, two choices of q are examined: the choice with the
        smallest `rest . q`, and the choice with the largest `rest . q`.
        """
        low, high = span([0 if a == axis else r for a, r in enumerate(rest)], self.box)
        run, offsets = self.box.runs[axis], np.unique(self.offsets)
        along = rest[axis] * np.arange(run.count)[:, None] + offsets
        changes = np.zeros(run.count - 1, np.bool_)
        for end in (low, high):
            floors = (along + end) // divisor
            changes |= (floors[1:] != floors[:-1]).any(axis=1)
        return run.cut(map(int, 1 + np.flatnonzero(changes)))

    def __ge__(self, other: Affine | int) -> SummationGuard:
        return SummationGuard.of(self - other, equality=False)

    def __gt__(self, other: Affine | int) -> SummationGuard:
        return SummationGuard.of(self - other - 1, equality=False)

    def __le__(self, other: Affine | int) -> SummationGuard:
        return SummationGuard.of(-(self - other), equality=False)

    def __lt__(self, other: Affine | int) -> SummationGuard:
        return SummationGuard.of(-(self - other) - 1, equality=False)

    def __eq__(self, other: object) -> SummationGuard:  # type: ignore[override]
        if not isinstance(other, Affine | int):
            return NotImplemented
        return SummationGuard.of(self - other, equality=True)


def _affordable(a: Array, b: Array, combine: Callable[[Array, Array], Array]) -> Array:
    if math.prod(np.broadcast_shapes(a.shape, b.shape)) > MUTANT.max_index_choices:
        raise Undecidable(f"an index depends on more than {MUTANT.max_index_choices} combinations of summation indices")
    return combine(a, b)


class SummationGuard:
    """A condition on indices, with an outcome for each choice of summation indices.

    Attributes:
        sure: For each choice, whether the condition holds at every position of the box.
        possible: For each choice, whether the condition may hold at some position of the box.
        causes: The comparisons of the condition that are undecided for some choices. Each comparison is a tuple (index,
            equality, undecided). A comparison is undecided if it may be true at some positions of the box and false at other
            positions. If `equality` is True, the index is compared with 0 by `==`. Otherwise, the index is compared with 0 by
            `>=`. The boolean array `undecided` says for each choice whether the comparison is undecided.
    """

    __slots__ = ("causes", "possible", "sure")

    def __init__(self, sure: Array, possible: Array, causes: tuple[tuple[Affine, bool, Array], ...] = ()) -> None:
        self.sure = sure
        self.possible = possible
        self.causes = causes

    @staticmethod
    def of(index: Affine, *, equality: bool) -> SummationGuard:
        """Return the condition `index == 0` if `equality` is True, and the condition `index >= 0` otherwise."""
        low, high = index.span()
        least, most = index.offsets + low, index.offsets + high
        if not equality:
            sure, possible = least >= 0, most >= 0
        else:
            sure = (least == 0) & (most == 0)
            common = math.gcd(*index.coefficients)
            possible = (least <= 0) & (most >= 0) & (index.offsets % common == 0 if common else True)
        undecided = possible & ~sure
        return SummationGuard(sure, possible, ((index, equality, undecided),) if undecided.any() else ())

    def __and__(self, other: SummationGuard | bool) -> SummationGuard:
        if isinstance(other, bool | np.bool_):
            return self if other else NEVER
        if other is ALWAYS or self is ALWAYS:
            return self if other is ALWAYS else other
        sure = _affordable(self.sure, other.sure, lambda a, b: a & b)
        return SummationGuard(sure, self.possible & other.possible, self.causes + other.causes)

    __rand__ = __and__

    def __or__(self, other: SummationGuard) -> SummationGuard:
        if other is ALWAYS or self is ALWAYS:
            return ALWAYS
        sure = _affordable(self.sure, other.sure, lambda a, b: a | b)
        return SummationGuard(sure, self.possible | other.possible, self.causes + other.causes)

    def __invert__(self) -> SummationGuard:
        return SummationGuard(~self.possible, ~self.sure, self.causes)

    def somewhere(self) -> SummationGuard:
        """Return a condition without the summation index on array axis 0. The returned condition holds if `self` holds for at
        least one value of the summation index.
        """
        return SummationGuard(np.asarray(self.sure.any(axis=0)), np.asarray(self.possible.any(axis=0)), self.causes)

    def settled(self, box: Box) -> Array:
        """Return a flag for each choice of summation indices: whether the condition holds at every position of the box.

        Raises:
            Cut: For some choice, the condition may hold in only a part of the box.
        """
        undecided = self.possible & ~self.sure
        if undecided.any():
            raise Cut(_cut(box, list(self._undecided(undecided))))
        return self.sure

    def _undecided(self, undecided: Array) -> Iterator[tuple[Affine, bool, Array]]:
        """Yield (index, equality, offsets) for each comparison that makes the condition undecided. The value `offsets` contains
        the offsets of the index for which the comparison is undecided.

        `undecided` flags the choices of summation indices for which the whole condition is undecided.
        """
        for index, equality, open_ in self.causes:
            ours = undecided
            while ours.ndim > open_.ndim:
                ours = np.asarray(ours.any(axis=0))
            try:
                both = open_ & ours
            except ValueError:
                both = open_
            relevant = both if both.any() else open_
            yield index, equality, np.unique(np.broadcast_to(index.offsets, relevant.shape)[relevant])


ALWAYS = SummationGuard(np.ones((), np.bool_), np.ones((), np.bool_))
NEVER = SummationGuard(np.zeros((), np.bool_), np.zeros((), np.bool_))


def _cut(box: Box, causes: Sequence[tuple[Affine, bool, Array]]) -> list[Box]:
    """Cut the box wherever the outcome of one of the comparisons changes. Only comparisons that depend on a single axis are
    used.

    If every comparison depends on several axes, cut the box in halves.
    """
    points: dict[int, set[int]] = {}
    for index, equality, offsets in causes:
        axes = [a for a, c in enumerate(index.coefficients) if c]
        if len(axes) == 1:
            inside = (1, box.runs[axes[0]].count)
            changes = _changes(index.coefficients[axes[0]], equality, offsets)
            points.setdefault(axes[0], set()).update(p for p in changes if inside[0] <= p < inside[1])
    if any(points.values()):
        pieces = [box]
        for axis, at in points.items():
            pieces = [piece.along(axis, run) for piece in pieces for run in box.runs[axis].cut(at)]
        return pieces
    index = causes[0][0]
    reach = [abs(c) * (run.count - 1) for c, run in zip(index.coefficients, box.runs, strict=True)]
    axis = reach.index(max(reach))
    return [box.along(axis, run) for run in box.runs[axis].cut([box.runs[axis].count // 2])]


def _changes(coefficient: int, equality: bool, offsets: Array) -> set[int]:
    """Return each q at which, for some offset, the outcome of coefficient * q + offset >= 0 differs from the outcome at q - 1.

    If `equality` is True, the comparison is coefficient * q + offset == 0.
    """
    if equality:
        zeros = -offsets[offsets % coefficient == 0] // coefficient
        return {int(p) for q in zeros for p in (q, q + 1)}
    if coefficient > 0:
        return {int(p) for p in -(offsets // coefficient)}
    return {int(p) for p in offsets // -coefficient + 1}


def output_position(box: Box) -> tuple[Affine, ...]:
    """Return the output position along each axis of the box as an index: start + step * q, where q counts the positions from
    0.
    """
    return tuple(
        Affine(box, tuple(run.step if b == a and run.count > 1 else 0 for b in range(box.rank)), np.asarray(run.start))
        for a, run in enumerate(box.runs)
    )


def hull(coefficients: Vector, offsets: Array, box: Box) -> Run:
    """Return the smallest arithmetic progression that contains coefficients . q + offset for every q in the box and every
    offset.

    `offsets` is a sorted array.
    """
    low, high = span(coefficients, box)
    steps = [c for c, run in zip(coefficients, box.runs, strict=True) if run.count > 1]
    step = math.gcd(*steps, *(int(d) for d in np.unique(np.diff(offsets)))) or 1
    start = int(offsets[0]) + low
    return Run(start, (int(offsets[-1]) + high - start) // step + 1, step)
