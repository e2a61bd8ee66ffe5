"""Normal forms: what the value of a tensor expression at one symbolic position is, for all sizes at once.

Definitions are interpreted on symbolic indices. A value is then a tree of choices over sums; a sum has summands, each a
coefficient times factors, summed over its bound indices where its guard holds. A factor reads a variable, is the largest of
several values, or is a function of a sum. Products are multiplied out and relu(v) is the largest of v and 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

from superopt import index
from superopt.errors import ShapeError
from superopt.extent import atoms_of, parts_of, sides
from superopt.graph import (
    Atom,
    Cond,
    Extent,
    Inverse,
    Size,
    Sym,
    at_least,
    conjunction,
    inverse,
    negation,
    size,
    substitute,
    substitute_cond,
)

Lookup: TypeAlias = "Callable[[Atom], Extent | None]"
Guard: TypeAlias = "tuple[Cond, ...]"
Sum: TypeAlias = "tuple[Summand, ...]"
Tree: TypeAlias = "Choice | Sum"


@dataclass(frozen=True)
class Read:
    """The element of variable `name` at `indices`."""

    name: str
    indices: tuple[Extent, ...]


@dataclass(frozen=True)
class Call:
    """A nonlinear function of a sum."""

    function: str
    argument: Sum


@dataclass(frozen=True)
class Candidate:
    """`value` for every value of the bound indices at which the guard holds."""

    bound: tuple[Sym, ...]
    guard: Guard
    value: Sum


@dataclass(frozen=True)
class Largest:
    """The largest of the candidates; minus infinity where there is none."""

    candidates: tuple[Candidate, ...]


Factor: TypeAlias = "Read | Call | Largest"


@dataclass(frozen=True)
class Summand:
    """coefficient * product of factors, summed over every value of the bound indices at which the guard holds."""

    coefficient: Extent
    bound: tuple[Sym, ...] = ()
    guard: Guard = ()
    factors: tuple[Factor, ...] = ()


@dataclass(frozen=True)
class Choice:
    """`then` where the condition holds, `other` elsewhere; the condition mentions no bound index."""

    condition: Cond
    then: Tree
    other: Tree


ZERO: Sum = ()


# ---------------------------------------------------------------- substitution


def substitute_guard(guard: Guard, value: Lookup) -> Guard:
    """The guard with atoms replaced, conditions that became true left out."""
    return parts_of(conjunction(*(substitute_cond(c, value) for c in guard)))


def substitute_summand(summand: Summand, value: Lookup) -> Summand:
    """The summand with atoms replaced everywhere; a bound index is replaced only by another index."""
    return Summand(
        substitute(summand.coefficient, value),
        _indices(summand.bound, value),
        substitute_guard(summand.guard, value),
        tuple(substitute_factor(f, value) for f in summand.factors),
    )


def substitute_sum(value: Sum, lookup: Lookup) -> Sum:
    """Every summand with atoms replaced."""
    return tuple(substitute_summand(s, lookup) for s in value)


def substitute_factor(factor: Factor, value: Lookup) -> Factor:
    """The factor with atoms replaced."""
    match factor:
        case Read(name, indices):
            return Read(name, tuple(substitute(i, value) for i in indices))
        case Call(function, argument):
            return Call(function, substitute_sum(argument, value))
        case Largest(candidates):
            return Largest(
                tuple(
                    Candidate(_indices(c.bound, value), substitute_guard(c.guard, value), substitute_sum(c.value, value))
                    for c in candidates
                )
            )


def _indices(bound: tuple[Sym, ...], value: Lookup) -> tuple[Sym, ...]:
    return tuple(new if isinstance(new := _symbol(value(k)), Sym) else k for k in bound)


def _symbol(extent: Extent | None) -> Atom | None:
    if isinstance(extent, Size) and len(extent.terms) == 1 and len(extent.terms[0][0]) == 1 and extent.terms[0][1] == 1:
        return extent.terms[0][0][0]
    return None


def extents_of(factor: Factor) -> Iterator[Extent]:
    """Every index and every side of a condition inside the factor."""
    match factor:
        case Read(_, indices):
            yield from indices
        case Call(_, argument):
            yield from (e for s in argument for e in extents_in(s))
        case Largest(candidates):
            for candidate in candidates:
                yield from (e for c in candidate.guard for e in sides(c))
                yield from (e for s in candidate.value for e in extents_in(s))


def extents_in(summand: Summand) -> Iterator[Extent]:
    """The summand's coefficient, and every index and side of a condition in it."""
    yield summand.coefficient
    yield from (e for c in summand.guard for e in sides(c))
    yield from (e for f in summand.factors for e in extents_of(f))


