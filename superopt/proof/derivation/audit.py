"""A second opinion on a minimal core: egglog, at concrete sizes, tries to derive every rule of the core from the others.

A core is a set of rules from which all other rules were derived. egglog is an e-graph engine with classes of equal terms. If
the sides of a rule are in different classes after saturation, the rule does not follow. Otherwise egglog joins the sides
(finds them equal). If egglog joins the sides at several choices of sizes, laws are removed one after another as long as egglog
still joins the sides. The symbolic search is then repeated with the remaining laws and larger limits. Finally it is repeated
with all laws, because a step at concrete sizes may need an additional law at symbolic sizes. A rule is contested if egglog
joins its sides and the symbolic search still does not derive it. Contested rules are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from superopt.algebra.terms import subterms
from superopt.errors import InstantiationError, ShapeError
from superopt.notation.parsing import Equation
from superopt.policy import PROOF
from superopt.proof.axioms.ematch import Direction
from superopt.proof.axioms.saturate import SaturationLimits
from superopt.proof.definedness import is_partial
from superopt.proof.derivation.chain import Chain
from superopt.proof.derivation.core import Stated, laws_of
from superopt.proof.derivation.derive import Laws, derivation_operators, derive_rule
from superopt.proof.derivation.egglog_engine import Outcome, outcome
from superopt.rules.instances import Instance, instantiations
from superopt.rules.rule import Rule

WIDE = tuple(
    SaturationLimits(PROOF.max_wide_rounds, PROOF.max_wide_terms, steps, growth, grouped=True)
    for steps in PROOF.wide_step_counts
    for growth in PROOF.wide_growth_counts
)
"""Limits of the symbolic searches for a derivation, in order of use. From one search to the next, terms may grow longer.

Each search with a minimal set of laws is repeated with laws that also rewrite a single variable (`introducing` of `Laws`).
"""
Order: TypeAlias = "Callable[[list[str]], list[str]]"
ORDERS: tuple[Order, ...] = (list, lambda labels: labels[::-1], lambda labels: labels[::2] + labels[1::2])
SEEDS = range(PROOF.generic_instance_count)


@dataclass(frozen=True)
class Opinion:
    """The evidence whether one rule follows from all other rules.

    `outcome` is the result of egglog, an e-graph engine, at concrete sizes. `chains` has the derivations that the symbolic
    search found, or is None.
    """

    rule: Rule
    outcome: Outcome
    chains: tuple[Chain, ...] | None = None

    @property
    def contested(self) -> bool:
        """Whether egglog finds the rule's sides equal at concrete sizes, but the symbolic search finds no derivation."""
        return self.outcome is Outcome.JOINED and self.chains is None


def opinions(rules: Sequence[Rule], executor: Executor | None = None) -> Iterator[Opinion]:
    """Yield, for each rule in the given order, the evidence whether the rule follows from all other rules."""
    if executor is None:
        laws = Laws(rules)
        yield from (opinion(laws, position) for position in range(len(rules)))
        return
    stated = tuple((rule.name, rule.statement) for rule in rules)
    batches = [
        range(first, min(first + PROOF.audited_rule_count, len(rules)))
        for first in range(0, len(rules), PROOF.audited_rule_count)
    ]
    for future in [executor.submit(_batch, stated, batch) for batch in batches]:
        yield from future.result()


def _batch(stated: Stated, positions: Sequence[int]) -> list[Opinion]:
    laws = laws_of(stated)
    return [opinion(laws, position) for position in positions]


