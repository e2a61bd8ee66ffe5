"""Best-first backtracking search, by measured cost, for a cheaper equivalent of a segment (a part of the model).

A state is the segment's tuple of output terms. The search takes states from the queue one by one, and measures each state. Each
successor of the state enters the queue with a predicted cost: the measured cost of the state, plus the difference between the
roofline estimates of the two states. States within a factor `alpha` of the best state stay in the queue, so that the search can
continue from a state that is slower than the best state. After a step that raises the estimate, only matches near the new terms
are tried.

If single steps have not improved the best state for a while, the search explores chains of several steps (see `lookahead`).
Only estimated costs are used inside a chain, and the last state of a chain joins the queue. Successors of the latest
improvement come before older states in the queue. This order saves work, because independent rewrites commute: different orders
of independent rewrites lead to equal states.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from superopt.algebra.terms import Term
from superopt.budget import expired
from superopt.policy import SEARCH
from superopt.search.apply import State, Step, neighbourhood, successors
from superopt.search.lookahead import Horizon, chains
from superopt.search.ruleset import RuleSet

Cost = Callable[[State], float]

OUT_OF_TIME = "the time limit was reached"


@dataclass(frozen=True)
class SearchLimits:
    """The limits of a search.

    Attributes:
        alpha: a state stays in the queue only if its predicted cost is at most this factor times the lowest measured cost.
        expansions: the largest number of states that are taken from the queue and measured.
        patience: the number of expansions without improvement after which the search stops.
        impatience: the number of expansions without improvement after which the search looks ahead. To look ahead, the search
            follows chains of several steps from the best state, and uses only estimated costs.
        waiting: the largest number of states in the queue.
        horizon: the limits of the chains of steps.
        deadline: the active time (see `budget.active_time`) at which the search stops.
        growth: the largest number of elements that alternative algorithms for operators may add to the weights of the start
            state.
        room: the largest number of elements that all steps of the search together may add to the weights of the start state.
    """

    alpha: float = SEARCH.max_state_cost_factor
    expansions: int = SEARCH.max_expansions
    patience: int = SEARCH.patience_expansion_count
    impatience: int = SEARCH.lookahead_expansion_count
    waiting: int = SEARCH.max_queued_states
    horizon: Horizon = field(default_factory=Horizon)
    deadline: float = float("inf")
    growth: float = float("inf")
    room: float = float("inf")


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        outputs: The cheapest state found, as output terms.
        steps: The steps from the start to the cheapest state.
        before: The cost of the start, in seconds.
        after: The cost of the cheapest state, in seconds.
        expanded: The number of states that were examined.
        stopped: The reason why the search ended.
    """

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


def search(start: State, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: SearchLimits | None = None) -> SearchResult:
    """Apply the rules step by step, and return the cheapest state found.

    If no state is cheaper than `start`, return `start`. The function `measure` returns the cost of a state. `estimate` and
    `limits` determine which states are measured. Two searches give equal results if `estimate` and `measure` return equal costs
    in both searches, and the deadline stops neither search.
    """
    return _Search(start, rules, estimate, measure, limits or SearchLimits()).run()


class _Search:
    def __init__(self, start: State, rules: RuleSet, estimate: Cost, measure: Cost, limits: SearchLimits) -> None:
        self.rules, self.estimate, self.measure, self.limits = rules, estimate, measure, limits
        self.before = self.cost = measure(start)
        self.best = _Visit(start, (), None)
        self.queue: list[tuple[int, float, int, _Visit]] = [(0, self.before, 0, self.best)]
        self.seen: set[State] = {start}
        self.improvements = self.since = self.expanded = 0
        self.looked: State | None = None

    def run(self) -> SearchResult:
        """Visit states until the queue is empty or a limit is reached. Return the cheapest state and the reason to stop."""
        stopped = self._reason()
        while stopped is None:
            if (not self.queue or self.since >= self.limits.impatience) and self.looked is not self.best.state:
                self._look_ahead()
            elif not self.queue:
                stopped = "every reachable state was seen"
            else:
                _, forecast, _, visit = heapq.heappop(self.queue)
                if forecast <= self.limits.alpha * self.cost:
                    self._expand(visit)
            stopped = stopped or self._reason()
        return SearchResult(self.best.state, self.best.steps, self.before, self.cost, self.expanded, stopped)

    def _reason(self) -> str | None:
        """Return the reason to stop the search now, or None if no limit of the search is reached."""
        if expired(self.limits.deadline):
            return OUT_OF_TIME
        if self.since >= self.limits.patience:
            return "the last expansions found no improvement"
        return "the limit of expanded states was reached" if self.expanded >= self.limits.expansions else None

    def _expand(self, visit: _Visit) -> None:
        """Measure the state of `visit`, and queue the states that one rewriting step reaches from this state."""
        cost = self.measure(visit.state)
        self.expanded += 1
        self.since += 1
        if cost < self.cost * (1 - SEARCH.min_gain_share):
            self.best, self.cost, self.since = visit, cost, 0
            self.improvements += 1
        if cost > self.limits.alpha * self.cost:
            return
        here = self.estimate(visit.state)
        for state, step in successors(visit.state, self.rules, visit.focus):
            if state not in self.seen and len(self.queue) < self.limits.waiting:
                change = self.estimate(state) - here
                focus = neighbourhood(state, visit.state) if change > SEARCH.hill_rise_share * here else None
                self._queue(_Visit(state, (*visit.steps, step), focus), max(cost + change, 0.01 * cost))

    def _look_ahead(self) -> None:
        """Find chains of steps from the best state, and queue the last states of the chains.

        The steps are chosen by estimated cost, without measurements.
        """
        start = self.looked = self.best.state
        here = self.estimate(start)
        ceiling = self.limits.alpha * here
        for chain in chains(start, self.rules, estimate=self.estimate, ceiling=ceiling, horizon=self.limits.horizon):
            if expired(self.limits.deadline):
                return
            forecast = max(self.cost + chain.estimate - here, 0.01 * self.cost)
            self._queue(_Visit(chain.state, (*self.best.steps, *chain.steps), None), forecast)

    def _queue(self, visit: _Visit, forecast: float) -> None:
        if visit.state not in self.seen and forecast <= self.limits.alpha * self.cost:
            self.seen.add(visit.state)
            heapq.heappush(self.queue, (-self.improvements, forecast, len(self.seen), visit))
