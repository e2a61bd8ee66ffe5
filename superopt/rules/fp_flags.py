"""Floating-point flags: the assumptions and permissions that a rewrite over the real numbers needs in IEEE arithmetic.

Rules are proved over the real numbers. Each rule has a set of flags, as an LLVM instruction has fast-math flags. The rule holds
in floating-point arithmetic under the assumptions and permissions of its flags.
"""

from __future__ import annotations

from enum import StrEnum


class FpFlag(StrEnum):
    """A floating-point assumption, or a permission to change results. The first six flags have the names and meanings of LLVM's
    fast-math flags.
    """

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
"""All flags. They are assumed for a rewrite whose needed flags were not determined."""


class FpMode(StrEnum):
    """The floating-point mode of an optimization, which decides which rules may be applied."""

    PRECISE = "precise"
    """The mode admits rules that need no flag other than `nsz`."""
    RELAXED = "relaxed"
    """The mode also admits rules that need `reassoc`, `contract` or `arcp`. A rule that needs any other flag is admitted only
    where the possible values of the matched terms allow this flag.
    """
    FAST = "fast"
    """The mode admits every rule that holds over the real numbers."""
