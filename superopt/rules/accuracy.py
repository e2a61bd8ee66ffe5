"""Estimates of the growth of the rounding error from a rule's left side to its right side.

A fast algorithm, such as Winograd's algorithm for convolution, has a file in specs/. The file states the typical ratio of the
algorithm's rounding error to the rounding error of the operator's definition.
"""

from __future__ import annotations

from collections.abc import Iterable

from superopt.algebra.operators import operator
from superopt.algebra.terms import Term, subterms
from superopt.rules.rule import Rule


def is_fast_algorithm_rule(rule: Rule) -> bool:
    """Return whether the rule contains a fast algorithm for an operator, such as Winograd's algorithm for convolution."""
    return any(operator(name).rounding is not None for name in rule.operators)


def growth(rule: Rule) -> float:
    """Return the factor, at least 1, by which the rounding error typically grows from the left side to the right side."""
    if not is_fast_algorithm_rule(rule):
        return 1.0
    first = rule.equations[0]
    return max(1.0, _rounding(first.right) / _rounding(first.left))


def admit_by_growth(rules: Iterable[Rule], tolerance: float) -> list[Rule]:
    """Return the rules that multiply the typical rounding error by at most `tolerance`.

    A rule that does not increase the error is always returned.
    """
    return [rule for rule in rules if growth(rule) <= max(1.0, tolerance)]


def _rounding(roots: tuple[Term, ...]) -> float:
    """Return the typical factor by which fast algorithms in the graph `roots` increase the rounding error.

    Each fast algorithm states the typical ratio of its rounding error to the rounding error of the operator's definition. The
    result is the largest of these ratios, and at least 1.
    """
    found = [1.0]
    for term in subterms(*roots):
        rounding = None if term.is_variable else operator(term.op).rounding
        found += [] if rounding is None else [rounding(**dict(term.attributes))]
    return max(found)
