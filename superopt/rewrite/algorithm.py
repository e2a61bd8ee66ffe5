"""Which operators of an island are computed by another algorithm: each where that measures faster, one after the other.

An algorithm in an operator's place changes nothing around it, so places are decided by themselves; what all of them together
would do to a state need not be looked at. Where the estimate promises most is tried first, there by the algorithm that it
prefers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from superopt.graph import Term
from superopt.rewrite.apply import State, Step, computed
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.search import NOISE, OUT_OF_TIME, Cost, Found
from superopt.rewrite.sweeper import rebuilt


@dataclass(frozen=True)
class Place:
    """A term, the rule by which it is computed in another way, that way, and the estimated seconds that it saves."""

    term: Term
    rule: str
    other: Term
    gain: float


def with_algorithms(found: Found, rules: RuleSet, *, estimate: Cost, measure: Cost, deadline: float) -> Found:
    """What was found, with operators computed by those of the rule set's algorithms that measure faster in their places."""
    start, cost = found.outputs, found.after
    state, wanted, steps, tried = start, dict[Term, Term](), list[Step](), 0
    before = rebuilt(start, {}) or {}
    for place in sorted(places(start, rules, estimate), key=lambda place: -place.gain):
        if time.monotonic() >= deadline:
            found = replace(found, stopped=OUT_OF_TIME)
            break
        done = rebuilt(start, {**wanted, place.term: place.other})
        if done is None:
            continue
        trial = tuple(done[root] for root in start)
        after, tried = measure(trial), tried + 1
        if after < cost:
            steps.append(Step(place.rule, (before.get(place.term, place.term),), (done[place.term],)))
            state, cost, before, wanted = trial, after, done, {**wanted, place.term: place.other}
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
