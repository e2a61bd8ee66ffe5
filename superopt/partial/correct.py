"""Corrections, which turn a mutant into a term that equals the program everywhere.

A mutant is a term that equals the program only in some boxes of output positions. There are four kinds of correction. The first
kind inserts zeros between elements that the mutant places side by side. The second kind multiplies the mutant by a constant in
each box. The third kind recomputes boxes with the needed part of the program. The fourth kind combines the second and the third
kind. Before a correction is returned, `judge` checks that the corrected term equals the program everywhere. Corrections are
returned in the order of their costs. The caller gives the cost function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term, subterms
from superopt.errors import ShapeError, Undecidable
from superopt.partial.assemble import assemble_boxes, box_covers, is_box_within, piecewise_constant
from superopt.partial.box import Box, merge_boxes
from superopt.partial.judge import Judgement, judge, ratio
from superopt.partial.region import regions
from superopt.partial.restrict import restrict_program, slice_box
from superopt.partial.spaced import padded_mutants
from superopt.policy import COST, MUTANT
from superopt.rules.work import total_work


@dataclass(frozen=True)
class Corrected:
    """A corrected mutant: a term that equals the program everywhere.

    Attributes:
        term: The corrected term.
        kind: The kind of correction: "equal" (no correction is needed), "spaced" (zeros are inserted), "scaled" (boxes are
            multiplied by constants), "recomputed" (boxes are recomputed by the program's operators), or "scaled and
            recomputed".
        boxes: The boxes of output positions that are recomputed by the program's operators.
        judgement: The partition of the output into boxes where the corrected term equals the program and boxes where it
            differs. The `equal` boxes cover the whole output.
    """

    term: Term
    kind: str
    boxes: tuple[Box, ...]
    judgement: Judgement


@dataclass(frozen=True)
class _Draft:
    """A corrected version of a mutant. The version has not been compared with the program yet."""

    term: Term
    kind: str
    boxes: tuple[Box, ...] = ()


def estimate_correction_operations(term: Term) -> float:
    """Estimate the time to compute the term. The unit of the estimate is the time of one arithmetic operation.

    Each byte of memory traffic and each started operator counts as a fixed number of operations. The estimate is used to rank
    terms whose times are not measured.
    """
    counted = total_work([term])
    starts = sum(not t.is_variable and not t.constant for t in subterms(term))
    return counted.flops + COST.cpu_operations_per_byte * counted.bytes + COST.cpu_operations_per_launch * starts


def corrections(
    program: Term,
    mutant: Term,
    judgement: Judgement,
    *,
    cost: Callable[[Term], float] = estimate_correction_operations,
    seed: int = 0,
) -> Iterator[Corrected]:
    """Yield corrected versions of the term `mutant`, cheapest first. Each version equals the program at every output position.

    `judgement` says at which output positions the mutant equals the program. `cost` gives the cost of a term. If the mutant
    equals the program everywhere, only the mutant is yielded. If no correction is found, nothing is yielded.
    """
    drafts = {draft.term: draft for draft in _drafts(program, mutant, judgement, seed)}
    drafts.pop(program, None)
    for draft in sorted(drafts.values(), key=lambda d: cost(d.term)):
        try:
            found = judgement if draft.term is mutant else judge(program, draft.term, seed=seed)
        except Undecidable:
            continue
        if not found.unequal:
            yield Corrected(draft.term, draft.kind, draft.boxes, found)


def _drafts(program: Term, mutant: Term, judgement: Judgement, seed: int) -> Iterator[_Draft]:
    if not judgement.unequal:
        yield _Draft(mutant, "equal")
        return
    for term in padded_mutants(program, mutant, judgement, seed=seed):
        yield _Draft(term, "spaced")
    yield from _recomputed(program, mutant, judgement.unequal, "recomputed")
    scaled, left = _scaled(program, mutant, judgement.unequal, seed)
    if scaled is not mutant:
        yield from _recomputed(program, scaled, left, "scaled and recomputed") if left else [_Draft(scaled, "scaled")]


# ---------------------------------------------------------------- a number in each box


def _scaled(program: Term, mutant: Term, unequal: Sequence[Box], seed: int) -> tuple[Term, tuple[Box, ...]]:
    """Return the term `mutant` multiplied by a piecewise constant tensor, and the boxes in which the product still differs from
    the program.

    The mutant differs from the program in the boxes `unequal`. These boxes are divided into parts. In some parts, the program
    equals the mutant times a constant. In each of these parts, the factor is the constant. Elsewhere, the factor is 1.
    """
    factors: dict[Fraction, list[Box]] = {}
    left: list[Box] = []
    zero = judge(program, apply("zeros", shape=program.shape), seed=seed).equal
    parts = [p for region in regions([program, mutant]) for box in unequal if (p := region.intersect(box)) is not None]
    if len(parts) > MUTANT.max_factors:
        return mutant, tuple(unequal)
    for part in parts:
        nothing = any(is_box_within(part, box) for box in zero)
        factor = Fraction(0) if nothing else ratio(program, mutant, part, seed=seed)
        if factor is None:
            left.append(part)
        else:
            factors.setdefault(factor, []).append(part)
    if not factors:
        return mutant, tuple(unequal)
    labelled = [(box, factor) for factor, boxes in factors.items() for box in merge_boxes(boxes)]
    return apply("mul", mutant, piecewise_constant(program.sizes, labelled, Fraction(1))), merge_boxes(left)


# ---------------------------------------------------------------- recomputed boxes


def _recomputed(program: Term, mutant: Term, unequal: Sequence[Box], kind: str) -> Iterator[_Draft]:
    """Yield versions of the term `mutant` in which the wrong boxes `unequal` are recomputed by the program's operators.

    The versions differ in the recomputed boxes, which may be larger than the boxes `unequal`. In some versions, the remaining
    positions are sliced from the mutant. In other versions, the mutant's operators compute only the remaining positions. `kind`
    is the kind of correction.
    """
    for cover in box_covers(program.sizes, unequal):
        labelled = [(box, "anew") for box in cover]
        for kept in (slice_box, restrict_program):

            def make(box: Box, label: str, kept: Callable[[Term, Box], Term] = kept) -> Term:
                return restrict_program(program, box) if label == "anew" else kept(mutant, box)

            try:
                yield _Draft(assemble_boxes(program.sizes, labelled, "kept", make), kind, cover)
            except ShapeError:
                continue
