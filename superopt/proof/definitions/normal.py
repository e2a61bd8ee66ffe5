"""Normal forms: the value of a tensor expression at one symbolic position, for all sizes at once.

The definitions of operators are interpreted on symbolic indices. The result is a decision tree: inner nodes are conditions on
indices, and leaves are sums of products. Products of sums are expanded, and relu(v) is written as the maximum of v and 0.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite
from typing import TypeAlias

from superopt.algebra import index
from superopt.algebra.bilinear import Matrix
from superopt.algebra.extent import Entry, parts_of
from superopt.algebra.terms import Atom, Cond, Extent, Size, Sym, at_least, integral, negation, size
from superopt.errors import ShapeError
from superopt.policy import PROOF
from superopt.proof.definitions.signs import Signs
from superopt.proof.definitions.sums import (
    ZERO,
    Call,
    Factor,
    Guard,
    GuardedValue,
    Largest,
    Lookup,
    Read,
    Sum,
    Summand,
    TableElement,
    bound_in,
    call_of_sums,
    candidates_of,
    mentions_index,
    split_summand_inverses,
    substitute_summand,
    times,
)

Tree: TypeAlias = "Choice | Sum"
PARTIAL = frozenset({"reciprocal", "log", "sqrt", "rsqrt", "power"})
"""The functions that are not defined everywhere."""


class TooLongError(Exception):
    """Raised when a proof is abandoned because its sums have become too long."""


@dataclass(frozen=True)
class Choice:
    """A node of a decision tree.

    Where the condition holds, the node has the value of the subtree `then`. Elsewhere, the node has the value of the subtree
    `other`. The condition contains no bound index.
    """

    condition: Cond
    then: Tree
    other: Tree


@functools.lru_cache(maxsize=PROOF.normal_form_cache_count)
def has_partial_function(value: Sum) -> bool:
    """Return whether the sum contains a function that is not defined everywhere."""
    return any(_partial(f) for s in value for f in s.factors)


def _partial(factor: Factor) -> bool:
    match factor:
        case Call(function, arguments):
            return function in PARTIAL or any(map(has_partial_function, arguments))
        case Largest(candidates):
            return any(has_partial_function(c.value) for c in candidates)
        case _:
            return False


# ---------------------------------------------------------------- trees


def combine(a: Tree, b: Tree, leaf: Callable[[Sum, Sum], Sum], known: Guard = ()) -> Tree:
    """Combine two decision trees. The result has the leaf `leaf(x, y)` where the trees have the leaves x and y.

    A condition is not tested again if it is in `known` or was decided on the path from the root.
    """
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
    """Return the tree with `leaf` applied to every leaf."""
    if isinstance(tree, Choice):
        return Choice(tree.condition, each_leaf(tree.then, leaf), each_leaf(tree.other, leaf))
    return leaf(tree)


def flatten_tree(tree: Tree, guard: Guard = ()) -> Sum:
    """Return the decision tree as one sum. The conditions on the path to a leaf become guards of the leaf's summands."""
    if isinstance(tree, Choice):
        then = flatten_tree(tree.then, (*guard, *parts_of(tree.condition)))
        return then + flatten_tree(tree.other, (*guard, *parts_of(negation(tree.condition))))
    return tuple(replace(s, guard=(*guard, *s.guard)) for s in tree)


class TreeValue:
    """A decision tree that operator definitions can use as a number: with addition, subtraction and multiplication."""

    __slots__ = ("notation", "tree")

    def __init__(self, tree: Tree, notation: Normal) -> None:
        self.tree = tree
        self.notation = notation

    def __add__(self, other: TreeValue) -> TreeValue:
        return TreeValue(combine(self.tree, other.tree, lambda a, b: a + b), self.notation)

    def __sub__(self, other: TreeValue) -> TreeValue:
        return TreeValue(combine(self.tree, other.tree, lambda a, b: a + times(b, -1)), self.notation)

    def __mul__(self, other: TreeValue) -> TreeValue:
        return TreeValue(combine(self.tree, other.tree, self.notation.product), self.notation)


# ---------------------------------------------------------------- the interpretation


