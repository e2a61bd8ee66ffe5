"""Lookahead: chains of a few steps that may raise the estimated cost at first, and lower the estimated cost at the end.

For example, folding a low-rank adapter into its matrix takes three steps, and the first step increases the work by a large
factor. The steps of a chain are chosen only by estimated cost. Each step starts at terms near the previous step. Only the last
states of the chains are passed to the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from superopt.algebra.terms import Term
from superopt.policy import SEARCH
from superopt.search.apply import State, Step, neighbourhood, successors
from superopt.search.ruleset import RuleSet


@dataclass(frozen=True)
class Horizon:
    """The limits of the search for chains of steps that lower the estimated cost only at the end.

    Attributes:
        depth: the largest number of steps in a chain.
        beam: the largest number of chains that are followed from one depth to the next.
        alike: the largest number of chains of equal depth that may end with one rule.
    """

    depth: int = SEARCH.max_chain_steps
    beam: int = SEARCH.max_chain_beam
    alike: int = SEARCH.max_chains_per_rule


@dataclass(frozen=True)
class StepChain:
    """A chain of steps, the state that the steps lead to, and the estimated cost of the state.

    `focus` contains the terms at which the next step may start. If `focus` is None, the next step may start anywhere.
    """

    state: State
    steps: tuple[Step, ...]
    estimate: float
    focus: frozenset[Term] | None


def chains(
    start: State, rules: RuleSet, *, estimate: Callable[[State], float], ceiling: float, horizon: Horizon
) -> Iterator[StepChain]:
    """Yield chains of two or more rewriting steps that lead from `start` to a state with a lower estimated cost.

    The estimated cost after each step is at most `ceiling`.
    """
    here = estimate(start)
    seen: set[State] = {start}
    frontier = [StepChain(start, (), here, None)]
    for depth in range(horizon.depth):
        ahead: list[StepChain] = []
        for chain in frontier:
            for state, step in successors(chain.state, rules, chain.focus):
                if state in seen:
                    continue
                seen.add(state)
                cost = estimate(state)
                if cost > ceiling:
                    continue
                steps = (*chain.steps, step)
                if cost < here * (1 - SEARCH.min_estimated_gain_share):
                    if depth:
                        yield StepChain(state, steps, cost, None)
                else:
                    ahead.append(StepChain(state, steps, cost, neighbourhood(state, chain.state)))
        frontier = _diverse(ahead, horizon)


def _diverse(ahead: list[StepChain], horizon: Horizon) -> list[StepChain]:
    """Return the `horizon.beam` chains with the lowest estimated cost.

    At most `horizon.alike` of these chains end with the same rule.
    """
    kept: list[StepChain] = []
    count: dict[str, int] = {}
    for chain in sorted(ahead, key=lambda c: c.estimate):
        rule = chain.steps[-1].rule
        if count.get(rule, 0) < horizon.alike:
            count[rule] = count.get(rule, 0) + 1
            kept.append(chain)
    return kept[: horizon.beam]
