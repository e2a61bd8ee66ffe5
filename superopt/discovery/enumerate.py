"""Enumerate a universe's terms by size, and find candidates: pairs of terms with equal values.

A universe is a vocabulary of variables, constants and operators. Terms with equal values form a class, and one term of each
class is its representative. Every other term of the class forms a candidate with the representative. During enumeration, a term
is a row of numbers. These numbers identify the operator of the term and the representatives that are the operands of the term
(see `table`). Terms are evaluated in batches and compared by digests. `Term` objects are only built for representatives and for
the sides of candidates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from superopt.algebra.operators import apply, operator, typing_conditions
from superopt.algebra.terms import Compare, Term, at_least, substitute_cond, subterms, variables
from superopt.discovery.classes import Classified, classify_terms
from superopt.discovery.fingerprint import Environment, Fingerprints, environments, symbols_of
from superopt.discovery.instances import Redundancy
from superopt.discovery.kinds import Rows, Typing
from superopt.discovery.operands import rows_of
from superopt.discovery.table import Flags, Ints, Table
from superopt.discovery.tally import GraphTally
from superopt.discovery.universe import Universe
from superopt.discovery.values import ValueColumns
from superopt.errors import ShapeError
from superopt.policy import DISCOVERY


@dataclass(frozen=True)
class Candidate:
    """Two tuples of terms that may be equal. Terms at the same position of the two tuples have equal values on random inputs.

    `universe` is the vocabulary from which the terms are enumerated. If each side has one term, the term in `right` represents
    all terms with the same values.
    """

    universe: Universe
    left: tuple[Term, ...]
    right: tuple[Term, ...]


@dataclass
class Enumeration:
    """The result of enumerating the terms of one universe.

    A universe is a vocabulary of operators and variables, with a limit on the count of operators in a term. Terms with equal
    values form a class, and one term of each class represents the class.

    Attributes:
        universe: the universe.
        built: the number of terms that were evaluated.
        graphs: the number of graphs that the terms stand for. An argument of a term stands for all graphs of the argument's
            class. If a term is within the limit on operators only because its arguments share operators, the term counts as one
            graph.
        classes: the number of classes.
        instances: the number of candidates that were left out because they follow from smaller candidates.
        representatives: the representatives that have fewer operators than the limit.
        candidates: pairs of a term and the representative of its class.
        parts: pairs of a slice (a term with the root operator `slice`) and the representative that the slice equals.
        same: a function that maps a term to the representative with an equal value. The result is None if no representative has
            this value.
    """

    universe: Universe
    built: int = 0
    graphs: int = 0
    classes: int = 0
    instances: int = 0
    representatives: list[Term] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    parts: list[tuple[Term, Term]] = field(default_factory=list)
    same: Callable[[Term], Term | None] = field(default=lambda _: None, repr=False)


def weight(term: Term) -> int:
    """Return the count of unary or binary operators that the root of the term stands for.

    This count is 0 for a variable or constant, and n - 1 for a sum or another commutative operator with n operands.
    """
    if not term.args:
        return 0
    return len(term.args) - 1 if operator(term.op).commutative else 1


def candidate_order(candidate: Candidate) -> tuple[int, int, int, list[int]]:
    """Return a sort key for candidates (pairs of terms that may be equal).

    Candidates with fewer operators come first. Among candidates of one size, candidates with more variables come first, because
    more variables cover more cases. Candidates with equally many variables are sorted by the order in which
    `universe.templates` lists the operators.
    """
    left, right = candidate.left, candidate.right
    named = list(dict.fromkeys(t.op for t in candidate.universe.templates))
    used = {named.index(t.op) for t in subterms(*left, *right) if t.op in named}
    return enumerated_term_size(*left), enumerated_term_size(*right), -len(variables(*left, *right)), sorted(used, reverse=True)


def enumerated_term_size(*roots: Term) -> int:
    """Return the count of operators in the graph with these outputs. Shared operators are counted once.

    A sum of n operands counts as n - 1 operators.
    """
    return sum(weight(t) for t in subterms(*roots))


def enumerate_universe(universe: Universe, seed: int, *, every: bool = False) -> Enumeration:
    """Enumerate the terms over the operators and variables of `universe`, up to its limit on operators.

    The result contains candidates: pairs of terms with equal values on random inputs. If `every` is True, the result also
    includes candidates that are instances or renamings of other candidates.
    """
    return _Enumerator(universe, seed, every=every).run()


class _Enumerator:
    def __init__(self, universe: Universe, seed: int, *, every: bool) -> None:
        self.universe = universe
        self.result = Enumeration(universe)
        leaves = [v for row in universe.variables for v in row] + [c.term for c in universe.constants]
        self.table = Table(universe)
        drawn = environments(universe, _legality(universe, leaves), np.random.default_rng(seed))
        self.values = ValueColumns(self.table, Fingerprints(universe, drawn))
        self.typing = Typing(self.table)
        self.tally = GraphTally(self.table, self.typing, universe.limit + universe.weighing)
        self.redundancy = None if every else Redundancy(self.table, self.typing)
        self.leaves = leaves
        self.free = np.empty(0, np.uint64)

    def run(self) -> Enumeration:
        for leaf in self.leaves:
            self.values.add_leaf(leaf)
        self.result.built = len(self.leaves)
        self.tally.leaves(len(self.leaves))
        for _ in range(self.universe.weighing):
            self._level(0, last=False)
        for level in range(1, self.universe.limit + 1):
            self._level(level, last=level == self.universe.limit)
        self.result.classes += len(self.table)
        self.result.representatives = list(self.table.terms)
        self.result.graphs = self.tally.graphs
        self.result.same = self._same
        return self.result

    def _same(self, term: Term) -> Term | None:
        digest = self.values.digest_of(term)
        found = np.flatnonzero(self.values.total & (self.values.every == np.uint64(digest or 0)))
        return self.table.terms[found[0]] if digest is not None and len(found) else None

    def _level(self, level: int, *, last: bool) -> None:
        rows = self._rows(level, last=last)
        found = self.values.digests(rows, self.typing.kinds.things, quick=last)
        rows = rows.at(found.defined)
        self.result.built += len(rows)
        classes = classify_terms(self.values, found)
        before = len(self.table)
        if last:
            self.result.classes += classes.fresh
        else:
            self._keep(rows, classes, level)
        self.tally.add(rows, classes.of, last=last)
        self._suggest(rows, classes, before)

    def _rows(self, level: int, *, last: bool) -> Rows:
        """Return all terms with `level` operators, without duplicates. The order of the terms is the same in every run.

        A term that skips one of several interchangeable variables is a renaming of a different term. If `last` is True, these
        renamings are left out.
        """
        found: list[Rows] = []
        for arity in sorted({t.operands for t in self.universe.templates}):
            operands = np.concatenate([np.empty((0, arity), np.int64), *rows_of(self.table, arity, level)])
            if last:
                operands = operands[self.table.prefixed(np.bitwise_or.reduce(self.table.used[operands], axis=1))]
            found += self.typing.applied(operands, level)
        if not found:
            return Rows(np.empty(0, np.int64), np.empty((0, 3), np.int64), np.empty(0, np.uint64))
        rows = Rows(*(np.concatenate([getattr(r, part) for r in found]) for part in ("kinds", "operands", "keys")))
        first, second, third = rows.operands.T
        most = np.maximum(first, second)
        arity = (rows.operands >= 0).sum(axis=1)
        order = np.lexsort(
            (
                rows.kinds,
                (first != most) == (self.table.level[most] > 0),
                third,
                np.minimum(first, second),
                most,
                -self.table.level[most],
                arity,
            )
        )
        rows = rows.at(order)
        rows = rows.at(np.sort(np.unique(rows.keys, return_index=True)[1]))
        if not level:
            rows = rows.at(~np.isin(rows.keys, self.free))
            self.free = np.concatenate([self.free, rows.keys])
        return rows

    def _keep(self, rows: Rows, classes: Classified, level: int) -> None:
        """Add a representative for each new class of terms with equal values."""
        new = rows.at(classes.first)
        for row, kind in enumerate(new.kinds.tolist()):
            self.table.add(self.typing.term(new, row), self.typing.kinds.things[kind].code, level)
        self.values.add(new, self.typing.kinds.things)

    def _suggest(self, rows: Rows, classes: Classified, before: int) -> None:
        """Add a candidate for each new term that equals an older term. Redundant candidates are left out.

        If a slice (a term with the root operator `slice`) equals a term with fewer operators, the slice is also recorded in
        `Enumeration.parts`.
        """
        others = np.flatnonzero(~classes.represents)
        sides = self._used(rows, others) | self._used_by_class(rows, classes, others)
        suggested = others[self.table.prefixed(sides)]
        chosen = suggested
        if self.redundancy is not None:
            chosen = self.redundancy.news(rows, classes, suggested)
            self.result.instances += len(suggested) - len(chosen)
        for row in chosen.tolist():
            self._candidate(self.typing.term(rows, row), self._representative(rows, classes, row))
        slices = np.array([self.table.code_of(k.code).op == "slice" for k in self.typing.kinds.things], dtype=bool)
        for row in others[slices[rows.kinds[others]]].tolist():
            if classes.of[row] < before:
                self.result.parts.append((self.typing.term(rows, row), self.table.terms[classes.of[row]]))

    def _candidate(self, left: Term, right: Term) -> None:
        self.result.candidates.append(Candidate(self.universe, (left,), (right,)))

    def _representative(self, rows: Rows, classes: Classified, row: int) -> Term:
        number = int(classes.of[row])
        return self.table.terms[number] if number < len(self.table) else self.typing.term(rows, int(classes.leader[row]))

    def _used(self, rows: Rows, where: Ints) -> Ints:
        operands = rows.operands[where]
        found: Ints = np.bitwise_or.reduce(np.where(operands >= 0, self.table.used[operands], 0), axis=1)
        return found

    def _used_by_class(self, rows: Rows, classes: Classified, where: Ints) -> Ints:
        number = classes.of[where]
        built: Flags = number < len(self.table)
        known = self.table.used[np.where(built, number, 0)]
        return np.where(built, known, self._used(rows, np.maximum(classes.leader[where], 0)))


def values_agree(universe: Universe, left: Sequence[Term], right: Sequence[Term]) -> bool:
    """Return whether `left` and `right` can be the sides of a candidate. A term in `left` and the term at the same position in
    `right` must have equal values in random environments of the universe.
    """
    leaves = [v for row in universe.variables for v in row]
    asked = (*typing_conditions(*left, *right), *(at_least(n, 1) for t in subterms(*left, *right) for n in t.shape))
    drawn = environments(
        universe, lambda env: all(substitute_cond(c, env.value) is True for c in asked), np.random.default_rng(1)
    )
    values = ValueColumns(Table(universe), Fingerprints(universe, drawn))
    for leaf in leaves:
        values.add_leaf(leaf)
    pairs = [(values.digest_of(a), values.digest_of(b)) for a, b in zip(left, right, strict=True)]
    return all(a is not None and a == b for a, b in pairs)


def _legality(universe: Universe, leaves: Sequence[Term]) -> Callable[[Environment], bool]:
    """Return a function that decides whether the operators of `universe` are well typed for an environment's numbers.

    An environment assigns numbers to symbols. Every operator is applied to operands from `leaves`, which are variables and
    constants. The numbers must satisfy the typing conditions of these applications. If a condition is false for all sampled
    numbers, the application is considered to be never well typed, and the condition is ignored.
    """
    conditions = dict.fromkeys(typing_conditions(*(c.term for c in universe.constants)))
    for template in universe.templates:
        if not template.cut:
            for operands in itertools.product(leaves, repeat=template.operands):
                try:
                    term = apply(template.op, *operands, **template.attributes)
                except ShapeError:
                    continue
                if all(isinstance(c, Compare) and c.relation == ">=" for c in term.requires):
                    conditions |= dict.fromkeys((*term.requires, *(at_least(n, 1) for n in term.shape)))
    rng = np.random.default_rng(0)
    tried = [Environment(symbols_of(universe, rng), {}) for _ in range(DISCOVERY.legality_sample_count)]
    possible = [c for c in conditions if any(substitute_cond(c, env.value) is True for env in tried)]
    return lambda env: all(substitute_cond(c, env.value) is True for c in possible)