class Normal:
    """An interpreter of operator definitions in index notation. The value of each element is a normal form."""

    def __init__(self, signs: Signs | None = None) -> None:
        self.signs = signs or Signs()
        self._count = itertools.count()
        self._work = [0]

    def telling(self, signs: Signs) -> Normal:
        """Return an interpreter with `signs` as the known signs of values.

        The indices that the two interpreters create never have the same name.
        """
        other = Normal(signs)
        other._count, other._work = self._count, self._work
        return other

    def spend(self, summands: int) -> None:
        """Add the number `summands` to the count of summands that the proof has processed.

        Raises:
            TooLongError: More than `PROOF.max_multiplied_summands` summands were processed.
        """
        self._work[0] += summands
        if self._work[0] > PROOF.max_multiplied_summands:
            raise TooLongError(f"the proof processes more than {PROOF.max_multiplied_summands} summands")

    def fresh(self, stem: str = "k") -> Sym:
        """Return a new index whose name differs from the names of all other indices and of all attribute variables."""
        return Sym(f"{stem}.{next(self._count)}")

    def read(self, name: str, shape: tuple[Extent, ...]) -> index.Tensor:
        """Return the variable with this name and shape as a tensor of symbolic elements."""
        return index.Tensor(shape, lambda *i: TreeValue((Summand(1, factors=(Read(name, i),)),), self))

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., TreeValue]) -> index.Tensor:
        return index.Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        if condition is False:
            raise ShapeError(message)

    def product(self, a: Sum, b: Sum) -> Sum:
        """Expand the product of two sums. Indices that both sums bind are renamed in the second sum.

        If one of the sums is zero, the product still contains, with coefficient 0, each summand whose functions are not defined
        everywhere. The product is therefore undefined wherever one of these functions is undefined.
        """
        if not a or not b:
            return tuple(replace(s, coefficient=0) for s in a or b if has_partial_function((s,)))
        self.spend(len(a) * len(b))
        return tuple(self._product(s, t) for s in a for t in b)

    def _product(self, s: Summand, t: Summand) -> Summand:
        t = self.apart(t, s)
        return Summand(s.coefficient * t.coefficient, s.bound + t.bound, s.guard + t.guard, s.factors + t.factors)

    def apart(self, summand: Summand, other: Summand) -> Summand:
        """Rename bound indices of the summand, so that the two summands have no bound index in common.

        If there is no common bound index, return the summand unchanged.
        """
        return self.renamed(summand) if set(bound_in(summand)) & set(bound_in(other)) else summand

    def renamed(self, summand: Summand) -> Summand:
        """Return the summand with a fresh name for every bound index, including the indices bound inside its factors."""
        return substitute_summand(summand, self._fresh_for(bound_in(summand)))

    def renamed_candidate(self, candidate: GuardedValue) -> GuardedValue:
        """Return the candidate, an operand of a maximum, with fresh bound indices."""
        (renamed,) = self.renamed(Summand(1, factors=(Largest((candidate,)),))).factors
        assert isinstance(renamed, Largest)
        return renamed.candidates[0]

    def _fresh_for(self, bound: Iterator[Sym]) -> Lookup:
        fresh: dict[Atom, Size] = {k: size(self.fresh()) for k in bound}
        return fresh.get

    def total(self, extent: Extent, body: Callable[[Extent], TreeValue]) -> TreeValue:
        if extent == 1:
            return body(0)
        k = self.fresh()

        def leaf(value: Sum, guard: Guard) -> Sum:
            return tuple(replace(s, bound=(k, *s.bound), guard=(*guard, *s.guard)) for s in value)

        return TreeValue(_closed(body(size(k)).tree, k, _range(k, extent), leaf), self)

    def maximum(self, extent: Extent, body: Callable[[Extent], TreeValue]) -> TreeValue:
        if extent == 1:
            return body(0)
        k = self.fresh()

        def leaf(value: Sum, guard: Guard) -> Sum:
            inner = (GuardedValue((k, *c.bound), (*guard, *c.guard), c.value) for c in candidates_of(value))
            return (Summand(1, factors=(Largest(tuple(inner)),)),)

        tree = _closed(body(size(k)).tree, k, _range(k, extent), leaf, _joined)
        return TreeValue(tree, self)

    def select(self, condition: Cond, then: TreeValue, other: TreeValue) -> TreeValue:
        if isinstance(condition, bool):
            return then if condition else other
        return TreeValue(Choice(condition, then.tree, other.tree), self)

    def picked(self, value: TreeValue, extent: Extent, body: Callable[[Extent], TreeValue]) -> TreeValue:
        return TreeValue(self._picked(value.tree, extent, body, ()), self)

    def _picked(self, tree: Tree, extent: Extent, body: Callable[[Extent], TreeValue], known: Guard) -> Tree:
        """Return the decision tree with each leaf i replaced by `body(i)`. The leaf i is an index that is read from a variable.

        Raises:
            TooLongError: The index at a leaf is computed, instead of being an element of a variable.
        """
        match tree:
            case Choice():
                return _branch(tree, lambda part, path: self._picked(part, extent, body, path), known)
            case (Summand(1, (), (), (Read(name, indices),)),):
                return body(0 if extent == 1 else size(Entry(name, indices, extent))).tree
            case _:
                raise TooLongError("an index is computed by arithmetic instead of being read from an input")

    def call(self, function: str, *arguments: TreeValue) -> TreeValue:
        return TreeValue(_called(function, [a.tree for a in arguments], ()), self)

    def number(self, value: Extent) -> TreeValue:
        exact = _exact(value)
        return TreeValue((Summand(split_summand_inverses(exact)),) if exact != 0 else ZERO, self)

    def entry(self, matrix: Callable[[], Matrix], row: Extent, column: Extent) -> TreeValue:
        rows = matrix()
        shape, numbers = (len(rows), len(rows[0])), tuple(number for one in rows for number in one)
        return TreeValue((Summand(1, factors=(TableElement(shape, numbers, (row, column)),)),), self)

    def lowest(self) -> TreeValue:
        return TreeValue((Summand(1, factors=(Largest(()),)),), self)


