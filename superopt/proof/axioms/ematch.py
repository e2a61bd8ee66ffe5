"""Matching of one side of an axiom against terms, modulo the known equalities (e-matching)."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from superopt.algebra.operators import apply, operator
from superopt.algebra.terms import (
    Cond,
    Extent,
    Size,
    Sym,
    Term,
    attribute_atoms,
    floor_divide,
    inverse,
    substitute,
    subterms,
)
from superopt.notation.parsing import Equation
from superopt.proof.axioms.closure import Closure
from superopt.rules.match import EMPTY, Binding, match_attributes


@dataclass(frozen=True, eq=False)
class Direction:
    """An axiom at one choice of ranks, used as a rewrite from `source` to `target`."""

    axiom: str
    equation: Equation
    source: Term
    target: Term

    @property
    def where(self) -> Cond:
        return self.equation.where

    @functools.cached_property
    def inner(self) -> frozenset[str]:
        """The operators that occur in `source`."""
        return frozenset(t.op for t in subterms(self.source) if not t.is_variable)

    @functools.cached_property
    def target_operators(self) -> frozenset[str]:
        return frozenset(t.op for t in subterms(self.target) if not t.is_variable)

    @functools.cached_property
    def _shares(self) -> tuple[tuple[int, Counter[str]], tuple[int, Counter[str]]]:
        return _share(self.source), _share(self.target)

    def weights(self, variables: Mapping[str, int]) -> tuple[int, int]:
        """Return the costs of `source` and `target` after values are substituted for their variables.

        The cost of a term is the number of its operators, plus the costs of the substituted values. A value counts at each
        occurrence of its variable. `variables` maps each variable to the cost of its value. Attributes are not counted.
        """
        source, target = (
            operators + sum(count * variables[name] for name, count in uses.items()) for operators, uses in self._shares
        )
        return source, target

    @property
    def usable(self) -> bool:
        """Whether `source` contains all variables and attribute variables of `target`, and is not itself a variable."""
        return self.determined and not self.source.is_variable

    @functools.cached_property
    def determined(self) -> bool:
        """Whether `source` contains every variable and every attribute variable of `target`."""
        known = {t.name for t in subterms(self.source) if t.is_variable}
        needed = {t.name for t in subterms(self.target) if t.is_variable}
        symbols = {a for a in attribute_atoms(self.source) if isinstance(a, Sym)}
        wanted = {a for a in attribute_atoms(self.target) if isinstance(a, Sym)}
        return needed <= known and wanted <= symbols


def _share(root: Term) -> tuple[int, Counter[str]]:
    """Count a term's operators and the occurrences of each variable. A shared subterm counts at each of its occurrences.

    An operator with n > 2 operands counts as n - 1 operators.
    """
    operators, uses = 0, Counter[str]()
    pending = [root]
    while pending:
        term = pending.pop()
        pending.extend(term.args)
        if term.is_variable:
            uses[term.name] += 1
        else:
            operators += len(term.args) - 1 if len(term.args) > 2 else 1
    return operators, uses


def directions(axiom: str, equation: Equation) -> list[Direction]:
    """Return the directions in which an axiom with one output is usable as a rewrite (see `Direction.usable`)."""
    (left,), (right,) = equation.left, equation.right
    both = (Direction(axiom, equation, left, right), Direction(axiom, equation, right, left))
    return [d for d in both if d.usable]


class Matcher:
    """Matching of patterns against the classes of a `Closure`. The closure must not change during matching.

    Matching ends after `steps` matching steps. A pattern that is a sum (or product) also matches part of a larger sum (or
    product), if each operand of the pattern matches exactly one operand of the larger term.
    """

    def __init__(self, closure: Closure, steps: int) -> None:
        self.closure = closure
        self.steps = steps

    def matches(self, pattern: Term) -> Iterator[Binding]:
        """Yield every match of the pattern, with values for the attribute variables.

        A pattern that is a sum or product may match part of a larger sum or product.
        """
        if pattern.is_variable:
            nodes = (node for found in list(self.closure.by_operator.values()) for node in found if node.rank == pattern.rank)
            for root in dict.fromkeys(map(self.closure.find, nodes)):
                yield from self._class(pattern, root, EMPTY)
            return
        commutative = operator(pattern.op).commutative
        for node in self.closure.by_operator.get(pattern.op, ()):
            if node.rank == pattern.rank and self.closure.canonical(node):
                whole = self._operands(pattern, node, EMPTY, partly=True) if commutative else self._node(pattern, node, EMPTY)
                for one in whole:
                    solved = solve_ematch_attributes(one)
                    if solved is not None:
                        yield solved

    def _node(self, pattern: Term, node: Term, found: Binding) -> Iterator[Binding]:
        if operator(pattern.op).commutative:
            yield from self._operands(pattern, node, found, partly=False)
            return
        matched = match_attributes(pattern, node, found)
        if matched is not None:
            yield from self._all(pattern.args, node.args, matched)

    def _all(self, patterns: Sequence[Term], terms: Sequence[Term], found: Binding) -> Iterator[Binding]:
        if not patterns:
            yield found
            return
        for one in self._class(patterns[0], terms[0], found):
            yield from self._all(patterns[1:], terms[1:], one)

    def _class(self, pattern: Term, term: Term, found: Binding) -> Iterator[Binding]:
        """Yield the matches of the pattern with the terms in the same class as `term`."""
        self.steps -= 1
        if term.rank != pattern.rank or self.steps < 0:
            return
        if pattern.is_variable:
            known = found.tensors.get(pattern.name)
            if known is None:
                yield replace(found, tensors={**found.tensors, pattern.name: self.closure.best(term)})
            elif self.closure.equal(known, term):
                yield found
            return
        if term not in self.closure:
            return
        for member in self.closure.members(term):
            if member.op == pattern.op and self.closure.canonical(member):
                yield from self._node(pattern, member, found)

    def _operands(self, pattern: Term, node: Term, found: Binding, *, partly: bool) -> Iterator[Binding]:
        """Yield the matches of a pattern's operands with the operands of a sum or product, in any order and grouping.

        If `partly` is True, some operands of the sum or product `node` may remain unmatched.
        """
        if len(node.args) >= len(pattern.args):
            wanted = sorted(pattern.args, key=lambda p: p.is_variable)
            yield from self._share(pattern.op, wanted, node.args, found, partly)

    def _share(
        self, op: str, wanted: Sequence[Term], operands: tuple[Term, ...], found: Binding, partly: bool
    ) -> Iterator[Binding]:
        if not wanted:
            if partly or not operands:
                yield found
            return
        first, others = wanted[0], wanted[1:]
        most = len(operands) - len(others) if first.is_variable and not partly else 1
        least = most if not others and not partly else 1
        for count in range(least, most + 1):
            tried: set[tuple[Term, ...]] = set()
            for chosen in itertools.combinations(range(len(operands)), count):
                part = [self.closure.best(operands[i]) for i in chosen]
                if (alike := tuple(sorted(part, key=lambda t: t.key))) in tried:
                    continue
                tried.add(alike)
                rest = tuple(o for i, o in enumerate(operands) if i not in chosen)
                for one in self._class(first, part[0] if count == 1 else apply(op, *part), found):
                    yield from self._share(op, others, rest, one, partly)


def solve_ematch_attributes(found: Binding) -> Binding | None:
    """Return the match with values for all attribute variables.

    A match can contain equations between attributes that are not yet solved. An equation is solved as soon as it has only one
    unknown attribute variable. Return None if an equation is contradictory or cannot be solved exactly.
    """
    symbols = dict(found.symbols)
    known = Binding(found.tensors, symbols)
    waiting: Sequence[tuple[Size, Extent]] = found.pending
    while waiting:
        left: list[tuple[Size, Extent]] = []
        for want, have in waiting:
            unknown = {a.name for a in want.atoms() if isinstance(a, Sym) and a.name not in symbols}
            if not unknown:
                if substitute(want, known.value) != have:
                    return None
            elif len(unknown) > 1 or (value := _solution(want, have, unknown.copy().pop(), known)) is None:
                left.append((want, have))
            else:
                symbols[unknown.pop()] = value
        if len(left) == len(waiting):
            return None
        waiting = left
    return known


def _solution(want: Size, have: Extent, name: str, known: Binding) -> Extent | None:
    """Solve the equation `want == have` for the variable `name`, and return the solution.

    `known` contains the values of the other variables in `want`.

    Return None if `want` is not linear in the variable, or if the solution needs a division that leaves a remainder.
    """

    def at(value: Extent) -> Extent:
        return substitute(want, lambda a: value if isinstance(a, Sym) and a.name == name else known.value(a))

    try:
        start = at(0)
        slope = at(1) - start
    except ZeroDivisionError:
        return None
    if slope == 0:
        return None
    real = any(isinstance(a, Sym) and a.name == name and a.real for a in want.atoms())
    value = (have - start) * inverse(slope) if real or isinstance(slope, Fraction) else floor_divide(have - start, slope)
    return value if at(value) == have else None
