"""Derivation of an equality from given rules, by saturation over symbolic sizes. The result is a chain of steps.

Rules are used as equalities, in both directions, wherever their conditions follow from the conditions of the derived equality.
The result of saturation is not trusted: Z3 checks that the rule instances from saturation imply the equality.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from superopt.algebra.operators import typing_conditions
from superopt.algebra.terms import Compare, Cond, Term, at_least, conjunction, same, subterms
from superopt.errors import ShapeError
from superopt.notation.parsing import Equation, render_condition
from superopt.notation.printing import render_terms
from superopt.policy import PROOF
from superopt.proof.axioms.ematch import Direction, directions
from superopt.proof.axioms.ground import Ground, regrouping_axiom_instance
from superopt.proof.axioms.replay import Derivation, goals_of, is_sound, type_objection
from superopt.proof.axioms.saturate import Readings, Saturation, SaturationLimits
from superopt.proof.definedness import defined_instances
from superopt.proof.definitions.assumptions import Assumptions
from superopt.proof.derivation.chain import Chain, linear_steps
from superopt.rules.rule import Rule

LIMITS = SaturationLimits(
    PROOF.max_derivation_rounds, PROOF.max_derivation_terms, PROOF.max_derivation_steps, PROOF.derivation_growth_counts
)

Scope: TypeAlias = "frozenset[tuple[frozenset[str], frozenset[str]]]"
"""A set of pairs, one for each search for a derivation of a rule. The first part of a pair contains the operators that the
search may use. The second part contains the labels of the rules that the search may use.
"""


class Laws:
    """The rules that a derivation may use. A rule is prepared for matching at its first use.

    `labels` contains a unique name for each rule.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        names = Counter(rule.name for rule in rules)
        self.labels = tuple(r.name if r.name and names[r.name] == 1 else f"{r.name}#{i}" for i, r in enumerate(self.rules))
        self._positions = {label: position for position, label in enumerate(self.labels)}
        self._operators = [frozenset(rule.operators) for rule in rules]
        self._read: dict[int, tuple[Direction, ...]] = {}
        self._found: dict[frozenset[str], list[tuple[int, Direction]]] = {}
        self._grown: dict[frozenset[str], frozenset[str]] = {}

    def among(self, operators: frozenset[str], without: Collection[int] = ()) -> Readings:
        """Return the rules that contain only these operators, as rewrites in every usable direction.

        The rewrites are grouped by the operator and rank of the matched side. Rules at the positions in `without` are left out.
        """
        if operators not in self._found:
            positions = [p for p, own in enumerate(self._operators) if own <= operators]
            self._found[operators] = [(p, d) for p in positions for d in self._directions(p)]
        found: dict[tuple[str, int], list[Direction]] = {}
        for position, direction in self._found[operators]:
            if position not in without:
                found.setdefault((direction.source.op, direction.source.rank), []).append(direction)
        return found

    def grown(self, operators: frozenset[str]) -> frozenset[str]:
        """Return the given operators and all operators that one rewrite can introduce.

        The matched side of this rewrite may contain only the given operators.
        """
        if operators not in self._grown:
            near = [p for p, own in enumerate(self._operators) if own & operators]
            new = (d.target_operators for p in near for d in self._directions(p) if d.inner <= operators)
            self._grown[operators] = operators.union(*new)
        return self._grown[operators]

    def scope(self, position: int) -> Scope:
        """Return the limits of the searches for a derivation of the rule at `position`.

        The result contains one pair for each search: the operators that may occur, and the labels of the rules that contain
        only these operators. All other rules have no effect on the searches.
        """
        own = {derivation_operators(subterms(*e.left, *e.right)) for e in self.rules[position].equations}
        return frozenset((allowed, self._within(allowed)) for allowed in map(self.grown, own))

    def _within(self, operators: frozenset[str]) -> frozenset[str]:
        return frozenset(label for label, own in zip(self.labels, self._operators, strict=True) if own <= operators)

    def directed(self, label: str) -> bool:
        """Return whether the rule with this label is a `=>` rule.

        The right side of a `=>` rule may be defined on more inputs than the left side.
        """
        return self.rules[self._positions[label]].statement.arrow == "=>"

    def only(self, labels: Collection[str]) -> Laws:
        """Return a new `Laws` that contains only the rules with these labels."""
        own = [replace(r, name=name) for r, name in zip(self.rules, self.labels, strict=True) if name in labels]
        return Laws(own)

    def _directions(self, position: int) -> tuple[Direction, ...]:
        if position not in self._read:
            parts = (part for equation in self.rules[position].equations for part in single_output_equations(equation))
            self._read[position] = tuple(d for part in parts for d in directions(self.labels[position], part))
        return self._read[position]


def single_output_equations(equation: Equation) -> tuple[Equation, ...]:
    """Split an equation with several outputs into equations with one output each, for use in derivations.

    Each new equation has the additional condition that all outputs of the left side are well typed.
    """
    if len(equation.left) == 1:
        return (equation,)
    where = conjunction(equation.where, *typing_conditions(*equation.left))
    pairs = zip(equation.left, equation.right, strict=True)
    return tuple(replace(equation, left=(left,), right=(right,), where=where) for left, right in pairs)


