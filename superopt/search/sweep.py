"""Search by sweeps. A sweep applies a rule at all of its matches in a whole island at once, and the next sweep starts from the
result.

An island is a convex region of the model. Some rewrites make a model faster only if the rewrites are made in the whole island.
A search in a part of the island does not find these rewrites. For example, a product may be applied to each time step, after a
slice. If only one product is moved before its slice, the model becomes slower. If all products are moved, they become one
product.

A rule with several outputs is applied to siblings, which are terms at the same distance from the inputs. For example, two
products that share an operand become slices of one product. Further sweeps join the resulting products, until one product is
left. Data-movement operators that cancel after a sweep are removed at once.

First, each sweep with an estimated gain is measured, and is accepted if the state becomes faster. If no sweep with an estimated
gain is left, the search explores chains of several sweeps by estimated time. Only the best states at the ends of the chains are
measured. Last, sweeps without an estimated gain are measured, because the estimate does not take the speed of single kernels
into account. For example, ONNX Runtime runs convolutions of images much faster than convolutions of sequences. Rules that
replace terms with a large estimated time come first. Before all sweeps, the search tries padded tensors (see `widen`), and
joins the operators of parallel branches layer by layer (see `layers`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from superopt.budget import active_time, expired
from superopt.policy import SEARCH
from superopt.search.apply import State, Step
from superopt.search.backtracking import OUT_OF_TIME, Cost, SearchLimits, SearchResult
from superopt.search.layers import has_wide_layer, join_layers
from superopt.search.ruleset import RuleSet
from superopt.search.sweeper import Sweeper, Swept
from superopt.search.widen import widened_states

SWEPT = "no sweep gains more"


def sweep(start: State, rules: RuleSet, *, estimate: Cost, measure: Cost, limits: SearchLimits | None = None) -> SearchResult:
    """Search by sweeps, and return the cheapest state found, or `start` if no state is cheaper.

    A sweep applies one rule at all of its matches at once.
    """
    within = limits or SearchLimits()
    found = SearchResult(start, (), cost := measure(start), cost, 0, SWEPT)

    def taken(swept: Swept) -> bool:
        """Measure the state, and return whether the state is cheaper than the best state. A cheaper state becomes the best
        state.
        """
        nonlocal found
        after, expanded = measure(swept.state), found.expanded + 1
        cheaper = after < found.after * (1 - SEARCH.min_gain_share)
        here = replace(found, outputs=swept.state, steps=(*begun, *swept.steps), after=after) if cheaper else found
        found = replace(here, expanded=expanded)
        return cheaper

    def any_taken(ends: Iterable[Swept]) -> bool:
        """Measure the states in `ends` with the lowest estimated times. Return whether one of the states becomes the best
        state.
        """
        return sum(map(taken, sorted(ends, key=lambda end: end.estimate)[: SEARCH.max_measured_sweeps])) > 0

    begun: tuple[Step, ...] = ()
    for state, steps in widened_states(start, rules):
        taken(Swept(state, steps, estimate(state)))
    begun, start = found.steps, found.outputs
    any_taken(_layers(start, Sweeper(rules, estimate, math.inf, _share(SEARCH.layer_time_share, within.deadline))))
    better, deadline = True, _share(SEARCH.sweep_time_share, within.deadline)
    while better and not expired(deadline):
        begun, start = found.steps, found.outputs
        sweeper = Sweeper(rules, estimate, within.alpha * estimate(start), deadline)
        better = len([*sweeper.descent(start, taken)]) > 0 or any_taken(sweeper.cheaper(start))
        if not better:
            detours = Sweeper(rules, estimate, math.inf, deadline).detours(start)
            better = sum(map(taken, itertools.islice(detours, SEARCH.max_measured_sweeps))) > 0
    return replace(found, stopped=OUT_OF_TIME if expired(deadline) else SWEPT)


def _share(share: float, deadline: float) -> float:
    """Return the deadline (an active time) for a part of the search that may use this share of the time until `deadline`."""
    now = active_time()
    return now + share * (deadline - now)


def _layers(start: State, sweeper: Sweeper) -> Iterator[Swept]:
    """Join the operators of equal parallel branches layer by layer. Yield the state before the first layer, and the state after
    each layer and each further sweep.

    A sweep applies one rule at all of its matches at once. Before the layers are joined, sweeps of rules with one output lower
    the estimated time. These sweeps may use only a part of the sweeper's time. The further sweeps, after the last layer, also
    lower the estimated time. Nothing is yielded if the state has no equal parallel branches.
    """
    if not has_wide_layer(start):
        return
    first = Swept(start, (), sweeper.estimate(start))
    within = replace(sweeper, deadline=_share(SEARCH.layer_preparation_share, sweeper.deadline))
    *_, alone = first, *within.descent(start, lambda _: True, joins=False)
    if alone is not first:
        yield alone
    last = alone
    for joined in join_layers(alone, sweeper):
        yield (last := joined)
    for end in sweeper.descent(last.state, lambda _: True):
        yield replace(end, steps=(*last.steps, *end.steps))
