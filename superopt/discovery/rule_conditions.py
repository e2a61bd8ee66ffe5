"""The interface through which generalisation tests forms of a rule before the proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from superopt.algebra.terms import Extent
from superopt.notation.parsing import Equation
from superopt.rules.rule import Rule


class ConditionJudge(Protocol):
    """A judge that tests which forms of a rule may be true."""

    def plausible(self, equations: Sequence[Equation]) -> bool:
        """Return whether random tests find no difference between the sides of any of the equations."""

    def outcomes(self, equation: Equation) -> Sequence[tuple[Mapping[str, Extent], bool]]:
        """Return random values of the equation's attribute variables, each with whether the equation's sides agree."""

    def completed(self, rule: Rule) -> Rule | None:
        """Return the rule with all conditions that its right side needs, or None if no conditions suffice at all its ranks."""
