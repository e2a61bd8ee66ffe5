"""The fp flags that a rule needs, found by evaluating both sides in IEEE arithmetic.

A rule holds over the reals. Both sides of the rule are compiled to scalar code at a few small sizes, one output element at a
time, and evaluated in float32 on special values (`environments`). A row is one value for each input. Each row at which the
sides differ needs a flag (`flag_differences`). If no needed flag allows finite results to differ, all inputs of a small format
are tried as well (`small`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.floating_point.differences import FREEDOMS, flag_differences, needs
from superopt.floating_point.elements import ElementPair, RuleCase, elements_of, generator_for
from superopt.floating_point.environments import Environments, Input, draw, environments_of, special_value_rows
from superopt.floating_point.floats import Mask
from superopt.floating_point.small import Basis, basis, weakest_basis
from superopt.policy import FLOATING_POINT
from superopt.rules.fp_flags import ALL_FLAGS, FpFlag
from superopt.rules.rule import Rule


@dataclass(frozen=True)
class Witness:
    """Inputs at which a rule needs a flag: sizes, an output, a position in the output, and the values read for this element."""

    flag: FpFlag
    case: RuleCase
    output: int
    element: tuple[int, ...]
    values: Mapping[Input, float]


@dataclass(frozen=True)
class RuleFlags:
    """The flags that a rule needs, and a witness of each flag.

    Attributes:
        elements: The number of output elements that were tried.
        identical: The number of these elements whose code is the same on both sides.
        evaluations: The total number of rows of inputs.
    """

    flags: frozenset[FpFlag]
    witnesses: tuple[Witness, ...]
    basis: Basis
    elements: int
    identical: int
    evaluations: int

    @property
    def names(self) -> tuple[str, ...]:
        """The flags in the form that a ledger stores."""
        return tuple(flag for flag in FpFlag if flag in self.flags)


def flags_of(rule: Rule, seed: int = 0) -> RuleFlags:
    """Return the fp flags of a rule, each with a witness. If no element can be tried, return all flags without witnesses.

    Each turn draws new sizes and rows. The search ends after `FLOATING_POINT.quiet_turn_count` successive turns without a new
    flag.
    """
    rng = generator_for(rule, seed)
    found: dict[FpFlag, Witness] = {}
    overflow: dict[FpFlag, Witness] = {}
    tried: dict[tuple[object, ...], ElementPair] = {}
    evaluations = quiet = turn = 0
    while quiet < FLOATING_POINT.quiet_turn_count and turn < FLOATING_POINT.max_turns:
        known = len(found)
        new = list(
            elements_of(rule, rng, instances=FLOATING_POINT.later_instance_count if turn else FLOATING_POINT.max_rule_instances)
        )
        tried.update((pair.form, pair) for _, pair in new)
        different = [(case, pair) for case, pair in new if not pair.identical]
        for case, pair in different:
            environments = draw_for(
                pair, max(FLOATING_POINT.rows_per_element_count, FLOATING_POINT.min_rows // len(different)), rng
            )
            if not turn:
                environments = environments.beside(special_value_rows(pair.inputs, pair.conditions, environments.rows))
            evaluations += environments.rows
            differ = flag_differences(pair, environments)
            for flag, mask in differ.needs.items():
                if flag not in found and mask.any():
                    found[flag] = _witness(flag, case, pair, environments, mask)
            if not overflow and differ.overflow.any():
                flag = differ.overflow_flag
                overflow[flag] = _witness(flag, case, pair, environments, differ.overflow)
        quiet = quiet + 1 if len(found) == known else 0
        turn += 1
        if not different:
            break
    if not FREEDOMS & found.keys():
        found = {**overflow, **found}
    flags = frozenset(found) if tried else ALL_FLAGS
    witnesses = tuple(found[f] for f in FpFlag if f in found)
    rests = weakest_basis([basis(pair, flags) for pair in tried.values()])
    return RuleFlags(flags, witnesses, rests, len(tried), sum(pair.identical for pair in tried.values()), evaluations)


def missing_flags(rule: Rule, seed: int, evaluations: int) -> tuple[int, list[Witness]]:
    """Return the number of rows evaluated, and witnesses of flags that the rule needs but does not have.

    At least `evaluations` rows are evaluated. If both sides have the same code, they cannot differ, and no row is evaluated.
    """
    rng = generator_for(rule, seed)
    different = [(case, pair) for case, pair in elements_of(rule, rng) if not pair.identical]
    found: dict[FpFlag, Witness] = {}
    rows = 0
    for case, pair in different:
        environments = draw_for(pair, -(-evaluations // len(different)), rng, least=evaluations // len(different) + 1)
        rows += environments.rows
        differ = flag_differences(pair, environments)
        for flag, mask in differ.needs.items():
            if flag not in rule.flags and mask.any():
                found[flag] = _witness(flag, case, pair, environments, mask)
        if differ.overflow.any() and not {differ.overflow_flag, *FREEDOMS} & rule.flags:
            found[differ.overflow_flag] = _witness(differ.overflow_flag, case, pair, environments, differ.overflow)
    return rows, list(found.values())


def draw_for(
    pair: ElementPair, rows: int, rng: np.random.Generator, least: int = FLOATING_POINT.min_element_rows
) -> Environments:
    """Draw rows of inputs for the element. For long code, fewer rows are drawn."""
    return draw(
        pair.inputs,
        pair.conditions,
        max(min(rows, FLOATING_POINT.max_rows_times_instructions // len(pair.numbers)), least),
        rng,
    )


def _witness(flag: FpFlag, case: RuleCase, pair: ElementPair, environments: Environments, mask: Mask) -> Witness:
    """Return the simplest of the rows as a witness. Inputs are replaced by 0 or 1 as long as the row still needs the flag."""
    candidates = np.flatnonzero(mask)[: FLOATING_POINT.witness_row_count]
    lengths = [sum(len(f"{environments.values[one][row]:g}") for one in pair.inputs) for row in candidates]
    row = int(candidates[int(np.argmin(lengths))])
    values = {one: float(environments.values[one][row]) for one in pair.inputs}
    changes = [(one, plain) for plain in (0.0, 1.0) for one in pair.inputs if values[one] not in (0.0, 1.0)]
    alone = _still(flag, pair, [{**values, one: plain} for one, plain in changes])
    simpler = {one: plain for (one, plain), still in reversed(list(zip(changes, alone, strict=True))) if still}
    prefixes = [{**values, **dict(list(simpler.items())[:count])} for count in range(len(simpler) + 1)]
    holding = [one for one, still in zip(prefixes, _still(flag, pair, prefixes), strict=True) if still]
    return Witness(flag, case, pair.output, pair.element, holding[-1] if holding else values)


def _still(flag: FpFlag, pair: ElementPair, rows: Sequence[Mapping[Input, float]]) -> list[bool]:
    """Return, for each row, whether the row needs the flag."""
    if not rows:
        return []
    return [bool(v) for v in needs(pair, environments_of(rows), flag)]