def mentions(condition: Cond, symbol: Sym) -> bool:
    """Whether the symbol occurs in the condition."""
    return symbol in set(atoms_of(condition))


def nested(factor: Factor) -> Iterator[Sym]:
    """The indices bound inside the factor."""
    match factor:
        case Call(_, argument):
            for summand in argument:
                yield from bound_in(summand)
        case Largest(candidates):
            for candidate in candidates:
                yield from candidate.bound
                yield from (k for s in candidate.value for k in bound_in(s))
        case _:
            pass


def bound_in(summand: Summand) -> Iterator[Sym]:
    """The indices that the summand binds, itself or inside its factors."""
    yield from summand.bound
    for factor in summand.factors:
        yield from nested(factor)


# ---------------------------------------------------------------- trees


def combine(a: Tree, b: Tree, leaf: Callable[[Sum, Sum], Sum], known: Guard = ()) -> Tree:
    """Two trees joined at their leaves; a choice that was made on the way is not made again."""
    if isinstance(a, Choice):
        return _branch(a, lambda part, path: combine(part, b, leaf, path), known)
    if isinstance(b, Choice):
        return _branch(b, lambda part, path: combine(a, part, leaf, path), known)
    return leaf(a, b)


def _branch(choice: Choice, rest: Callable[[Tree, Guard], Tree], known: Guard) -> Tree:
    condition, opposite = choice.condition, negation(choice.condition)
    if condition in known:
        return rest(choice.then, known)
    if opposite in known:
        return rest(choice.other, known)
    return Choice(condition, rest(choice.then, (*known, condition)), rest(choice.other, (*known, opposite)))


def each_leaf(tree: Tree, leaf: Callable[[Sum], Sum]) -> Tree:
    """The tree with every leaf replaced."""
    if isinstance(tree, Choice):
        return Choice(tree.condition, each_leaf(tree.then, leaf), each_leaf(tree.other, leaf))
    return leaf(tree)


def flattened(tree: Tree, guard: Guard = ()) -> Sum:
    """The tree as one sum, choices turned into guards."""
    if isinstance(tree, Choice):
        then = flattened(tree.then, (*guard, *parts_of(tree.condition)))
        return then + flattened(tree.other, (*guard, *parts_of(negation(tree.condition))))
    return tuple(replace(s, guard=(*guard, *s.guard)) for s in tree)


def times(value: Sum, factor: Extent) -> Sum:
    """The sum with every coefficient multiplied."""
    return tuple(replace(s, coefficient=s.coefficient * factor) for s in value)


class Value:
    """A tree with the arithmetic that index notation asks of values."""

    __slots__ = ("notation", "tree")

    def __init__(self, tree: Tree, notation: Normal) -> None:
        self.tree = tree
        self.notation = notation

    def __add__(self, other: Value) -> Value:
        return Value(combine(self.tree, other.tree, lambda a, b: a + b), self.notation)

    def __sub__(self, other: Value) -> Value:
        return Value(combine(self.tree, other.tree, lambda a, b: a + times(b, -1)), self.notation)

    def __mul__(self, other: Value) -> Value:
        return Value(combine(self.tree, other.tree, self.notation.product), self.notation)


# ---------------------------------------------------------------- the interpretation


