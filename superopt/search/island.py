"""The search for the cheapest form of a whole island.

An island is a convex region of the model. All operators of an island have definitions.

A sweep applies one rule at all of its matches at once. Sweeps start from two forms of the island: the given form, and a form
with operators such as LSTM in place of unrolled recurrences. The search also tries alternative algorithms for the island's
operators.
"""

from __future__ import annotations

from dataclasses import replace

from superopt.budget import active_time
from superopt.policy import SEARCH
from superopt.search.algorithm import with_algorithms
from superopt.search.apply import State
from superopt.search.backtracking import OUT_OF_TIME, Cost, SearchLimits, SearchResult
from superopt.search.reroll import reroll_recurrences
from superopt.search.ruleset import RuleSet
from superopt.search.sweep import SWEPT, sweep
from superopt.search.vanish import search_cleaned


def search_island(
    start: State, rules: RuleSet, /, *, estimate: Cost, measure: Cost, limits: SearchLimits | None
) -> SearchResult:
    """Search for a cheaper form of an island (a convex region of a model).

    The search makes sweeps and tries alternative algorithms for operators. A sweep applies one rule at all of its matches at
    once. Return the cheapest state found, or `start` if no state is cheaper. Algorithms are chosen for the operators of the
    start, and for the operators of the state that the sweeps find. On a large island, the time may not suffice to choose
    algorithms for the state that the sweeps find.
    """
    within = limits or SearchLimits()
    cost = measure(start)
    unchanged, half = SearchResult(start, (), cost, cost, 0, SWEPT), (active_time() + within.deadline) / 2
    plain = with_algorithms(unchanged, rules, estimate=estimate, measure=measure, limits=replace(within, deadline=half))
    found = _swept(start, rules, estimate=estimate, measure=measure, limits=limits)
    if found.steps:
        found = with_algorithms(found, rules, estimate=estimate, measure=measure, limits=within)
    return _cheaper(found, plain)


def _swept(start: State, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: SearchLimits | None) -> SearchResult:
    """Return the cheapest state that sweeps find. A sweep applies one rule at all of its matches at once.

    Unrolled recurrences are replaced first. Terms that compute nothing are removed only after this replacement, because an
    initial state of zeros belongs to the first step of a recurrence. If replaced recurrences make the island much faster, the
    unrolled form of the island is not swept.
    """
    state, steps = reroll_recurrences(start, rules)
    if not steps:
        return search_cleaned(sweep, start, rules, estimate=estimate, measure=measure, limits=limits)
    short = search_cleaned(sweep, state, rules, estimate=estimate, measure=measure, limits=limits)
    if short.after <= SEARCH.rerolled_time_share * measure(start):
        return replace(short, steps=(*steps, *short.steps), before=measure(start))
    long = search_cleaned(sweep, start, rules, estimate=estimate, measure=measure, limits=limits)
    return _cheaper(long, replace(short, steps=(*steps, *short.steps), before=long.before))


def _cheaper(first: SearchResult, second: SearchResult) -> SearchResult:
    """Return the result with the lower cost, or the first result if both have equal costs.

    The returned result counts the measured states of both searches. If a deadline ended one of the searches, the returned
    result says so.
    """
    best = second if second.after < first.after else first
    late = OUT_OF_TIME in (first.stopped, second.stopped)
    return replace(best, expanded=first.expanded + second.expanded, stopped=OUT_OF_TIME if late else best.stopped)
