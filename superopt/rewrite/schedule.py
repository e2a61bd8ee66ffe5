"""Searching many segments within one budget: each distinct segment once, those that cost most first."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from superopt.active import active_time, expired
from superopt.graph import subterms
from superopt.op import rebuild
from superopt.rewrite.apply import State, Step
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.search import OUT_OF_TIME, Cost, Found, Limits, search


class Find(Protocol):
    """A way to look for the cheapest equivalent of a state."""

    def __call__(self, start: State, rules: RuleSet, /, *, estimate: Cost, measure: Cost, limits: Limits | None) -> Found: ...


def untouched(start: State, _: RuleSet, /, *, estimate: Cost, **_limits: object) -> Found:
    """The state as it is, its cost by estimate: nothing is measured."""
    cost = estimate(start)
    return Found(start, (), cost, cost, 0, OUT_OF_TIME)


def roomy(find: Find, weights: Cost, room: Mapping[State, float]) -> Find:
    """What finds as `find` does, but nothing whose weights hold more numbers (`weights`) than those of the start and its room.

    So a form that there is room for is found in the place of a faster one that could not be taken.
    """

    @functools.wraps(find)
    def found(start: State, rules: RuleSet, /, *, estimate: Cost, measure: Cost, limits: Limits | None) -> Found:
        within = replace(limits or Limits(), room=room[start])
        most = weights(start) + within.room

        def fitting(state: State) -> float:
            return measure(state) if weights(state) <= most else math.inf

        return find(start, rules, estimate=estimate, measure=fitting, limits=within)

    return found


def search_all(
    segments: Mapping[State, float],
    rules: RuleSet,
    *,
    estimate: Cost,
    measure: Callable[[State], Cost],
    deadline: float,
    limits: Limits | None = None,
    find: Find = search,
    late: Find = untouched,
) -> Iterator[tuple[State, Found]]:
    """What `find` finds for each segment, as it is found; `segments` says how often each runs when the model does, and
    `measure` gives for each what measures its equivalents.

    A segment may take a share of the time that is left when its turn comes: half of it by what its runs are estimated to
    cost, half equally. One whose turn comes after the deadline is left to `late`.
    """
    weight = {state: max(estimate(state), 1e-9) * runs for state, runs in segments.items()}
    waiting = sorted(segments, key=lambda state: -weight[state])
    for position, state in enumerate(waiting):
        rest = waiting[position:]
        share = (weight[state] / sum(weight[s] for s in rest) + 1 / len(rest)) / 2
        now = active_time()
        own = replace(limits or Limits(), deadline=now + share * max(deadline - now, 0.0))
        way, cost = (late, estimate) if expired(deadline) else (find, measure(state))
        yield state, way(state, rules, estimate=estimate, measure=cost, limits=own)


def gains(start: State, steps: Sequence[Step], measure: Cost) -> list[float]:
    """The seconds that each step saves by itself, in the order they are taken; negative for a step that costs."""
    costs = [measure(start), *map(measure, states(start, steps))]
    return [before - after for before, after in itertools.pairwise(costs)]


def states(start: State, steps: Sequence[Step]) -> Iterator[State]:
    """What each step leads to."""
    state = start
    for step in steps:
        replacement = dict(zip(step.roots, step.replacements, strict=True))
        state = tuple(rebuild(root, replacement) for root in state)
        yield state


def weight_elements(state: State) -> int:
    """How many numbers the weights of the state hold: those that its nodes read, weight-only terms computed beforehand.

    A constant of an open extent is none of them: it is made at run time.
    """
    live = [t for t in subterms(*state) if not t.constant]
    shapes = (w.shape for w in {a for t in live for a in t.args if a.constant})
    return sum(math.prod(e for e in shape if isinstance(e, int)) for shape in shapes if all(isinstance(e, int) for e in shape))
