"""Whether a step is what it says: each of its roots exchanged for what a rule says is equal.

The search is not asked how it came to the step. The rule is matched at the roots anew, and what it says there is compared with
what the step has. A sweep exchanges many roots at once, with replacements inside each other, so what the rule says of each is
put together again (`rebuilt`, which refuses replacements that need each other in a cycle).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from superopt.errors import ShapeError
from superopt.graph import Term
from superopt.op import rebuild
from superopt.rewrite.apply import State, Step, computed, rebuilt
from superopt.rewrite.ruleset import RuleSet


def is_instance(step: Step, state: State, rules: RuleSet) -> bool:
    """Whether one of the rules says of every root of the step that it equals its replacement.

    Where a rule has several outputs, the others may stand at any term of the state.
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
    """The state with the step's roots exchanged; None where that is not well typed."""
    wanted = dict(zip(step.roots, step.replacements, strict=True))
    cache: dict[Term, Term] = {}
    try:
        return tuple(rebuild(root, wanted, cache) for root in state)
    except ShapeError:
        return None


def _equal(among: Sequence[Term], rules: RuleSet) -> Iterator[tuple[Term, Term]]:
    """What matches of the rules at these terms say is equal to what."""

    def candidates(op: str) -> Sequence[Term]:
        return [t for t in among if t.op == op]

    for first in among:
        for _, match in rules.matches(first, candidates):
            yield from zip(match.roots, match.replacements, strict=True)


def _nested(new: Term, wanted: Mapping[Term, Term]) -> Term | None:
    """What the rule says, with all roots in it exchanged as the step has them; None where that is not well typed."""
    try:
        return rebuild(new, wanted)
    except ShapeError:
        return None


def _together(roots: State, said: Mapping[Term, Term]) -> State | None:
    """What the roots are when all are exchanged for what is said of them, inside each other too."""
    done = rebuilt(roots, said)
    return None if done is None else tuple(done[root] for root in roots)
