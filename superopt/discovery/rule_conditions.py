"""The interface through which generalisation tests forms of a rule before the proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from superopt.algebra.terms import Extent
from superopt.notation.parsing import Equation
from superopt.rules.rule import Rule


class ConditionJudge(Protocol):
    """Random tests of equations, by which generalisation chooses between forms of a rule."""

    def plausible(self, equations: Sequence[Equation]) -> bool:
        """Return whether each equation passes random tests."""

    def outcomes(self, equation: Equation) -> Sequence[tuple[Mapping[str, Extent], bool]]:
        """Return pairs of a random choice of the equation's attribute values, and whether the sides agree for this choice."""

    def completed(self, rule: Rule) -> Rule | None:
        """Return the rule with all conditions under which its right side is well typed.

        Returns None if no conditions suffice at all ranks of the rule.
        """
