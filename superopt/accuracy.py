"""How much more a rule's right side rounds than its left, by what specs/ state of algorithms."""

from __future__ import annotations

from collections.abc import Iterable

from superopt.graph import Term, subterms
from superopt.op import operator
from superopt.rule import Rule


def is_algorithm(rule: Rule) -> bool:
    """Whether it says of an operator by what algorithm it is computed."""
    return any(operator(name).rounding is not None for name in rule.operators)


def growth(rule: Rule) -> float:
    """How many times as large the error of rounding typically becomes, at least 1."""
    if not is_algorithm(rule):
        return 1.0
    first = rule.equations[0]
    return max(1.0, _rounding(first.right) / _rounding(first.left))


def admitted(rules: Iterable[Rule], tolerance: float) -> list[Rule]:
    """The rules by which the error of rounding typically grows by no more than this factor, or does not."""
    return [rule for rule in rules if growth(rule) <= max(1.0, tolerance)]


def _rounding(roots: tuple[Term, ...]) -> float:
    """How many times as large as by the definitions of what is computed the error is, where that is most."""
    found = [1.0]
    for term in subterms(*roots):
        rounding = None if term.is_variable else operator(term.op).rounding
        found += [] if rounding is None else [rounding(**dict(term.attributes))]
    return max(found)