def opinion(laws: Laws, position: int, without: Collection[int] = (), *, orders: int = len(ORDERS)) -> Opinion:
    """Return the evidence whether the law at `position` follows from the other laws, without the laws at positions `without`.

    egglog is an e-graph engine that compares the law's sides at concrete sizes. If egglog does not find the sides equal at one
    choice of ranks, egglog's outcome is returned. Otherwise egglog computes minimal sets of laws, and the symbolic search tries
    to derive the law from each set. Several sets are tried, because the search may succeed with one set and fail with another.
    `orders` is the number of orders in which laws are removed, and each order may give another set. If all orders are used, the
    symbolic search finally tries all laws.
    """
    rule, left_out = laws.rules[position], {position, *without}
    for order in ORDERS[:orders]:
        needed = _few(rule, laws, left_out, order)
        if isinstance(needed, Outcome):
            return Opinion(rule, needed)
        ways = [laws.only(needed, introducing=introducing) for introducing in (False, True)]
        chains = (derive_rule(rule, few, limits) for limits in WIDE for few in ways)
        if (found := next((c for c in chains if c is not None), None)) is not None:
            return Opinion(rule, Outcome.JOINED, found)
    every = (derive_rule(rule, laws, limits, left_out) for limits in WIDE if orders == len(ORDERS))
    return Opinion(rule, Outcome.JOINED, next((c for c in every if c is not None), None))


def _few(rule: Rule, laws: Laws, left_out: Collection[int], order: Order) -> Collection[str] | Outcome:
    """Return the labels of a minimal set of laws with which egglog finds the rule's sides equal. The set depends on `order`.

    If egglog (an e-graph engine) does not find the sides equal, return the outcome of egglog instead.
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
    """An equation at several instances of concrete sizes, with the directed laws that egglog may apply to its sides."""

    equation: Equation
    instances: tuple[Instance, ...]
    readings: tuple[Direction, ...]

    @classmethod
    def of(cls, equation: Equation, laws: Laws, without: Collection[int]) -> Numbers:
        """Return the equation at several instances of concrete sizes, with the laws that egglog may apply to its sides.

        The laws contain only the equation's operators and operators that one law can introduce. Laws at the positions `without`
        are left out.

        Raises:
            InstantiationError: There is no instance.
        """
        allowed = laws.grown(derivation_operators(subterms(*equation.left, *equation.right)))
        every = (d for found in laws.among(allowed, without).values() for d in found)
        readings = tuple(d for d in every if not (laws.directed(d.axiom) and _divides(d)))
        return cls(equation, tuple(generic_audit_instance(equation, seed) for seed in SEEDS), readings)

    def outcome(self, labels: Collection[str] | None = None) -> Outcome:
        """Return JOINED if egglog (an e-graph engine) finds the sides equal at every instance.

        Otherwise return egglog's outcome at the first instance where it does not.

        Only the laws with the names `labels` are used, or all laws if `labels` is None.
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
        """Return the labels of a minimal set of laws with which egglog finds the sides equal.

        With all laws together, egglog (an e-graph engine) must find the sides equal. The result depends on `order`, the order
        in which laws are removed.
        """
        labels = order([*dict.fromkeys(d.axiom for d in self.readings)])
        return delta_debug(labels, lambda some: self.outcome(frozenset(some)) is Outcome.JOINED)


def delta_debug(items: Sequence[str], enough: Callable[[Sequence[str]], bool]) -> list[str]:
    """Return a minimal selection of the items for which `enough` is true. `enough` must be true for the whole list.

    The algorithm is ddmin of Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (TSE 2002).
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
    """Return whether the rewrite replaces a right side by a left side that may be undefined, such as 1 by `x / x`.

    Such a rewrite would make all terms equal where `x` is 0.
    """
    return reading.source is reading.equation.right[0] and any(map(is_partial, subterms(reading.target)))


def generic_audit_instance(equation: Equation, seed: int) -> Instance:
    """Return the instance with the fewest coincidences among several random instances.

    A coincidence is a number that equals another number of the instance, or that is -1, 0, 1 or 2.

    Raises:
        InstantiationError: There is no instance.
    """
    drawn = instantiations(equation, np.random.default_rng(seed))
    return min((next(drawn) for _ in range(PROOF.generic_draw_count)), key=_coincidences)


def _coincidences(instance: Instance) -> int:
    extents = [n for shape in instance.shapes.values() for n in shape]
    values = [*dict.fromkeys(extents), *instance.attributes.values()]
    return len(values) - len(set(values)) + sum(v in (0, 1, 2, -1) for v in values)
