"""Sweeps: a rule applied at all of its places in a whole island at once, and again to what that makes.

What pays only when it is done everywhere no window shows: a product of every time step moved in front of the slices that take
the steps apart costs more at each of them, and at all of them together it is one product. A rule of several outputs is applied
to siblings: two products that share an operand become parts of one, and so do two of those, until all of them are one. What a
sweep leaves for operators that only move elements to cancel is tidied at once. First each sweep that is estimated to gain is
measured, and taken where it does; when none is left, several are followed one after another by estimate alone, and their best
ends measured. Before all that, the island is tried in wider form (see `widen`), and with its layers joined from the inputs on
(see `layers`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from superopt.active import active_time, expired
from superopt.rewrite.apply import State, Step
from superopt.rewrite.layers import layered, wide
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.search import NOISE, OUT_OF_TIME, Cost, Found, Limits
from superopt.rewrite.sweeper import Sweeper, Swept
from superopt.rewrite.widen import widened

SWEPT = "no sweep gains more"
LAYERS, FURTHER = 0.75, 0.7
"""The share of the time that joining layers may take, and of what is left that all else may: joined in part, layers gain
nothing, while every other sweep is of use by itself.
"""
MEASURED = 3
"""How many of the states that are estimated cheaper are measured, the cheapest first."""


def sweep(start: State, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: Limits | None = None) -> Found:
    """The cheapest state that sweeps reach, those that begin where others ended included; `start` if nothing is cheaper."""
    within = limits or Limits()
    found = Found(start, (), cost := measure(start), cost, 0, SWEPT)

    def taken(swept: Swept) -> bool:
        """Whether the state measures cheaper than what is found; then it is."""
        nonlocal found
        after, expanded = measure(swept.state), found.expanded + 1
        cheaper = after < found.after * (1 - NOISE)
        here = replace(found, outputs=swept.state, steps=(*begun, *swept.steps), after=after) if cheaper else found
        found = replace(here, expanded=expanded)
        return cheaper

    def any_taken(ends: Iterable[Swept]) -> bool:
        """Whether one of those that are estimated cheapest is taken."""
        return sum(map(taken, sorted(ends, key=lambda end: end.estimate)[:MEASURED])) > 0

    begun: tuple[Step, ...] = ()
    for state, steps in widened(start, rules):
        taken(Swept(state, steps, estimate(state)))
    begun, start = found.steps, found.outputs
    any_taken(_layers(start, Sweeper(rules, estimate, math.inf, _share(LAYERS, within))))
    better, deadline = True, _share(FURTHER, within)
    while better and not expired(deadline):
        begun, start = found.steps, found.outputs
        sweeper = Sweeper(rules, estimate, within.alpha * estimate(start), deadline)
        better = len([*sweeper.descent(start, taken)]) > 0 or any_taken(sweeper.cheaper(start))
    return replace(found, stopped=OUT_OF_TIME if expired(deadline) else SWEPT)


def _share(share: float, limits: Limits) -> float:
    """When this share of the time is over that is left."""
    now = active_time()
    return now + share * (limits.deadline - now)


def _layers(start: State, sweeper: Sweeper) -> Iterator[Swept]:
    """Layers joined from the inputs on, after what gains without joins; and what that leads to by sweeps that gain."""
    if not wide(start):
        return
    first = Swept(start, (), sweeper.estimate(start))
    *_, alone = first, *sweeper.descent(start, lambda _: True, joins=False)
    last = alone
    for joined in layered(alone, sweeper):
        yield (last := joined)
    for end in sweeper.descent(last.state, lambda _: True):
        yield replace(end, steps=(*last.steps, *end.steps))
