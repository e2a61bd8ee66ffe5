"""Which operators of an island are computed by another algorithm: each where that measures faster, one after the other.

An algorithm in an operator's place changes nothing around it, so places are decided by themselves; what all of them together
would do to a state need not be looked at. Equal operators on operands of equal shapes are decided together, and one by one
where that does not pay. Where the estimate promises most is tried first, there by the algorithm that it prefers.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from superopt.graph import Term
from superopt.rewrite.apply import State, Step, computed
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.schedule import weight_elements
from superopt.rewrite.search import NOISE, OUT_OF_TIME, Cost, Found, Limits
from superopt.rewrite.sweeper import rebuilt


@dataclass(frozen=True)
class Place:
    """A term, the rule by which it is computed in another way, that way, and the estimated seconds that it saves."""

    term: Term
    rule: str
    other: Term
    gain: float

    @property
    def kind(self) -> Hashable:
        """What places have in common whose kernels are the same."""
        return self.rule, self.term.op, self.term.attributes, tuple(arg.shape for arg in self.term.args)


def with_algorithms(found: Found, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: Limits) -> Found:
    """What was found, with operators computed by those of the rule set's algorithms that measure faster in their places, as
    long as weights grow by no more than the limits allow.
    """
    start, cost = found.outputs, found.after
    most = weight_elements(found.outputs) + limits.growth
    state, wanted, steps, tried = start, dict[Term, Term](), list[Step](), 0
    before = rebuilt(start, {}) or {}
    alike: dict[Hashable, list[Place]] = {}
    for place in places(start, rules, estimate):
        alike.setdefault(place.kind, []).append(place)
    waiting = sorted(alike.values(), key=lambda group: -sum(place.gain for place in group))
    while waiting:
        if time.monotonic() >= limits.deadline:
            found = replace(found, stopped=OUT_OF_TIME)
            break
        group = waiting.pop(0)
        done = rebuilt(start, {**wanted, **{place.term: place.other for place in group}})
        if done is None:
            continue
        trial = tuple(done[root] for root in start)
        if weight_elements(trial) > most:
            waiting += [[place] for place in group if len(group) > 1]
            continue
        after, tried = measure(trial), tried + 1
        if after < cost:
            for place in group:
                wanted[place.term] = place.other
                then = rebuilt(start, wanted) or {}
                steps.append(Step(place.rule, (before.get(place.term, place.term),), (then[place.term],)))
                before = then
            state, cost = trial, after
        elif len(group) > 1:
            waiting += [[place] for place in group]
    expanded = found.expanded + tried
    if cost >= found.after * (1 - NOISE):
        return replace(found, expanded=expanded)
    return replace(found, outputs=state, steps=(*found.steps, *steps), after=cost, expanded=expanded)


def places(state: State, rules: RuleSet, estimate: Cost) -> Iterator[Place]:
    """The terms for which the estimate prefers an algorithm, each with the one that it prefers most."""
    for term in computed(state):
        own = estimate((term,))
        ways = [
            Place(term, name, match.replacements[0], own - estimate(match.replacements))
            for name, match in rules.algorithms.matches(term)
        ]
        best = max(ways, key=lambda place: place.gain, default=None)
        if best is not None and best.gain > 0:
            yield best
