"""Backtracking search for a cheaper equivalent of a segment, best first under a measured cost.

A state is the segment's tuple of output terms. A state taken from the queue is measured; its successors wait in the queue
under a prediction: the state's measured cost plus the difference of the two roofline estimates. States within a factor
`alpha` of the best are kept, so a step that makes things worse can be taken back or built upon. After such a step only
matches near the new terms are followed, which looks ahead over a cost hill without widening the whole search. Successors
of the latest improvement come before what waits from earlier ones: independent rewrites commute, and trying them in every
order would only meet the same states again.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass

from superopt.graph import Term
from superopt.rewrite.apply import RuleSet, State, Step, neighbourhood, successors

Cost = Callable[[State], float]

NOISE = 4e-3
"""A smaller relative gain is within what two measurements of one segment differ by."""
OUT_OF_TIME = "out of time"


@dataclass(frozen=True)
class Limits:
    """When the search stops. `patience` counts expansions since the last improvement; `deadline` is a monotonic time."""

    alpha: float = 2.5
    expansions: int = 160
    patience: int = 40
    waiting: int = 4000
    deadline: float = float("inf")


@dataclass(frozen=True)
class Found:
    """The cheapest state met, the steps that lead to it, and both costs in seconds."""

    outputs: State
    steps: tuple[Step, ...]
    before: float
    after: float
    expanded: int
    stopped: str


@dataclass(frozen=True)
class _Visit:
    state: State
    steps: tuple[Step, ...]
    focus: frozenset[Term] | None


def search(start: State, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: Limits | None = None) -> Found:
    """The cheapest state reachable within the limits; `start` itself if nothing is cheaper.

    The result depends on the costs and the limits alone, as long as the deadline is not what stops the search.
    """
    limits = limits or Limits()
    before = measure(start)
    best, best_cost = start, before
    best_steps: tuple[Step, ...] = ()
    queue: list[tuple[int, float, int, _Visit]] = [(0, before, 0, _Visit(start, (), None))]
    seen: set[State] = {start}
    expanded = since = ticket = improved = 0
    stopped = "every reachable state was seen"
    while queue:
        if time.monotonic() >= limits.deadline:
            stopped = OUT_OF_TIME
            break
        if expanded >= limits.expansions or since >= limits.patience:
            stopped = "no improvement lately" if since >= limits.patience else "expansion limit"
            break
        _, predicted, _, visit = heapq.heappop(queue)
        if predicted > limits.alpha * best_cost:
            continue
        cost = measure(visit.state)
        expanded += 1
        since += 1
        if cost < best_cost * (1 - NOISE):
            best, best_cost, best_steps, since = visit.state, cost, visit.steps, 0
            improved += 1
        if cost > limits.alpha * best_cost:
            continue
        here = estimate(visit.state)
        for state, step in successors(visit.state, rules, visit.focus):
            if state in seen or len(queue) > limits.waiting:
                continue
            seen.add(state)
            change = estimate(state) - here
            forecast = max(cost + change, 0.01 * cost)
            if forecast <= limits.alpha * best_cost:
                ticket += 1
                focus = neighbourhood(state, visit.state) if change > 0.02 * here else None
                heapq.heappush(queue, (-improved, forecast, ticket, _Visit(state, (*visit.steps, step), focus)))
    return Found(best, best_steps, before, best_cost, expanded, stopped)
