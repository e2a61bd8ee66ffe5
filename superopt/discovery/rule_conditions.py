"""The interface through which generalisation tests different forms of a rule before a proof is attempted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from superopt.algebra.terms import Extent
from superopt.notation.parsing import Equation
from superopt.rules.rule import Rule


class ConditionJudge(Protocol):
    """Random tests of equations. Generalisation uses these tests to choose between forms of a rule."""

    def plausible(self, equations: Sequence[Equation]) -> bool:
        """Return whether each equation passes random tests."""

    def outcomes(self, equation: Equation) -> Sequence[tuple[Mapping[str, Extent], bool]]:
        """Test the equation at random values of its attribute variables. Return pairs (values, whether the sides agree)."""

    def completed(self, rule: Rule) -> Rule | None:
        """Return the rule with further conditions. Under these conditions, the right side of the rule is well typed.

        Returns None if no conditions suffice at all ranks of the rule.
        """
