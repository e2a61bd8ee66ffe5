"""Remove terms that compute nothing: terms that a rule proves equal to one of their variables.

For example, a mask may leave a sum with zeros. Such a sum costs too little to show in a measurement of an island, but it hides
the terms around it from other rules. These rules are applied wherever they match, without a measurement: they remove an
operator and add none.
"""

from __future__ import annotations

from dataclasses import replace

from superopt.policy import SEARCH
from superopt.search.apply import State, Step, foremost, rebuilt
from superopt.search.backtracking import Cost, SearchLimits, SearchResult
from superopt.search.ruleset import RuleSet
from superopt.search.schedule import Find


def vanished(start: State, rules: RuleSet) -> tuple[State, tuple[Step, ...]]:
    """Return the state in which no vanishing rule of the set matches any more, and the steps that lead to it."""
    state, steps = start, list[Step]()
    while found := foremost(state, rules.vanishing):
        name, wanted = found
        done = rebuilt(state, wanted)
        if done is None:
            break
        roots = tuple(root for root in wanted if root in done)
        steps.append(Step(name, roots, tuple(done[root] for root in roots)))
        state = tuple(done[root] for root in state)
    return state, tuple(steps)


def search_cleaned(
    find: Find, start: State, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: SearchLimits | None
) -> SearchResult:
    """Return the result of `find` for the state without terms that compute nothing.

    If the search finds nothing better, that state is the result if it is cheaper than the original by more than the noise.
    """
    clean, steps = vanished(start, rules)
    best = find(clean, rules, estimate=estimate, measure=measure, limits=limits)
    before = measure(start) if steps else best.before
    if best.after >= before * (1 - SEARCH.min_gain_share):
        return replace(best, outputs=start, steps=(), before=before, after=before)
    return replace(best, steps=(*steps, *best.steps), before=before)
