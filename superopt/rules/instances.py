"""Random instances of an equation: a number for every extent and attribute variable, such that all conditions hold.

First, equalities are solved by substitution (`f % g == 0` becomes `f = g * q` with a new unknown q). The remaining unknowns are
drawn one after another in random order. Each unknown is drawn from the values that no condition forbids. If no value is left
for an unknown, all unknowns are drawn again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import TypeAlias

import numpy as np

from superopt.algebra.extent import parts_of
from superopt.algebra.operators import typing_conditions
from superopt.algebra.substitution import condition_atoms
from superopt.algebra.terms import (
    AllOf,
    AnyOf,
    Atom,
    Compare,
    Cond,
    Dim,
    Extent,
    Floor,
    Inverse,
    Number,
    Size,
    Sym,
    Term,
    at_least,
    atom_values,
    atoms,
    attribute_atoms,
    conjunction,
    floor_divide,
    show_extent,
    size,
    substitute,
    substitute_cond,
    subterms,
    variable,
    variables,
)
from superopt.errors import InstantiationError
from superopt.notation.parsing import Equation
from superopt.policy import RULE
from superopt.rules.match import Binding, instantiate

Assignment: TypeAlias = "list[Number]"
Weights: TypeAlias = "tuple[tuple[Number, float], ...]"

EXTENTS: Weights = ((1, 3), (2, 5), (3, 5), (4, 3), (5, 2), (6, 1), (7, 1), (8, 1))
INTEGERS: Weights = ((-2, 0.25), (-1, 0.5), (0, 2), (1, 3), (2, 4), (3, 2), (4, 1), (5, 0.25), (6, 0.25), (8, 0.1))
QUOTIENTS: Weights = ((1, 2), (2, 3), (3, 1))
REALS: Weights = (*((n, 1) for n in (-3, -2, -1, 1, 2, 3)), *((Fraction(n, 2), 1) for n in (-3, -1, 1, 3)), (0, 0.25))


@dataclass(frozen=True)
class Instance:
    """Numbers for an equation: the shape of each variable, and the value of each attribute variable."""

    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Extent]

    def value(self) -> Callable[[Atom], Extent | None]:
        """Return a function that maps dimensions and attribute variables to their values, for `substitute` and `evaluate`."""
        dims: dict[Dim, Extent] = {
            Dim(name, axis - len(shape)): extent for name, shape in self.shapes.items() for axis, extent in enumerate(shape)
        }
        return atom_values(dims, self.attributes)

    def shown(self) -> tuple[tuple[str, str], ...]:
        """Return pairs (name, value) of texts for the attribute variables, sorted by name."""
        return tuple((name, show_extent(value)) for name, value in sorted(self.attributes.items()))


def term_at(root: Term, instance: Instance, cache: dict[Term, Term] | None = None) -> Term:
    """Return the term with the shapes and attribute values of the instance."""
    tensors = {name: variable(name, shape) for name, shape in instance.shapes.items()}
    return instantiate(root, Binding(tensors, instance.attributes), cache)


def equation_instance_conditions(equation: Equation) -> tuple[Cond, ...]:
    """Return all conditions of the equation: both sides are well typed, `where` holds, and no result is empty."""
    roots = equation.left + equation.right
    extents = dict.fromkeys(e for term in subterms(*roots) for e in term.shape if isinstance(e, Size))
    return parts_of(conjunction(*typing_conditions(*roots), equation.where, *(at_least(e, 1) for e in extents)))


def instantiations(equation: Equation, rng: np.random.Generator, *, stubborn: bool = False) -> Iterator[Instance]:
    """Yield random instances that satisfy `equation_instance_conditions(equation)`. The iterator is infinite.

    Each extent and attribute variable gets a random number. If many attempts give no instance and `stubborn` is True, further
    attempts use only the smallest numbers.

    Raises:
        InstantiationError: No instance was found.
    """
    return _draw(equation).instances(rng, stubborn=stubborn)


@functools.lru_cache(maxsize=RULE.equation_cache_count)
def _draw(equation: Equation) -> _Draw:
    return _Draw(equation)


class _Draw:
    """A generator of random instances of an equation. The equation's conditions are compiled to functions."""

    def __init__(self, equation: Equation) -> None:
        roots = equation.left + equation.right
        known = equation_instance_conditions(equation)
        named = {*attribute_atoms(*roots), *(a for c in known for a in condition_atoms(c))}
        ranks = dict(equation.ranks) | {v.name: v.rank for v in variables(*roots)}
        tensors = {v.name for v in variables(*roots)} | {a.tensor for a in named if isinstance(a, Dim)}
        self.variables = [(name, rank) for name, rank in ranks.items() if name in tensors]
        self.symbols = sorted(a for a in named if isinstance(a, Sym))
        dims = [Dim(name, axis) for name, rank in self.variables for axis in range(-rank, 0)]
        self.solved, remaining = solve_instance_conditions([*known, *(at_least(size(d), 1) for d in dims)])
        everything: list[Atom] = [*dims, *self.symbols, *(a for c in remaining for a in condition_atoms(c))]
        everything += [a for value in self.solved.values() for a in atoms(value)]
        self.free = [a for a in dict.fromkeys(everything) if a not in self.solved and isinstance(a, Dim | Sym)]
        slots: dict[Atom, int] = {atom: position for position, atom in enumerate(self.free)}
        self.tests = [(frozenset(slots[a] for a in condition_atoms(c) if a in slots), _test(c, slots)) for c in remaining]
        self.impossible = any(c is False for c in remaining)
        self.derive = [(atom, _number(value, slots)) for atom, value in self.solved.items()]
        self.extents = [
            [_number(substitute(e, self.solved.get), slots) for e in term.shape] for term in subterms(*roots) if term.shape
        ]
        self.choices = [self._allowed(position, atom) for position, atom in enumerate(self.free)]
        self.few = [allowed[: RULE.stubborn_value_count] for allowed in self.choices]

    def _allowed(self, position: int, atom: Atom) -> Weights:
        alone = [test for needs, test in self.tests if needs == {position}]
        values: Assignment = [0] * len(self.free)
        kept = []
        for value, weight in _weights(atom):
            values[position] = value
            if all(test(values) for test in alone):
                kept.append((value, weight))
        return tuple(kept)

    def instances(self, rng: np.random.Generator, *, stubborn: bool) -> Iterator[Instance]:
        if self.impossible:
            raise InstantiationError("the conditions contradict each other")
        for atom, choices in zip(self.free, self.choices, strict=True):
            if not choices:
                raise InstantiationError(f"no small value of {atom} meets the conditions")
        while True:
            yield self._one(rng, [self.choices, self.few] if stubborn else [self.choices])

    def _one(self, rng: np.random.Generator, tries: Sequence[Sequence[Weights]]) -> Instance:
        for choices in (choices for choices in tries for _ in range(RULE.max_instance_tries)):
            values = self._attempt(rng, choices)
            if values is not None and all(
                prod(e(values) for e in shape) <= RULE.max_instance_elements for shape in self.extents
            ):
                return self._instance(values)
        raise InstantiationError(f"in {RULE.max_instance_tries} attempts, no sizes satisfied the conditions")

    def _attempt(self, rng: np.random.Generator, choices: Sequence[Weights]) -> Assignment | None:
        values: Assignment = [0] * len(self.free)
        open_tests = [(set(needs), test) for needs, test in self.tests if len(needs) > 1]
        for position in rng.permutation(len(self.free)):
            ready = [test for needs, test in open_tests if needs == {position}]
            kept = []
            for value, weight in choices[position]:
                values[position] = value
                if all(test(values) for test in ready):
                    kept.append((value, weight))
            if not kept:
                return None
            values[position] = _pick(kept, rng)
            for needs, _ in open_tests:
                needs.discard(position)
        return values

    def _instance(self, values: Assignment) -> Instance:
        known: dict[Atom, Number] = dict(zip(self.free, values, strict=True))
        known.update((atom, number(values)) for atom, number in self.derive)
        shapes = {name: tuple(int(known[Dim(name, axis)]) for axis in range(-rank, 0)) for name, rank in self.variables}
        return Instance(shapes, {s.name: known[s] for s in self.symbols})


