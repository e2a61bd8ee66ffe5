"""A normal form for linear maps: sums are outermost, and operators that move elements are innermost, next to the weights.

Models compute the gates of a recurrent cell in different ways: as four slices of one sum of products, or as four sums of
products. Rules for linear operators rewrite the first form into the second. Each application of a rule lowers a measure of the
term, so the rewriting terminates. For example, the measure of a slice of a sum exceeds the measure of the sum of the slices.
The measure is a polynomial interpretation (Lankford, On proving term rewriting systems are Noetherian, 1979).
"""

from __future__ import annotations

from collections.abc import Sequence

from superopt.algebra.operators import apply
from superopt.algebra.terms import Term
from superopt.search.apply import MOVES, split_weight
from superopt.search.ruleset import RuleSet

LINEAR = MOVES | {"add", "matmul", "scale"}
MOVED = 2
"""The measure (see `LinearForms`) of an operator that only moves elements is this factor times the operand's measure."""
JOINED = 12
"""The measure (see `LinearForms`) of a concatenation is the sum of the operands' measures plus this amount.

The amount must be large enough for the measure to fall when a product with a concatenation becomes a sum of products.
"""


class LinearForms:
    """Rewrites terms to linear form: sums are outermost, and operators that only move elements are innermost.

    Each rewriting step lowers the measure of the term, so rewriting ends. The measure is a number that is computed from the
    measures of the operands.
    """

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules.within(LINEAR)
        self._forms: dict[Term, Term] = {}
        self._measures: dict[Term, int] = {}

    def form(self, term: Term) -> Term:
        """Return an equal term in linear form: sums are outermost, and operators that only move elements are innermost."""
        stack = [term]
        while stack:
            top = stack[-1]
            waiting = [a for a in top.args if a not in self._forms]
            if top in self._forms or not waiting:
                stack.pop()
                if top not in self._forms:
                    self._forms[top] = self._formed(top)
            else:
                stack += waiting
        return self._forms[term]

    def _formed(self, term: Term) -> Term:
        """Return the linear form of a term. The linear forms of the operands must be cached already."""
        args = [self._forms[a] for a in term.args]
        if term.is_variable:
            return term
        here = term if args == list(term.args) else apply(term.op, *args, **dict(term.attributes))
        better = self._better(here)
        return here if better is None else self.form(better)

    def _better(self, term: Term) -> Term | None:
        """Apply the rule that lowers the measure most, and return the new term. If no rule lowers the measure, return None."""
        if term.op not in LINEAR:
            return None
        written = _parted(term)
        found = [match.replacements[0] for _, match in self._rules.matches(written, _none)]
        best = min(found, key=lambda t: (*self._rank(t), t.key), default=written)
        return best if self._rank(best) < self._rank(term) else None

    def _rank(self, term: Term) -> tuple[int, bool]:
        """Return a sort key: the term's measure (`_measure`), and whether the order of two nested slices should change.

        The order should change if the outer slice has a higher axis than the inner slice.
        """
        inner = term.args[0] if term.op == "slice" else term
        return self._measure(term), inner.op == term.op == "slice" and term.integer("axis") > inner.integer("axis")

    def _measure(self, term: Term) -> int:
        """Return the measure of the term. Each rewrite lowers the measure, so that rewriting ends.

        The measure is 1 if the term's operator is not linear.
        """
        if term.is_variable or term.op not in LINEAR:
            return 1
        stack = [term]
        while stack:
            top = stack[-1]
            waiting = [a for a in top.args if a.op in LINEAR and a not in self._measures]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            operands = [self._measures.get(a, 1) for a in top.args]
            if top.op == "concat":
                self._measures[top] = sum(operands) + JOINED
            else:
                self._measures[top] = MOVED * operands[0] if top.op in MOVES else sum(operands) + len(operands) - 1
        return self._measures[term]


def _parted(term: Term) -> Term:
    """If the term is a matrix product of a concatenation and a weight, split the weight in two, and return the new term.

    The concatenation must be along the inner axis of the product. The weight is split into two parts that fit the two parts of
    the concatenation, and becomes a concatenation of these parts. Any other term is returned unchanged.
    """
    if term.op != "matmul" or not term.args[1].constant:
        return term
    x, weight = term.args
    if x.op != "concat" or x.integer("axis") != -1:
        return term
    return apply("matmul", x, split_weight(weight, -2, x.args[0].shape[-1]))


def _none(_: str) -> Sequence[Term]:
    """Return no terms. With this function as `candidates`, rules with several outputs do not match."""
    return ()
