"""Sources: one or several programs, treated as one program from a single data tensor to a single output.

There are four kinds of source: a single operator, several operators with concatenated data and outputs, an operator with
several copies of its data, and a part of an operator's output. The stacked data is the concatenation of the data of all
operators, and the stacked output is the concatenation of all outputs. The positions that a source reads are positions in the
stacked data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term
from superopt.errors import Undecidable
from superopt.partial.access import Reads, product_reads
from superopt.partial.arrange import NUMBER, concat_parts
from superopt.partial.forms import Sample
from superopt.partial.layout import Coordinates, flat, reshape_term
from superopt.policy import MUTANT

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Member:
    """A box of a program's output, and the position of this box in the stacked output. The stacked output is a concatenation of
    several outputs.

    Attributes:
        program: The program.
        data: The program's data. The stacked data is a concatenation of the data of all programs. The axes of `data` are the
            last axes of the stacked data.
        start: The first position of the box in the program's own output.
        extents: The extents of the box.
        place: The first position of the box in the stacked output.
        shift: The offset of the program's data in the stacked data.
    """

    program: Term
    data: Term
    start: tuple[int, ...]
    extents: tuple[int, ...]
    place: tuple[int, ...]
    shift: tuple[int, ...]


@dataclass(frozen=True)
class StackedSource:
    """Programs, called members, whose data and outputs are concatenated. The concatenated tensors are called stacked.

    Attributes:
        x: The stacked data.
        shape: The shape of the stacked output.
        members: The members.
        weights: The weights of the members.
        outputs: The boxes to cut from the stacked output. Each box has a first position, extents, and the shape to which the
            box is reshaped.
        made: A description of the steps that made the source.
    """

    x: Term
    shape: tuple[int, ...]
    members: tuple[Member, ...]
    weights: tuple[Term, ...]
    outputs: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]
    made: tuple[str, ...] = ()

    def sample(self, y: Coordinates) -> Sample:
        """Return the elements that are read at positions `y` of the stacked output, which joins the members' outputs.

        If a position is not in the output of any member, no elements are read at this position.

        Raises:
            Undecidable: A product does not have exactly one data element as a factor, or has more than two factors that are not
                numbers.
        """
        count = len(y[0])
        found: list[tuple[Array, list[Array]]] = []
        for member in self.members:
            within = np.ones(count, dtype=bool)
            for c, start, n in zip(y, member.place, member.extents, strict=True):
                within &= (c >= start) & (c < start + n)
            if within.any():
                found.append((np.flatnonzero(within), self._read(member, tuple(c[within] for c in y))))
        if len(found) == 1 and len(found[0][0]) == count:
            *x, of, factor, seen = found[0][1]
            return Sample(y, tuple(x), of, factor, seen)
        deep = max((len(rows[0]) for _, rows in found), default=1)
        arrays = [np.zeros((deep, count), dtype=np.int64) for _ in range(self.x.rank + 1)]
        factor, seen = np.ones((deep, count)), np.zeros((deep, count), dtype=bool)
        for at, rows in found:
            for whole, part in zip([*arrays, factor, seen], rows, strict=True):
                whole[: len(part), at] = part
        return Sample(y, tuple(arrays[:-1]), arrays[-1], factor, seen)

    def _read(self, member: Member, y: Coordinates) -> list[Array]:
        """Describe the products whose sum is the stacked output at the positions `y`, as a list of arrays. All of these
        positions are in the member's output.

        The first arrays of the list are the coordinates of the data elements in the stacked data. The last three arrays are the
        attributes `of`, `factor` and `seen` of a `Sample`: the weight elements, the numbers and the flags.
        """
        lead = len(y) - member.program.rank
        own = tuple(c - place + start for c, place, start in zip(y, member.place, member.start, strict=True))
        parts = [self._product(member, r) for r in product_reads(member.program, own[lead:])]
        if not parts:
            raise Undecidable(f"the program {member.program.op} reads no elements at the sampled positions")
        return parts[0] if len(parts) == 1 else [np.concatenate(rows) for rows in zip(*parts, strict=True)]

    def _product(self, member: Member, read: Reads) -> list[Array]:
        if read.variables.count(member.data) != 1 or len(read.variables) > 2:
            raise Undecidable(
                f"each product in the program {member.program.op} must have one data element and at most one weight element"
            )
        position = read.variables.index(member.data)
        coordinates = read.at[position]
        zeros = [np.zeros(read.seen.shape, dtype=np.int32)] * (self.x.rank - len(coordinates))
        at = [c + shift if shift else c for c, shift in zip([*zeros, *coordinates], member.shift, strict=True)]
        if len(read.variables) == 1:
            of = np.full(read.seen.shape, NUMBER)
        else:
            weight = read.variables[1 - position]
            of = flat(read.at[1 - position], weight.sizes) + self._start(weight)
        return [*at, of, read.coefficient, read.seen]

    def _start(self, weight: Term) -> int:
        before = self.weights[: self.weights.index(weight)]
        return sum(math.prod(w.sizes) for w in before)

    def probe(self, seed: int) -> Sample:
        """Return the elements that are read at some output positions. Several positions are tried, and only the positions with
        the largest number of reads are kept.

        For each member (each of the concatenated programs), some positions are chosen at random. The position with the largest
        number of reads is the base of further positions. A further position differs from the base only in the index along one
        axis.
        """
        rng = np.random.default_rng(seed)
        chosen = [self._probed(member, rng) for member in self.members]
        return self.sample(tuple(np.concatenate(axis) for axis in zip(*chosen, strict=True)))

    def _probed(self, member: Member, rng: np.random.Generator) -> Coordinates:
        """Return output positions at which the member reads the most elements, chosen as `probe` describes."""
        drawn = [
            rng.integers(start, start + n, MUTANT.probe_position_count)
            for start, n in zip(member.place, member.extents, strict=True)
        ]
        best = _fullest(self.sample(tuple(drawn)))
        first = tuple(c[best][0] for c in drawn)
        for axis, (start, n) in enumerate(zip(member.place, member.extents, strict=True)):
            others = rng.integers(start, start + n, 4)
            for a, c in enumerate(drawn):
                drawn[a] = np.concatenate([c, others if a == axis else np.full(4, first[a])])
        best = np.flatnonzero(_fullest(self.sample(tuple(drawn))))
        kept = np.concatenate([best[: MUTANT.kept_position_count], best[best >= MUTANT.probe_position_count]])
        return tuple(c[np.unique(kept)] for c in drawn)

    def cut(self, y: Term) -> tuple[Term, ...]:
        """Return the outputs of the programs, cut from the stacked output `y`."""
        return tuple(_cut(y, *box) for box in self.outputs)


def _fullest(sample: Sample) -> Array:
    counts = sample.seen.sum(axis=0)
    return np.asarray(counts == counts.max())


def _cut(y: Term, start: Sequence[int], extents: Sequence[int], shape: tuple[int, ...]) -> Term:
    for axis, (first, n) in enumerate(zip(start, extents, strict=True)):
        if n != y.sizes[axis]:
            y = apply("slice", y, axis=axis - y.rank, start=first, stop=first + n)
    return reshape_term(y, shape)


def single_source(program: Term, data: Term, weights: tuple[Term, ...]) -> StackedSource:
    """Return a single program as a `StackedSource`."""
    zero = (0,) * program.rank
    member = Member(program, data, zero, program.sizes, zero, (0,) * data.rank)
    return StackedSource(data, program.sizes, (member,), weights, ((zero, program.sizes, program.sizes),))


def copies(source: StackedSource, times: int, of_x: int, of_y: int) -> StackedSource | None:
    """Return a version of the program `source` that reads `times` copies of its data, concatenated along the axis `of_x`.

    The output is divided into equal parts along the axis `of_y`, and each part is computed from its own copy of the data.
    Return None if the extent of this axis is not a multiple of the number `times`.
    """
    (member,), extent = source.members, source.shape[of_y]
    if extent % times:
        return None
    rows = extent // times
    members = tuple(
        Member(
            member.program,
            member.data,
            _at(member.start, of_y, k * rows),
            _at(member.extents, of_y, rows),
            _at(member.place, of_y, k * rows),
            _at(member.shift, of_x, k * member.data.sizes[of_x]),
        )
        for k in range(times)
    )
    x = concat_parts([source.x] * times, of_x - source.x.rank)
    return StackedSource(x, source.shape, members, source.weights, source.outputs, (f"data {times} times",))


def _at(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*values[:axis], value, *values[axis + 1 :])


def part(source: StackedSource, of_y: int, start: int, stop: int) -> StackedSource:
    """Return a source that computes a part of the output: the positions from `start` to `stop` - 1 on the axis `of_y`.

    A source is a program with its data. The data is cut to the elements that the part reads. These elements are determined from
    the first, middle and last positions of the part along each axis.

    Raises:
        Undecidable: The part reads no data, or `StackedSource.sample` raises this exception.
    """
    (member,) = source.members
    extents = _at(member.extents, of_y, stop - start)
    first = _at(member.start, of_y, start)
    zero = (0,) * len(extents)
    whole = Member(member.program, member.data, first, extents, zero, member.shift)
    boxed = StackedSource(source.x, extents, (whole,), source.weights, ((zero, extents, extents),))
    corners = np.array(np.meshgrid(*((0, n // 2, n - 1) for n in extents), indexing="ij")).reshape(len(extents), -1)
    sample = boxed.sample(tuple(corners))
    if not sample.seen.any():
        raise Undecidable("a part of the output reads no elements of the data")
    x, shift = source.x, list(member.shift)
    for axis, n in enumerate(source.x.sizes):
        low, high = int(sample.x[axis][sample.seen].min()), int(sample.x[axis][sample.seen].max()) + 1
        if high - low < n:
            x = apply("slice", x, axis=axis - x.rank, start=low, stop=high)
            shift[axis] = -low
    placed = Member(member.program, member.data, first, extents, zero, tuple(shift))
    return StackedSource(x, extents, (placed,), source.weights, ((zero, extents, extents),))


def stack_sources(sources: Sequence[StackedSource], of_x: int, of_y: int, *, shared: bool, level: bool) -> StackedSource:
    """Concatenate the data and the outputs of several sources, and return the combined source. Each given source has a single
    program.

    Axes are counted from the end: -1 is the last axis. The axis -(rank + 1) means a new axis in front.

    Args:
        sources: The sources.
        of_x: The axis along which the data is concatenated.
        of_y: The axis along which the outputs are concatenated.
        shared: Whether all sources have the same data. If so, the data is not repeated.
        level: Whether the data and the output of each source are padded to the largest extent along the concatenated axis.
            Along all remaining axes, the data and the output are always padded to the largest extent.
    """
    rank_x, rank_y = max(sources[0].x.rank, -of_x), max(len(sources[0].shape), -of_y)
    xs = [(1,) * (rank_x - s.x.rank) + s.x.sizes for s in sources]
    ys = [(1,) * (rank_y - len(s.shape)) + s.shape for s in sources]
    cells_x, cells_y = (tuple(max(axis) for axis in zip(*shapes, strict=True)) for shapes in (xs, ys))
    members: list[Member] = []
    data: list[Term] = []
    shift: tuple[int, ...] = (0,) * rank_x
    place: tuple[int, ...] = (0,) * rank_y
    for source, own_x, own_y in zip(sources, xs, ys, strict=True):
        (member,) = source.members
        start = (*(0,) * (rank_y - len(member.start)), *member.start)
        members.append(Member(member.program, member.data, start, own_y, place, shift))
        cell = cells_x if level else _at(cells_x, of_x % rank_x, own_x[of_x])
        data.append(_grown(reshape_term(source.x, own_x), cell))
        if not shared:
            shift = _at(shift, of_x % rank_x, shift[of_x] + cell[of_x])
        place = _at(place, of_y % rank_y, place[of_y] + (cells_y if level else own_y)[of_y])
    outputs = tuple((m.place, y, s.shape) for m, y, s in zip(members, ys, sources, strict=True))
    weights = tuple(dict.fromkeys(w for s in sources for w in s.weights))
    how = "of the same data" if shared else "on stacked data"
    said = f"{len(sources)} operators {how} as one{', each as wide as the widest' if level else ''}"
    x = data[0] if shared else concat_parts(data, of_x)
    return StackedSource(x, _at(cells_y, of_y % rank_y, place[of_y]), tuple(members), weights, outputs, (said,))


def _grown(x: Term, shape: tuple[int, ...]) -> Term:
    after = tuple(n - old for n, old in zip(shape, x.sizes, strict=True))
    return apply("pad", x, before=(0,) * x.rank, after=after) if any(after) else x