def _pick(kept: Sequence[tuple[Number, float]], rng: np.random.Generator) -> Number:
    ticket = rng.random() * sum(weight for _, weight in kept)
    for value, weight in kept:
        ticket -= weight
        if ticket < 0:
            return value
    return kept[-1][0]


def _weights(atom: Atom) -> Weights:
    if isinstance(atom, Dim):
        return EXTENTS
    assert isinstance(atom, Sym)
    return REALS if atom.real else QUOTIENTS if is_instance_quotient(atom) else INTEGERS


# ---------------------------------------------------------------- solving equalities


def solve_instance_conditions(known: Sequence[Cond]) -> tuple[dict[Atom, Extent], list[Cond]]:
    """Solve the equalities among the conditions.

    Return a mapping from each solved unknown to an expression in the unsolved unknowns, and a list of the remaining conditions.
    """
    solved: dict[Atom, Extent] = {}
    remaining = list(parts_of(conjunction(*known)))
    while True:
        positive = {a for c in remaining if isinstance(c, Compare) and (a := _at_least_one(c)) is not None}
        shortest = sorted(remaining, key=lambda c: len(c.left.terms) if isinstance(c, Compare) else 0)
        found = next((s for c in shortest if (s := _solution(c, positive, len(solved))) is not None), None)
        if found is None:
            return solved, remaining
        atom, extent = found

        def value(a: Atom, atom: Atom = atom, extent: Extent = extent) -> Extent | None:
            return extent if a == atom else None

        solved = {a: substitute(e, value) for a, e in solved.items()} | {atom: extent}
        replaced = conjunction(*(substitute_cond(c, value) if atom in set(condition_atoms(c)) else c for c in remaining))
        remaining = list(parts_of(replaced))


