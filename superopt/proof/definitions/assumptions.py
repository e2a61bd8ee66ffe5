"""The conditions that a rule may assume about its sizes. Sizes that are equal under these conditions become equal polynomials.

If the left side is well typed, some equalities between sizes hold. Each equality is solved for one size, and the solution is
substituted everywhere. For example, `y.shape[-2]` becomes `x.shape[-1]` if the left side contains `x @ y`. Inequalities stay in
the list of conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from superopt.algebra.operators import typing_conditions
from superopt.algebra.substitution import condition_atoms
from superopt.algebra.terms import (
    AllOf,
    Atom,
    Compare,
    Cond,
    Dim,
    Extent,
    Floor,
    Inverse,
    Monomial,
    Size,
    Sym,
    Term,
    at_least,
    atoms,
    attribute_atoms,
    conjunction,
    same,
    size,
    substitute,
    substitute_cond,
    subterms,
    variable,
    variables,
)
from superopt.errors import ShapeError
from superopt.notation.parsing import Equation
from superopt.proof.definitions.arithmetic import is_valid
from superopt.rules.match import Binding, instantiate


class Assumptions:
    """The conditions on the sizes of one equation.

    The conditions hold wherever the left side is well typed, the `where` clause holds and no extent is zero. Each equality is
    solved for one size, and the solution replaces this size everywhere. The size is then called eliminated.

    Attributes:
        binding: A substitution for the variables and attribute variables of the equation. The substitution replaces each
            eliminated size in a term by the size's solution.
        left: The terms of the left side, without eliminated sizes.
        right: The terms of the right side, without eliminated sizes.
        facts: The conditions that remain after the equalities are solved.
        solved: A mapping from each eliminated size to its solution, which is expressed in the remaining sizes.
        divisions: Pairs (conditions, equality). Some equalities are changed before a size is solved for. For example, an
            equality is divided by a positive factor. Each pair contains a changed equality, and all conditions that were known
            when the equality was changed. The changed equality must follow from these conditions.

    Raises:
        ShapeError: The conditions contradict each other, or the right side is ill typed at all sizes at which the left side is
            well typed.
    """

    def __init__(self, equation: Equation) -> None:
        roots = equation.left + equation.right
        named = variables(*roots)
        dims = [size(Dim(v.name, axis)) for v in named for axis in range(-v.rank, 0)]
        extents = dict.fromkeys(e for t in subterms(*equation.left) for e in t.shape if isinstance(e, Size))
        positive = [at_least(e, 1) for e in dict.fromkeys([*dims, *extents])]
        self.assumed = _parts(conjunction(equation.where, *typing_conditions(*equation.left), *positive))
        self.solved: dict[Atom, Extent] = {}
        self.divisions: list[tuple[tuple[Cond, ...], Cond]] = []
        self._opaque: set[Atom] = set()
        self.facts = self._solve(self.assumed)
        if False in self.facts:
            raise ShapeError("there are no sizes at which the left side is well typed")
        self._lowest = _lower_bounds(self.facts)
        self._known: dict[Cond, bool] = dict.fromkeys(self.facts, True)
        self._typed: dict[Term, bool] = {}
        self.variables = {
            v.name: variable(v.name, tuple(self.normal(size(Dim(v.name, a))) for a in range(-v.rank, 0))) for v in named
        }
        self.reals = frozenset(a.name for a in attribute_atoms(*roots) if isinstance(a, Sym) and a.real)
        self.symbols = {a.name: value for a, value in self.solved.items() if isinstance(a, Sym)}
        self.binding = Binding(self.variables, self.symbols)
        cache: dict[Term, Term] = {}
        self.left = tuple(instantiate(t, self.binding, cache) for t in equation.left)
        self.right = tuple(instantiate(t, self.binding, cache) for t in equation.right)

    def value(self, atom: Atom) -> Extent | None:
        """Return the solution if an equality was solved for the atom (a size or a quotient). Otherwise, return None.

        The method serves as the argument of `substitute`. For a quotient in `_opaque`, return the quotient itself, so that no
        size inside the quotient is replaced.
        """
        return size(atom) if atom in self._opaque else self.solved.get(atom)

    def normal(self, extent: Extent) -> Extent:
        """Return the extent after each eliminated size is replaced by its solution."""
        return substitute(extent, self.value)

    def _solve(self, conditions: Iterable[Cond]) -> tuple[Cond, ...]:
        """Solve one equality after another, and return the conditions that remain.

        Equalities are solved for sizes first and for quotients last.
        """
        open_ = list(_parts(conjunction(*(substitute_cond(c, self.value) for c in conditions))))
        for atoms_wanted in ((Dim, Sym), (Dim, Sym, Floor)):
            progress = True
            while progress:
                positive = _lower_bounds(open_)
                solutions = (_solution(c, positive, atoms_wanted) for c in open_)
                solution = next((s for s in solutions if s is not None), None)
                progress = solution is not None
                if solution is not None:
                    if solution.condition not in open_:
                        self.divisions.append((tuple(open_), solution.condition))
                    self._eliminate(solution.atom, solution.value, solution.whole)
                    about = ((c, solution.atom in set(condition_atoms(c))) for c in open_)
                    open_ = list(
                        _parts(conjunction(*(substitute_cond(c, self.value) if changed else c for c, changed in about)))
                    )
        return tuple(c for c in open_ if not _about_extents_alone(c))

    def _eliminate(self, atom: Atom, value: Extent, whole: Sequence[Atom]) -> None:
        self._opaque = (self._opaque | set(whole)) - {atom}

        def one(a: Atom) -> Extent | None:
            return size(a) if a in self._opaque else value if a == atom else None

        self.solved = {a: substitute(v, one) for a, v in self.solved.items()} | {atom: value}

    def holds(self, condition: Cond) -> bool:
        """Return whether the condition follows from the facts. Lower bounds are tried first, then Z3.

        The condition must not contain eliminated sizes. The keys of `solved` are the eliminated sizes.
        """
        if isinstance(condition, bool):
            return condition
        if isinstance(condition, AllOf):
            return all(self.holds(part) for part in condition.parts)
        known = self._known.get(condition)
        if known is None:
            known = self._known[condition] = self._bounded_below(condition) or is_valid(self.facts, condition)
        return known

    def _bounded_below(self, condition: Cond) -> bool:
        """Return whether the condition follows from the lower bounds of its atoms, such as sizes and attribute variables.

        The result is True only if the condition says that a polynomial is at least 0. All coefficients of the polynomial,
        except the constant term, must be at least 0. The lower bounds must also be at least 0.
        """
        if not isinstance(condition, Compare) or condition.relation != ">=":
            return False
        total: Extent = 0
        for monomial, coefficient in condition.left.terms:
            least = coefficient
            for atom in monomial:
                low = self._lowest.get(atom, 1 if isinstance(atom, Dim) else -1)
                if low < 0 or coefficient < 0:
                    return False
                least = least * low
            total = total + least
        return bool(total >= 0)

    def typed(self, term: Term) -> bool:
        """Return whether the term is shown to be well typed and to have no empty subterm.

        The term must not contain eliminated sizes. The keys of `solved` are the eliminated sizes.
        """
        return all(self._node_typed(t) for t in subterms(term))

    def _node_typed(self, term: Term) -> bool:
        known = self._typed.get(term)
        if known is None:
            conditions = (*term.requires, *(at_least(e, 1) for e in term.shape))
            known = self._typed[term] = all(self.holds(c) for c in conditions)
        return known

    def alike(self, one: Term, other: Term) -> bool:
        """Return whether the two terms are shown to have the same shape."""
        return one.rank == other.rank and all(
            a == b or self.holds(same(a, b)) for a, b in zip(one.shape, other.shape, strict=True)
        )


def _parts(condition: Cond) -> tuple[Cond, ...]:
    return condition.parts if isinstance(condition, AllOf) else () if condition is True else (condition,)


def _about_extents_alone(condition: Cond) -> bool:
    """Return whether the condition always holds because extents are at least 1, as `x.shape[-1] * x.shape[-2] >= 1` does."""
    if not isinstance(condition, Compare) or condition.relation != ">=":
        return False
    lowest: Extent = 0
    for monomial, coefficient in condition.left.terms:
        if monomial and (coefficient < 0 or not all(isinstance(a, Dim) for a in monomial)):
            return False
        lowest = lowest + coefficient
    return bool(lowest >= 0)


def _lower_bounds(facts: Iterable[Cond]) -> dict[Atom, int]:
    """Return lower bounds for sizes, attribute variables and quotients, as a mapping.

    The bounds follow from facts such as `s0 - 1 >= 0` and `g * (n // g) - 1 >= 0`.
    """
    lowest: dict[Atom, int] = {}
    products: list[tuple[Monomial, int]] = []
    for fact in facts:
        if isinstance(fact, Compare) and fact.relation == ">=":
            above = [(m, c) for m, c in fact.left.terms if m]
            constant = next((c for m, c in fact.left.terms if not m), 0)
            if len(above) == 1 and above[0][1] == 1 and isinstance(constant, int):
                products.append((above[0][0], -constant))
    for monomial, least in sorted(products, key=lambda p: len(p[0])):
        unknown = [a for a in monomial if lowest.get(a, 1 if isinstance(a, Dim) else 0) < 1]
        if any(isinstance(a, Inverse) or (isinstance(a, Sym) and a.real) for a in unknown):
            continue
        if len(monomial) == 1:
            lowest[monomial[0]] = max(lowest.get(monomial[0], least), least)
        elif len(unknown) == 1 and least >= 1:
            lowest[unknown[0]] = 1
    return lowest


@dataclass(frozen=True)
class _Solution:
    """The solution `atom = value` of the equality `condition`.

    `whole` contains quotients in `value` that later substitutions must not change. Sizes inside these quotients must not change
    either.
    """

    condition: Cond
    atom: Atom
    value: Extent
    whole: Sequence[Atom] = ()


def _solution(condition: Cond, lowest: Mapping[Atom, int], wanted: tuple[type, ...]) -> _Solution | None:
    """Divide an equality by its positive factors, solve the equality for one atom, and return the solution.

    Return None if no solution is found.
    """
    if not isinstance(condition, Compare) or condition.relation != "==":
        return None
    left = _without_factors(condition.left, lowest)
    left = _unit(left, lowest) or _divisor(left) or left
    if left != condition.left:
        condition = Compare("==", left)
    for atom, sign in _alone(left, wanted):
        rest = left - sign * size(atom)
        if atom not in set(atoms(rest)):
            return _Solution(condition, atom, -sign * rest)
    for quotient in (a for m, _ in left.terms for a in m if isinstance(a, Floor)):
        product = quotient.denominator * size(quotient)
        if left in (quotient.numerator - product, product - quotient.numerator):
            for atom, sign in _alone(quotient.numerator, wanted):
                rest = quotient.numerator - sign * size(atom)
                if atom not in set(atoms(rest)) | set(atoms(quotient.denominator)):
                    return _Solution(condition, atom, sign * (product - rest), (quotient,))
    return None


def _unit(extent: Size, lowest: Mapping[Atom, int]) -> Size | None:
    """Return `a - 1` for an extent `a * b - 1` with positive integers `a` and `b`. Return None for other extents.

    If a product of positive integers is 1, each factor is 1. Therefore, if `a * b - 1` is 0, then `a - 1` is also 0.
    """
    monomial, constant = _product(extent)
    positive = all(isinstance(a, Dim) or lowest.get(a, 0) >= 1 for a in monomial)
    factor = size(monomial[0]) - 1 if len(monomial) > 1 and positive and constant == 1 else 0
    return factor if isinstance(factor, Size) else None


def _divisor(extent: Size) -> Size | None:
    """Return an extent `d - v` that is zero exactly where the extent `n // d - q` is zero.

    The numbers n, q and v are integers. Return None if there is no such v, or if the extent is not of the form `n // d - q`.
    """
    monomial, quotient = _product(extent)
    if len(monomial) != 1 or quotient < 1 or not isinstance(monomial[0], Floor):
        return None
    numerator, denominator = monomial[0].numerator, monomial[0].denominator
    if not isinstance(numerator, int) or not isinstance(denominator, Size) or numerator < quotient:
        return None
    largest = numerator // quotient
    found = denominator - largest
    return found if largest - numerator // (quotient + 1) == 1 and isinstance(found, Size) else None


def _product(extent: Size) -> tuple[Monomial, int]:
    """If the extent is `product - integer` or `integer - product`, return the product and the integer.

    Otherwise, return () and 0.
    """
    if len(extent.terms) == 2 and extent.terms[0][0] == ():
        (_, constant), (monomial, coefficient) = extent.terms
        if coefficient in (1, -1) and isinstance(constant, int):
            return monomial, -constant * int(coefficient)
    return (), 0


def _without_factors(extent: Size, lowest: Mapping[Atom, int]) -> Size:
    """Divide the extent by the positive atoms that all its terms share."""
    common = Counter(extent.terms[0][0])
    for monomial, _ in extent.terms[1:]:
        common &= Counter(monomial)
    factors = [a for a in common.elements() if isinstance(a, Dim) or lowest.get(a, 0) >= 1]
    if not factors:
        return extent
    divided: Extent = 0
    for monomial, coefficient in extent.terms:
        left = list(monomial)
        for factor in factors:
            left.remove(factor)
        divided = divided + (Size(((tuple(left), coefficient),)) if left else coefficient)
    return divided if isinstance(divided, Size) else extent


def _alone(extent: Extent, wanted: tuple[type, ...]) -> list[tuple[Atom, int]]:
    """Return the atoms that are terms of the extent by themselves, each paired with its sign.

    The sign of an atom a is 1 if a is a term, and -1 if -a is a term. Only atoms of the types in `wanted` are returned. Extents
    of variables come before attribute variables. Within each of these two groups, the atoms are in reverse alphabetical order.
    """
    terms = extent.terms if isinstance(extent, Size) else ()
    single = [(m[0], int(c)) for m, c in terms if len(m) == 1 and c in (1, -1) and isinstance(m[0], wanted)]
    return sorted(single, key=lambda item: (isinstance(item[0], Dim), str(item[0])), reverse=True)
