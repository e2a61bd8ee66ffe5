"""The figures of a spelling that was optimized and measured."""

from __future__ import annotations

from dataclasses import dataclass

from superopt.runtime.compare import Comparison

SHARE, MARGIN = 0.95, 1.03
"""The limits of `Figures.reached`: a share of the operator's speedup, and an operator's speedup that counts as no gain."""


@dataclass(frozen=True)
class Figures:
    """The figures of a spelling.

    Attributes:
        spelling: The name of the spelling.
        opset: The opset of the spelling.
        nodes: The number of nodes of the spelling, without constants.
        nodes_after: The number of nodes of superopt's result, without constants.
        operators: The operators of the result. An operator with several nodes has their number before its name.
        operator: The timing of the operator against the spelling.
        result: The timing of superopt's result against the spelling, or None if no faster model was found.
        reason: The reason for superopt's verdict.
    """

    spelling: str
    opset: int
    nodes: int
    nodes_after: int
    operators: list[str]
    operator: Comparison
    result: Comparison | None
    reason: str

    @property
    def speedup(self) -> float:
        """The speedup of superopt's result over the spelling."""
        return self.result.ratio if self.result is not None else 1.0

    @property
    def reached(self) -> bool:
        """Whether the result is about as fast as the operator, or the operator is hardly faster than the spelling."""
        return self.operator.ratio <= MARGIN or self.speedup >= SHARE * self.operator.ratio

    def __str__(self) -> str:
        ratios = f"operator {self.operator.ratio:.2f}, superopt {self.speedup:.2f}{'' if self.reached else ', not reached'}"
        return f"{self.spelling}: {self.nodes} to {self.nodes_after} nodes, {ratios} ({', '.join(self.operators)})"
