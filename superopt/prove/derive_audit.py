"""A second opinion on a minimal core: egglog, at numbers, on every rule that is said not to follow from the others.

Where the sides saturate apart, that is decided. Where egglog joins them at several instances that have little in common, it
is asked again with ever fewer laws, until none can be spared; the symbolic search is tried again with these few laws and wide
limits, and at last with all laws: numbers have their own ways, and symbols may need another law. What it still does not derive
is contested, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeAlias

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

WIDE = tuple(
    Limits(rounds=40, terms=3_000, steps=steps, growth=growth, grouped=True)
    for steps in (100_000, 1_000_000)
    for growth in (((0, 2), (2, 4), (4, 8), (8, 14), (20, 30)), ((6, 8), (12, 16), (20, 30)), ((20, 30),))
)
"""The searches with the few laws, one after the other: by little steps, by large ones, and with no regard to weight. Each is
made once more with those laws that say what a variable is read from there, too.
"""
Order: TypeAlias = "Callable[[list[str]], list[str]]"
ORDERS: tuple[Order, ...] = (list, lambda labels: labels[::-1], lambda labels: labels[::2] + labels[1::2])
DRAWS = 24
SEEDS = range(4)
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


def opinion(laws: Laws, position: int, without: Collection[int] = (), *, orders: int = len(ORDERS)) -> Opinion:
    """On the law at the position, given the others, but for those at `without`; one choice of ranks at which its sides stay
    apart settles it. Few laws are looked for in so many orders, for a search may get there by some and not by others; with all
    orders, all laws are tried as well.
    """
    rule, left_out = laws.rules[position], {position, *without}
    for order in ORDERS[:orders]:
        needed = _few(rule, laws, left_out, order)
        if isinstance(needed, Outcome):
            return Opinion(rule, needed)
        ways = [laws.only(needed, introducing=introducing) for introducing in (False, True)]
        chains = (derivable(rule, few, limits) for limits in WIDE for few in ways)
        if (found := next((c for c in chains if c is not None), None)) is not None:
            return Opinion(rule, Outcome.JOINED, found)
    every = (derivable(rule, laws, limits, left_out) for limits in WIDE if orders == len(ORDERS))
    return Opinion(rule, Outcome.JOINED, next((c for c in every if c is not None), None))


def _few(rule: Rule, laws: Laws, left_out: Collection[int], order: Order) -> Collection[str] | Outcome:
    """Labels of the laws that join the rule's sides, and that none can be spared of, looked for in this order; what becomes of
    the sides where they are not joined.
    """
    needed: dict[str, None] = {}
    for equation in rule.equations:
        try:
            at_numbers = Numbers.of(equation, laws, left_out)
        except InstantiationError:
            return Outcome.LIMIT
        if needed and at_numbers.outcome(needed) is Outcome.JOINED:
            continue
        said = at_numbers.outcome()
        if said is not Outcome.JOINED:
            return said
        needed |= dict.fromkeys(at_numbers.needed(order))
    return needed


@dataclass(frozen=True)
class Numbers:
    """An equation at several instances, and the readings of laws that may join its sides there."""

    equation: Equation
    instances: tuple[Instance, ...]
    readings: tuple[Direction, ...]

    @classmethod
    def of(cls, equation: Equation, laws: Laws, without: Collection[int]) -> Numbers:
        """The laws that have its operators, and those that one more law brings in, but for those at `without`.

        Raises:
            InstantiationError: there is no instance.
        """
        allowed = laws.grown(operators_of(subterms(*equation.left, *equation.right)))
        every = (d for found in laws.among(allowed, without).values() for d in found)
        readings = tuple(d for d in every if not (laws.directed(d.axiom) and _divides(d)))
        return cls(equation, tuple(generic(equation, seed) for seed in SEEDS), readings)

    def outcome(self, labels: Collection[str] | None = None) -> Outcome:
        """Joined where the sides are at every instance, or what they are at the first where they are not; by the laws of these
        labels, or all.
        """
        readings = [d for d in self.readings if labels is None or d.axiom in labels]
        for instance in self.instances:
            try:
                found = outcome(self.equation, instance, readings)
            except ShapeError:
                found = Outcome.LIMIT
            if found is not Outcome.JOINED:
                return found
        return Outcome.JOINED

    def needed(self, order: Order = list) -> list[str]:
        """Labels of laws that join the sides, all of them, if every law does; without any one of them they do not. Which ones
        depends on the order.
        """
        labels = order([*dict.fromkeys(d.axiom for d in self.readings)])
        return least(labels, lambda some: self.outcome(frozenset(some)) is Outcome.JOINED)


def least(items: Sequence[str], enough: Callable[[Sequence[str]], bool]) -> list[str]:
    """Some of the items that are enough, as all of them are, of which none can be spared.

    Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (TSE 2002): ddmin.
    """
    kept, pieces = list(items), 2
    while len(kept) > 1:
        length = -(-len(kept) // pieces)
        parts = [kept[first : first + length] for first in range(0, len(kept), length)]
        rests = [[item for item in kept if item not in part] for part in parts]
        some = next((part for part in parts if enough(part)), None)
        rest = next((rest for rest in rests if enough(rest)), None) if some is None and pieces > 2 else None
        if some is not None:
            kept, pieces = some, 2
        elif rest is not None:
            kept, pieces = rest, max(pieces - 1, 2)
        elif length == 1:
            break
        else:
            pieces = min(2 * pieces, len(kept))
    return kept


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
