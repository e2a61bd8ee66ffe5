"""Proofs that a rule with an additional batch axis follows from the same rule without the axis.

For example, let x and y have rank 3, and let w have rank 2. Each slice of `x @ w + y @ w` along the first axis of x and y also
has the form `x @ w + y @ w`, with x and y of rank 2. The first axis is the batch axis, as in JAX's vmap. The equation with the
batch axis is called the larger equation. The equation without the batch axis is called the smaller equation. The larger
equation follows from the smaller equation if three claims are shown for all sizes:

- The assumptions of the smaller equation follow from the assumptions of the larger equation.
- Each term of the larger equation corresponds to a term of the smaller equation. If the larger term has the batch axis, each of
  its slices along this axis equals the smaller term. The proof uses one symbolic position: at this position, the operator's
  definition gives equal expressions for the slice and for the smaller term.
- Each typing condition of the larger equation's right side is also an assumption of the larger equation or a typing condition
  of the smaller equation's right side.

The batch axis may be inserted at any position. An equation about axis -2 can therefore follow from an equation about axis -1.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from superopt.algebra import index
from superopt.algebra.extent import collect, parts_of
from superopt.algebra.operators import interpret_operator, operator, typing_conditions
from superopt.algebra.terms import (
    Atom,
    Attribute,
    Compare,
    Cond,
    Dim,
    Extent,
    Shape,
    Size,
    Sym,
    Term,
    at_least,
    conjunction,
    size,
    substitute,
    substitute_cond,
    variables,
)
from superopt.errors import ShapeError
from superopt.notation.parsing import Equation
from superopt.policy import PROOF
from superopt.proof.definitions.alpha import shape
from superopt.proof.definitions.normal import Normal, TooLongError, Tree, TreeValue, flatten_tree

BATCH = size(Sym("batch."))
WHOLE = -1
"""A placeholder for the position of the batch axis, for terms without a batch axis."""

Places: TypeAlias = "dict[tuple[Term, Term], int | None]"


def representatives(equations: Iterable[Equation]) -> list[Equation]:
    """Return a subset of the equations. The subset implies all of the equations. Equations of low rank come first.

    An equation is left out if an equation with one axis fewer implies it. If all returned equations hold and have well-typed
    right sides, then all given equations hold and have well-typed right sides.
    """
    chosen: list[Equation] = []
    known: list[Equation] = []
    for equation in sorted(equations, key=_axes):
        if not any(follows_by_batching(equation, smaller) for smaller in reversed(known)):
            chosen.append(equation)
        known.append(equation)
    return chosen


def _axes(equation: Equation) -> tuple[int, int]:
    """Return a sort key: the sum of the ranks of the equation's variables, and the sum of the equation's axes.

    Axes are counted from the end.
    """
    return sum(n for _, n in equation.ranks if n > 0), sum(-n for _, n in equation.ranks if n < 0)


def follows_by_batching(equation: Equation, smaller: Equation) -> bool:
    """Return whether the equation is shown to follow from `smaller`, an equation with one axis fewer.

    If the result is True and the right side of `smaller` is well typed, the equation's right side is also well typed.
    """
    return any(_Batched(smaller, equation, grown).follows for grown in _insertions(smaller, equation))


def _insertions(smaller: Equation, larger: Equation) -> Iterator[Mapping[str, int]]:
    """Yield the possible positions of the batch axis, which is the axis that only `larger` has.

    Each item is a mapping from each variable with a batch axis to the position of the axis, counted from the front.
    """
    if [name for name, _ in smaller.ranks] != [name for name, _ in larger.ranks]:
        return
    ranks = [(name, n, m) for (name, n), (_, m) in zip(smaller.ranks, larger.ranks, strict=True)]
    grown = [(name, n) for name, n, m in ranks if n >= 0 and m == n + 1]
    axes = [(n, m) for _, n, m in ranks if n < 0]
    if not grown or any(m not in (n, n + 1) for _, n, m in ranks if n >= 0) or any(m not in (n, n - 1) for n, m in axes):
        return
    least = min(n for _, n in grown)
    for behind in (None, *range(least)):
        if all((m == n - 1) == (behind is not None and behind < -n) for n, m in axes):
            yield {name: 0 if behind is None else n - behind for name, n in grown}


class _Batched:
    """An equation with a batch axis, paired with a smaller equation without the batch axis.

    `grown` maps each variable with a batch axis to the position of the axis.
    """

    def __init__(self, smaller: Equation, larger: Equation, grown: Mapping[str, int]) -> None:
        self.smaller, self.larger = smaller, larger
        self.tensors = {v.name: v for v in variables(*larger.left, *larger.right)}
        self.grown = grown
        self._moved = dict(_moved(smaller, grown, self.tensors.keys()))
        assumed = parts_of(conjunction(larger.where, *typing_conditions(*larger.left)))
        self._equal = _Equal(assumed)
        self._known = {*map(self._large_condition, assumed), True}
        self._small_extents: dict[Extent, Extent] = {}
        self._places: Places = {}

    @functools.cached_property
    def follows(self) -> bool:
        """Whether the larger equation is shown to follow from the smaller equation."""
        if False in self._known or not self._one_extent():
            return False
        sides = ((self.smaller.left, self.larger.left), (self.smaller.right, self.larger.right))
        try:
            (left, right) = ([self._place(*pair) for pair in zip(*side, strict=True)] for side in sides)
        except (ShapeError, TooLongError):
            return False
        return None not in left and left == right and self._granted() and self._given()

    def _one_extent(self) -> bool:
        """Return whether all extents of the batch axis, in the different tensors, are equal and at least 1."""
        extents = {self._extent_of_batch(name, place) for name, place in self.grown.items()}
        self._batch = extents.pop()
        return not extents and (self._equal.positive(self._batch) or at_least(self._batch, 1) in self._known)

    def _extent_of_batch(self, name: str, place: int) -> Extent:
        tensor = self.tensors.get(name)
        return self._equal.extent(size(Sym(f"{name}{place}")) if tensor is None else tensor.shape[place])

    def _granted(self) -> bool:
        """Return whether the assumptions of the smaller equation follow from the assumptions of the larger equation."""
        needed = parts_of(conjunction(self.smaller.where, *typing_conditions(*self.smaller.left)))
        return all(self._small_condition(c) in self._known for c in needed)

    def _given(self) -> bool:
        """Return whether the larger equation's right side is shown to be well typed.

        The larger equation's left side and the smaller equation's right side are assumed to be well typed.
        """
        given = {self._small_condition(c) for c in typing_conditions(*self.smaller.right)}
        needed = map(self._large_condition, typing_conditions(*self.larger.right))
        return all(c in self._known or c in given for c in needed)

    # ------------------------------------------------------------ sizes

    def _small(self, extent: Extent) -> Extent:
        """Rewrite an extent of the smaller equation in terms of the sizes of the larger equation."""
        known = self._small_extents.get(extent) if isinstance(extent, Size) else extent
        if known is None:
            known = self._small_extents[extent] = self._equal.extent(substitute(extent, self._moved.get))
        return known

    def _small_condition(self, condition: Cond) -> Cond:
        return self._equal.condition(substitute_cond(condition, self._moved.get) if self._moved else condition)

    def _large_condition(self, condition: Cond) -> Cond:
        return self._equal.condition(condition)

    # ------------------------------------------------------------ terms

    def _place(self, small: Term, large: Term) -> int | None:
        """Return the batch axis of the larger term: the axis along which each slice equals the smaller term.

        If the larger term has no batch axis and equals the smaller term, return WHOLE. In all other cases, return None.
        """
        if (small, large) not in self._places:
            self._places[small, large] = self._placed(small, large)
        return self._places[small, large]

    def _placed(self, small: Term, large: Term) -> int | None:
        if small is large and not self._moved:
            return WHOLE
        if small.op != large.op or len(small.args) != len(large.args):
            return None
        if large.is_variable:
            return self.grown.get(large.name, WHOLE) if small.name == large.name else None
        matched = self._operands(small, large)
        if matched is None:
            return None
        operands, places = matched
        one, other = _node(small, small.args, self._small), _node(large, operands, self._equal.extent)
        if small.rank == large.rank:
            return WHOLE if one == other and set(places) <= {WHOLE} else None
        shape, batched = tuple(map(self._small, small.shape)), tuple(map(self._equal.extent, large.shape))
        candidates = (p for p, n in enumerate(batched) if n == self._batch and batched[:p] + batched[p + 1 :] == shape)
        return next((p for p in candidates if _acts_slicewise(one, other, places, p, small.rank)), None)

    def _operands(self, small: Term, large: Term) -> tuple[tuple[Term, ...], tuple[int, ...]] | None:
        """Pair the operands of the two terms. Return the larger term's operands and the batch axis of each operand.

        The operands are in the order of the smaller term's operands. Return None if the operands cannot be paired.
        """
        left = list(large.args)
        matched: list[tuple[Term, int]] = []
        for operand in small.args:
            found = next(((a, p) for a in left if (p := self._place(operand, a)) is not None), None)
            if found is None or (found[0] is not left[0] and not operator(small.op).commutative):
                return None
            left.remove(found[0])
            matched.append(found)
        return tuple(a for a, _ in matched), tuple(p for _, p in matched)


def _moved(smaller: Equation, grown: Mapping[str, int], tensors: Collection[str]) -> Iterator[tuple[Atom, Extent]]:
    """Yield a pair (name in the smaller equation, name in the larger equation) for each size whose name differs in the two
    equations.

    Axes are counted from the end, so the extents of axes before the batch axis have different names. The entries of a tuple
    attribute are counted from the front, so the entries after the batch axis have different names.
    """
    ranks = dict(smaller.ranks)
    for name, place in grown.items():
        if name in tensors:
            yield from ((Dim(name, axis), size(Dim(name, axis - 1))) for axis in range(-ranks[name], place - ranks[name]))
        else:
            yield from ((Sym(f"{name}{p}"), size(Sym(f"{name}{p + 1}"))) for p in range(place, ranks[name]))


# ---------------------------------------------------------------- equal sizes


class _Equal:
    """A rewriter for sizes.

    Sizes that are equal by assumption have the same representative. The representative is one of these sizes.
    """

    def __init__(self, assumed: Iterable[Cond]) -> None:
        self._chosen: dict[Atom, Extent] = {}
        self._forms: dict[Extent, Extent] = {}
        for condition in assumed:
            pair = _equal_atoms(self.condition(condition))
            if pair is not None:
                first, second = pair
                self._chosen = {a: substitute(e, {second: size(first)}.get) for a, e in self._chosen.items()}
                self._chosen[second] = size(first)

    def extent(self, extent: Extent) -> Extent:
        """Return the extent after each size is replaced by its representative."""
        if not self._chosen or not isinstance(extent, Size):
            return extent
        known = self._forms.get(extent)
        if known is None:
            known = self._forms[extent] = substitute(extent, self._chosen.get)
        return known

    def condition(self, condition: Cond) -> Cond:
        """Return the condition after each size is replaced by its representative.

        Positive common factors of an equality are removed. A condition that always holds because extents are at least 1 becomes
        True.
        """
        return _plain(substitute_cond(condition, self._chosen.get) if self._chosen else condition)

    def positive(self, extent: Extent) -> bool:
        """Return whether the extent is at least 1 because all extents of variables are at least 1."""
        return _plain(at_least(extent, 1)) is True


def _equal_atoms(condition: Cond) -> tuple[Atom, Atom] | None:
    """If the condition states that two sizes are equal, return these two sizes. Return None for any other condition.

    A size that is an extent of a variable comes first.
    """
    if not isinstance(condition, Compare) or condition.relation != "==" or len(condition.left.terms) != 2:
        return None
    (one, a), (other, b) = condition.left.terms
    if len(one) != 1 or len(other) != 1 or a + b != 0 or abs(a) != 1:
        return None
    first, second = sorted((one[0], other[0]), key=lambda atom: (not isinstance(atom, Dim), str(atom)))
    return (first, second) if isinstance(second, Dim | Sym) else None


@functools.lru_cache(maxsize=PROOF.batching_cache_count)
def _plain(condition: Cond) -> Cond:
    if isinstance(condition, Compare) and condition.relation == ">=":
        terms = condition.left.terms
        alone = all(c > 0 and all(isinstance(a, Dim) for a in m) for m, c in terms if m)
        return True if alone and sum(c for _, c in terms) >= 0 else condition
    return claim_without_factors(condition)


def claim_without_factors(condition: Cond, positive: Collection[Atom] = ()) -> Cond:
    """Divide a claim (an equality or a disequality) by its positive common factors. Make the first coefficient of the claim
    positive.

    Extents of variables and the atoms in `positive` are positive.
    """
    if not isinstance(condition, Compare) or condition.relation == ">=":
        return condition
    first, *rest = condition.left.terms
    shared = Counter[Atom](a for a in first[0] if isinstance(a, Dim) or a in positive)
    for monomial, _ in rest:
        shared &= Counter(monomial)
    terms = ((tuple((Counter(m) - shared).elements()), c if first[1] > 0 else -c) for m, c in condition.left.terms)
    left = collect(terms)
    return Compare(condition.relation, left) if isinstance(left, Size) else condition


# ---------------------------------------------------------------- operators


@dataclass(frozen=True)
class _Node:
    """An operator with its attributes, and the shapes of its operands."""

    op: str
    attributes: tuple[tuple[str, Attribute], ...]
    shapes: tuple[Shape, ...]


def _node(term: Term, operands: Sequence[Term], size_of: Callable[[Extent], Extent]) -> _Node:
    attributes = tuple((name, _mapped(value, size_of)) for name, value in term.attributes)
    return _Node(term.op, attributes, tuple(tuple(map(size_of, a.shape)) for a in operands))


def _mapped(value: Attribute, size_of: Callable[[Extent], Extent]) -> Attribute:
    if isinstance(value, tuple):
        return tuple(map(size_of, value))
    return size_of(value) if isinstance(value, Size) else value


def _renamed(*nodes: _Node) -> Iterator[_Node]:
    """Yield the nodes with their sizes renamed in the order of first occurrence.

    After the renaming, nodes that differed only in names of sizes are equal.
    """
    names: dict[Atom, Extent] = {}

    def named(atom: Atom) -> Extent | None:
        if isinstance(atom, Dim | Sym) and atom not in names:
            names[atom] = size(Sym(f"n{len(names)}", isinstance(atom, Sym) and atom.real))
        return names.get(atom)

    def rename(extent: Extent) -> Extent:
        return substitute(extent, named)

    for node in nodes:
        attributes = tuple((name, _mapped(value, rename)) for name, value in node.attributes)
        yield _Node(node.op, attributes, tuple(tuple(map(rename, shape)) for shape in node.shapes))


@functools.lru_cache(maxsize=PROOF.batching_cache_count)
def _acts_slicewise(small: _Node, large: _Node, places: tuple[int, ...], place: int, rank: int) -> bool:
    """Return whether the larger node can be computed slice by slice with the smaller node.

    See `_slicewise` for the arguments. Sizes are renamed before `_slicewise` is called, so that nodes that differ only in names
    of sizes share one cached result.
    """
    return _slicewise(*_renamed(small, large), places, place, rank)


@functools.lru_cache(maxsize=PROOF.batching_cache_count)
def _slicewise(small: _Node, large: _Node, places: tuple[int, ...], place: int, rank: int) -> bool:
    """Return whether the larger node can be computed slice by slice with the smaller node.

    That is, the smaller node must turn slices of the operands into a slice of the larger node's result. `places` contains the
    batch axis of each operand. An operand without a batch axis has the entry WHOLE and is not sliced. `place` is the batch axis
    of the result. `rank` is the rank of the result's slices.
    """
    at = tuple(size(Sym(f"i.{p}")) for p in range(rank))
    one = _element(large, (WHOLE,) * len(places), (*at[:place], BATCH, *at[place:]))
    other = _element(small, places, at)
    return one == other or Counter(map(shape, flatten_tree(one))) == Counter(map(shape, flatten_tree(other)))


def _element(node: _Node, places: tuple[int, ...], at: Shape) -> Tree:
    """Return the node's result on unknown operands at one position.

    If an operand has a batch axis, only the operand's slice at the symbolic batch index is read.
    """
    notation = Normal()

    def operand(name: str, shape: Shape, place: int) -> index.Tensor:
        whole = notation.read(name, shape)
        return whole if place == WHOLE else index.Tensor(shape, lambda *i: whole[(*i[:place], BATCH, *i[place:])])

    with index.interpreted(notation):
        operands = [operand(f"e{n}", *pair) for n, pair in enumerate(zip(node.shapes, places, strict=True))]
        value: TreeValue = interpret_operator(operator(node.op), operands, dict(node.attributes))[at]
        return value.tree
