"""The search for the floating-point flags (fast-math flags) that a rule needs.

A rule holds over the real numbers. In IEEE arithmetic, the sides of the rule may differ, and each difference needs a flag. Both
sides are compiled to scalar code at a few small sizes, one output element at a time, and evaluated in float32 on special values
(see `environments`). `flag_differences` returns the flag that each difference needs. If none of the needed flags allows finite
results to differ, all inputs in a small floating-point format are tried as well (see `small`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.floating_point.differences import FREEDOMS, flag_differences, needs
from superopt.floating_point.elements import ElementPair, RuleCase, elements_of, flag_search_generator
from superopt.floating_point.environments import Environments, draw, environments_of, special_value_rows
from superopt.floating_point.floats import Mask
from superopt.floating_point.scalars import Input
from superopt.floating_point.small import Basis, basis, weakest_basis
from superopt.policy import FLOATING_POINT
from superopt.rules.fp_flags import ALL_FLAGS, FpFlag
from superopt.rules.rule import Rule


@dataclass(frozen=True)
class Witness:
    """Inputs at which a rule needs a floating-point flag.

    Attributes:
        case: The rule at fixed ranks and sizes.
        output: The index of the output at which the sides differ.
        element: The position of the element in this output.
        values: The values of the input elements on which the output element depends.
    """

    flag: FpFlag
    case: RuleCase
    output: int
    element: tuple[int, ...]
    values: Mapping[Input, float]


@dataclass(frozen=True)
class RuleFlags:
    """The floating-point flags that a rule needs, with a witness for each flag: inputs at which the rule needs the flag.

    Attributes:
        basis: The evidence that the rule needs no other flags.
        elements: The number of output elements that were tried.
        identical: The number of tried elements whose code is the same on both sides.
        evaluations: The total number of input rows on which elements were evaluated. A row has one value for each input.
    """

    flags: frozenset[FpFlag]
    witnesses: tuple[Witness, ...]
    basis: Basis
    elements: int
    identical: int
    evaluations: int

    @property
    def names(self) -> tuple[str, ...]:
        """The floating-point flags as a tuple in the order of `FpFlag`. The rule store keeps the flags in this form."""
        return tuple(flag for flag in FpFlag if flag in self.flags)


def flags_of(rule: Rule, seed: int = 0) -> RuleFlags:
    """Return the floating-point flags that the rule needs, each with a witness: inputs at which the rule needs the flag.

    If no output element can be compiled, all flags are returned without witnesses. Each turn of the search draws new sizes and
    new inputs. The search ends after `FLOATING_POINT.quiet_turn_count` successive turns without a new flag.
    """
    rng = flag_search_generator(rule, seed)
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
    """Search for floating-point flags that the rule needs but that are not among its flags.

    Return the number of evaluated input rows (one value for each input), and a witness for each missing flag. A witness
    contains inputs at which the rule needs the flag. At least `evaluations` rows are evaluated. An output element whose code is
    the same on both sides is not evaluated.
    """
    rng = flag_search_generator(rule, seed)
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
    """Draw `rows` random rows of inputs for the element.

    If the element's code is long, fewer rows are drawn, but at least `least` rows.
    """
    return draw(
        pair.inputs,
        pair.conditions,
        max(min(rows, FLOATING_POINT.max_rows_times_instructions // len(pair.numbers)), least),
        rng,
    )


def _witness(flag: FpFlag, case: RuleCase, pair: ElementPair, environments: Environments, mask: Mask) -> Witness:
    """Return one of the input rows that `mask` selects, as a witness. At these rows, the element needs the flag.

    A row has one value for each input. The row whose values have the shortest texts is chosen. Values in this row are replaced
    by 0 or 1 if the element still needs the flag after the replacement.
    """
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
    """Return a list with one boolean for each row of inputs. The boolean says whether the element needs the flag at these
    inputs.
    """
    if not rows:
        return []
    return [bool(v) for v in needs(pair, environments_of(rows), flag)]
