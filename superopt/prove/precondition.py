"""What the right side of a rule needs and its left side does not give, written into the rule's `where`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from superopt.choices import equations
from superopt.errors import NotationError, ShapeError
from superopt.graph import Compare, Cond, at_least, same, subterms
from superopt.prove.arithmetic import afresh
from superopt.prove.assumptions import Assumptions
from superopt.rule import Rule
from superopt.text import show_condition

MOST = 12
KEPT = 64


@functools.lru_cache(maxsize=KEPT)
@afresh()
def completed(rule: Rule) -> Rule | None:
    """The rule, with conditions added until its right side is well typed and of the left side's shape wherever it applies.

    The rule itself where nothing is missing. None where the conditions exclude each other, or exclude one of its rank choices.
    """
    for _ in range(MOST):
        try:
            missing = next((c for e in rule.equations for c in _missing(Assumptions(e))), None)
            if missing is None:
                return rule
            statement = replace(rule.statement, where=(*rule.statement.where, show_condition(missing)))
            read = equations(statement)
        except (ShapeError, NotationError):
            return None
        if [e.ranks for e in read] != [e.ranks for e in rule.equations]:
            return None
        rule = Rule(rule.name, statement, tuple(read))
    return None


def _missing(assumptions: Assumptions) -> Iterator[Cond]:
    """Conditions that do not follow: equalities first, then bounds, then that the shapes agree."""
    needed = [c for t in subterms(*assumptions.right) for c in (*t.requires, *(at_least(e, 1) for e in t.shape))]
    needed.sort(key=lambda c: not (isinstance(c, Compare) and c.relation == "=="))
    pairs = zip(assumptions.left, assumptions.right, strict=True)
    needed += [same(a, b) for left, right in pairs for a, b in zip(left.shape, right.shape, strict=True)]
    yield from (c for c in needed if not assumptions.holds(c))
