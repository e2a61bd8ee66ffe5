"""Terms that compute nothing: by a rule, each is one of the variables that it is made of.

A sum with zeros that is left of a mask saves so little that no measurement of an island shows it, and hides what stands around
it from other rules. To take such rules wherever they match needs no measurement: an operator goes, and none comes.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from superopt.rewrite.apply import State, Step, foremost, rebuilt
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.schedule import Find
from superopt.rewrite.search import NOISE, Cost, Found, Limits


def vanished(start: State, rules: RuleSet) -> tuple[State, tuple[Step, ...]]:
    """The state in which no vanishing rule of these has a place any more, and the steps that lead there."""
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


def once_vanished(find: Find) -> Find:
    """What finds as `find` does, from the state in which nothing vanishes any more; that state where nothing else is found and
    it is cheaper by itself, by more than measurements differ by.
    """

    @functools.wraps(find)
    def found(start: State, rules: RuleSet, /, *, estimate: Cost, measure: Cost, limits: Limits | None) -> Found:
        clean, steps = vanished(start, rules)
        best = find(clean, rules, estimate=estimate, measure=measure, limits=limits)
        before = measure(start) if steps else best.before
        if best.after >= before * (1 - NOISE):
            return replace(best, outputs=start, steps=(), before=before, after=before)
        return replace(best, steps=(*steps, *best.steps), before=before)

    return found
