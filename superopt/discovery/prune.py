"""Drop equalities that other equalities imply. If a direction of an equality is not useful in a search, drop this direction.

A search avoids more expensive terms. Sometimes the kept equalities imply a rewriting step only by a sequence of steps through
more expensive terms (over a hill). An equality that makes this step directly is kept as a search rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from superopt.algebra.linearity import is_product
from superopt.algebra.operators import replace_subterms
from superopt.algebra.terms import Term, subterms, variables
from superopt.discovery.effort import effort, effort_operator_counts, is_compute_intensive
from superopt.discovery.enumerate import Candidate, enumerated_term_size
from superopt.discovery.numbers import Numbered, distinct_numbers
from superopt.discovery.rewriter import Classes, Rewriter
from superopt.discovery.universe import WEIGHTS, Universe
from superopt.errors import ShapeError
from superopt.policy import DISCOVERY, RULE
from superopt.rules.match import Pattern
from superopt.rules.rule import Rule
from superopt.rules.store import CORE, SEARCH

DimBinding: TypeAlias = "Callable[[Term], Term | None]"


def is_useful(candidate: Candidate, numbered: DimBinding) -> bool:
    """Return whether rewriting the candidate's left side to its right side can be useful in a search.

    A candidate is a pair of terms, or of tuples of terms, that may be equal. `numbered` replaces symbols by numbers, so that
    costs can be computed. Rewriting is not useful in these cases:

    - The left side consists only of variables or constants.
    - The left side does not determine all variables of the right side.
    - The left side is a single term that is part of the right side.
    - The sides differ only in the names of variables.
    - The left side is a single term, and the right side executes more operators without saving work. The condition must hold
      with and without the assumption that weights are known before run time.
    - Both sides cost the same, the left side has at least `RULE.min_neutral_operators` operators, and the right side does not
      have fewer operators.
    """
    left, right = candidate.left, candidate.right
    if all(t.is_variable or not variables(t) for t in left) or not set(variables(*right)) <= set(variables(*left)):
        return False
    if (len(left) == 1 and left[0] in subterms(*right)) or _renamed(candidate):
        return False
    before, after = ([n for t in side if (n := numbered(t)) is not None] for side in (left, right))
    if len(before) < len(left) or len(after) < len(right):
        return False
    pairs = [(effort(before, weights_known=known), effort(after, weights_known=known)) for known in (True, False)]
    if all(old == new for old, new in pairs) and RULE.min_neutral_operators <= enumerated_term_size(
        *left
    ) <= enumerated_term_size(*right):
        return False
    if any(new.operators <= old.operators or new.work < old.work for old, new in pairs):
        return True
    return len(left) > 1


def crosses_hill(candidate: Candidate, numbered: DimBinding) -> bool:
    """Return whether the step from the candidate's left side to the right side lowers the run-time cost or adds no operator.

    Terms that depend only on weights cost nothing. For a candidate with several outputs, the result is always True, because a
    joint computation starts fewer operators. `numbered` replaces symbols by numbers, so that costs can be computed.
    """
    before, after = ([n for t in side if (n := numbered(t)) is not None] for side in (candidate.left, candidate.right))
    old, new = effort(before, weights_known=True), effort(after, weights_known=True)
    return len(candidate.left) > 1 or new.total < old.total or new.operators <= old.operators


def is_shortcut(candidate: Candidate, numbered: DimBinding) -> bool:
    """Return whether the step from the candidate's left side to the right side helps a search even if other rules imply the
    step.

    The step must lower the run-time cost or add no operator (see `crosses_hill`). In addition, one of the following must be
    true:

    - An operator of the step is compute-intensive or looks up rows (see `has_intensive_or_lookup_operator`).
    - The step factors out a constant.
    - The left side has few operators, and the right side has fewer operators in total, or fewer operators that are executed at
      run time. A step with few operators simplifies terms that a different rule has produced.
    """
    if not crosses_hill(candidate, numbered):
        return False
    before, after = ([n for t in side if (n := numbered(t)) is not None] for side in (candidate.left, candidate.right))
    if any(map(has_intensive_or_lookup_operator, (*before, *after))) or factors_out_constant(before, after):
        return True
    executed = effort(after, weights_known=True).operators < effort(before, weights_known=True).operators
    fewer = executed or enumerated_term_size(*candidate.right) < enumerated_term_size(*candidate.left)
    return fewer and enumerated_term_size(*candidate.left) <= DISCOVERY.max_local_operators


def has_intensive_or_lookup_operator(term: Term) -> bool:
    """Return whether an operator in the term is compute-intensive or looks up rows at run time.

    The speed of these operators depends on whether the runtime can fuse the operators with neighbouring operators.
    """
    return is_compute_intensive(term) or "lookup" in effort_operator_counts(term)


def factors_out_constant(left: Sequence[Term], right: Sequence[Term]) -> bool:
    """Return whether an equality, used from left to right, factors out a constant. An equality that factors out a constant can
    be useful even if other equalities imply the equality.

    A constant is a term without variables. The right side must be a product with a constant, and the left side must not be a
    product with a constant. The right side must not execute more operators at run time. The equality helps a search because
    consecutive products with constants become one product.
    """
    if len(left) != 1 or len(right) != 1 or _by_a_constant(left[0]) or not _by_a_constant(right[0]):
        return False
    old, new = (effort(side, weights_known=True) for side in (left, right))
    return new.operators <= old.operators


def _by_a_constant(term: Term) -> bool:
    """Return whether the term is a product of a constant and an operand that is not constant.

    A product is an operator that is linear in each operand.
    """
    constant = [not variables(a) for a in term.args]
    return sorted(constant) == [False, True] and is_product(term)


def _renamed(candidate: Candidate) -> bool:
    """Return whether exchanging interchangeable variables turns the left side into the right side."""
    used = variables(*candidate.left)
    rows = [[v for v in row if v in used] for row in candidate.universe.variables]
    return _is_exchange(candidate.left, candidate.right, rows)


def is_pruned_variable_exchange(rule: Rule) -> bool:
    """Return whether a rule only exchanges variables, as `x + y => y + x` does. A weight is exchanged only with a weight."""
    equation = rule.equations[0]
    used = variables(*equation.left)
    if len(used) > DISCOVERY.max_exchanged_variables:
        return False
    rows: dict[tuple[int, bool], list[Term]] = {}
    for v in used:
        rows.setdefault((v.rank, v.name in WEIGHTS), []).append(v)
    return _is_exchange(equation.left, equation.right, [*rows.values()])


def _is_exchange(left: Sequence[Term], right: tuple[Term, ...], rows: Sequence[Sequence[Term]]) -> bool:
    """Return whether exchanging variables in the same row of `rows` turns the left side into the right side."""
    for orders in itertools.product(*(itertools.permutations(row) for row in rows)):
        exchanged = {
            a: b for row, order in zip(rows, orders, strict=True) for a, b in zip(row, order, strict=True) if a is not b
        }
        with suppress(ShapeError):
            if exchanged and tuple(replace_subterms(t, exchanged) for t in left) == right:
                return True
    return False


def _gains(dear: Term, cheap: Term) -> bool:
    """Return whether the term `cheap` executes fewer operators than `dear`, or costs at least a tenth less.

    Terms that depend only on weights cost nothing.
    """
    old, new = (effort([t], weights_known=True) for t in (dear, cheap))
    return new.operators < old.operators or new.total < DISCOVERY.kept_cost_share * old.total


@dataclass
class _Place:
    """Data for the terms of one universe, a vocabulary from which terms are enumerated.

    Attributes:
        sizings: two choices of numbers for the symbols.
        classes: the classes of equal terms.
    """

    sizings: tuple[Numbered, Numbered]
    classes: Classes


class KeptEqualities:
    """The equalities that were kept so far. A comparison with the kept equalities decides whether a candidate (a pair of terms)
    is new, redundant, or useful only for a search.
    """

    def __init__(self) -> None:
        self.rewriter = Rewriter()
        self._texts: set[str] = set()
        self._places: dict[str, _Place] = {}
        self._joins: list[Pattern] = []

    def sizings(self, universe: Universe) -> tuple[DimBinding, ...]:
        """Return two functions that replace the symbols in terms by numbers.

        The two functions order large extents in opposite ways. If one extent is larger than a second extent under the first
        function, the extent is smaller under the second function. Callers compare the costs of terms twice: with the numbers
        from the first function, and with the numbers from the second function.
        """
        return tuple(sizing.of for sizing in self._place(universe).sizings)

    def _place(self, universe: Universe) -> _Place:
        if universe.name not in self._places:
            one, other = (Numbered(distinct_numbers(universe, turned=turned)) for turned in (False, True))
            self._places[universe.name] = _Place((one, other), Classes())
        return self._places[universe.name]

    def add(self, rule: Rule) -> bool:
        """Keep a proved equality. Return False if the equality was already kept before, and True otherwise."""
        news = rule.text not in self._texts
        self._texts.add(rule.text)
        if news:
            self.rewriter.add(rule)
            self._joins += [Pattern.of(e) for e in rule.equations if len(e.left) > 1]
        return news

    def suspect(self, rule: Rule) -> None:
        """Use an unproved equality like a proved equality.

        A pair of terms is then not tried again if the unproved equality implies that the two terms are equal.
        """
        self.rewriter.add(rule)

    def settle(self, candidate: Candidate) -> None:
        """Record that the candidate's two sides are equal. This method is called after the candidate was decided, or was found
        to be redundant.
        """
        place = self._place(candidate.universe)
        if len(candidate.left) == 1:
            left, right = map(place.sizings[0].of, candidate.left + candidate.right)
            if left is not None and right is not None:
                place.classes.merge(left, right)

    def idle(self, candidate: Candidate) -> bool:
        """Return whether the candidate, a pair of equal terms, only rearranges many operators.

        The result is True only if neither direction saves an operator or a tenth of the run-time cost.
        """
        if len(candidate.left) > 1 or enumerated_term_size(*candidate.left) <= RULE.min_neutral_operators:
            return False
        for numbered in self.sizings(candidate.universe):
            sides = [n for t in (*candidate.left, *candidate.right) if (n := numbered(t)) is not None]
            if len(sides) == 2 and (_gains(*sides) or _gains(*reversed(sides))):
                return False
        return True

    def part(self, candidate: Candidate) -> str | None:
        """Return CORE or SEARCH for a new or useful candidate (a pair of terms that may be equal), and None for a redundant
        candidate.

        A direction is the step from one side of the candidate to the other side. The result is CORE if the kept equalities do
        not imply the candidate. If the kept equalities imply the candidate, the result is SEARCH in the following cases, and
        None in all other cases:

        - A direction saves an operator or a tenth of the cost. Rewriting by kept equalities saves as much, but only by way of
          terms that are more expensive than both sides. The more expensive side must also have few operators or a
          compute-intensive operator. In larger graphs of cheap operators, a search takes steps through more expensive terms
          even without this rule.
        - Each side is a single operator, and the two operators differ. No kept equality rewrites the cheaper operator to the
          more expensive operator in one step.
        - The sides compute the same value at the same cost with different operators. The cost does not show which of these
          operators a runtime fuses with neighbouring operators.
        - A direction factors out a constant, but rewriting by kept equalities cannot factor out any constant. Rewriting by way
          of more expensive terms is ignored here. An ignored example is a rewriting that first multiplies operands by ones.

        For a candidate with several outputs, the result is SEARCH or None.
        """
        numbered = self.sizings(candidate.universe)[0]
        if len(candidate.left) > 1:
            return None if self._joined(candidate, numbered) else SEARCH
        left, right = numbered(candidate.left[0]), numbered(candidate.right[0])
        if left is None or right is None or not variables(*candidate.left):
            return None
        if not self._equal(left, right, self._place(candidate.universe).classes):
            return CORE
        hills = self._over_a_hill, self._of_another_kind, self._in_other_operators, self._takes_out_a_factor
        return SEARCH if any(is_hill(candidate) for is_hill in hills) else None

    def _over_a_hill(self, candidate: Candidate) -> bool:
        """Return whether one side is cheaper, and rewriting reaches the lower cost only through more expensive terms.

        Rewriting applies kept equalities to the more expensive side. A side is cheaper if it executes fewer operators, or costs
        at least a tenth less. To compute costs, the symbols in the candidate's terms are replaced by numbers. This is done for
        two choices of numbers. The same side must be cheaper for both choices. The condition on rewriting must be true for at
        least one choice.
        """
        for steps in self._directions(candidate):
            gains = all(
                _gains(d, c) and (is_compute_intensive(d) or enumerated_term_size(d) <= DISCOVERY.max_local_operators)
                for d, c in steps
            )
            if gains and any(not self.rewriter.descends(d, c) for d, c in steps):
                return True
        return False

    def _takes_out_a_factor(self, candidate: Candidate) -> bool:
        """Return whether a direction of the candidate factors out a constant, but rewriting by kept equalities cannot factor
        out any constant.

        A direction is the step from one side of the candidate to the other side.
        """
        return any(
            all(factors_out_constant([old], [new]) for old, new in steps)
            and not all(self._factors(old, new) for old, new in steps)
            for steps in self._directions(candidate)
        )

    def _factors(self, old: Term, new: Term) -> bool:
        """Return whether rewriting by kept equalities can factor a constant out of the term `old`.

        The terms `old` and `new` are the two sides of a candidate. No intermediate term may cost more than the more expensive
        side times `DISCOVERY.max_climb_factor`.
        """
        dearest = max(self.rewriter.cost(old), self.rewriter.cost(new))
        return self.rewriter.leads(old, dearest, lambda term: factors_out_constant([old], [term]))

    def _directions(self, candidate: Candidate) -> Iterator[list[tuple[Term, Term]]]:
        """Yield the step from the candidate's left side to the right side, and then the step back.

        Each step is a list of two pairs of terms, one pair for each of the two choices of numbers for symbols. Nothing is
        yielded if the candidate is not well typed for one of the choices.
        """
        pairs = [tuple(map(sizing, candidate.left + candidate.right)) for sizing in self.sizings(candidate.universe)]
        for turned in (1, -1):
            steps = [(one, other) for one, other in (pair[::turned] for pair in pairs) if one is not None and other is not None]
            if len(steps) == len(pairs):
                yield steps

    def _of_another_kind(self, candidate: Candidate) -> bool:
        """Return whether the sides are two different single operators, and no step rewrites the cheaper side to the more
        expensive side.

        A step is a single application of a kept equality. Terms that depend only on weights are not counted.
        """
        for sizing in self.sizings(candidate.universe):
            sides = [n for t in candidate.left + candidate.right if (n := sizing(t)) is not None]
            if len(sides) < 2 or any(effort([t], weights_known=True).operators != 1 for t in sides):
                return False
            cheap, dear = sorted(sides, key=self.rewriter.cost)
            steep = cheap.op != dear.op and self.rewriter.cost(cheap) < self.rewriter.cost(dear)
            if not steep or dear in self.rewriter.steps(cheap):
                return False
        return True

    def _in_other_operators(self, candidate: Candidate) -> bool:
        """Return whether three conditions hold: the sides consist of different operators, the sides cost the same, and no step
        leads from the left side to the right side.

        A step applies one kept equality once. Terms that depend only on weights cost nothing. Each side must contain an
        operator that is compute-intensive or looks up rows at run time.
        """
        steps = next(self._directions(candidate), [])
        return bool(steps) and all(self._is_another_way(one, other) for one, other in steps)

    def _is_another_way(self, one: Term, other: Term) -> bool:
        cost, same = (effort([term], weights_known=True) for term in (one, other))
        alike = cost == same and all(map(has_intensive_or_lookup_operator, (one, other)))
        return alike and effort_operator_counts(one) != effort_operator_counts(other) and other not in self.rewriter.steps(one)

    def _equal(self, left: Term, right: Term, classes: Classes) -> bool:
        """Return whether the kept equalities imply that the terms are equal.

        First, up to three equalities are applied at the roots of the terms, and the terms are compared by congruence. If the
        comparison fails, the normal forms of the two terms are compared. If the normal forms differ, they are compared again
        after at most one further step in each term.
        """
        goals = {classes.canonical(right)}
        around = [{classes.canonical(left)}]
        if around[0] & goals:
            return True
        around.append(self._around(left, classes))
        if around[1] & goals:
            return True
        goals |= self._around(right, classes)
        if (around[0] | around[1]) & goals:
            return True
        if any(self._around(term, classes) & goals for term in sorted(around[1], key=lambda t: t.key)):
            return True
        return self.rewriter.joins(left, right) or self.rewriter.joins_around(left, right)

    def _around(self, term: Term, classes: Classes) -> set[Term]:
        """Return the terms that result if one equality is applied once at the root of `term`.

        Each resulting term is replaced by the representative of its class in `classes`.
        """
        return {classes.canonical(t) for t in self.rewriter.steps(term)}

    def _joined(self, candidate: Candidate, numbered: DimBinding) -> bool:
        """Return whether a kept rule with several outputs already replaces the candidate's left side by a joint computation.

        The joint computation must have no more operators than the candidate's right side.
        """
        left, right = ([n for t in side if (n := numbered(t)) is not None] for side in (candidate.left, candidate.right))
        return any(
            match.roots == tuple(left) and enumerated_term_size(*match.replacements) <= enumerated_term_size(*right)
            for pattern in self._joins
            if len(pattern.left) == len(left) and pattern.left[0].rank == left[0].rank
            for match in pattern.matches(left[0], lambda op: [t for t in left[1:] if t.op == op])
        )
