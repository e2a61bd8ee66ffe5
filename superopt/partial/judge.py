"""Decide at which output positions a mutant equals its program.

A mutant is a term that equals a program at some positions. The output is divided into boxes. For each box, the values of both
terms over prime fields are compared at a few positions. The result of the comparison applies to the whole box. The result can
be wrong only if a nonzero polynomial vanishes at random inputs. `log2_error` bounds the probability of this event. The page
docs/partial.md explains why a few positions are enough.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms
from superopt.errors import Undecidable
from superopt.partial.box import Array, Box, covering, full_box, merge_boxes
from superopt.partial.degree import extremes
from superopt.partial.field import BITS, PrimeFields, program_field_primes, reconstruct_rational, residues
from superopt.partial.points import Points, evaluate_residues
from superopt.partial.reading import Demand
from superopt.partial.region import cached_split, split_uniformly
from superopt.policy import MUTANT

__all__ = ["Judgement", "equal_positions", "glance", "judge", "ratio"]


@dataclass(frozen=True)
class Judgement:
    """A partition of the output positions into boxes where a mutant and its program are equal and boxes where they differ.

    A mutant is a term that equals a program at some positions.

    Attributes:
        equal: The boxes where mutant and program are equal. The probability that mutant and program differ in any of these
            boxes is at most 2 ** `log2_error`.
        unequal: The boxes where mutant and program certainly differ.
        tests: The number of random inputs. Each input is in a different prime field.
        positions: The number of positions at which mutant and program were evaluated.
        total: The number of positions of the output.
        log2_error: The base-2 logarithm of the error probability.
        prime: The size of the smallest field.
    """

    equal: tuple[Box, ...]
    unequal: tuple[Box, ...]
    tests: int
    positions: int
    total: int
    log2_error: float
    prime: int

    @property
    def share(self) -> Fraction:
        """The share of output positions where mutant and program are equal, from 0 to 1."""
        return Fraction(sum(box.size for box in self.equal), self.total)


def judge(program: Term, mutant: Term, *, tests: int | None = None, seed: int = 0) -> Judgement:
    """Return a partition of the output positions into boxes where the terms `program` and `mutant` are equal and boxes where
    they differ.

    `tests` is the number of random inputs. The default is the smallest number with an error probability below 2 ** -60.

    Raises:
        Undecidable: The program or the mutant is not a polynomial in its variables, their shapes differ, or there are too many
            boxes.
    """
    count, lost = _tests(program, mutant, tests)
    pair = _Pair(program, mutant, _points(program, count, seed))
    equal, unequal = pair.verdicts(full_box(program.sizes))
    degree = max(extremes(program).degree, extremes(mutant).degree, 1)
    per_test = math.log2(degree) - math.log2(pair.points.domain.primes[-1])
    error = min(0.0, (count - lost) * per_test + math.log2(max(pair.positions, 1)))
    prime = pair.points.domain.primes[-1]
    return Judgement(merge_boxes(equal), merge_boxes(unequal), count, pair.positions, math.prod(program.sizes), error, prime)


def _tests(program: Term, mutant: Term, tests: int | None) -> tuple[int, int]:
    """Return two numbers: the number of random inputs for the comparison of the terms, and a bound on the number of useless
    fields.

    Each random input is in a different prime field. A field is useless if the terms `program` and `mutant` differ, but the
    field's prime divides all coefficients of their difference. In such a field, the terms have equal values on every input. If
    `tests` is not None, the number of random inputs is `tests`.
    """
    if not all(isinstance(n, int) for term in subterms(program, mutant) for n in term.shape):
        raise Undecidable("an extent of the program or the mutant is not an integer")
    if program.sizes != mutant.sizes:
        raise Undecidable(
            f"the program has the output shape {program.sizes}, but the mutant has the output shape {mutant.sizes}"
        )
    one, other = extremes(program), extremes(mutant)
    lost = int(max((one + other).numerators, 0.0) / (BITS - 0.01))
    per_test = BITS - 0.01 - math.log2(max(one.degree, other.degree, 1))
    if per_test <= 0:
        raise Undecidable(
            f"the polynomials have degree {max(one.degree, other.degree)}, which is too high for prime fields of {BITS} bits"
        )
    enough = math.ceil((math.log2(math.prod(program.sizes)) - MUTANT.log2_error) / per_test)
    return (enough + lost if tests is None else tests), lost


@functools.lru_cache(maxsize=16)
def _points(program: Term, tests: int, seed: int) -> Points:
    """Return random inputs in prime fields, with cached values of the program. The number of prime fields is `tests`."""
    return Points(program, PrimeFields(program_field_primes(tests)), seed)


@dataclass(frozen=True)
class _Part:
    """A box in which the terms `program` and `mutant` read uniformly: the positions of all reads are affine functions of the
    output position.

    See `superopt.partial.region.regions`.

    Attributes:
        box: The box.
        mixed: The mixed axes of the box. An axis is mixed if two reads of one variable move by different distances when the
            output position moves one step along the axis.
        free: An array of flags, one for each position along the mixed axes. A flag says whether the position is free. `_mixed`
            defines free positions.
    """

    box: Box
    mixed: tuple[int, ...]
    free: Array

    def at(self, along: Sequence[int]) -> tuple[int, ...]:
        """Return an output position in the box. Along the mixed axes (see `_mixed`), the position is `along` steps after the
        first position of the box. Along all other axes, the position is the first position of the box.
        """
        chosen = dict(zip(self.mixed, along, strict=True))
        return tuple(run.start + run.step * int(chosen.get(axis, 0)) for axis, run in enumerate(self.box.runs))

    def probes(self) -> list[tuple[int, ...]]:
        """Return a free position and some of its neighbours. For each axis that is not mixed, there is one neighbour, one step
        further along this axis.

        See `_mixed` for free positions and mixed axes. If no position is free, the list is empty.
        """
        if not self.free.any():
            return []
        corner = self.at(np.argwhere(self.free)[0].tolist())
        runs = self.box.runs
        steps = (axis for axis, run in enumerate(runs) if run.count > 1 and axis not in self.mixed)
        return [corner, *((*corner[:a], corner[a] + runs[a].step, *corner[a + 1 :]) for a in steps)]

    def bound(self) -> Iterator[tuple[int, ...]]:
        """Return the positions of the box that are not free and must therefore be compared one by one. `_mixed` explains free
        positions. Along axes that are not mixed, only the first position of the box is returned.

        Raises:
            Undecidable: There are too many of these positions.
        """
        bound = np.argwhere(~self.free)
        if len(bound) > MUTANT.max_compared_positions:
            raise Undecidable(
                f"{len(bound)} output positions must be compared one by one, but the limit is {MUTANT.max_compared_positions}"
            )
        return map(self.at, bound.tolist())


class _Pair:
    """The terms `program` and `mutant`, evaluated on the same random inputs. `positions` counts the compared positions."""

    def __init__(self, program: Term, mutant: Term, points: Points) -> None:
        self.program = program
        self.mutant = mutant
        self.points = points
        self.positions = 0

    def agree(self, positions: Sequence[tuple[int, ...]]) -> Array:
        """Return a flag for each position: whether the terms `program` and `mutant` have the same value."""
        if not positions:
            return np.zeros(0, np.bool_)
        self.positions += len(positions)
        at = np.array(positions, dtype=np.int64).reshape(len(positions), self.program.rank)
        same = self.points.values(self.program, at) == self.points.values(self.mutant, at)
        return np.asarray(same.all(axis=-1))

    def verdicts(self, box: Box) -> tuple[list[Box], list[Box]]:
        """Return parts of the box in which the terms `program` and `mutant` are equal, and parts in which they differ."""
        parts = list(_parts(self.program, self.mutant, box))
        probes = [part.probes() for part in parts]
        answers = iter(self.agree(list(itertools.chain.from_iterable(probes))))
        probed = [[bool(next(answers)) for _ in asked] for asked in probes]
        closer = [_one_by_one(part, found) for part, found in zip(parts, probed, strict=True)]
        answers = iter(self.agree([at for part in closer for at in part.bound()]))
        equal: list[Box] = []
        unequal: list[Box] = []
        for part, found in zip(closer, probed, strict=True):
            flags = np.full(part.free.shape, all(found) and bool(found))
            flags[~part.free] = [bool(next(answers)) for _ in part.bound()]
            equal.extend(covering(flags, part.box, part.mixed))
            unequal.extend(covering(~flags, part.box, part.mixed))
        self.points.forget()
        return equal, unequal


def _one_by_one(part: _Part, found: Sequence[bool]) -> _Part:
    """Return the part with its flags `free` updated from `found`.

    `found` has a flag for each probe of the part. A probe is a position, and the flag says whether program and mutant are equal
    at this position. If all flags are True, every position counts as free, so no position is compared individually. If no flag
    is True, the part is returned unchanged. In all other cases, no position counts as free, so all positions are compared.
    """
    if found and all(found):
        return replace(part, free=np.ones_like(part.free))
    if not any(found):
        return part
    return _Part(part.box, tuple(range(part.box.rank)), np.zeros(part.box.shape, np.bool_))


def _parts(program: Term, mutant: Term, box: Box) -> Iterator[_Part]:
    """Divide the box into parts in which both terms read uniformly, and yield the parts. In each part, the positions of all
    reads are affine functions of the output position.
    """
    for outer, of_program in cached_split(program, box):
        for inner, of_mutant in split_uniformly(mutant, outer):
            yield _Part(inner, *_mixed(inner, [_within(of_program, outer, inner), _reads(of_mutant)]))


Family = dict[tuple[tuple[int, ...], ...], tuple[Array, ...]]


def _reads(demand: Mapping[Term, Demand]) -> dict[Term, Family]:
    return {term: ways for term, ways in demand.items() if term.is_variable}


def _within(demand: Mapping[Term, Demand], outer: Box, inner: Box) -> dict[Term, Family]:
    """Convert reads relative to the box `outer` to reads relative to `inner`, a box in `outer`.

    A read is an affine function from output positions to positions of elements. The output position is relative to the first
    position of the box, in units of the box's steps.
    """
    found: dict[Term, Family] = {}
    runs = list(zip(outer.runs, inner.runs, strict=True))
    for term, ways in _reads(demand).items():
        family = found.setdefault(term, {})
        for linear, offsets in ways.items():
            rows = tuple(
                tuple(c * (i.step // o.step) if i.count > 1 else 0 for c, (o, i) in zip(row, runs, strict=True))
                for row in linear
            )
            moves = (sum(c * ((i.start - o.start) // o.step) for c, (o, i) in zip(row, runs, strict=True)) for row in linear)
            moved = tuple(numbers + move for numbers, move in zip(offsets, moves, strict=True))
            before = family.get(rows)
            family[rows] = moved if before is None else tuple(map(np.union1d, before, moved))
    return found


def _mixed(box: Box, programs: Sequence[Mapping[Term, Family]]) -> tuple[tuple[int, ...], Array]:
    """Return the mixed axes of the box, and an array of flags. A flag says whether a position along the mixed axes is free.

    A read is the access to an element of a variable. The position that is read is an affine function of the output position. An
    axis of the box is mixed if the functions of two reads of one variable have different coefficients for the axis. An output
    position is not free if two reads with different linear parts access one element at this position.
    """
    together: dict[Term, Family] = {}
    for demand in programs:
        for term, ways in demand.items():
            family = together.setdefault(term, {})
            for linear, offsets in ways.items():
                before = family.get(linear)
                family[linear] = offsets if before is None else tuple(map(np.union1d, before, offsets))
    mixed = tuple(
        axis
        for axis in range(box.rank)
        if any(len({tuple(row[axis] for row in linear) for linear in family}) > 1 for family in together.values())
    )
    free = np.ones(tuple(box.runs[axis].count for axis in mixed), np.bool_)
    if free.size > MUTANT.max_compared_positions:
        raise Undecidable(
            f"elements of one input are read with different strides at {free.size} positions, "
            f"but the limit is {MUTANT.max_compared_positions} positions"
        )
    for family in together.values():
        for one, other in itertools.combinations(family, 2):
            free &= ~_meet(one, family[one], other, family[other], box, mixed)
    return mixed, free


def _meet(
    one: tuple[tuple[int, ...], ...],
    from_one: tuple[Array, ...],
    other: tuple[tuple[int, ...], ...],
    from_other: tuple[Array, ...],
    box: Box,
    mixed: Sequence[int],
) -> Array:
    """Return a flag for each position along the axes `mixed`. The flag says whether two groups of reads can access the same
    element at this position.

    All reads are of one variable. A group of reads is given by a linear part and offsets. For each axis of the variable, the
    linear part contains a vector `row`, and there is one array of offsets. At the output position with the vector q, the group
    reads the indices `dot(row, q) + offset` along the axis, for each offset in the array.
    """
    shape = tuple(box.runs[axis].count for axis in mixed)
    meeting = np.ones(shape, np.bool_)
    steps = np.ix_(*(np.arange(n) for n in shape)) if shape else ()
    for row, row2, offsets, offsets2 in zip(one, other, from_one, from_other, strict=True):
        apart = sum(((row[axis] - row2[axis]) * step for axis, step in zip(mixed, steps, strict=True)), np.zeros((), np.int64))
        gaps = np.unique(offsets2[:, None] - offsets)
        meeting = meeting & np.isin(apart, gaps)
    return meeting


def glance(program: Term, mutant: Term, *, seed: int = 0) -> Fraction:
    """Evaluate both terms at a few output positions on one random input, and return the share of positions where the terms are
    equal.

    The positions are the corners and the middle of the output. This quick test filters out mutants before `judge`.

    Raises:
        Undecidable: The program or the mutant is not a polynomial in its variables, or their shapes differ.
    """
    _tests(program, mutant, None)
    ends = [(0, n - 1) if n > 1 else (0,) for n in program.sizes]
    places = {*itertools.product(*ends), tuple(n // 2 for n in program.sizes)}
    points = _points(program, 1, seed)
    found = _Pair(program, mutant, points).agree(sorted(places))
    points.forget()
    return Fraction(int(found.sum()), len(places))


def ratio(program: Term, mutant: Term, box: Box, *, seed: int = 0) -> Fraction | None:
    """Return the nonzero rational number by which `mutant` must be multiplied to equal `program` in the whole box.

    Return None if there is no such number with numerator and denominator below 2 ** 15.

    Raises:
        Undecidable: See `judge`.
    """
    count, _ = _tests(program, mutant, None)
    points = _points(program, count, seed)
    first = np.array([box.first], dtype=np.int64)
    above, below = points.values(program, first)[0], points.values(mutant, first)[0]
    if not (above.all() and below.all()):
        return None
    moduli = points.domain.primes
    images = [int(a) * pow(int(b), -1, p) % p for a, b, p in zip(above, below, moduli, strict=True)]
    factor = reconstruct_rational(images[0], moduli[0])
    if factor is None or residues(factor, moduli) != tuple(images):
        return None
    number = int(factor) if factor.denominator == 1 else factor
    equal, unequal = _Pair(program, apply("scale", mutant, factor=number), points).verdicts(box)
    return factor if equal and not unequal else None


def equal_positions(program: Term, mutant: Term, *, seed: int = 0, tests: int | None = None) -> Array:
    """Return a flag for each output position: whether the terms `program` and `mutant` have the same value.

    Whole tensors are evaluated over prime fields, which is slow. Tests compare `judge` with this function.

    Raises:
        Undecidable: The program or the mutant is not a polynomial in its variables.
    """
    count, _ = _tests(program, mutant, tests)
    one, other = evaluate_residues((program, mutant), PrimeFields(program_field_primes(count)), seed)
    return np.asarray((one == other).all(axis=-1))
