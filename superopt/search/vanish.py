"""Remove terms that compute nothing, such as `x + zeros`. A rule proves that such a term equals one of its operands.

For example, after a mask is simplified, an addition of zeros may remain. The addition costs too little to be visible in a
measurement of an island, but prevents other rules from matching. Rules that remove such terms are applied wherever they match,
without a measurement, because each application removes an operator and adds no operator.
"""

from __future__ import annotations

from dataclasses import replace

from superopt.policy import SEARCH
from superopt.search.apply import State, Step, first_rewrite, replaced_terms
from superopt.search.backtracking import Cost, SearchLimits, SearchResult
from superopt.search.ruleset import RuleSet
from superopt.search.schedule import Find


def remove_vanishing(start: State, rules: RuleSet) -> tuple[State, tuple[Step, ...]]:
    """Remove terms that compute nothing, such as `x + zeros`, and return the new state and the steps.

    The rules that are applied have a single variable on their right side. These rules are applied until none of them matches.
    """
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
    """Remove terms that compute nothing, search with the method `find`, and return the result.

    If the method finds no improvement, the result is the state in which only the terms that compute nothing are removed. If the
    total gain is smaller than the share `SEARCH.min_gain_share` of the cost of `start`, the result is `start`.
    """
    clean, steps = remove_vanishing(start, rules)
    best = find(clean, rules, estimate=estimate, measure=measure, limits=limits)
    before = measure(start) if steps else best.before
    if best.after >= before * (1 - SEARCH.min_gain_share):
        return replace(best, outputs=start, steps=(), before=before, after=before)
    return replace(best, steps=(*steps, *best.steps), before=before)
