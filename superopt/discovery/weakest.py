"""Find the weakest conditions on real attribute variables under which an equation may be true.

A condition is a conjunction of a few comparisons of variables with 0, with 1 and with each other. The equation is tested at
random values of the variables. The condition must be false at every tested value for which the two sides differ. The weaker of
two conditions is the condition that is true at more of the tested values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from superopt.algebra.terms import Atom, Compare, Cond, Extent, Sym, at_least, attribute_atoms, size, substitute_cond
from superopt.discovery.rule_conditions import ConditionJudge
from superopt.notation.parsing import Equation
from superopt.policy import DISCOVERY


def weakest_conditions(equation: Equation, judge: ConditionJudge) -> Iterator[tuple[Cond, ...]]:
    """Yield conditions on real attribute variables under which the equation passes random tests.

    The equation is tested at random values of the variables. A yielded condition is false at every tested value for which the
    two sides differ. Each condition is a tuple of comparisons that must all hold. Conditions that are true at more of the
    tested values come first. At most `DISCOVERY.condition_choice_count` conditions are yielded.
    """
    reals = sorted(a for a in attribute_atoms(*equation.left) if isinstance(a, Sym) and a.real)
    outcomes = judge.outcomes(equation) if reals else ()
    wrong = [values for values, agrees in outcomes if not agrees]
    right = [values for values, agrees in outcomes if agrees]
    if not wrong or not right:
        return
    comparisons = [(c, [_holds(c, v) for v in wrong], [_holds(c, v) for v in right]) for c in _comparisons(reals)]
    ranked: list[tuple[int, tuple[Compare, ...]]] = []
    for count in range(1, DISCOVERY.max_attribute_conditions + 1):
        for some in itertools.combinations(comparisons, count):
            conditions = tuple(c for c, _, _ in some)
            if _degenerate(conditions) or any(set(less) <= set(conditions) for _, less in ranked):
                continue
            if not any(map(all, zip(*(there for _, there, _ in some), strict=True))):
                kept = sum(map(all, zip(*(here for _, _, here in some), strict=True)))
                if kept:
                    ranked.append((-kept, conditions))
    ranked.sort(key=lambda one: one[0])
    yield from (conditions for _, conditions in ranked[: DISCOVERY.condition_choice_count])


def _degenerate(conditions: tuple[Compare, ...]) -> bool:
    """Return whether two of the comparisons together allow only one number, as `a >= 1` and `1 >= a` do."""
    return any(one.left + other.left == 0 for one, other in itertools.combinations(conditions, 2))


def _comparisons(reals: list[Sym]) -> Iterator[Compare]:
    numbers = [size(symbol) for symbol in reals]
    pairs = [pair for n in numbers for bound in (0, 1) for pair in ((n, bound), (bound, n))]
    for one, other in (*pairs, *itertools.permutations(numbers, 2)):
        condition = at_least(one, other)
        if isinstance(condition, Compare):
            yield condition


def _holds(condition: Cond, values: Mapping[str, Extent]) -> bool:
    def value(atom: Atom) -> Extent | None:
        return values.get(atom.name) if isinstance(atom, Sym) else None

    return substitute_cond(condition, value) is True
