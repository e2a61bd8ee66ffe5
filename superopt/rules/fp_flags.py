"""Floating-point flags: the freedoms that a rewrite over the real numbers takes in IEEE arithmetic.

Rules are proved over the real numbers. Each rule carries the flags that it needs in order to hold in floating point too, as an
LLVM instruction carries its fast-math flags.
"""

from __future__ import annotations

from enum import StrEnum


class FpFlag(StrEnum):
    """A freedom of floating-point arithmetic. The first six have the names and meanings of LLVM's fast-math flags."""

    REASSOC = "reassoc"
    """Operands of sums and products may be regrouped."""
    CONTRACT = "contract"
    """A product and a sum may be rounded once instead of twice, or twice instead of once."""
    ARCP = "arcp"
    """A division may become a multiplication by the reciprocal."""
    NSZ = "nsz"
    """The sign of a zero may change."""
    NNAN = "nnan"
    """Operands and results are assumed not to be NaN."""
    NINF = "ninf"
    """Operands and results are assumed not to be infinite."""
    RANGE = "range"
    """An intermediate result of the right side may overflow or underflow where the left side does not."""
    CANCEL = "cancel"
    """One side may lose significant digits, or round on purpose, where the other side does not."""


ALL_FLAGS = frozenset(FpFlag)
"""All flags, for a rewrite whose needed flags are not known."""


class FpMode(StrEnum):
    """The freedom that an optimization takes with floating-point arithmetic."""

    PRECISE = "precise"
    """The mode admits rules that need no flag other than `nsz`."""
    RELAXED = "relaxed"
    """The mode admits rules that need `reassoc`, `contract` or `arcp`. Other flags must be allowed by the values at a match."""
    FAST = "fast"
    """The mode admits every rule that holds over the real numbers."""
