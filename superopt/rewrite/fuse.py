"""Operators in the place of what they are defined as, by rules that are fusions.

All places of one fusion are taken at once, and what only moves elements around them goes where it undoes itself; then what that
makes is looked at for the next one. Each result is a candidate: whether it is faster is for a measurement to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from superopt.graph import Size, Term, substitute
from superopt.rewrite.apply import State, Step, computed, foremost, rebuilt
from superopt.rewrite.ruleset import RuleSet
from superopt.rewrite.search import NOISE, Found
from superopt.rewrite.sequence import shaped

ORDERS = frozenset({"reshape", "transpose"})
"""Operators that put the elements of their operand in another order, or none of them elsewhere, and can be undone."""
PRIMES = (5, 7, 11, 13, 17, 19)
"""What open extents are taken for where orders are compared."""


def with_fusions(found: Found, fusions: RuleSet, *, faster: Callable[[State, State], float]) -> Found:
    """What was found, with the fusions that are fastest there, if any is faster.

    `faster` says how many times as fast the second state is as the first, for which both are timed as wholes too: where many
    kernels become one, the sum of what kernels take by themselves does not tell enough.
    """
    best, most = found, 1 + NOISE
    for state, steps in fused(found.outputs, fusions):
        best, times = replace(best, expanded=best.expanded + 1), faster(found.outputs, state)
        if times > most:
            most = times
            best = replace(best, outputs=state, steps=(*found.steps, *steps), after=found.after / times)
    return best


def fused(start: State, fusions: RuleSet) -> Iterator[tuple[State, tuple[Step, ...]]]:
    """The states after one fusion at all of its places, after the next one, and so on, and the steps that lead to each."""
    state, steps = start, list[Step]()
    while found := foremost(state, fusions):
        (name, wanted), done = found, None
        while wanted and (done := rebuilt(state, wanted)) is not None:
            roots = tuple(root for root in wanted if root in done)
            steps.append(Step(name, roots, tuple(done[root] for root in roots)))
            state = tuple(done[root] for root in state)
            wanted = _undone(state)
        if done is None:
            return
        yield state, tuple(steps)


def _undone(state: State) -> dict[Term, Term]:
    """What terms whose order is that of the elements of another are: that one, in their shape."""
    found: dict[Term, Term] = {}
    for term in computed(state):
        source = _in_order(term) if term.op in ORDERS else None
        if source is not None and shaped(source, term.shape) is not term:
            found[term] = shaped(source, term.shape)
    return found


def _in_order(term: Term) -> Term | None:
    """The deepest term whose elements this one has in the same order, under moves alone; open extents are taken for primes."""
    chain = [term]
    while chain[-1].op in ORDERS:
        chain.append(chain[-1].args[0])
    names = dict.fromkeys(atom for one in chain for n in one.shape if isinstance(n, Size) for atom in n.atoms())
    numbers = dict(zip(names, PRIMES, strict=False))
    if len(numbers) < len(names):
        return None
    shapes = [tuple(int(substitute(n, numbers.get)) for n in one.shape) for one in chain]  # type: ignore[arg-type]
    positions = np.arange(math.prod(shapes[0]))
    for depth in range(len(chain) - 1, 0, -1):
        moved = positions.reshape(shapes[depth])
        for above, shape in zip(chain[depth - 1 :: -1], shapes[depth - 1 :: -1], strict=True):
            moved = moved.transpose(above.integers("perm")) if above.op == "transpose" else moved.reshape(shape)
        if np.array_equal(moved.ravel(), positions):
            return chain[depth]
    return None
