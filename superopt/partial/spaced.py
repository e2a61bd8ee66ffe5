"""Correct mutants by inserting zeros between elements that a mutant places side by side.

A program that slides a window over images reads zeros around each image. A mutant that places the images side by side reads the
neighbouring image instead of zeros. If enough zeros separate the images, the window does not reach the neighbouring image, and
the mutant is right. The mutant is therefore rebuilt on padded inputs. The sizes in the mutant's attributes are adapted to the
padding, and the result is cut to the program's shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from superopt.algebra.operators import apply
from superopt.algebra.terms import Attribute, Term, subterms, variables
from superopt.errors import ShapeError
from superopt.partial.box import Box, Run, full_box
from superopt.partial.field import PrimeFields, program_field_primes
from superopt.partial.judge import Judgement
from superopt.partial.points import Points
from superopt.partial.region import variable_halos
from superopt.partial.restrict import positions_of, slice_box
from superopt.policy import MUTANT


def padded_mutants(program: Term, mutant: Term, judgement: Judgement, *, seed: int = 0) -> Iterator[Term]:
    """Yield versions of the term `mutant` on padded inputs. Each version has the program's shape, and equals the program at
    sampled positions.

    `judgement` says at which positions the mutant is wrong. A non-constant input is padded along an axis if the program reads
    past the border of this axis to compute some wrong positions. For each of these inputs and axes, versions with few added
    zeros are tried first, and only the first version that equals the program is yielded.
    """
    points = Points(program, PrimeFields(program_field_primes(1)), seed)
    rounds = [np.array([box.first], dtype=np.int64) for box in judgement.unequal] + [positions_of(full_box(program.sizes))]

    def right(term: Term) -> bool:
        return all(np.array_equal(points.values(term, at), points.values(program, at)) for at in rounds)

    for x in variables(mutant):
        for axis in () if x.constant else _clipped(program, x, judgement):
            found = next(filter(right, _padded(mutant, x, axis)), None)
            if found is not None:
                yield found


def _clipped(program: Term, x: Term, judgement: Judgement) -> list[int]:
    """Return the axes of `x` along which reads beyond the border of `x` may cause the differences in `judgement`.

    Along each of these axes, the program reads a shorter range of `x` for a wrong output position than for some other position.
    """
    wrong = [_read(program, x, box.first) for box in judgement.unequal]
    right = [_read(program, x, tuple(run.start + run.count // 2 * run.step for run in box.runs)) for box in judgement.equal]
    return [a for a in range(x.rank) if min(w[a] for w in wrong) < max((r[a] for r in [*right, *wrong]), default=0)]


def _read(program: Term, x: Term, position: Sequence[int]) -> tuple[int, ...]:
    """Return, for each axis of `x`, the length of the range that the program reads to compute one output position."""
    halo = variable_halos(program, Box(tuple(Run(p, 1) for p in position))).get(x)
    return tuple(run.last - run.start + 1 for run in halo.runs) if halo else (0,) * x.rank


def _padded(mutant: Term, x: Term, axis: int) -> Iterator[Term]:
    """Yield versions of the term `mutant` in which the input `x` is padded along the axis. Each version is cut to the mutant's
    shape.

    Versions with few added zeros come first.
    """
    for amount in range(1, MUTANT.max_inserted_zeros + 1):
        for before, after in ((0, amount), (amount, 0), (amount, amount)):
            around = {
                "before": tuple(before * (a == axis) for a in range(x.rank)),
                "after": tuple(after * (a == axis) for a in range(x.rank)),
            }
            padded = apply("pad", x, **around)
            for larger in itertools.islice(_on(mutant, x, padded), MUTANT.max_spacing_ways):
                yield from _cuts(larger, mutant.sizes)


def _cuts(term: Term, sizes: Sequence[int]) -> Iterator[Term]:
    """Yield the term itself if it has these sizes. Otherwise, yield every tensor of these sizes that is a slice of the term
    along a single axis.
    """
    differs = [a for a, (n, m) in enumerate(zip(term.sizes, sizes, strict=False)) if n != m]
    if term.sizes == tuple(sizes):
        yield term
    elif term.rank == len(sizes) and len(differs) == 1 and term.sizes[differs[0]] > sizes[differs[0]]:
        (axis,) = differs
        for start in range(term.sizes[axis] - sizes[axis] + 1):
            yield slice_box(term, Box(tuple(Run(start if a == axis else 0, n) for a, n in enumerate(sizes))))


def _on(mutant: Term, x: Term, padded: Term) -> Iterator[Term]:
    """Yield versions of the term `mutant` with the input `x` replaced by `padded`. In each version, some sizes in the
    attributes are adapted to the padding.

    A version whose attributes are all unchanged is skipped. A mutant that places elements side by side has at least one
    attribute that depends on the size of the padded axis.
    """
    order = [t for t in subterms(mutant) if not t.is_variable]

    def built(place: int, known: Mapping[Term, Term], *, chosen: bool) -> Iterator[Term]:
        if place == len(order):
            if chosen:
                yield known[mutant]
            return
        term = order[place]
        args = [known.get(a, a) for a in term.args]
        if all(a is b for a, b in zip(args, term.args, strict=True)):
            yield from built(place + 1, known, chosen=chosen)
            return
        for made, changed in _again(term, args):
            yield from built(place + 1, {**known, term: made}, chosen=chosen or changed)

    yield from built(0, {x: padded}, chosen=False)


def _again(term: Term, args: Sequence[Term]) -> Iterator[tuple[Term, bool]]:
    """Apply the root operator of the term to the operands `args`. Yield pairs of a result and a flag that says whether
    attributes were changed.

    The sizes of `args` differ from the sizes of the term's own operands. The attributes are the term's own attributes,
    unchanged or with one extent scaled in proportion to an operand's extent.
    """
    own = dict(term.attributes)
    grown = {
        (new, old)
        for arg, was in zip(args, term.args, strict=True)
        for new, old in zip(arg.sizes, was.sizes, strict=True)
        if new != old
    }
    for attributes in _in_proportion(own, grown):
        try:
            yield apply(term.op, *args, **attributes), attributes is not own
        except ShapeError:
            continue


def _in_proportion(own: Mapping[str, Attribute], grown: set[tuple[int, int]]) -> Iterator[Mapping[str, Attribute]]:
    yield own
    for name, value in own.items():
        if isinstance(value, tuple):
            for place, extent in enumerate(value):
                for new, old in sorted(grown):
                    if isinstance(extent, int) and extent > 0 and extent * new % old == 0:
                        yield {**own, name: (*value[:place], extent * new // old, *value[place + 1 :])}
