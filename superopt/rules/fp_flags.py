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
    """An intermediate of the right side may overflow or underflow where the left side does not."""
    CANCEL = "cancel"
    """One side may lose significant digits, or round on purpose, where the other does not."""


ALL_FLAGS = frozenset(FpFlag)
"""The flags of a rewrite about which nothing is known."""


class FpMode(StrEnum):
    """The freedom that an optimization takes with floating-point arithmetic."""

    PRECISE = "precise"
    """Rules that need no flag but `nsz`."""
    RELAXED = "relaxed"
    """Rules that need `reassoc`, `contract` or `arcp` everywhere; rules that need other flags where the values allow them."""
    FAST = "fast"
    """Every rule that holds over the real numbers."""
