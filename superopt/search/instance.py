"""The check that a step is an instance of a rule: each root is replaced by a term that a rule proves equal.

The check does not use the search's derivation of the step. It matches the rules at the roots again and compares their
replacements with those of the step. A sweep replaces many roots at once, with replacements inside each other. So the check
combines the rules' replacements again (`rebuilt`, which refuses replacements that need each other in a cycle).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from superopt.algebra.operators import rebuild
from superopt.algebra.terms import Term
from superopt.errors import ShapeError
from superopt.search.apply import State, Step, computed, rebuilt
from superopt.search.ruleset import RuleSet


def is_instance(step: Step, state: State, rules: RuleSet) -> bool:
    """Return whether, for every root of the step, one of the rules proves it equal to its replacement.

    If a rule has several outputs, the other outputs may be any terms of the state.
    """
    wanted = dict(zip(step.roots, step.replacements, strict=True))
    said: dict[Term, Term] = {}
    for among in (step.roots, computed(state)):
        for root, new in _equal(among, rules):
            if root in wanted and root not in said and (new is wanted[root] or _nested(new, wanted) is wanted[root]):
                said[root] = new
                if len(said) == len(wanted):
                    return all(said[r] is wanted[r] for r in wanted) or _together(step.roots, said) == step.replacements
    return False


def after(state: State, step: Step) -> State | None:
    """Return the state with the step's roots replaced, or None if the result is not well typed."""
    wanted = dict(zip(step.roots, step.replacements, strict=True))
    cache: dict[Term, Term] = {}
    try:
        return tuple(rebuild(root, wanted, cache) for root in state)
    except ShapeError:
        return None


def _equal(among: Sequence[Term], rules: RuleSet) -> Iterator[tuple[Term, Term]]:
    """Yield the pairs of equal terms that matches of the rules at these terms give."""

    def candidates(op: str) -> Sequence[Term]:
        return [t for t in among if t.op == op]

    for first in among:
        for _, match in rules.matches(first, candidates):
            yield from zip(match.roots, match.replacements, strict=True)


def _nested(new: Term, wanted: Mapping[Term, Term]) -> Term | None:
    """Return the rule's replacement with all roots inside it replaced as in the step, or None if it is not well typed."""
    try:
        return rebuild(new, wanted)
    except ShapeError:
        return None


def _together(roots: State, said: Mapping[Term, Term]) -> State | None:
    """Return the roots with all replacements `said` made, also inside each other, or None if they cannot be made."""
    done = rebuilt(roots, said)
    return None if done is None else tuple(done[root] for root in roots)
