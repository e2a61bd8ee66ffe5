"""Programs of one operator at random sizes, used to discover mutants and to test rules.

A family is a program in the rule notation with symbolic extents and attributes. A draw assigns a number to each extent and
attribute. The program is well typed at these numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.algebra.extent import parts_of
from superopt.algebra.operators import apply, typing_conditions
from superopt.algebra.terms import (
    Atom,
    Compare,
    Cond,
    Dim,
    Extent,
    Size,
    Sym,
    Term,
    attribute_atoms,
    conjunction,
    size,
    substitute,
    substitute_attribute,
    substitute_cond,
    subterms,
    variable,
    variables,
)
from superopt.errors import InstantiationError, ShapeError
from superopt.notation.parsing import equation_at_ranks, parse_statement
from superopt.policy import MUTANT


@dataclass(frozen=True)
class Range:
    """The inclusive ranges from which random extents of tensors and random attributes are chosen."""

    extents: tuple[int, int]
    attributes: tuple[int, int]


@dataclass(frozen=True)
class ProgramFamily:
    """A program with symbolic extents and attributes.

    Attributes:
        name: The name of the family.
        text: The program in the rule notation.
        ranks: The ranks of the program's variables, such as `x[4], w[4], p[4]`.
        weights: The names of the program's constant tensors.
        typical: Conditions on the sizes at which mutants are enumerated. A mutant equals the program at some output positions.
            At sizes where these conditions do not hold, the program may equal a simpler operator.
    """

    name: str
    text: str
    ranks: str
    weights: tuple[str, ...] = ()
    typical: str = ""

    @functools.cached_property
    def program(self) -> Term:
        """The program with symbolic extents and attributes."""
        return self._read.left[0]

    @functools.cached_property
    def conditions(self) -> Cond:
        """The conditions in `typical` in parsed form."""
        return self._read.where

    @functools.cached_property
    def _read(self) -> _Reading:
        where = f" where {self.typical}" if self.typical else ""
        statement = parse_statement(f"{self.name}: {self.text} == {self.text} for {self.ranks}{where}")
        equation = equation_at_ranks(statement, next(statement.rank_choices()))
        return _Reading(equation.left, equation.where)

    @property
    def tensors(self) -> list[Term]:
        """The tensor variables of the program."""
        return variables(self.program)

    @functools.cached_property
    def atoms(self) -> tuple[Atom, ...]:
        """The symbolic extents of the tensors, then the attribute variables in the order of their names."""
        dims = [Dim(t.name, axis) for t in self.tensors for axis in range(-t.rank, 0)]
        symbols = sorted((a for a in attribute_atoms(self.program) if isinstance(a, Sym)), key=lambda a: a.name)
        return (*dims, *symbols)


@dataclass(frozen=True)
class _Reading:
    left: tuple[Term, ...]
    where: Cond


@dataclass(frozen=True)
class FamilyDraw:
    """The program of a family with numbers in place of its symbolic extents and attributes.

    Attributes:
        family: The family, which states the program with symbolic extents and attributes.
        numbers: One number for each symbolic extent and attribute variable, in the order of `ProgramFamily.atoms`.
    """

    family: ProgramFamily
    numbers: tuple[int, ...]

    @property
    def values(self) -> Mapping[Atom, int]:
        """A mapping from each symbolic extent and attribute variable to its number."""
        return dict(zip(self.family.atoms, self.numbers, strict=True))

    @functools.cached_property
    def program(self) -> Term:
        """The program with the numbers in place of symbolic extents and attributes.

        Raises:
            ShapeError: The program is not well typed at these numbers.
        """
        values: Mapping[Atom, Extent] = self.values
        done: dict[Term, Term] = {}
        for term in subterms(self.family.program):
            if term.is_variable:
                shape = tuple(substitute(n, values.get) for n in term.shape)
                done[term] = variable(term.name, shape, constant=term.name in self.family.weights)
            else:
                attributes = {k: substitute_attribute(v, values.get) for k, v in term.attributes}
                done[term] = apply(term.op, *(done[a] for a in term.args), **attributes)
        return done[self.family.program]

    def holds(self, condition: Cond) -> bool:
        """Return whether a condition on the family's extents and attributes holds. A condition that divides by zero does not
        hold.
        """
        values: Mapping[Atom, Extent] = self.values
        try:
            return substitute_cond(condition, values.get) is True
        except ZeroDivisionError:
            return False

    def number(self, extent: Extent) -> Extent:
        """Return the value of an expression over the family's symbolic extents and attributes.

        Raises:
            ZeroDivisionError: The expression divides by zero.
        """
        values: Mapping[Atom, Extent] = self.values
        return substitute(extent, values.get)


def draws(family: ProgramFamily, within: Range, rng: np.random.Generator, *, where: Cond = True) -> Iterator[FamilyDraw]:
    """Yield distinct random assignments of numbers to the family's extents and attributes, until the caller stops.

    Each assignment satisfies the condition `where` and the conditions under which the program is well typed. Each equation
    among these conditions is solved for one of its variables.

    Raises:
        InstantiationError: No further assignment was found.
    """
    needed = conjunction(where, *_typing(family))
    equal = _equations(needed)
    bounds = _bounds(family, within, needed)
    known: set[tuple[int, ...]] = set()
    tries = 0
    while tries < MUTANT.max_size_tries:
        tries += 1
        values = {a: int(rng.integers(*bounds[a])) for a in family.atoms}
        for left in equal:
            _settle(values, left)
        draw = FamilyDraw(family, tuple(values[a] for a in family.atoms))
        if draw.numbers in known or not draw.holds(needed) or not _typed(draw):
            continue
        known.add(draw.numbers)
        tries = 0
        yield draw
    raise InstantiationError(
        f"{family.name}: only {len(known)} of the tried sizes satisfy the conditions and the typing of {family.text}"
    )


def neighbours(draw: FamilyDraw) -> Iterator[FamilyDraw]:
    """Yield the assignments of sizes in which one number differs from `draw` by one.

    If the sizes must satisfy an equation, a second number is adapted to the equation. The program is well typed at each
    assignment.
    """
    needed = conjunction(*_typing(draw.family))
    for atom in draw.family.atoms:
        for step in (-1, 1):
            values = {**draw.values, atom: draw.values[atom] + step}
            for left in _equations(needed):
                _settle(values, left, kept=atom)
            near = FamilyDraw(draw.family, tuple(values[a] for a in draw.family.atoms))
            if near.holds(needed) and _typed(near):
                yield near


def _typing(family: ProgramFamily) -> Iterator[Cond]:
    """Yield the conditions under which the program is well typed, and neither the output nor a variable is empty."""
    yield from typing_conditions(family.program)
    yield from (size(a) - 1 >= 0 for a in family.atoms if isinstance(a, Dim))
    yield from (n - 1 >= 0 for n in family.program.shape if isinstance(n, Size))


def _equations(condition: Cond) -> Sequence[Size]:
    return [c.left for c in parts_of(condition) if isinstance(c, Compare) and c.relation == "=="]


def _typed(draw: FamilyDraw) -> bool:
    try:
        return min(draw.numbers) >= 0 and draw.program.rank > 0
    except ShapeError:
        return False


def _bounds(family: ProgramFamily, within: Range, needed: Cond) -> dict[Atom, tuple[int, int]]:
    """Return the half-open range of random values for each atom, narrowed by the conditions that contain only this atom.

    An atom is a symbolic extent or an attribute variable.
    """
    found = {a: within.extents if isinstance(a, Dim) else within.attributes for a in family.atoms}
    for condition in parts_of(needed):
        if not isinstance(condition, Compare) or condition.relation != ">=":
            continue
        terms = [(monomial[0], coefficient) for monomial, coefficient in condition.left.terms if len(monomial) == 1]
        constant = condition.left - sum(coefficient * size(atom) for atom, coefficient in terms)
        if len(terms) == 1 and isinstance(constant, int) and terms[0][0] in found:
            ((atom, sign),) = terms
            low, high = found[atom]
            if sign == 1:
                found[atom] = max(low, -constant), high
            elif sign == -1:
                found[atom] = low, min(high, constant)
    return {atom: (low, max(low, high) + 1) for atom, (low, high) in found.items()}


def _settle(values: dict[Atom, int], left: Size, kept: Atom | None = None) -> None:
    """Solve the equation `left` == 0 for a variable, and store the variable's value in `values`. The variable must be one of
    the summands of `left`.

    The rest of the equation is evaluated at the old `values`. For example, `n - 2 * (n // 2) == 0` rounds `n` down to a
    multiple of 2. The variable `kept` is never changed.
    """
    for monomial, coefficient in left.terms:
        if len(monomial) == 1 and abs(coefficient) == 1 and monomial[0] in values and monomial[0] != kept:
            atom = monomial[0]
            known: Mapping[Atom, Extent] = values
            try:
                found = substitute(left - coefficient * size(atom), known.get)
            except ZeroDivisionError:
                return
            if isinstance(found, int):
                values[atom] = -found * int(coefficient)
            return
