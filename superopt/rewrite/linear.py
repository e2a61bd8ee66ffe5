"""Linear maps in one form, however a model writes them: sums outside, and what only moves elements inside, next to weights.

The gates of a cell are parts of one sum of products in one model, and sums of four products in another. Rules of linear
operators bring both to the second form: each application lowers a measure under which moving a sum costs more than a sum of
what is moved (a polynomial interpretation; Lankford, On proving term rewriting systems are Noetherian, 1979), so they end.
"""

from __future__ import annotations

from collections.abc import Sequence

from superopt.graph import Term
from superopt.op import apply
from superopt.rewrite.apply import MOVES, parted
from superopt.rewrite.ruleset import RuleSet

LINEAR = MOVES | {"add", "matmul", "scale"}
MOVED = 2
"""By what moving elements multiplies the measure of what is moved."""
JOINED = 12
"""What a concatenation adds to the measures of its operands: more than the products of parts of a weight and the sum that may
take its place.
"""


class LinearForms:
    """Terms in their linear form, each found once."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules.within(LINEAR)
        self._forms: dict[Term, Term] = {}
        self._measures: dict[Term, int] = {}

    def form(self, term: Term) -> Term:
        """An equal term to which no rule of linear operators applies anywhere that would lower its measure."""
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
        """The form of a term whose operands' forms are known."""
        args = [self._forms[a] for a in term.args]
        if term.is_variable:
            return term
        here = term if args == list(term.args) else apply(term.op, *args, **dict(term.attributes))
        better = self._better(here)
        return here if better is None else self.form(better)

    def _better(self, term: Term) -> Term | None:
        """The term after the rule that lowers the measure most; None if none lowers it."""
        if term.op not in LINEAR:
            return None
        written = _parted(term)
        found = [match.replacements[0] for _, match in self._rules.matches(written, _none)]
        best = min(found, key=lambda t: (*self._rank(t), t.key), default=written)
        return best if self._rank(best) < self._rank(term) else None

    def _rank(self, term: Term) -> tuple[int, bool]:
        """The measure; of terms of equal measure, slices in the order of their axes come first."""
        inner = term.args[0] if term.op == "slice" else term
        return self._measure(term), inner.op == term.op == "slice" and term.integer("axis") > inner.integer("axis")

    def _measure(self, term: Term) -> int:
        """What the rules lower: 1 for what is no linear operator."""
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
    """A product of parts joined along the inner axis with a weight, which is written as joined where the parts meet."""
    if term.op != "matmul" or not term.args[1].constant:
        return term
    x, weight = term.args
    if x.op != "concat" or x.integer("axis") != -1:
        return term
    return apply("matmul", x, parted(weight, -2, x.args[0].shape[-1]))


def _none(_: str) -> Sequence[Term]:
    """No terms, where other outputs could stand."""
    return ()
