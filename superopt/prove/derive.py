"""Whether an equality follows from given rules, by equality saturation over symbolic sizes, with a chain of steps that shows it.

Rules are used as equalities, in both directions, wherever their conditions follow from those of the equality in question.
What saturation finds is not believed: Z3 derives the sides again from the instances alone, as it does for proofs from axioms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from superopt.errors import ShapeError
from superopt.graph import Term, conjunction, subterms
from superopt.op import requirements
from superopt.prove.assumptions import Assumptions
from superopt.prove.derive_chain import Chain, linear
from superopt.prove.ematch import Direction, directions
from superopt.prove.ground import Ground
from superopt.prove.replay import Derivation, goals_of, sound, well_typed
from superopt.prove.saturate import Limits, Readings, Saturation
from superopt.rule import Rule
from superopt.show import show
from superopt.text import Equation

LIMITS = Limits(rounds=12, terms=300, steps=5_000, growth=((0, 2), (2, 4), (4, 8), (8, 14)))


def parts(equation: Equation) -> tuple[Equation, ...]:
    """The equation output by output: each holds wherever all of them are well typed."""
    if len(equation.left) == 1:
        return (equation,)
    where = conjunction(equation.where, *requirements(*equation.left))
    return tuple(
        replace(equation, left=(left,), right=(right,), where=where)
        for left, right in zip(equation.left, equation.right, strict=True)
    )


@dataclass(frozen=True)
class Reading:
    """A direction of a rule, the rule's place among the laws, and the operators of both sides."""

    direction: Direction
    position: int
    operators: frozenset[str]


class Laws:
    """Rules to derive from, prepared for matching."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._readings = [
            Reading(direction, position, direction.inner | direction.target_operators)
            for position, rule in enumerate(rules)
            for equation in rule.equations
            for part in parts(equation)
            for direction in directions(rule.name, part)
        ]
        self._allowed: dict[frozenset[str], list[Reading]] = {}
        self._grown: dict[frozenset[str], frozenset[str]] = {}

    def among(self, operators: frozenset[str], without: Collection[int] = ()) -> Readings:
        """The readings that have these operators alone, by the operator and rank of the side that is matched.

        Rules at the positions `without` are left out.
        """
        if operators not in self._allowed:
            self._allowed[operators] = [r for r in self._readings if r.operators <= operators]
        found: dict[tuple[str, int], list[Direction]] = {}
        for reading in self._allowed[operators]:
            if reading.position not in without:
                source = reading.direction.source
                found.setdefault((source.op, source.rank), []).append(reading.direction)
        return found

    def grown(self, operators: frozenset[str]) -> frozenset[str]:
        """The operators, and all that one rule brings in where it needs no others to stand."""
        if operators not in self._grown:
            new = (r.direction.target_operators for r in self._readings if r.direction.inner <= operators)
            self._grown[operators] = operators.union(*new)
        return self._grown[operators]


def derivable(
    rule: Rule, from_rules: Laws | Sequence[Rule], limits: Limits = LIMITS, without: Collection[int] = ()
) -> tuple[Chain, ...] | None:
    """A chain for every choice of the rule's ranks, or None where one of them was not found to follow within the limits."""
    laws = from_rules if isinstance(from_rules, Laws) else Laws(from_rules)
    chains: list[Chain] = []
    enough: Laws | None = None
    for equation in rule.equations:
        chain = derived(equation, enough, limits) if enough is not None else None
        chain = chain or derived(equation, laws, limits, without)
        if chain is None:
            return None
        chains.append(chain)
        if enough is None:
            enough = Laws([laws.rules[p] for p in range(len(laws.rules)) if p not in without and laws.rules[p].name in chain.rules])
    return tuple(chains)


def derived(equation: Equation, laws: Laws, limits: Limits = LIMITS, without: Collection[int] = ()) -> Chain | None:
    """The steps by which each output of the left side becomes that of the right; None if they were not found."""
    if equation.left == equation.right:
        return Chain(equation.ranks, tuple((show(term), ()) for term in equation.left))
    try:
        assumptions = Assumptions(equation)
    except ShapeError:
        return None
    if well_typed(assumptions) is not None:
        return None
    own = operators_of(subterms(*assumptions.left, *assumptions.right))
    for allowed in dict.fromkeys((own, laws.grown(own))):
        chain = _searched(assumptions, equation, laws.among(allowed, without), allowed, limits)
        if chain is not None:
            return chain
    return None


def operators_of(terms: Iterable[Term]) -> frozenset[str]:
    """The operators that stand in the terms."""
    return frozenset(t.op for t in terms if not t.is_variable)


def _searched(
    assumptions: Assumptions, equation: Equation, readings: Readings, allowed: frozenset[str], limits: Limits
) -> Chain | None:
    search = Saturation(assumptions, allowed, limits, readings)
    goals = goals_of(assumptions)
    if not search.run(goals):
        return None
    given, _ = search.closure.explain(goals)
    grounds = [Ground(g.text, g.text, g.left, g.right) for g in given]
    if not all(sound(g, assumptions) for g in grounds) or not Derivation(goals, grounds).follows(grounds):
        return None
    try:
        outputs = tuple((show(one), linear(search.closure, one, other)) for one, other in goals)
    except ShapeError:
        return None
    return Chain(equation.ranks, outputs)
