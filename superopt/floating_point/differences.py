"""Find the floating-point flags that allow the differences between a rule's sides in IEEE arithmetic.

Over the real numbers, the sides of a rule are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from superopt.floating_point.elements import ElementPair
from superopt.floating_point.environments import Environments
from superopt.floating_point.floats import EVERY, FLOAT32, SPARE, WIDE, Array, Contraction, Mask, run_program, scales
from superopt.policy import FLOATING_POINT
from superopt.rules.fp_flags import FpFlag

ORDINARY = 64.0
"""A typical magnitude of results that are computed from `DYADIC` numbers: small numbers whose sums and products are exact. If
an input of a row is infinite, all finite inputs of the row are `DYADIC` numbers.
"""
ROUNDINGS = frozenset({FpFlag.REASSOC, FpFlag.CONTRACT, FpFlag.ARCP})
FREEDOMS = ROUNDINGS | {FpFlag.RANGE, FpFlag.CANCEL}
"""Floating-point flags that allow finite results to differ. If a rule has such a flag, its sides may also differ where the left
side overflows.
"""


@dataclass(frozen=True, eq=False)
class Differences:
    """The rows of inputs at which the sides of a rule differ. A row has one value for each input.

    Attributes:
        needs: For each floating-point flag, a mask of the rows that need the flag.
        overflow: A mask of the rows at which the left side overflows and the right side differs.
        overflow_flag: The flag that the rows in `overflow` need if the rule has no flag of `FREEDOMS` (flags that allow finite
            results to differ).
    """

    needs: Mapping[FpFlag, Mask]
    overflow: Mask
    overflow_flag: FpFlag = FpFlag.NINF


def flag_differences(pair: ElementPair, environments: Environments) -> Differences:
    """Return, for each floating-point flag, a mask of the rows of inputs at which the rule needs the flag.

    A row has one value for each input. Both sides are evaluated in float32. The rule needs a flag at a row if the values of the
    sides differ, and the flag allows the difference.
    """
    numbers = pair.numbers
    values = environments.values
    steps = FLOATING_POINT.rounding_step_factor * len(numbers) + 16
    narrow = run_program(pair.program, numbers, values, FLOAT32)
    wide = run_program(pair.program, numbers, values, WIDE)
    spare = run_program(pair.program, pair.program.under([pair.right]), values, SPARE)
    scale = scales(pair.program, numbers, wide, FLOAT32, steps)
    rows = environments.rows

    def row(known: Mapping[int, Array], number: int) -> Array:
        return np.broadcast_to(known[number], rows)

    left, right, apart = row(narrow, pair.left), row(narrow, pair.right), row(spare, pair.right)
    left_wide, right_wide = row(wide, pair.left), row(wide, pair.right)
    sizes = [np.nan_to_num(row(scale, n), nan=np.inf, posinf=np.inf) for n in (pair.left, pair.right)]
    nan, infinite = _read(pair, environments)
    given = ~nan & ~infinite
    slack = steps * FLOAT32.tiny
    with np.errstate(all="ignore"):
        tolerance = steps * FLOAT32.epsilon * np.minimum(*sizes) + slack
        differ = (left != right) & ~(np.isnan(left) & np.isnan(right))
        signs = (left == 0) & (right == 0) & (np.signbit(left) != np.signbit(right))
        finite = given & np.isfinite(left)
        clean = np.abs(left - left_wide) <= steps * FLOAT32.epsilon * sizes[0] + slack
        both = np.isfinite(left_wide) & np.isfinite(right_wide)
        cancel = finite & clean & both & (np.abs(left_wide - right_wide) > tolerance)
        out_of_range = finite & clean & ~cancel & ~(np.abs(apart - left) <= tolerance)
        rounding = finite & differ & ~cancel & ~out_of_range
        close = np.abs(left - right) <= steps * FLOAT32.epsilon * np.maximum(np.abs(left), ORDINARY)
        special = (nan | infinite) & differ & ~close
        singular = given & ~np.isfinite(left) & differ & ~np.isfinite(left_wide)
        overflow = given & ~np.isfinite(left) & differ & np.isfinite(left_wide)
    lost = np.isnan(left)
    needs = {
        FpFlag.NSZ: signs,
        FpFlag.NNAN: (special & (nan | lost)) | (singular & lost),
        FpFlag.NINF: (special & ~nan & ~lost) | (singular & ~lost),
        FpFlag.RANGE: out_of_range,
        FpFlag.CANCEL: cancel,
        **_roundings(pair, environments, rounding),
    }
    return Differences(needs, overflow, FpFlag.NNAN if (overflow & lost).any() else FpFlag.NINF)


def _read(pair: ElementPair, environments: Environments) -> tuple[Mask, Mask]:
    """Return two masks.

    The first mask selects the rows in which an input is NaN, and the second mask selects the rows in which an input is
    infinite.
    """
    nan = np.zeros(environments.rows, dtype=bool)
    infinite = np.zeros(environments.rows, dtype=bool)
    for one in pair.inputs:
        nan |= np.isnan(environments.values[one])
        infinite |= np.isinf(environments.values[one])
    return nan, infinite


def _roundings(pair: ElementPair, environments: Environments, rounding: Mask) -> dict[FpFlag, Mask]:
    """Return masks of the input rows that need the flags `reassoc`, `contract` and `arcp`, as a mapping from flags to masks.

    `rounding` is the mask of the rows at which the sides differ by rounding. If the sides agree when every product is rounded,
    the row needs the flag `contract` alone. If the sides agree when every quotient is computed with a reciprocal, the row needs
    the flag `arcp` alone. If the sides agree only when both changes are made, the row needs both flags. If the sides differ
    even after both changes, operands are regrouped, and the row needs `reassoc`. A row that needs `reassoc` also needs
    `contract` if one side adds a product by a fused multiply-add and the other side rounds the product. A row that needs
    `reassoc` also needs `arcp` if the sides compute different quotients.
    """
    if not rounding.any():
        return {}
    rows = np.flatnonzero(rounding)
    some = {one: environments.values[one][rows] for one in pair.inputs}
    nowhere = np.zeros(environments.rows, dtype=bool)

    def differs(how: Contraction) -> Mask:
        known = run_program(pair.program, pair.numbers, some, FLOAT32, how)
        left, right = (np.broadcast_to(known[n], len(rows)) for n in (pair.left, pair.right))
        found = nowhere.copy()
        found[rows] = (left != right) & ~(np.isnan(left) & np.isnan(right))
        return found

    contracted, divided = _contracted(pair), _divided(pair)
    alone = rounding & ~differs(Contraction(rounded_products=True)) if contracted else nowhere
    dividing = rounding & ~alone & ~differs(Contraction(by_reciprocals=True)) if divided else nowhere
    both = rounding & ~alone & ~dividing & ~differs(EVERY) if contracted and divided else nowhere
    regrouped = rounding & ~alone & ~dividing & ~both
    found = {FpFlag.REASSOC: regrouped}
    if contracted:
        found[FpFlag.CONTRACT] = alone | both | regrouped
    if divided:
        found[FpFlag.ARCP] = dividing | both | regrouped
    return found


def _contracted(pair: ElementPair) -> bool:
    """Return whether one side rounds a product before an addition, and the other side computes a fused multiply-add."""
    sides = [pair.program.operations(root) for root in (pair.left, pair.right)]
    rounded = [{i.operands for i in side if i.op == "mul"} for side in sides]
    fused = [{i.operands[:2] for i in side if i.op == "fma"} for side in sides]
    return bool(rounded[0] & (fused[1] - fused[0]) or rounded[1] & (fused[0] - fused[1]))


def _divided(pair: ElementPair) -> bool:
    """Return whether one side computes a quotient that the other side does not compute."""
    sides = [pair.program.operations(root) for root in (pair.left, pair.right)]
    quotients = [{i for i in side if i.op == "div"} for side in sides]
    return quotients[0] != quotients[1]


def needs(pair: ElementPair, environments: Environments, flag: FpFlag) -> Mask:
    """Return a mask of the input rows that need the flag.

    A row has one value for each input. At some rows, the left side overflows and the right side differs. These rows are
    included if the difference needs the flag.
    """
    differ = flag_differences(pair, environments)
    found = differ.needs.get(flag, np.zeros(environments.rows, dtype=bool))
    return found | differ.overflow if flag == differ.overflow_flag else found
