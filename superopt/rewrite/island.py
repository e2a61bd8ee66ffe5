"""The cheapest form of a whole island: by sweeps from it, from what it is with its unrolled recurrences as operators, and with
operators computed by other algorithms.
"""

from __future__ import annotations

from dataclasses import replace

from superopt.active import active_time
from superopt.rewrite.algorithm import with_algorithms
from superopt.rewrite.apply import State
from superopt.rewrite.reroll import rerolled
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.search import Cost, Found, Limits
from superopt.rewrite.sweep import SWEPT, sweep

FAR = 0.5
"""How much of its time is left of an island that recurrences make so fast that it is not swept unrolled as well."""


def search_island(start: State, rules: RuleSet, /, *, estimate: Cost, measure: Cost, limits: Limits | None) -> Found:
    """The cheapest state met; `start` if nothing is cheaper. Algorithms are chosen for what sweeps make, and for the start too:
    of a large island that alone may be what there is time for.
    """
    within = limits or Limits()
    cost = measure(start)
    unchanged, half = Found(start, (), cost, cost, 0, SWEPT), (active_time() + within.deadline) / 2
    plain = with_algorithms(unchanged, rules, estimate=estimate, measure=measure, limits=replace(within, deadline=half))
    found = _swept(start, rules, estimate=estimate, measure=measure, limits=limits)
    if found.steps:
        found = with_algorithms(found, rules, estimate=estimate, measure=measure, limits=within)
    best = plain if plain.after < found.after else found
    return replace(best, expanded=plain.expanded + found.expanded)


def _swept(start: State, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: Limits | None) -> Found:
    """The cheapest state that sweeps meet. Recurrences come first, for they leave little to sweep."""
    state, steps = rerolled(start, rules)
    if not steps:
        return sweep(start, rules, estimate=estimate, measure=measure, limits=limits)
    short = sweep(state, rules, estimate=estimate, measure=measure, limits=limits)
    if short.after <= FAR * measure(start):
        return replace(short, steps=(*steps, *short.steps), before=measure(start))
    long = sweep(start, rules, estimate=estimate, measure=measure, limits=limits)
    if long.after <= short.after:
        return replace(long, expanded=long.expanded + short.expanded)
    return replace(short, steps=(*steps, *short.steps), before=long.before, expanded=long.expanded + short.expanded)
