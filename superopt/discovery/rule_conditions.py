"""The questions that generalisation asks about forms of a rule. The proof comes later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from superopt.algebra.terms import Extent
from superopt.notation.parsing import Equation
from superopt.rules.rule import Rule


class ConditionJudge(Protocol):
    """A judge of which forms of a rule may be true."""

    def plausible(self, equations: Sequence[Equation]) -> bool:
        """Return whether sampling finds no difference between the sides of any of the equations."""

    def outcomes(self, equation: Equation) -> Sequence[tuple[Mapping[str, Extent], bool]]:
        """Return random values of the equation's attribute variables, and whether the equation's sides agree there."""

    def completed(self, rule: Rule) -> Rule | None:
        """Return the rule with every condition that its right side needs, or None if no conditions keep all its ranks."""