def _at_least_one(condition: Compare) -> Atom | None:
    """Return the unknown if the condition has the form `unknown >= 1`, and None otherwise."""
    terms = condition.left.terms
    if condition.relation == ">=" and len(terms) == 2 and terms[0] == ((), -1) and len(terms[1][0]) == 1 and terms[1][1] == 1:
        return terms[1][0][0]
    return None


def _solution(condition: Cond, positive: Collection[Atom], count: int) -> tuple[Atom, Extent] | None:
    """Return a pair (unknown, value) if the condition is an equality that can be solved for this unknown, and None otherwise.

    The unknowns in `positive` are not 0, so the equality may be divided by them. `count` is part of the name of a new unknown.
    """
    if not isinstance(condition, Compare) or condition.relation != "==":
        return None
    left = _with_quotient(condition.left, size(Sym(f"#{count}")))
    for atom in _shared(left):
        if atom in positive:
            left = floor_divide(left, size(atom))
    if not isinstance(left, Size):
        return None
    candidates = [(m[0], c) for m, c in left.terms if len(m) == 1 and isinstance(m[0], Dim | Sym) and c in (1, -1)]
    for atom, sign in sorted(candidates, key=lambda pair: (isinstance(pair[0], Sym), is_instance_quotient(pair[0]))):
        rest = left - sign * size(atom)
        if atom not in set(atoms(rest)) and atom in set(condition.left.atoms()):
            return atom, -sign * rest
    return None


def is_instance_quotient(atom: Atom) -> bool:
    """Return whether the atom is a quotient q that `solve_instance_conditions` introduced.

    `solve_instance_conditions` replaces `f % g == 0` by `f = g * q`. The name of the quotient q begins with `#`. Names of
    attribute variables do not begin with `#`.
    """
    return isinstance(atom, Sym) and atom.name.startswith("#")


def _with_quotient(left: Size, quotient: Size) -> Extent:
    """Rewrite `f - g * (f // g)` as `f - g * quotient`. Return any other expression unchanged.

    If `quotient` is an unknown integer, the equation `f - g * quotient == 0` says that g divides f.
    """
    for atom in left.atoms():
        if isinstance(atom, Floor):
            rest = atom.numerator - atom.denominator * size(atom)
            if left in (rest, -rest):
                negative = isinstance(atom.numerator, Size) and all(c < 0 for _, c in atom.numerator.terms)
                return atom.numerator - atom.denominator * (-quotient if negative else quotient)
    return left


def _shared(extent: Extent) -> list[Atom]:
    """Return the unknowns that are factors of every term of `extent`, which is a polynomial."""
    if not isinstance(extent, Size):
        return []
    return [a for a in dict.fromkeys(extent.terms[0][0]) if all(a in m for m, _ in extent.terms)]


# ---------------------------------------------------------------- numbers


def _number(extent: Extent, slots: Mapping[Atom, int]) -> Callable[[Assignment], Number]:
    """Compile the extent to a function that returns the extent's value. The argument of the function is a list of the unknowns'
    values.

    `slots` maps each unknown to its position in the list.
    """
    if not isinstance(extent, Size):
        return lambda _: extent
    parts = [(coefficient, [_atom(a, slots) for a in monomial]) for monomial, coefficient in extent.terms]

    def number(values: Assignment) -> Number:
        total: Number = 0
        for coefficient, factors in parts:
            product = coefficient
            for factor in factors:
                product *= factor(values)
            total += product
        return total

    return number


def _atom(atom: Atom, slots: Mapping[Atom, int]) -> Callable[[Assignment], Number]:
    match atom:
        case Floor(numerator, denominator):
            above, below = _number(numerator, slots), _number(denominator, slots)
            return lambda values: above(values) // below(values)
        case Inverse(of):
            under = _number(of, slots)
            return lambda values: Fraction(1) / under(values)
        case _:
            position = slots[atom]
            return lambda values: values[position]


def _test(condition: Cond, slots: Mapping[Atom, int]) -> Callable[[Assignment], bool]:
    """Compile the condition to a function that returns whether the condition is true. The argument of the function is a list of
    the unknowns' values.

    `slots` maps each unknown to its position in the list.

    The function returns False if the condition divides by zero.
    """
    match condition:
        case bool():
            return lambda _: condition
        case Compare(relation, left):
            number = _number(left, slots)

            def compare(values: Assignment) -> bool:
                try:
                    found = number(values)
                except ZeroDivisionError:
                    return False
                return bool(found >= 0 if relation == ">=" else (found == 0) == (relation == "=="))

            return compare
        case AllOf(parts):
            tests = [_test(p, slots) for p in parts]
            return lambda values: all(test(values) for test in tests)
        case AnyOf(parts):
            tests = [_test(p, slots) for p in parts]
            return lambda values: any(test(values) for test in tests)
