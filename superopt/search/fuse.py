"""Fusions: a fusion replaces a term by an operator whose definition equals the term.

One fusion is applied at all of its matches at once. Next, reshapes and transposes that cancel around the new operators are
removed. The next fusion is then tried on the new state. A measurement decides for each new state whether the state is faster.

A fusion matches only one form of a term. `superopt.search.recognition` recognizes terms of any form that compute the function
of an operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from superopt.algebra.terms import Size, Term, substitute, subterms
from superopt.policy import SEARCH
from superopt.search.apply import State, Step, first_rewrite, replaced_terms, run_time_terms
from superopt.search.backtracking import SearchResult
from superopt.search.ruleset import RuleSet
from superopt.search.sequence import reshape_rewritten_term

ORDERS = frozenset({"reshape", "transpose"})
"""Operators that only reorder the elements of their operand, or only change the operand's shape."""
PRIMES = (5, 7, 11, 13, 17, 19)
"""The values that dynamic dimensions take when the orders of elements are compared."""


def with_fusions(found: SearchResult, fusions: RuleSet, *, faster: Callable[[State, State], float]) -> SearchResult:
    """Apply the fusions that give the fastest state to a search result, and return the new search result.

    If no fusion gives a faster state, return `found`. A fusion replaces a term by an operator whose definition equals the term.

    Args:
        found: the search result.
        fusions: the rules that are fusions.
        faster: a function that times two states and returns the quotient of the first time and the second time. Whole states
            are timed, because the sum of the times of single kernels is unreliable if many kernels become one kernel.
    """
    best, most = found, 1 + SEARCH.min_gain_share
    for state, steps in fusion_states(found.outputs, fusions):
        best, times = replace(best, expanded=best.expanded + 1), faster(found.outputs, state)
        if times > most:
            most = times
            best = replace(best, outputs=state, steps=(*found.steps, *steps), after=found.after / times)
    return best


def with_single_operators(
    found: SearchResult,
    rules: RuleSet,
    *,
    faster: Callable[[State, State], float],
    others: Callable[[State], Mapping[str, Mapping[Term, Term]]] = lambda _: {},
) -> SearchResult:
    """Replace subterms of a search result by single operators that compute the same functions, and return the new result.

    First, all operators are tried together. Then each operator is tried by itself. Replacements are kept if they make the whole
    state faster.

    Args:
        found: the search result.
        rules: rules of recognized operators, and fusions without reshapes or transposes around the operator.
        faster: a function that times two states and returns the quotient of the first time and the second time.
        others: a function that returns further replacements in a state. The result maps the name of each step to a mapping from
            terms to their replacements.
    """
    every = tuple(dict.fromkeys((*rules.names, *others(found.outputs))))
    best = found
    for some in (every, *((name,) for name in every if len(every) > 1)):
        steps = _single_operator_steps(best.outputs, rules, others, some)
        if steps is None:
            continue
        state, taken = steps
        times = faster(best.outputs, state)
        best = replace(best, expanded=best.expanded + 1)
        if times > 1 + SEARCH.min_gain_share:
            best = replace(best, outputs=state, steps=(*best.steps, *taken), after=best.after / times)
    return best


def _single_operator_steps(
    state: State, rules: RuleSet, others: Callable[[State], Mapping[str, Mapping[Term, Term]]], names: Sequence[str]
) -> tuple[State, tuple[Step, ...]] | None:
    """Apply the rules with these names at every match, and return the new state and the steps.

    The replacements that the function `others` returns for these names are also made. The result is None if there are no
    replacements.
    """
    steps: list[Step] = []
    for name in names:
        wanted: dict[Term, Term] = {}
        for term in run_time_terms(state):
            for match in rules.alone(term, name):
                if _has_fixed_constants(match.replacements[0], term):
                    wanted.setdefault(term, match.replacements[0])
        wanted.update(others(state).get(name, {}))
        done = replaced_terms(state, wanted) if wanted else None
        if done is not None:
            steps.append(_step(name, wanted, done))
            state = tuple(done[root] for root in state)
    return (state, tuple(steps)) if steps else None


def _step(name: str, wanted: Mapping[Term, Term], done: Mapping[Term, Term]) -> Step:
    """Return the step that makes the replacements in `wanted`. `done` is the result of `replaced_terms`."""
    roots = tuple(root for root in wanted if root in done)
    return Step(name, roots, tuple(done[root] for root in roots))


def _has_fixed_constants(replacement: Term, root: Term) -> bool:
    """Return whether the new constants of the replacement have fixed shapes. A constant is new if it is not in `root`."""
    old = set(subterms(root))
    new = (part for part in subterms(replacement, stop=old) if part.constant)
    return all(isinstance(extent, int) for part in new for extent in part.shape)


def fusion_states(start: State, fusions: RuleSet) -> Iterator[tuple[State, tuple[Step, ...]]]:
    """Apply fusions one after another. After each fusion, yield the new state and all steps so far.

    A fusion replaces a term by an operator whose definition equals the term. Each fusion is applied at all of its matches.
    Reshapes and transposes that cancel afterwards are removed.
    """
    state, steps = start, list[Step]()
    while found := first_rewrite(state, fusions):
        (name, wanted), done = found, None
        while wanted and (done := replaced_terms(state, wanted)) is not None:
            steps.append(_step(name, wanted, done))
            state = tuple(done[root] for root in state)
            wanted = order_keeping_replacements(state)
        if done is None:
            return
        yield state, tuple(steps)


def order_keeping_replacements(state: State) -> dict[Term, Term]:
    """Find chains of reshapes and transposes that keep the order of elements. Return a mapping from each chain to its
    replacement.

    The replacement of a chain is one reshape of the chain's operand.
    """
    found: dict[Term, Term] = {}
    for term in run_time_terms(state):
        source = _in_order(term) if term.op in ORDERS else None
        if source is not None and reshape_rewritten_term(source, term.shape) is not term:
            found[term] = reshape_rewritten_term(source, term.shape)
    return found


def _in_order(term: Term) -> Term | None:
    """Follow the chain of reshapes and transposes down from `term`. Return the lowest operand with the element order of `term`.

    Return None if no operand has this element order. Dynamic dimensions are replaced by primes to compare the orders.
    """
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
