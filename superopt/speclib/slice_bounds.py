"""Conversion of an ONNX Slice's bounds to positions, and a check for an end that ONNX Runtime interprets differently."""

from __future__ import annotations

from superopt.algebra.integers import indicator
from superopt.algebra.terms import Extent, at_least
from superopt.errors import ShapeError

UNBOUNDED = 2**31 - 1
"""INT_MAX of 32 bits. A Slice bound of at least this value means the end of an axis of any size."""


def require_end(bound: Extent, step: int) -> None:
    """Check that the ONNX standard and ONNX Runtime agree about the end of a slice.

    Raises:
        ShapeError: The end is INT_MAX, and the step is negative. ONNX Runtime then slices down to the start of the axis.
    """
    if step < 0 and isinstance(bound, int) and bound >= UNBOUNDED:
        raise ShapeError("ONNX Runtime does not take INT_MAX for the end of an axis if the step is negative")


def slice_bound(bound: Extent, extent: Extent, step: int) -> Extent:
    """Return the position of a Slice's bound, counted from the start of an axis with the given extent.

    A negative bound counts from the end. As the ONNX standard says, INT_MAX is the end of an axis of any size, and INT_MIN is
    before the start of the axis.
    """
    if isinstance(bound, int) and abs(bound) >= UNBOUNDED:
        return extent if bound > 0 else 0 if step > 0 else -1
    return bound + extent * indicator(at_least(-1, bound))
