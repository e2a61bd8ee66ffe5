"""Addition of missing conditions to a rule's `where` clause.

Some right sides are well typed only under a condition, or have the left side's shape only under a condition. The condition is
missing if the rule's assumptions do not imply the condition.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from superopt.algebra.terms import Compare, Cond, at_least, same, subterms
from superopt.errors import NotationError, ShapeError
from superopt.notation.parsing import render_condition
from superopt.notation.rank_instances import equations
from superopt.policy import PROOF
from superopt.proof.definitions.arithmetic import isolated_solver
from superopt.proof.definitions.assumptions import Assumptions
from superopt.rules.rule import Rule


@functools.lru_cache(maxsize=PROOF.completion_cache_count)
@isolated_solver()
def add_preconditions(rule: Rule) -> Rule | None:
    """Add all missing conditions to the rule and return the new rule.

    Wherever the new rule applies, the right side is well typed and has the left side's shape. Return the rule itself if no
    condition is missing. Return None in three cases: the conditions contradict each other, the conditions exclude one of the
    rule's choices of ranks, or too many conditions are missing.
    """
    for _ in range(PROOF.max_added_conditions):
        try:
            missing = next((c for e in rule.equations for c in _missing(Assumptions(e))), None)
            if missing is None:
                return rule
            statement = replace(rule.statement, where=(*rule.statement.where, render_condition(missing)))
            read = equations(statement)
        except (ShapeError, NotationError):
            return None
        if [e.ranks for e in read] != [e.ranks for e in rule.equations]:
            return None
        rule = Rule(rule.name, statement, tuple(read))
    return None


def _missing(assumptions: Assumptions) -> Iterator[Cond]:
    """Yield the conditions that the right side needs and that do not follow from the assumptions.

    Typing conditions that are equalities come first, then all other typing conditions. The conditions which say that both sides
    have the same shape come last.
    """
    needed = [c for t in subterms(*assumptions.right) for c in (*t.requires, *(at_least(e, 1) for e in t.shape))]
    needed.sort(key=lambda c: not (isinstance(c, Compare) and c.relation == "=="))
    pairs = zip(assumptions.left, assumptions.right, strict=True)
    needed += [same(a, b) for left, right in pairs for a, b in zip(left.shape, right.shape, strict=True)]
    yield from (c for c in needed if not assumptions.holds(c))