class Normal:
    """The interpretation of index notation whose values are normal forms."""

    def __init__(self) -> None:
        self._count = itertools.count()

    def fresh(self, stem: str = "k") -> Sym:
        """An index that occurs nowhere else; no attribute variable can have its name."""
        return Sym(f"{stem}.{next(self._count)}")

    def read(self, name: str, shape: tuple[Extent, ...]) -> index.Tensor:
        """The tensor that is a variable of this shape."""
        return index.Tensor(shape, lambda *i: Value((Summand(1, factors=(Read(name, i),)),), self))

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Any]) -> index.Tensor:
        return index.Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        if condition is False:
            raise ShapeError(message)

    def product(self, a: Sum, b: Sum) -> Sum:
        """Both multiplied out; indices that both sides bind are renamed on the right."""
        return tuple(self._product(s, t) for s in a for t in b)

    def _product(self, s: Summand, t: Summand) -> Summand:
        t = self.apart(t, s)
        return Summand(s.coefficient * t.coefficient, s.bound + t.bound, s.guard + t.guard, s.factors + t.factors)

    def apart(self, summand: Summand, other: Summand) -> Summand:
        """The summand over indices that the other does not bind."""
        return self.renamed(summand) if set(bound_in(summand)) & set(bound_in(other)) else summand

    def renamed(self, summand: Summand) -> Summand:
        """The same summand over fresh indices, those bound inside its factors included."""
        return substitute_summand(summand, self._fresh_for(bound_in(summand)))

    def renamed_candidate(self, candidate: Candidate) -> Candidate:
        """The same candidate over fresh indices."""
        (renamed,) = self.renamed(Summand(1, factors=(Largest((candidate,)),))).factors
        assert isinstance(renamed, Largest)
        return renamed.candidates[0]

    def _fresh_for(self, bound: Iterator[Sym]) -> Lookup:
        fresh: dict[Atom, Size] = {k: size(self.fresh()) for k in bound}
        return fresh.get

    def total(self, extent: Extent, body: Callable[[Any], Value]) -> Value:
        if extent == 1:
            return body(0)
        k = self.fresh()

        def leaf(value: Sum, guard: Guard) -> Sum:
            return tuple(replace(s, bound=(k, *s.bound), guard=(*guard, *s.guard)) for s in value)

        return Value(_closed(body(size(k)).tree, k, _range(k, extent), leaf), self)

    def maximum(self, extent: Extent, body: Callable[[Any], Value]) -> Value:
        if extent == 1:
            return body(0)
        k = self.fresh()

        def leaf(value: Sum, guard: Guard) -> Sum:
            inner = (Candidate((k, *c.bound), (*guard, *c.guard), c.value) for c in candidates_of(value))
            return (Summand(1, factors=(Largest(tuple(inner)),)),)

        tree = _closed(body(size(k)).tree, k, _range(k, extent), leaf, _joined)
        return Value(tree, self)

    def select(self, condition: Cond, then: Value, other: Value) -> Value:
        if isinstance(condition, bool):
            return then if condition else other
        return Value(Choice(condition, then.tree, other.tree), self)

    def call(self, function: str, argument: Value) -> Value:
        return Value(each_leaf(argument.tree, lambda leaf: called(function, leaf)), self)

    def number(self, value: Extent) -> Value:
        return Value((Summand(split_inverses(value)),) if value != 0 else ZERO, self)

    def lowest(self) -> Value:
        return Value((Summand(1, factors=(Largest(()),)),), self)


def _range(k: Sym, extent: Extent) -> Guard:
    return (at_least(size(k), 0), at_least(extent - 1, size(k)))


def _added(a: Sum, b: Sum) -> Sum:
    return a + b


def _closed(
    tree: Tree, k: Sym, guard: Guard, leaf: Callable[[Sum, Guard], Sum], join: Callable[[Sum, Sum], Sum] = _added
) -> Tree:
    """The reduction over k: choices that mention k become guards of what is reduced, the others stay outside."""
    if not isinstance(tree, Choice):
        return leaf(tree, guard)
    condition, opposite = tree.condition, negation(tree.condition)
    if not mentions(condition, k):
        return Choice(condition, _closed(tree.then, k, guard, leaf, join), _closed(tree.other, k, guard, leaf, join))
    then = _closed(tree.then, k, (*guard, *parts_of(condition)), leaf, join)
    return combine(then, _closed(tree.other, k, (*guard, *parts_of(opposite)), leaf, join), join)


def _joined(a: Sum, b: Sum) -> Sum:
    return (Summand(1, factors=(Largest(candidates_of(a) + candidates_of(b)),)),)


def candidates_of(value: Sum) -> tuple[Candidate, ...]:
    """What the largest of which is this value: the candidates of a plain maximum, or the value alone."""
    if len(value) == 1:
        match value[0]:
            case Summand(1, (), (), (Largest(candidates),)):
                return candidates
    return (Candidate((), (), value),)


def called(function: str, argument: Sum) -> Sum:
    """The function of a sum: relu as a maximum, and known numbers worked out."""
    number = constant_of(argument)
    if function == "relu":
        if isinstance(number, int | Fraction):
            return argument if number > 0 else ZERO
        return (Summand(1, factors=(Largest((*candidates_of(argument), Candidate((), (), ZERO))),)),)
    if function == "reciprocal" and number is not None and number != 0:
        return (Summand(split_inverses(inverse(number))),)
    return (Summand(1, factors=(Call(function, argument),)),)


def constant_of(value: Sum) -> Extent | None:
    """The number that this sum is, where it reads nothing and is not guarded."""
    total: Extent = 0
    for summand in value:
        if summand.factors or summand.guard or summand.bound:
            return None
        total = total + summand.coefficient
    return total


def split_inverses(extent: Extent) -> Extent:
    """The extent with 1 / (a * b) written as 1 / a * 1 / b."""

    def value(atom: Atom) -> Extent | None:
        if not isinstance(atom, Inverse) or not isinstance(atom.of, Size) or len(atom.of.terms) != 1:
            return None
        monomial, coefficient = atom.of.terms[0]
        product: Extent = inverse(coefficient)
        for factor in monomial:
            product = product * inverse(size(factor))
        return product

    return substitute(extent, value)
