"""A second opinion on a minimal core: egglog, at numbers, on every rule that is said not to follow from the others.

Where the sides saturate apart, that is decided. Where egglog joins them at two instances that have nothing in common, the
symbolic search is tried again with wide limits; what it still does not derive is contested, and counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from superopt.errors import InstantiationError, ShapeError
from superopt.graph import subterms
from superopt.prove.definedness import is_partial
from superopt.prove.derive import Laws, derivable, operators_of
from superopt.prove.derive_chain import Chain
from superopt.prove.derive_core import Stated, laws_of
from superopt.prove.derive_egglog import Outcome, outcome
from superopt.prove.ematch import Direction
from superopt.prove.instance import Instance, instantiations
from superopt.prove.saturate import Limits
from superopt.rule import Rule
from superopt.text import Equation

WIDE = Limits(rounds=24, terms=1_500, steps=60_000, growth=((0, 2), (2, 4), (4, 8), (8, 14), (20, 30)))
DRAWS = 24
SEEDS = (0, 1)
BATCH = 12


@dataclass(frozen=True)
class Opinion:
    """What egglog says of one rule, given all others, and the derivation where the symbolic search found one after all."""

    rule: Rule
    outcome: Outcome
    chains: tuple[Chain, ...] | None = None

    @property
    def contested(self) -> bool:
        """Whether egglog joins the sides and no chain is known."""
        return self.outcome is Outcome.JOINED and self.chains is None


def opinions(rules: Sequence[Rule], executor: Executor | None = None) -> Iterator[Opinion]:
    """An opinion on each rule, in their order."""
    if executor is None:
        laws = Laws(rules)
        yield from (opinion(laws, position) for position in range(len(rules)))
        return
    stated = tuple((rule.name, rule.statement) for rule in rules)
    batches = [range(first, min(first + BATCH, len(rules))) for first in range(0, len(rules), BATCH)]
    for future in [executor.submit(_batch, stated, batch) for batch in batches]:
        yield from future.result()


def _batch(stated: Stated, positions: Sequence[int]) -> list[Opinion]:
    laws = laws_of(stated)
    return [opinion(laws, position) for position in positions]


def opinion(laws: Laws, position: int, without: Collection[int] = ()) -> Opinion:
    """On the law at the position, given the others, but for those at `without`; one choice of ranks at which its sides stay
    apart settles it.
    """
    rule, left_out = laws.rules[position], {position, *without}
    said = Outcome.JOINED
    for equation in rule.equations:
        said = _at(equation, laws, left_out)
        if said is not Outcome.JOINED:
            break
    chains = derivable(rule, laws, WIDE, left_out) if said is Outcome.JOINED else None
    return Opinion(rule, said, chains)


def _at(equation: Equation, laws: Laws, without: Collection[int]) -> Outcome:
    """Apart where the sides are at either instance, joined where they are at both."""
    allowed = laws.grown(operators_of(subterms(*equation.left, *equation.right)))
    every = (d for found in laws.among(allowed, without).values() for d in found)
    readings = [d for d in every if not (laws.directed(d.axiom) and _divides(d))]
    said = Outcome.JOINED
    for seed in SEEDS:
        try:
            found = outcome(equation, generic(equation, seed), readings)
        except (InstantiationError, ShapeError):
            found = Outcome.LIMIT
        if found is Outcome.APART:
            return found
        said = found if said is Outcome.JOINED else said
    return said


def _divides(reading: Direction) -> bool:
    """Whether a left side is read where it may be undefined: `x / x` for 1. All would be joined where `x` is 0."""
    return reading.source is reading.equation.right[0] and any(map(is_partial, subterms(reading.target)))


def generic(equation: Equation, seed: int) -> Instance:
    """Of some random instances, the one whose numbers coincide least, with each other and with 0, 1 and 2.

    Raises:
        InstantiationError: there is no instance.
    """
    drawn = instantiations(equation, np.random.default_rng(seed))
    return min((next(drawn) for _ in range(DRAWS)), key=_coincidences)


def _coincidences(instance: Instance) -> int:
    extents = [n for shape in instance.shapes.values() for n in shape]
    values = [*dict.fromkeys(extents), *instance.attributes.values()]
    return len(values) - len(set(values)) + sum(v in (0, 1, 2, -1) for v in values)
