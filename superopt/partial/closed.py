"""Reciprocals of terms that no variable is in, as what they are: one number in each box.

A correction by a factor is the program of ones over the mutant of ones. At given sizes that is a constant, which only changes
at borders, and is written as one, so that it is a polynomial's coefficient and no function of data.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from superopt.errors import Undecidable
from superopt.graph import Term, subterms
from superopt.op import apply, rebuild
from superopt.partial.assemble import piecewise
from superopt.partial.box import Box, merged
from superopt.partial.judge import ratio
from superopt.partial.region import regions

RECIPROCAL = "reciprocal"


def settled(term: Term) -> Term:
    """The term with the reciprocals of what no variable is in as constants, expanded from as few numbers as there are.

    Raises:
        Undecidable: one of them is not one number in each region, or divides by zero.
    """
    found = {t: _constant(t) for t in subterms(term) if t.op == RECIPROCAL and not any(s.is_variable for s in subterms(t))}
    return rebuild(term, found) if found else term


def _constant(quotient: Term) -> Term:
    """The reciprocal, piece by piece."""
    below = quotient.args[0]
    ones = apply("ones", shape=below.shape)
    boxes: dict[Fraction, list[Box]] = {}
    for region in regions([below]):
        number = ratio(ones, below, region)
        if number is None:
            raise Undecidable(f"the reciprocal is no number of small terms at {region}")
        boxes.setdefault(number, []).append(region)
    return piecewise(quotient.sizes, [(b, n) for n, held in boxes.items() for b in merged(held)], Fraction(1))


def scaled(program: Term, mutant: Term) -> Iterator[Term]:
    """The mutant times what corrects it wherever a factor does: the program of ones over the mutant of ones, first as if the
    former were one everywhere.
    """
    factor = apply(RECIPROCAL, _of_ones(mutant))
    yield apply("mul", mutant, factor)
    yield apply("mul", mutant, _of_ones(program), factor)


def _of_ones(term: Term) -> Term:
    """The term with ones in place of its variables."""
    return rebuild(term, {t: apply("ones", shape=t.shape) for t in subterms(term) if t.is_variable})
