"""The floating-point flags that a rule needs, found by evaluating both sides in IEEE arithmetic.

A rule holds over the reals. Its two sides are read as scalar code at a few small sizes, one output element at a time, and
evaluated in float32 on special values (`environments`). Each row at which they differ needs a flag (`differences`). Where none
lets finite results differ, all inputs of a small format are tried as well (`small`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.fp_flags import ALL_FLAGS, FpFlag
from superopt.prove.differences import FREEDOMS, differences, needs
from superopt.prove.elements import INSTANCES, Case, Pair, elements_of, generator_for
from superopt.prove.environments import Environments, Input, combinations, draw, environments_of
from superopt.prove.floats import Mask
from superopt.prove.small import Basis, basis, weakest
from superopt.rule import Rule

ROWS = 1000, 12_000
"""Rows of inputs in each turn: for each element that is tried, and at least for each rule."""
LATER_INSTANCES = 5
"""At how many sizes and attributes a rule is tried in each turn but the first."""
QUIET, MAX_TURNS = 5, 24
"""After how many turns without a new flag a rule has all that it needs; how many turns there are at most."""
MAX_ROWS_TIMES_CODE = 6_000_000
"""Longer code is evaluated for fewer rows."""
CANDIDATES = 40
"""From how many rows the simplest witness is chosen."""


@dataclass(frozen=True)
class Witness:
    """Inputs at which a rule needs a flag: sizes, an output and a position in it, and the values that this element reads."""

    flag: FpFlag
    case: Case
    output: int
    element: tuple[int, ...]
    values: Mapping[Input, float]


@dataclass(frozen=True)
class Flagged:
    """The flags that a rule needs, and a witness of each.

    `elements` output elements were looked at, of which `identical` have the same code on both sides, with `evaluations` rows of
    inputs in all.
    """

    flags: frozenset[FpFlag]
    witnesses: tuple[Witness, ...]
    basis: Basis
    elements: int
    identical: int
    evaluations: int

    @property
    def names(self) -> tuple[str, ...]:
        """The flags as a ledger has them."""
        return tuple(flag for flag in FpFlag if flag in self.flags)


def flags_of(rule: Rule, seed: int = 0) -> Flagged:
    """The floating-point flags of a rule, each with a witness; all flags, without any, where no element can be tried.

    Sizes and rows are drawn again and again, until `QUIET` times in a row no flag is found that was not known.
    """
    rng = generator_for(rule, seed)
    found: dict[FpFlag, Witness] = {}
    overflow: dict[FpFlag, Witness] = {}
    tried: dict[tuple[object, ...], Pair] = {}
    evaluations = quiet = turn = 0
    while quiet < QUIET and turn < MAX_TURNS:
        known = len(found)
        new = list(elements_of(rule, rng, instances=LATER_INSTANCES if turn else INSTANCES))
        tried.update((pair.form, pair) for _, pair in new)
        different = [(case, pair) for case, pair in new if not pair.identical]
        for case, pair in different:
            environments = draw_for(pair, max(ROWS[0], ROWS[1] // len(different)), rng)
            if not turn:
                environments = environments.beside(combinations(pair.inputs, pair.conditions, environments.rows))
            evaluations += environments.rows
            differ = differences(pair, environments)
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
    rests = weakest([basis(pair, flags) for pair in tried.values()])
    return Flagged(flags, witnesses, rests, len(tried), sum(pair.identical for pair in tried.values()), evaluations)


def missing(rule: Rule, seed: int, evaluations: int) -> tuple[int, list[Witness]]:
    """How many rows were evaluated, at least so many, and witnesses of flags that the rule needs and does not have.

    A rule whose sides are the same code is evaluated for no row: there is nothing that could differ.
    """
    rng = generator_for(rule, seed)
    different = [(case, pair) for case, pair in elements_of(rule, rng) if not pair.identical]
    found: dict[FpFlag, Witness] = {}
    rows = 0
    for case, pair in different:
        environments = draw_for(pair, -(-evaluations // len(different)), rng, least=evaluations // len(different) + 1)
        rows += environments.rows
        differ = differences(pair, environments)
        for flag, mask in differ.needs.items():
            if flag not in rule.flags and mask.any():
                found[flag] = _witness(flag, case, pair, environments, mask)
        if differ.overflow.any() and not {differ.overflow_flag, *FREEDOMS} & rule.flags:
            found[differ.overflow_flag] = _witness(differ.overflow_flag, case, pair, environments, differ.overflow)
    return rows, list(found.values())


def draw_for(pair: Pair, rows: int, rng: np.random.Generator, least: int = 64) -> Environments:
    """So many rows of inputs for the element, fewer where its code is long."""
    return draw(pair.inputs, pair.conditions, max(min(rows, MAX_ROWS_TIMES_CODE // len(pair.numbers)), least), rng)


def _witness(flag: FpFlag, case: Case, pair: Pair, environments: Environments, mask: Mask) -> Witness:
    """The simplest of the rows, made simpler: inputs that may as well be 0 or 1 are."""
    candidates = np.flatnonzero(mask)[:CANDIDATES]
    lengths = [sum(len(f"{environments.values[one][row]:g}") for one in pair.inputs) for row in candidates]
    row = int(candidates[int(np.argmin(lengths))])
    values = {one: float(environments.values[one][row]) for one in pair.inputs}
    changes = [(one, plain) for plain in (0.0, 1.0) for one in pair.inputs if values[one] not in (0.0, 1.0)]
    alone = _still(flag, pair, [{**values, one: plain} for one, plain in changes])
    simpler = {one: plain for (one, plain), still in reversed(list(zip(changes, alone, strict=True))) if still}
    prefixes = [{**values, **dict(list(simpler.items())[:count])} for count in range(len(simpler) + 1)]
    holding = [one for one, still in zip(prefixes, _still(flag, pair, prefixes), strict=True) if still]
    return Witness(flag, case, pair.output, pair.element, holding[-1] if holding else values)


def _still(flag: FpFlag, pair: Pair, rows: Sequence[Mapping[Input, float]]) -> list[bool]:
    """Which of these inputs need the flag too."""
    if not rows:
        return []
    return [bool(v) for v in needs(pair, environments_of(rows), flag)]
