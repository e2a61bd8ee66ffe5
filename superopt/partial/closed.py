"""Evaluation of reciprocals of terms without variables, as one number per box.

A correction by a factor is the program on ones divided by the mutant on ones. At given sizes this factor is a constant that
changes only at borders. It is written as a constant, so that it is a coefficient of a polynomial and not a function of data.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from superopt.algebra.operators import apply, rebuild
from superopt.algebra.terms import Term, subterms
from superopt.errors import Undecidable
from superopt.partial.assemble import piecewise
from superopt.partial.box import Box, merged
from superopt.partial.judge import ratio
from superopt.partial.region import regions

RECIPROCAL = "reciprocal"


def settled(term: Term) -> Term:
    """Return the term with reciprocals of variable-free terms replaced by constants, expanded from as few numbers as possible.

    Raises:
        Undecidable: A reciprocal is not constant in each region, or divides by zero.
    """
    found = {t: _constant(t) for t in subterms(term) if t.op == RECIPROCAL and not any(s.is_variable for s in subterms(t))}
    return rebuild(term, found) if found else term


def _constant(quotient: Term) -> Term:
    """Return the reciprocal as a piecewise constant."""
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
    """Yield the mutant times its correcting factor, the program on ones divided by the mutant on ones.

    The first version takes the program on ones as 1 everywhere.
    """
    factor = apply(RECIPROCAL, _of_ones(mutant))
    yield apply("mul", mutant, factor)
    yield apply("mul", mutant, _of_ones(program), factor)


def _of_ones(term: Term) -> Term:
    """Return the term with ones in place of its variables."""
    return rebuild(term, {t: apply("ones", shape=t.shape) for t in subterms(term) if t.is_variable})