def _exact(extent: Extent) -> Extent:
    """Convert the floating-point numbers in an extent to exact fractions, so that later sums are not rounded."""
    if isinstance(extent, Size):
        if not any(isinstance(c, float) for _, c in extent.terms):
            return extent
        total: Extent = 0
        for monomial, coefficient in extent.terms:
            total = total + _exact(coefficient) * (Size(((monomial, 1),)) if monomial else 1)
        return total
    if isinstance(extent, float):
        if not isfinite(extent):
            raise TooLongError(f"the extent {extent} is not a finite number")
        return integral(Fraction(extent))
    return extent


def _called(function: str, trees: Sequence[Tree], sums: tuple[Sum, ...], known: Guard = ()) -> Tree:
    """Apply the function to decision trees. The result has a leaf for every combination of the trees' leaves.

    A condition is not tested again if it is in `known` or was decided on the path from the root. `sums` contains the leaves
    that are already chosen for the first arguments.
    """
    if not trees:
        return call_of_sums(function, *sums)
    first, *rest = trees
    if isinstance(first, Choice):
        return _branch(first, lambda part, path: _called(function, [part, *rest], sums, path), known)
    return _called(function, rest, (*sums, first), known)


def _range(k: Sym, extent: Extent) -> Guard:
    return (at_least(size(k), 0), at_least(extent - 1, size(k)))


def _added(a: Sum, b: Sum) -> Sum:
    return a + b


def _closed(
    tree: Tree, k: Sym, guard: Guard, leaf: Callable[[Sum, Guard], Sum], join: Callable[[Sum, Sum], Sum] = _added
) -> Tree:
    """Sum (or otherwise reduce) a decision tree over the index k.

    Conditions that contain k become guards of the reduced value. Other conditions remain nodes of the tree.
    """
    if not isinstance(tree, Choice):
        return leaf(tree, guard)
    condition, opposite = tree.condition, negation(tree.condition)
    if not mentions_index(condition, k):
        return Choice(condition, _closed(tree.then, k, guard, leaf, join), _closed(tree.other, k, guard, leaf, join))
    then = _closed(tree.then, k, (*guard, *parts_of(condition)), leaf, join)
    return combine(then, _closed(tree.other, k, (*guard, *parts_of(opposite)), leaf, join), join)


def _joined(a: Sum, b: Sum) -> Sum:
    return (Summand(1, factors=(Largest(candidates_of(a) + candidates_of(b)),)),)
