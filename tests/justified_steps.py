"""The check of a rewriting step: a rule must prove each replaced term (root) equal to its replacement.

The check does not trust how the search found the step. The check matches the rules at the roots again and compares the rules'
replacements with the step's replacements. One step may replace many roots at once, and one replacement may contain other roots.
So the check also combines the rules' replacements again. For this, the check uses `replaced_terms`, which refuses replacements
that contain each other in a cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from superopt.algebra.operators import replace_subterms
from superopt.algebra.terms import Term
from superopt.errors import ShapeError
from superopt.search.apply import State, Step, replaced_terms, run_time_terms
from superopt.search.ruleset import RuleSet


def is_justified_step(step: Step, state: State, rules: RuleSet) -> bool:
    """Return whether rules prove each term that the step replaces equal to the replacement.

    If a rule has several outputs, the other outputs may be any terms of the state.
    """
    wanted = dict(zip(step.roots, step.replacements, strict=True))
    said: dict[Term, Term] = {}
    for among in (step.roots, run_time_terms(state)):
        for root, new in _equal(among, rules):
            if root in wanted and root not in said and (new is wanted[root] or _nested(new, wanted) is wanted[root]):
                said[root] = new
                if len(said) == len(wanted):
                    return all(said[r] is wanted[r] for r in wanted) or _together(step.roots, said) == step.replacements
    return False


def apply_step(state: State, step: Step) -> State | None:
    """Return the state after the step, or None if the new state is not well typed. A state is a tuple of output terms."""
    wanted = dict(zip(step.roots, step.replacements, strict=True))
    cache: dict[Term, Term] = {}
    try:
        return tuple(replace_subterms(root, wanted, cache) for root in state)
    except ShapeError:
        return None


def _equal(among: Sequence[Term], rules: RuleSet) -> Iterator[tuple[Term, Term]]:
    """Yield, for every match of a rule at terms of `among`, each term that the rule replaces, with the replacement."""

    def candidates(op: str) -> Sequence[Term]:
        return [t for t in among if t.op == op]

    for first in among:
        for _, match in rules.matches(first, candidates):
            yield from zip(match.roots, match.replacements, strict=True)


def _nested(new: Term, wanted: Mapping[Term, Term]) -> Term | None:
    """Return the term `new` with the replacements `wanted` made inside of it, or None if the term is then not well typed."""
    try:
        return replace_subterms(new, wanted)
    except ShapeError:
        return None


def _together(roots: State, said: Mapping[Term, Term]) -> State | None:
    """Return the roots after the replacements `said` are made in the roots and inside of each other, or None if impossible."""
    done = replaced_terms(roots, said)
    return None if done is None else tuple(done[root] for root in roots)
