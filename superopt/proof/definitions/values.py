"""Tests with Z3 of whether a value is zero wherever certain other values are positive or non-negative.

Values are polynomials in elements of tensors. Each part of a value that is not a polynomial (a function of values, or a sum
over an index) becomes one unknown. Two parts are the same unknown if they differ only in the names of bound indices or in the
order of operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import z3

from superopt.algebra.substitution import condition_atoms
from superopt.algebra.terms import Atom, Compare, Dim, Extent, Inverse, Size, Sym
from superopt.policy import PROOF
from superopt.proof.definitions.alpha import factor_key, shape
from superopt.proof.definitions.normal import Normal
from superopt.proof.definitions.signs import Sign
from superopt.proof.definitions.sums import Factor, Guard, Sum, Summand


def zero_where(facts: Guard, told: Sequence[tuple[Sum, Sign]], value: Sum, notation: Normal) -> bool:
    """Return whether `value` is zero wherever all statements in `told` hold.

    A pair (v, sign) in `told` states that the sum v has this sign. The result False can also mean undecided.
    """
    question = _Question(facts, notation)
    left = question.sum(value)
    given = [question.sum(v) > 0 if sign is Sign.POSITIVE else question.sum(v) >= 0 for v, sign in told]
    if len(question.unknowns) > PROOF.max_unknowns:
        return False
    solver = z3.SolverFor("QF_NRA")
    solver.set("rlimit", PROOF.max_value_steps)
    solver.add(*question.about(), *given, left != 0)
    return bool(solver.check() == z3.unsat)


class _Question:
    def __init__(self, facts: Guard, notation: Normal) -> None:
        self.facts = facts
        self.notation = notation
        self.unknowns: dict[object, z3.ArithRef] = {}
        self.signs: list[z3.BoolRef] = []

    def sum(self, value: Sum) -> z3.ArithRef:
        return z3.Sum([z3.RealVal(0), *map(self.summand, value)])

    def summand(self, summand: Summand) -> z3.ArithRef:
        number = self.extent(summand.coefficient)
        if summand.bound or summand.guard:
            alike, inside = shape(summand)
            return self.extent(inside) * self.unknown(alike, replace(summand, coefficient=1))
        return z3.Product([number, *map(self.factor, summand.factors)]) if summand.factors else number

    def factor(self, factor: Factor) -> z3.ArithRef:
        return self.unknown(factor_key(factor), Summand(1, factors=(factor,)))

    def unknown(self, key: object, meaning: Summand | None) -> z3.ArithRef:
        known = self.unknowns.get(key)
        if known is None:
            known = self.unknowns[key] = z3.Real(f"v{len(self.unknowns)}")
            sign = self.notation.signs.of_summand(self.facts, meaning) if meaning is not None else Sign.UNKNOWN
            if sign:
                self.signs.append(known > 0 if sign is Sign.POSITIVE else known >= 0)
        return known

    def extent(self, extent: Extent) -> z3.ArithRef:
        if not isinstance(extent, Size):
            return _constant(extent)
        return z3.Sum([z3.Product([_constant(c), *map(self.atom, m)]) if m else _constant(c) for m, c in extent.terms])

    def atom(self, atom: Atom) -> z3.ArithRef:
        fresh = atom not in self.unknowns
        known = self.unknown(atom, None)
        if fresh and isinstance(atom, Dim):
            self.signs.append(known >= 1)
        if fresh and isinstance(atom, Inverse):
            self.signs.append(z3.Implies(self.extent(atom.of) != 0, known * self.extent(atom.of) == 1))
        return known

    def about(self) -> Iterator[z3.BoolRef]:
        """Yield known constraints on the unknowns of the question: facts about sizes and attributes, and signs of values."""
        spoken = {a for a in self.unknowns if isinstance(a, Sym | Dim)}
        for fact in self.facts:
            if isinstance(fact, Compare) and spoken and set(condition_atoms(fact)) <= spoken:
                side = self.extent(fact.left)
                yield side >= 0 if fact.relation == ">=" else side == 0 if fact.relation == "==" else side != 0
        yield from self.signs


def _constant(number: Extent) -> z3.ArithRef:
    assert not isinstance(number, Size)
    fraction = Fraction(number)
    return z3.RatVal(fraction.numerator, fraction.denominator)
