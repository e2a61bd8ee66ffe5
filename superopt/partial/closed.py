"""Evaluate reciprocals of terms without variables, with one number for each box of positions.

A mutant is a term that equals a program at some positions. A mutant can be corrected by a factor. The factor is the program's
value for inputs of ones, divided by the mutant's value for inputs of ones. At numeric sizes, this factor is a constant tensor
whose elements change only near the borders. The factor is written as a constant tensor, so the corrected mutant is still a
polynomial in its variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from superopt.algebra.operators import apply, replace_subterms
from superopt.algebra.terms import Term, subterms
from superopt.errors import Undecidable
from superopt.partial.assemble import piecewise_constant
from superopt.partial.box import Box, merge_boxes
from superopt.partial.judge import ratio
from superopt.partial.region import regions

RECIPROCAL = "reciprocal"


def fold_reciprocals(term: Term) -> Term:
    """Return the term with each reciprocal of a variable-free term replaced by an equal constant tensor.

    The constant tensor is built from one number for each box of positions.

    Raises:
        Undecidable: A reciprocal divides by zero or is not constant in a region. In a region (a box of output positions), the
            positions of all reads are affine functions of the output position.
    """
    found = {t: _constant(t) for t in subterms(term) if t.op == RECIPROCAL and not any(s.is_variable for s in subterms(t))}
    return replace_subterms(term, found) if found else term


def _constant(quotient: Term) -> Term:
    """Return the value of `quotient`, the reciprocal of a variable-free term, as a constant tensor with one number per box of
    positions.
    """
    below = quotient.args[0]
    ones = apply("ones", shape=below.shape)
    boxes: dict[Fraction, list[Box]] = {}
    for region in regions([below]):
        number = ratio(ones, below, region)
        if number is None:
            raise Undecidable(f"1 / {below.op} is not a small fraction, or has different values at positions of {region}")
        boxes.setdefault(number, []).append(region)
    return piecewise_constant(quotient.sizes, [(b, n) for n, held in boxes.items() for b in merge_boxes(held)], Fraction(1))


def rescale_mutant(program: Term, mutant: Term) -> Iterator[Term]:
    """Yield two versions of the term `mutant`, each multiplied by a correction factor.

    For inputs whose elements are all 1, let m be the value of the mutant, and p the value of the program. The first
    version is the mutant multiplied by 1 / m. The second version is the mutant multiplied by p / m.

    The mutant equals the program at some positions. A version can equal the program everywhere. If p is 1 at every position,
    the two versions are equal.
    """
    factor = apply(RECIPROCAL, _of_ones(mutant))
    yield apply("mul", mutant, factor)
    yield apply("mul", mutant, _of_ones(program), factor)


def _of_ones(term: Term) -> Term:
    """Return the term with ones in place of its variables."""
    return replace_subterms(term, {t: apply("ones", shape=t.shape) for t in subterms(term) if t.is_variable})
