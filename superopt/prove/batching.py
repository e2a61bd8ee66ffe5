"""A rule at one more axis: where every operator acts on each slice by itself, what holds for slices holds for whole tensors.

`x @ w + y @ w` at ranks 3 and 2 is, slice by slice along the first axis of x and y, that at ranks 2 and 2. So an equation
follows from one with an axis less (a batch axis, as JAX's vmap calls it), if three things are shown, for all sizes:

- what the smaller equation takes for granted follows from what the larger one does;
- every term of the larger one has in each slice along the batch axis the value of the smaller one's term: the definition of its
  operator is interpreted at one symbolic position of both, and gives the same expression, letter by letter;
- the larger one's right side needs nothing but what its left side or the smaller one's right side gives.

The axis may be inserted at any place, so that an equation about axis -2 can follow from one about axis -1.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from superopt import index
from superopt.errors import ShapeError
from superopt.extent import collect, parts_of
from superopt.graph import (
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
from superopt.op import defined, operator, requirements
from superopt.prove.alpha import shape
from superopt.prove.normal import Normal, TooLongError, Tree, Value, flattened
from superopt.text import Equation

KEPT = 50_000
BATCH = size(Sym("batch."))
WHOLE = -1
"""The place of the batch axis in a term that has none."""

Places: TypeAlias = "dict[tuple[Term, Term], int | None]"


def representatives(equations: Iterable[Equation]) -> list[Equation]:
    """Some of the equations, few axes first: if they hold, and their right sides are well typed, so it is with all of them."""
    chosen: list[Equation] = []
    known: list[Equation] = []
    for equation in sorted(equations, key=_axes):
        if not any(follows(equation, smaller) for smaller in reversed(known)):
            chosen.append(equation)
        known.append(equation)
    return chosen


def _axes(equation: Equation) -> tuple[int, int]:
    """How many axes the equation's variables have, and how far from the end those are that it is about."""
    return sum(n for _, n in equation.ranks if n > 0), sum(-n for _, n in equation.ranks if n < 0)


def follows(equation: Equation, smaller: Equation) -> bool:
    """Whether it is shown that the equation holds, with its right side well typed, if one with an axis less does."""
    return any(_Batched(smaller, equation, grown).follows for grown in _insertions(smaller, equation))


def _insertions(smaller: Equation, larger: Equation) -> Iterator[Mapping[str, int]]:
    """Where the new axis may stand in each variable that has one more, counted from the first axis."""
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
    """An equation beside one without the batch axis that is inserted where `grown` says; `follows` says whether it follows."""

    def __init__(self, smaller: Equation, larger: Equation, grown: Mapping[str, int]) -> None:
        self.smaller, self.larger = smaller, larger
        self.tensors = {v.name: v for v in variables(*larger.left, *larger.right)}
        self.grown = grown
        self._moved = dict(_moved(smaller, grown, self.tensors.keys()))
        assumed = parts_of(conjunction(larger.where, *requirements(*larger.left)))
        self._equal = _Equal(assumed)
        self._known = {*map(self._large_condition, assumed), True}
        self._small_extents: dict[Extent, Extent] = {}
        self._places: Places = {}

    @functools.cached_property
    def follows(self) -> bool:
        """Whether all is shown that the larger equation needs to follow from the smaller one."""
        if False in self._known or not self._one_extent():
            return False
        sides = ((self.smaller.left, self.larger.left), (self.smaller.right, self.larger.right))
        try:
            (left, right) = ([self._place(*pair) for pair in zip(*side, strict=True)] for side in sides)
        except (ShapeError, TooLongError):
            return False
        return None not in left and left == right and self._granted() and self._given()

    def _one_extent(self) -> bool:
        """Whether the batch axis has one extent in all tensors, and that is at least 1."""
        extents = {self._extent_of_batch(name, place) for name, place in self.grown.items()}
        self._batch = extents.pop()
        return not extents and (self._equal.positive(self._batch) or at_least(self._batch, 1) in self._known)

    def _extent_of_batch(self, name: str, place: int) -> Extent:
        tensor = self.tensors.get(name)
        return self._equal.extent(size(Sym(f"{name}{place}")) if tensor is None else tensor.shape[place])

    def _granted(self) -> bool:
        """Whether what the smaller equation takes for granted follows from what the larger one does."""
        needed = parts_of(conjunction(self.smaller.where, *requirements(*self.smaller.left)))
        return all(self._small_condition(c) in self._known for c in needed)

    def _given(self) -> bool:
        """Whether the larger equation's right side needs only what is known of its left side or of the smaller equation."""
        given = {self._small_condition(c) for c in requirements(*self.smaller.right)}
        needed = map(self._large_condition, requirements(*self.larger.right))
        return all(c in self._known or c in given for c in needed)

    # ------------------------------------------------------------ sizes

    def _small(self, extent: Extent) -> Extent:
        """An extent of the smaller equation in sizes of the larger one."""
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
        """The axis of the larger term along which its slices are the smaller one; WHOLE if they are one; None if neither."""
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
        """The larger term's operands in the order of the smaller one's, with the places of the batch axis in them."""
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
    """The sizes that the larger equation names otherwise: extents before the new axis, what a longer tuple has after it."""
    ranks = dict(smaller.ranks)
    for name, place in grown.items():
        if name in tensors:
            yield from ((Dim(name, axis), size(Dim(name, axis - 1))) for axis in range(-ranks[name], place - ranks[name]))
        else:
            yield from ((Sym(f"{name}{p}"), size(Sym(f"{name}{p + 1}"))) for p in range(place, ranks[name]))


