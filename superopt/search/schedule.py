"""Search of many segments (parts of a model) until a deadline. Each distinct segment is searched once, the most expensive
first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from superopt.algebra.operators import replace_subterms
from superopt.algebra.terms import subterms
from superopt.budget import active_time, expired
from superopt.search.apply import State, Step
from superopt.search.backtracking import OUT_OF_TIME, Cost, SearchLimits, SearchResult, search
from superopt.search.ruleset import RuleSet


class Find(Protocol):
    """A function that searches for the cheapest equivalent of a state."""

    def __call__(
        self, start: State, rules: RuleSet, /, *, estimate: Cost, measure: Cost, limits: SearchLimits | None
    ) -> SearchResult: ...


def unchanged_result(start: State, estimate: Cost) -> SearchResult:
    """Return a search result with the unchanged state and the state's estimated cost. Nothing is measured."""
    cost = estimate(start)
    return SearchResult(start, (), cost, cost, 0, OUT_OF_TIME)


def search_all(
    segments: Mapping[State, float],
    rules: RuleSet,
    *,
    estimate: Cost,
    measure: Callable[[State], Cost],
    deadline: float,
    limits: SearchLimits | None = None,
    find: Find = search,
    on_timeout: Find | None = None,
) -> Iterator[tuple[State, SearchResult]]:
    """Yield each segment with its search result, as soon as the search of the segment ends.

    Segments are searched one after the other, and each search may use a share of the remaining time. Half of the remaining time
    is divided among the waiting segments in proportion to the estimated cost of their runs. The second half of the remaining
    time is divided equally. After the deadline, `on_timeout` searches the segments that are still waiting. Without
    `on_timeout`, these segments stay unchanged.

    Args:
        segments: the segments (parts of a model), each with the number of its runs in one run of the model.
        rules: the rules of the search.
        estimate: the estimated cost of a state.
        measure: a function that takes a segment, and returns the cost function that measures the segment's equivalents.
        deadline: the active time at which the search ends.
        limits: the limits of each search.
        find: the function that searches a segment before the deadline.
        on_timeout: the function that searches a segment after the deadline.
    """
    weight = {state: max(estimate(state), 1e-9) * runs for state, runs in segments.items()}
    waiting = sorted(segments, key=lambda state: -weight[state])
    for position, state in enumerate(waiting):
        rest = waiting[position:]
        share = (weight[state] / sum(weight[s] for s in rest) + 1 / len(rest)) / 2
        now = active_time()
        own = replace(limits or SearchLimits(), deadline=now + share * max(deadline - now, 0.0))
        if not expired(deadline):
            yield state, find(state, rules, estimate=estimate, measure=measure(state), limits=own)
        elif on_timeout is not None:
            yield state, on_timeout(state, rules, estimate=estimate, measure=estimate, limits=own)
        else:
            yield state, unchanged_result(state, estimate)


def gains(start: State, steps: Sequence[Step], measure: Cost) -> list[float]:
    """Return the seconds that each step saves according to `measure`, in the order of the steps.

    A negative number means that the step makes the state slower.
    """
    costs = [measure(start), *map(measure, states(start, steps))]
    return [before - after for before, after in itertools.pairwise(costs)]


def states(start: State, steps: Sequence[Step]) -> Iterator[State]:
    """Apply the steps to `start` one after another, and yield the state after each step."""
    state = start
    for step in steps:
        replacement = dict(zip(step.roots, step.replacements, strict=True))
        state = tuple(replace_subterms(root, replacement) for root in state)
        yield state


def weight_elements(state: State) -> int:
    """Return the number of elements of the weights that the state's nodes read.

    A term that depends only on weights is computed beforehand and counts as a weight. A constant with a dynamic extent does not
    count, because the constant is made at run time.
    """
    live = [t for t in subterms(*state) if not t.constant]
    shapes = (w.shape for w in {a for t in live for a in t.args if a.constant})
    return sum(math.prod(e for e in shape if isinstance(e, int)) for shape in shapes if all(isinstance(e, int) for e in shape))
