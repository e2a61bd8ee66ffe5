"""Trials of rules that were derived from mutants, which are terms that equal a program at some output positions.

A trial applies a rule to a program at given sizes, and tests at which output positions the result equals the program.
"""

from __future__ import annotations

from dataclasses import dataclass

from superopt.algebra.terms import Term, subterms
from superopt.errors import ShapeError, Undecidable
from superopt.partial.closed import fold_reciprocals
from superopt.partial.judge import Judgement, judge
from superopt.partial.sizes import FamilyDraw, ProgramFamily
from superopt.rules.match import Pattern


@dataclass(frozen=True)
class Trial:
    """The result of testing a rule at one choice of sizes. `draw` is this choice. `judgement` is None if the rule cannot be
    applied or judged at these sizes.
    """

    draw: FamilyDraw
    judgement: Judgement | None

    @property
    def holds(self) -> bool:
        """Whether the rule's result equals the program at every output position."""
        return self.judgement is not None and not self.judgement.unequal


def instance(pattern: Pattern, program: Term) -> Term | None:
    """Apply the pattern to the program, and return the new term. In the new term, constants replace reciprocals of
    variable-free terms.

    Return None if the pattern does not match, or if a tensor in the result would be empty.

    Raises:
        Undecidable: A reciprocal divides by zero or is not constant in a region. In a region (a box of output positions), the
            positions of all reads are affine functions of the output position.
    """
    found = next(pattern.matches(program, lambda _: ()), None)
    if found is None or any(n == 0 for t in subterms(*found.replacements) for n in t.shape):
        return None
    return fold_reciprocals(found.replacements[0])


def judge_draw(family: ProgramFamily, term: Term, draw: FamilyDraw) -> Trial:
    """Test the rule that replaces the family's program by the term, at the sizes `draw`."""
    try:
        found = instance(Pattern((family.program,), (term,), where=True), draw.program)
        return Trial(draw, None if found is None else judge(draw.program, found))
    except (Undecidable, ShapeError, ZeroDivisionError):
        return Trial(draw, None)
