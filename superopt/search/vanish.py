"""Remove terms that compute nothing, such as `x + zeros`. A rule proves that such a term equals one of its operands.

For example, after a mask is simplified, an addition of zeros may remain. The addition takes too little time to be noticed in a
measurement of an island, but prevents other rules from matching. Rules that remove such terms are applied at all matches
without a measurement, because each application only removes an operator.
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

    Only rules with a single variable on the right side are applied. The rules are applied until no rule matches.
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

    If the method finds no improvement, the result is the state without the terms that compute nothing. If the total gain is
    smaller than the share `SEARCH.min_gain_share` of the cost of `start`, the result is `start`.
    """
    clean, steps = remove_vanishing(start, rules)
    best = find(clean, rules, estimate=estimate, measure=measure, limits=limits)
    before = measure(start) if steps else best.before
    if best.after >= before * (1 - SEARCH.min_gain_share):
        return replace(best, outputs=start, steps=(), before=before, after=before)
    return replace(best, steps=(*steps, *best.steps), before=before)
