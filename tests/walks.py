"""Random walks over rules, without regard to cost."""

from __future__ import annotations

import math
import random

from superopt.algebra.dim_binding import FIXED, DimBinding
from superopt.algebra.terms import subterms
from superopt.errors import ShapeError
from superopt.search.apply import State, successors
from superopt.search.gate import Gate
from superopt.search.ruleset import RuleSet


def walk(
    start: State,
    rules: RuleSet,
    rng: random.Random,
    *,
    steps: int,
    largest: float,
    sizing: DimBinding = FIXED[0],
    gate: Gate | None = None,
) -> tuple[State, list[str]]:
    """Return a state up to `steps` random steps away from the start, and the names of the rules that lead there.

    The walk visits no state twice. The tensors of each state have at most `largest` elements together, at the sizes `sizing`.
    With a gate, the walk skips each state for which `Gate.rounds_otherwise` is true.
    """
    state, seen, taken = start, {start}, list[str]()
    for _ in range(rng.randint(1, steps)):
        by_rule: dict[str, list[State]] = {}
        for after, step in successors(state, rules):
            refused = gate is not None and gate.rounds_otherwise(after)
            if after not in seen and not refused and elements(after, sizing) <= largest:
                by_rule.setdefault(step.rule, []).append(after)
        if not by_rule:
            break
        rule = rng.choice(sorted(by_rule))
        state = rng.choice(by_rule[rule])
        seen.add(state)
        taken.append(rule)
    return state, taken


def elements(state: State, sizing: DimBinding) -> float:
    """Return the number of elements of all tensors of a state, or infinity if the state is not defined at these sizes."""
    try:
        return sum(math.prod(t.sizes) for t in subterms(*map(sizing.at, state)))
    except ShapeError:
        return math.inf