def derive_rule(
    rule: Rule, from_rules: Laws | Sequence[Rule], limits: SaturationLimits = LIMITS, without: Collection[int] = ()
) -> tuple[Chain, ...] | None:
    """Derive the rule from the given rules at every choice of its ranks.

    Return one chain of rule applications for each choice. If the search finds no chain for some choice within the limits,
    return None. The rules at the positions in `without` are not used.
    """
    laws = from_rules if isinstance(from_rules, Laws) else Laws(from_rules)
    chains: list[Chain] = []
    for chain in derivations(rule, laws, limits, without):
        if chain is None:
            return None
        chains.append(chain)
    return tuple(chains)


def derivations(
    rule: Rule, laws: Laws, limits: SaturationLimits = LIMITS, without: Collection[int] = ()
) -> Iterator[Chain | None]:
    """For each choice of the rule's ranks, yield a chain of rule applications that derives the rule.

    Yield None for a choice of ranks at which no derivation was found within the limits.
    """
    enough: Laws | None = None
    for equation in rule.equations:
        chain = derive_equation(equation, enough, limits) if enough is not None else None
        chain = chain or derive_equation(equation, laws, limits, without)
        if enough is None and chain is not None:
            enough = laws.only(chain.rules)
        yield chain


def derive_equation(
    equation: Equation, laws: Laws, limits: SaturationLimits = LIMITS, without: Collection[int] = ()
) -> Chain | None:
    """Return a chain of rule applications that leads from each output of the left side to the corresponding output of the right
    side.

    Return None if no chain was found, or if the right side is not shown to be well typed wherever the left side is well typed.
    `with_typing_conditions` can add the missing conditions.
    """
    if equation.left == equation.right:
        return Chain(equation.ranks, tuple((render_terms(term), ()) for term in equation.left))
    try:
        assumptions = Assumptions(equation)
    except ShapeError:
        return None
    if type_objection(assumptions) is not None:
        return None
    own = derivation_operators(subterms(*assumptions.left, *assumptions.right))
    for allowed in dict.fromkeys((own, laws.grown(own))):
        search = Saturation(assumptions, allowed, limits, laws.among(allowed, without))
        if search.run(goals_of(assumptions)):
            chain = _chain(search, equation, laws)
            if chain is not None:
                return chain
    return None


def derivation_operators(terms: Iterable[Term]) -> frozenset[str]:
    """Return the operators in the terms."""
    return frozenset(t.op for t in terms if not t.is_variable)


def _chain(search: Saturation, equation: Equation, laws: Laws) -> Chain | None:
    """Return the derivation that the search found. Return None if Z3 does not confirm the derivation.

    Z3 uses only those rule instances whose terms are defined wherever both sides of the equation are defined.
    """
    assumptions = search.assumptions
    goals = goals_of(assumptions)
    given, regrouped = search.closure.explain(goals)
    sums = dict.fromkeys(s for step in regrouped for s in step.sums if len(s.args) > 2)
    grounds = [Ground(g.text, (name := g.text.partition("(")[0]), g.left, g.right, laws.directed(name)) for g in given]
    grounds = defined_instances(assumptions, [*grounds, *(Ground(regrouping_axiom_instance(s), s.op, s, s) for s in sums)])
    if not all(is_sound(g, assumptions) for g in grounds) or not Derivation(goals, grounds).follows(grounds):
        return None
    try:
        return Chain(
            equation.ranks, tuple((render_terms(one), linear_steps(search.closure, one, other)) for one, other in goals)
        )
    except ShapeError:
        return None


def with_typing_conditions(equation: Equation) -> tuple[Equation, tuple[Cond, ...]]:
    """Add conditions until both sides are well typed and have the same shape. Return the new equation and the conditions.

    At most `PROOF.max_completions` conditions are added.

    Raises:
        ShapeError: There are no sizes at which both sides are well typed and have the same shape.
    """
    added: list[Cond] = []
    for _ in range(PROOF.max_completions):
        assumptions = Assumptions(equation)
        asked = [c for t in subterms(*assumptions.right) for c in (*t.requires, *(at_least(e, 1) for e in t.shape))]
        pairs = zip(assumptions.left, assumptions.right, strict=True)
        asked += [same(a, b) for left, right in pairs for a, b in zip(left.shape, right.shape, strict=True)]
        missing = [c for c in dict.fromkeys(asked) if not assumptions.holds(c)]
        if False in missing:
            raise ShapeError("there are no sizes at which both sides are well typed and have the same shape")
        if not missing:
            break
        first = min(missing, key=lambda c: not (isinstance(c, Compare) and c.relation == "=="))
        added.append(first)
        equation = replace(equation, where=conjunction(equation.where, first))
    return equation, tuple(added)


def restrict_to_typed(rule: Rule) -> tuple[Rule, tuple[str, ...]]:
    """Restrict the rule to ranks and sizes at which both sides are well typed.

    Return the restricted rule and the added conditions.

    Raises:
        ShapeError: There are no ranks and sizes at which both sides are well typed.
    """
    equations: list[Equation] = []
    added: dict[str, None] = {}
    why: ShapeError | None = None
    for equation in rule.equations:
        try:
            whole, conditions = with_typing_conditions(equation)
        except ShapeError as error:
            why = error
            continue
        equations.append(whole)
        added.update(dict.fromkeys(map(render_condition, conditions)))
    if why is not None and not equations:
        raise why
    return replace(rule, given=tuple(equations)), tuple(added)
