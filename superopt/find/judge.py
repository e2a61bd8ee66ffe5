"""What generalisation asks about forms of a rule; the proof comes later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from superopt.graph import Extent
from superopt.rule import Rule
from superopt.text import Equation


class Judge(Protocol):
    """What says which forms of a rule may be true."""

    def plausible(self, equations: Sequence[Equation]) -> bool:
        """Whether sampling finds no difference between the sides of any of them."""

    def outcomes(self, equation: Equation) -> Sequence[tuple[Mapping[str, Extent], bool]]:
        """Random values of the equation's attribute variables, and whether its sides agree there."""

    def completed(self, rule: Rule) -> Rule | None:
        """The rule with every condition that its right side needs; None if there are none that leave all its ranks."""