# ---------------------------------------------------------------- sizes that are equal


class _Equal:
    """Sizes and conditions in one form for all that equalities between single sizes make equal."""

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
        """The extent in chosen sizes."""
        if not self._chosen or not isinstance(extent, Size):
            return extent
        known = self._forms.get(extent)
        if known is None:
            known = self._forms[extent] = substitute(extent, self._chosen.get)
        return known

    def condition(self, condition: Cond) -> Cond:
        """The condition in chosen sizes, an equality freed of common factors that are positive, and True for extents >= 1."""
        return _plain(substitute_cond(condition, self._chosen.get) if self._chosen else condition)

    def positive(self, extent: Extent) -> bool:
        """Whether the extent is that of a variable's axis, which is at least 1."""
        return _plain(at_least(extent, 1)) is True


def _equal_atoms(condition: Cond) -> tuple[Atom, Atom] | None:
    """The two sizes that the condition makes equal, extents of variables first; None for other conditions."""
    if not isinstance(condition, Compare) or condition.relation != "==" or len(condition.left.terms) != 2:
        return None
    (one, a), (other, b) = condition.left.terms
    if len(one) != 1 or len(other) != 1 or a + b != 0 or abs(a) != 1:
        return None
    first, second = sorted((one[0], other[0]), key=lambda atom: (not isinstance(atom, Dim), str(atom)))
    return (first, second) if isinstance(second, Dim | Sym) else None


@functools.lru_cache(maxsize=KEPT)
def _plain(condition: Cond) -> Cond:
    if isinstance(condition, Compare) and condition.relation == ">=":
        terms = condition.left.terms
        alone = all(c > 0 and all(isinstance(a, Dim) for a in m) for m, c in terms if m)
        return True if alone and sum(c for _, c in terms) >= 0 else condition
    return without_factors(condition)


def without_factors(condition: Cond, positive: Collection[Atom] = ()) -> Cond:
    """An equality or its contrary, freed of its sign and of what is positive and a factor of all its terms.

    Extents of variables are positive, besides those given.
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
    """The nodes with sizes named by where they first stand: what holds of these holds of those."""
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


@functools.lru_cache(maxsize=KEPT)
def _acts_slicewise(small: _Node, large: _Node, places: tuple[int, ...], place: int, rank: int) -> bool:
    """As `_slicewise`, which is asked once for all nodes that differ in the names of sizes alone."""
    return _slicewise(*_renamed(small, large), places, place, rank)


@functools.lru_cache(maxsize=KEPT)
def _slicewise(small: _Node, large: _Node, places: tuple[int, ...], place: int, rank: int) -> bool:
    """Whether each slice of what the larger node makes of tensors is what the smaller one makes of their slices.

    `places` has the batch axis of each operand, WHOLE where it has none and is taken as it is; `place` is that of the result,
    `rank` the slices' rank.
    """
    at = tuple(size(Sym(f"i.{p}")) for p in range(rank))
    one = _element(large, (WHOLE,) * len(places), (*at[:place], BATCH, *at[place:]))
    other = _element(small, places, at)
    return one == other or Counter(map(shape, flattened(one))) == Counter(map(shape, flattened(other)))


def _element(node: _Node, places: tuple[int, ...], at: Shape) -> Tree:
    """What the node makes of unknown operands, at one position: of their slices at the batch index, where they have a place."""
    notation = Normal()

    def operand(name: str, shape: Shape, place: int) -> index.Tensor:
        whole = notation.read(name, shape)
        return whole if place == WHOLE else index.Tensor(shape, lambda *i: whole[(*i[:place], BATCH, *i[place:])])

    with index.interpreted(notation):
        operands = [operand(f"e{n}", *pair) for n, pair in enumerate(zip(node.shapes, places, strict=True))]
        value: Value = defined(operator(node.op), operands, dict(node.attributes))[at]
        return value.tree
