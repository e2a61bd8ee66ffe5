"""Compute a part of a program's output with the program's own operators, from only the needed parts of the inputs.

A search finds attributes with which an operator computes a part of its result. Only attributes for which the result has the
shape of the part are tried. Attributes with few changed numbers are tried first. Attributes are accepted if the result equals
the part at sampled positions.

For example, pads become smaller, so that they cover only the padding inside the part. A stride becomes 1 if the inputs contain
only those positions that the original stride selects. A convolution on fewer channels gets fewer groups.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from superopt.algebra.operators import apply, operator, replace_subterms
from superopt.algebra.terms import Attribute, Term, variable
from superopt.errors import ShapeError, Undecidable
from superopt.partial.box import Box, Run, full_box
from superopt.partial.field import Array, PrimeFields, program_field_primes
from superopt.partial.points import Points
from superopt.partial.region import variable_halos
from superopt.policy import MUTANT

SEED = 0


def slice_box(term: Term, box: Box) -> Term:
    """Return the elements of the term at the positions of the box, taken by slices and strides."""
    for axis, run in zip(range(-term.rank, 0), box.runs, strict=True):
        term = _cut(term, axis, run)
    return term


def _cut(term: Term, axis: int, run: Run) -> Term:
    if (run.start, run.last + 1) != (0, term.sizes[axis]):
        term = apply("slice", term, axis=axis, start=run.start, stop=run.last + 1)
    return apply("stride", term, axis=axis, step=run.step) if run.step > 1 and run.count > 1 else term


def restrict_program(program: Term, box: Box) -> Term:
    """Return a term that equals the program in the box, and that reads only the needed parts of the program's variables.

    The term applies the program's own operators to these parts. With suitable attributes, an operator computes only the needed
    part of its result. If no such attributes are found, the operator computes a larger part, at worst its whole result, and the
    needed part is sliced out.
    """
    if program.is_variable:
        return slice_box(program, box)
    left: list[Run] = []
    for axis, run in zip(range(-program.rank, 0), box.runs, strict=True):
        program, run_left = _along(program, axis, run)
        left.append(run_left)
    return slice_box(program, Box(tuple(left)))


@functools.lru_cache(maxsize=1 << 12)
def _along(term: Term, axis: int, run: Run) -> tuple[Term, Run]:
    """Return a part of the term, and the positions of `run` within this part. Along the axis, the part contains all positions
    of `run`.

    A run is an arithmetic progression of positions. The term's own operator computes the part. If no suitable attributes are
    found, the part is the whole term.
    """
    extent = term.sizes[axis]
    for wider in () if run.count == extent else _enclosing(run, extent):
        found = _part(term, axis, wider)
        if found is not None:
            return found, Run((run.start - wider.start) // wider.step, run.count, run.step // wider.step)
    return term, run


def _enclosing(run: Run, extent: int) -> Iterator[Run]:
    """Yield `run`, then a few larger runs of consecutive positions that contain `run`, smallest first. The whole axis is never
    yielded.

    A run is an arithmetic progression of positions. A larger run starts at the start of `run`, at the start of the axis, or at
    a multiple of a divisor of the extent. The larger run stops at the stop of `run`, at the stop of the axis, or at a multiple
    of a divisor of the extent.
    """
    yield run
    start, stop = run.start, run.last + 1
    blocks = [n for n in range(2, extent // 2 + 1) if extent % n == 0]
    starts = sorted({start, 0, *(start // n * n for n in blocks)}, reverse=True)
    stops = sorted({stop, extent, *(-(-stop // n) * n for n in blocks)})
    dense = sorted((Run(a, b - a) for a in starts for b in stops), key=lambda wider: wider.count)
    yield from [wider for wider in dense if wider != run and wider.count < extent][: MUTANT.max_enclosing_runs]


def _part(term: Term, axis: int, run: Run) -> Term | None:
    """Return the part of the term at the positions of `run` along the axis. The term's operator computes this part from parts
    of the operands.

    Return None if the operator is not a polynomial, or if no suitable attributes are found.
    """
    box = full_box(term.sizes).along(axis + term.rank, run)
    operands = [variable(f"operand{place}", arg.shape, constant=arg.constant) for place, arg in enumerate(term.args)]
    alone = apply(term.op, *operands, **dict(term.attributes))
    halos = _needed(alone, operands, box)
    if halos is None:
        return None
    parts = {variable(f"part{place}", h.shape): (operands[place], h) for place, h in halos.items()}
    cuts = {part: slice_box(operand, halo) for part, (operand, halo) in parts.items()}
    positions = positions_of(box)
    points = Points(alone, PrimeFields(program_field_primes(1)), SEED)
    expected = points.values(slice_box(alone, box), positions)
    for candidate in _candidates(term, axis, list(parts), box, halos):
        if np.array_equal(points.values(replace_subterms(candidate, cuts), positions), expected):
            args = dict(zip(operands, term.args, strict=True))
            return replace_subterms(
                candidate, {part: restrict_program(args[operand], h) for part, (operand, h) in parts.items()}
            )
    return None


def _needed(alone: Term, operands: Sequence[Term], box: Box) -> dict[int, Box] | None:
    """Return a mapping from the indices of operands to boxes. The box of an operand contains the positions that the operator
    reads to compute the part `box` of its result. Operands that are not read are left out.

    The box of an operand spans a whole axis if `box` and the whole result need the same positions along this axis. Return None
    if the operator is not a polynomial.
    """
    try:
        part, most = variable_halos(alone, box), variable_halos(alone, full_box(alone.sizes))
    except Undecidable:
        return None
    found: dict[int, Box] = {}
    for place, operand in enumerate(operands):
        if operand in part:
            kept = [r != m for r, m in zip(part[operand].runs, most[operand].runs, strict=True)]
            sizes = zip(part[operand].runs, operand.sizes, kept, strict=True)
            found[place] = Box(tuple(run if smaller else Run(0, n) for run, n, smaller in sizes))
    return found


def positions_of(box: Box) -> Array:
    """Return the corners of the box and some random positions in the box, as an array of shape (count, rank). Along each axis,
    a position is given as the number of steps from the first position of the box.
    """
    corners = itertools.product(*((0, n - 1) if n > 1 else (0,) for n in box.shape))
    between = np.random.default_rng(SEED).integers(0, box.shape, (MUTANT.part_sample_count, box.rank))
    return np.concatenate([np.array(list(corners), dtype=np.int64), between])


def _candidates(term: Term, axis: int, operands: Sequence[Term], box: Box, halos: Mapping[int, Box]) -> Iterator[Term]:
    """Yield terms that may equal `term` in the box, best guesses first.

    `operands` are the needed parts of the term's operands. Every yielded term has the shape of the box. The caller must test
    whether a yielded term equals `term` in the box.
    """
    yield from (x for x in operands if x.shape == box.shape)
    if len(operands) < len(term.args):
        yield apply("zeros", shape=box.shape)
        return
    for attributes in itertools.islice(_attributes(term, axis, operands, box, halos), MUTANT.max_attribute_choices):
        made = _applied(term, operands, attributes)
        if made is not None and made.shape == box.shape:
            yield made


def _applied(term: Term, operands: Sequence[Term], attributes: Mapping[str, Attribute]) -> Term | None:
    try:
        return apply(term.op, *operands, **attributes)
    except ShapeError:
        return None


@dataclass(frozen=True)
class _Number:
    """A number among an operator's attributes.

    Attributes:
        name: the name of the attribute.
        place: the position of the number in the attribute, or None if the attribute is a single number.
        others: the values to try in place of the number when the operator computes only a part of its result.
    """

    name: str
    place: int | None
    others: tuple[int, ...]

    def changed(self, attributes: Mapping[str, Attribute], value: int) -> dict[str, Attribute]:
        """Return the attributes with this number replaced by `value`."""
        old = attributes[self.name]
        new = value if self.place is None else (*old[: self.place], value, *old[self.place + 1 :])  # type: ignore[index]
        return {**attributes, self.name: new}


def _attributes(
    term: Term, axis: int, operands: Sequence[Term], box: Box, halos: Mapping[int, Box]
) -> Iterator[dict[str, Attribute]]:
    """Yield attributes with which the term's operator may compute the part `box` of its result from parts of its operands.

    The term's own attributes come first, followed by versions in which one or more numbers are changed. A `shape` attribute is
    always set to the shape of `box`.
    """
    own = dict(term.attributes)
    if "shape" in own:
        own = {**own, "shape": box.shape}
    yield own
    numbers = list(_numbers(term, box, halos))
    plain = _applied(term, operands, own)
    if plain is not None:
        numbers = [_along_axis(number, term, axis, operands, own, plain) for number in numbers]
        numbers.sort(key=lambda number: 0 not in number.others)
    for count in range(1, MUTANT.max_changed_attributes + 1):
        for chosen in itertools.combinations(numbers, count):
            for values in itertools.product(*(number.others for number in chosen)):
                attributes = own
                for number, value in zip(chosen, values, strict=True):
                    attributes = number.changed(attributes, value)
                yield attributes


def _numbers(term: Term, box: Box, halos: Mapping[int, Box]) -> Iterator[_Number]:
    """Yield each number in the attributes of the term, with alternative values for computing only the part `box` of the result.

    To compute `box`, the operator needs only the part `halos[i]` of its operand i. The part `box` and the parts `halos[i]` have
    a first position, a step and an extent along each axis. The alternative values for a number n are integers below n, the
    extents of the parts, the products of n and a step, and the sums and differences of n and a first position.
    """
    parts = [(box, term), *((h, term.args[place]) for place, h in halos.items())]
    cut_runs = [r for b, t in parts for r, n in zip(b.runs, t.sizes, strict=True) if r.count < n]
    for parameter in operator(term.op).parameters:
        if parameter.kind not in ("extent", "extents") or parameter.name == "shape":
            continue
        value = term[parameter.name]
        several = isinstance(value, tuple)
        for place, number in enumerate(term.integers(parameter.name) if several else (term.integer(parameter.name),)):
            shifted = [number + sign * r.start for r in cut_runs for sign in (1, -1)]
            faster = [number * r.step for r in cut_runs]
            others = dict.fromkeys(
                [*range(min(number, MUTANT.max_tried_attribute) + 1), *faster, *(r.count for r in cut_runs), *shifted]
            )
            yield _Number(parameter.name, place if several else None, tuple(v for v in others if v != number))


def _along_axis(
    number: _Number, term: Term, axis: int, operands: Sequence[Term], own: Mapping[str, Attribute], plain: Term
) -> _Number:
    """Return `number` without unsuitable alternative values. An alternative value is suitable if the operator with this value
    is well typed, and if the value does not change the extents of the result along axes other than `axis`.
    """

    def sensible(value: int) -> bool:
        made = _applied(term, operands, number.changed(own, value))
        return made is not None and all(made.shape[a] == plain.shape[a] for a in range(-term.rank, 0) if a != axis)

    return replace(number, others=tuple(v for v in number.others if sensible(v)))
