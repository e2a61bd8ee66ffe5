"""Remove terms that compute nothing: terms that a rule proves equal to a variable of the rule.

For example, a mask may leave a sum with zeros. Such a sum costs too little to show in a measurement of an island, but other
rules do not match across the sum. Rules that remove such terms are applied wherever they match, without a measurement, because
they remove an operator and add none.
"""

from __future__ import annotations

from dataclasses import replace

from superopt.policy import SEARCH
from superopt.search.apply import State, Step, first_rewrite, replaced_terms
from superopt.search.backtracking import Cost, SearchLimits, SearchResult
from superopt.search.ruleset import RuleSet
from superopt.search.schedule import Find


def remove_vanishing(start: State, rules: RuleSet) -> tuple[State, tuple[Step, ...]]:
    """Apply the set's vanishing rules until none matches, and return the state and the steps."""
    state, steps = start, list[Step]()
    while found := first_rewrite(state, rules.vanishing):
        name, wanted = found
        done = replaced_terms(state, wanted)
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

    If the search finds no improvement, the state without these terms is the result, provided that its gain exceeds the noise.
    """
    clean, steps = remove_vanishing(start, rules)
    best = find(clean, rules, estimate=estimate, measure=measure, limits=limits)
    before = measure(start) if steps else best.before
    if best.after >= before * (1 - SEARCH.min_gain_share):
        return replace(best, outputs=start, steps=(), before=before, after=before)
    return replace(best, steps=(*steps, *best.steps), before=before)
