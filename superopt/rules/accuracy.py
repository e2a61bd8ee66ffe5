"""The growth of a rule's rounding error from its left side to its right side, by the algorithms' figures in specs/."""

from __future__ import annotations

from collections.abc import Iterable

from superopt.algebra.operators import operator
from superopt.algebra.terms import Term, subterms
from superopt.rules.rule import Rule


def is_algorithm(rule: Rule) -> bool:
    """Return whether the rule states an algorithm for an operator."""
    return any(operator(name).rounding is not None for name in rule.operators)


def growth(rule: Rule) -> float:
    """Return the typical growth of the rounding error, as a factor of at least 1."""
    if not is_algorithm(rule):
        return 1.0
    first = rule.equations[0]
    return max(1.0, _rounding(first.right) / _rounding(first.left))


def admitted(rules: Iterable[Rule], tolerance: float) -> list[Rule]:
    """Return the rules whose rounding error typically grows by no more than this factor, or not at all."""
    return [rule for rule in rules if growth(rule) <= max(1.0, tolerance)]


def _rounding(roots: tuple[Term, ...]) -> float:
    """Return the largest ratio of a term's rounding error to that of the definition it computes."""
    found = [1.0]
    for term in subterms(*roots):
        rounding = None if term.is_variable else operator(term.op).rounding
        found += [] if rounding is None else [rounding(**dict(term.attributes))]
    return max(found)
