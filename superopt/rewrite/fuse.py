"""Operators of ONNX Runtime's own in the place of what they are defined as, by the rule set's fusions.

All places of one fusion are taken at once, and what only moves elements around them goes where it undoes itself; then what that
makes is looked at for the next one. Each result is a candidate: whether it is cheaper is for a measurement to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from superopt.graph import Term
from superopt.op import apply
from superopt.rewrite.apply import State, Step, computed
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.search import NOISE, Cost, Found
from superopt.rewrite.sequence import shaped
from superopt.rewrite.sweeper import rebuilt

ORDERS = frozenset({"reshape", "transpose"})
"""Operators that put the elements of their operand in another order, or none of them elsewhere, and can be undone."""


def with_fusions(found: Found, rules: RuleSet, *, measure: Cost) -> Found:
    """What was found, with those fusions of the rule set that measure faster there."""
    best = found
    for state, steps in fused(found.outputs, rules):
        after = measure(state)
        best = replace(best, expanded=best.expanded + 1)
        if after < best.after * (1 - NOISE):
            best = replace(best, outputs=state, steps=(*found.steps, *steps), after=after)
    return best


def fused(start: State, rules: RuleSet) -> Iterator[tuple[State, tuple[Step, ...]]]:
    """The states after one fusion at all of its places, after the next one, and so on, and the steps that lead to each."""
    state, steps = start, list[Step]()
    while found := _places(state, rules.fusions):
        name, wanted = found
        for some in (lambda _, wanted=wanted: wanted, _undone):
            wanted = some(state)
            done = rebuilt(state, wanted) if wanted else None
            if done is not None:
                roots = tuple(root for root in wanted if root in done)
                steps.append(Step(name, roots, tuple(done[root] for root in roots)))
                state = tuple(done[root] for root in state)
        yield state, tuple(steps)


def _places(state: State, fusions: RuleSet) -> tuple[str, dict[Term, Term]] | None:
    """The first fusion that has a place, and what it says of the terms at all of its places."""
    found: dict[str, dict[Term, Term]] = {}
    for term in computed(state):
        for name, match in fusions.matches(term):
            found.setdefault(name, {}).setdefault(term, match.replacements[0])
    return next(iter(found.items()), None)


def _undone(state: State) -> Mapping[Term, Term]:
    """What terms whose order is that of the elements of another are: that one, in their shape."""
    found: dict[Term, Term] = {}
    for term in computed(state):
        source = _in_order(term) if term.op in ORDERS else None
        if source is not None and shaped(source, term.sizes) is not term:
            found[term] = shaped(source, term.sizes)
    return found


def _in_order(term: Term) -> Term | None:
    """The deepest term whose elements this one has in the same order, under moves alone; None where an extent is open."""
    if not all(isinstance(n, int) for n in term.shape):
        return None
    chain = [term]
    while chain[-1].op in ORDERS:
        chain.append(chain[-1].args[0])
    positions = np.arange(math.prod(term.sizes))
    for source in reversed(chain[1:]):
        moved = positions.reshape(source.sizes)
        for above in reversed(chain[: chain.index(source)]):
            perm = above["perm"] if above.op == "transpose" else None
            moved = moved.transpose(perm) if perm is not None else moved.reshape(above.sizes)
        if np.array_equal(moved.ravel(), positions):
            return source
    return None
