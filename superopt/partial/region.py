"""Regions: boxes of output positions in which a program reads its variables uniformly.

In a region, the positions of all reads are affine functions of the output position.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

from superopt.algebra.terms import Term
from superopt.errors import Undecidable
from superopt.partial.box import Box, Run, full_box
from superopt.partial.indices import Cut, hull
from superopt.partial.reading import Demand, expand_program_composites, read_demands
from superopt.policy import MUTANT

__all__ = ["Box", "Run", "cached_split", "regions", "split_uniformly", "variable_halos"]


def regions(programs: Sequence[Term], *, most: int = MUTANT.max_regions) -> list[Box]:
    """Return a partition of the output positions into boxes in which every program reads its variables uniformly.

    The definitions of a program's operators contain conditions and sums. Within one of the returned boxes, every condition has
    one outcome for each choice of summation indices, and the position of each read is an affine function of the output
    position. The linear part of this function does not depend on the summation indices.

    Raises:
        Undecidable: There are more than `most` boxes, or a program is not a polynomial in its variables.
    """
    boxes = [full_box(programs[0].sizes)]
    for program in programs:
        boxes = [part for box in boxes for part, _ in split_uniformly(program, box, most=most)]
        if len(boxes) > most:
            raise Undecidable(f"the output has more than {most} regions")
    return sorted(boxes)


def split_uniformly(
    program: Term, box: Box, *, most: int = MUTANT.max_regions
) -> tuple[tuple[Box, Mapping[Term, Demand]], ...]:
    """Split the box into parts in which the program reads uniformly, and return pairs (part, reads).

    In each part, the positions of all reads are affine functions of the output position (see `regions`). The reads are a
    mapping from each term to the positions at which the term is read (see `superopt.partial.reading.read_demands`). Composite
    operators of the program are expanded first.

    Raises:
        Undecidable: There are more than `most` parts, or the program is not a polynomial in its variables.
    """
    root = expand_program_composites(program)
    found: list[tuple[Box, Mapping[Term, Demand]]] = []
    left = [box]
    while left:
        part = left.pop()
        try:
            found.append((part, read_demands(root, part)))
        except Cut as cut:
            left.extend(cut.pieces)
        if len(found) + len(left) > most:
            raise Undecidable(f"the output has more than {most} regions")
    return tuple(found)


@functools.lru_cache(maxsize=128)
def cached_split(program: Term, box: Box) -> tuple[tuple[Box, Mapping[Term, Demand]], ...]:
    """Return the result of `split_uniformly`: the parts of the box in which the program reads uniformly. Results are cached."""
    return split_uniformly(program, box)


def variable_halos(program: Term, box: Box, terms: Collection[Term] | None = None) -> Mapping[Term, Box]:
    """Return a mapping from each variable, or from each term in `terms`, to its halo.

    `box` is a box of output positions. The halo is a box that contains the positions of all needed elements. The program reads
    these elements to compute the output at the positions of `box`. Variables that are not read are left out. Elements that
    conditions exclude are not read. The halo is determined separately along each axis. If the positions along two axes depend
    on each other, as on a diagonal, the halo can contain positions that are not read.

    Raises:
        Undecidable: The program is not a polynomial in its variables, or has too many regions in the box.
    """
    known = {expand_program_composites(term): term for term in terms} if terms is not None else None
    halo: dict[Term, Box] = {}
    for part, demand in cached_split(program, box):
        for term, ways in demand.items():
            if not (term.is_variable if known is None else term in known):
                continue
            place = term if known is None else known[term]
            for linear, offsets in ways.items():
                held = Box(tuple(hull(row, numbers, part) for row, numbers in zip(linear, offsets, strict=True)))
                halo[place] = halo[place].hull(held) if place in halo else held
    return halo
