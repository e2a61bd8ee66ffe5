"""What a partial rule makes of a program at given sizes, and whether that equals it."""

from __future__ import annotations

from dataclasses import dataclass

from superopt.errors import ShapeError, Undecidable
from superopt.graph import Term, subterms
from superopt.match import Pattern
from superopt.partial.closed import settled
from superopt.partial.judge import Judgement, judge
from superopt.partial.sizes import Draw, Family


@dataclass(frozen=True)
class Trial:
    """What came of a rule at a draw: the judgement of its instance, or None where it has none."""

    draw: Draw
    judgement: Judgement | None

    @property
    def holds(self) -> bool:
        """Whether the instance equals the program everywhere."""
        return self.judgement is not None and not self.judgement.unequal


def instance(pattern: Pattern, program: Term) -> Term | None:
    """What the pattern makes of the program, with its constants settled; None where it does not match, or something in it would
    be empty.

    Raises:
        Undecidable: a constant is no number in each region.
    """
    found = next(pattern.matches(program, lambda _: ()), None)
    if found is None or any(n == 0 for t in subterms(*found.replacements) for n in t.shape):
        return None
    return settled(found.replacements[0])


def tried(family: Family, term: Term, draw: Draw) -> Trial:
    """The term judged at the draw."""
    try:
        found = instance(Pattern((family.program,), (term,), where=True), draw.program)
        return Trial(draw, None if found is None else judge(draw.program, found))
    except (Undecidable, ShapeError, ZeroDivisionError):
        return Trial(draw, None)
