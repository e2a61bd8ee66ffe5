"""Find the elements that a program reads to compute a box of its output.

Operator definitions are interpreted on indices that represent the whole box (`superopt.partial.indices`).
"""

# ruff: noqa: ARG002 (the methods are those of every interpretation)

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from superopt.algebra import index
from superopt.algebra.operators import apply, interpret
from superopt.algebra.terms import Cond, Extent, Term, subterms
from superopt.errors import ShapeError, Undecidable
from superopt.partial.box import Box
from superopt.partial.indices import ALWAYS, NEVER, Affine, Array, SummationGuard, Vector, output_position
from superopt.speclib.composite import unfolded

Linear: TypeAlias = "tuple[Vector, ...]"
Offsets: TypeAlias = "tuple[Array, ...]"
Demand: TypeAlias = "dict[Linear, Offsets]"


@functools.lru_cache(maxsize=4096)
def expand_program_composites(term: Term) -> Term:
    """Replace composite operators by their definitions until all operators are defined in index notation. Return the new term.

    Raises:
        Undecidable: An operator in the term cannot be expanded at these sizes.
    """
    known: dict[Term, Term] = {}
    for each in subterms(term):
        args = tuple(known[a] for a in each.args)
        rebuilt = each if args == each.args else apply(each.op, *args, **dict(each.attributes))
        try:
            inner = None if each.is_variable else unfolded(rebuilt)
        except ShapeError as error:
            raise Undecidable(f"the operator {each.op} cannot be expanded at these sizes: {error}") from error
        known[each] = rebuilt if inner is None else expand_program_composites(inner)
    return known[term]


@dataclass(frozen=True)
class Item:
    """A number or an element of an operand. A value depends on this item only where the condition `guard` holds.

    `operand` is the index of the operand, and `position` is the position of the element. For a number, `operand` is None.
    """

    guard: SummationGuard
    operand: int | None = None
    position: tuple[Affine | int, ...] = ()

    def where(self, guard: SummationGuard) -> Item:
        """Return the item with the additional condition `guard`."""
        return self if guard is ALWAYS else Item(self.guard & guard, self.operand, self.position)


@dataclass(frozen=True)
class Parts:
    """A value, given by the items (numbers and operands' elements) on which it depends. Where `support` is false, the value is
    zero.
    """

    items: tuple[Item, ...]
    support: SummationGuard

    def __add__(self, other: Parts) -> Parts:
        return Parts(self.items + other.items, self.support | other.support)

    __sub__ = __add__

    def __mul__(self, other: Parts) -> Parts:
        items = (*(i.where(other.support) for i in self.items), *(i.where(self.support) for i in other.items))
        return Parts(items, self.support & other.support)

    def where(self, guard: SummationGuard) -> Parts:
        """Return the value where the condition holds, and zero elsewhere."""
        return Parts(tuple(i.where(guard) for i in self.items), self.support & guard)


class Reading:
    """The interpretation of index notation that finds which elements of the operands are read to compute a box of the result.

    An index is an affine function of the position in the box (`Affine`). A value is represented by the elements on which the
    value depends (`Parts`). An operator's definition is interpreted at many result positions at once. These positions are all
    combinations of several offsets along each axis of the result. The last axes of an array of offsets correspond to the axes
    of the result. Every summation index adds an axis in front.
    """

    def __init__(self, box: Box, depth: int) -> None:
        self.box = box
        self.depth = depth

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Parts]) -> index.Tensor:
        return index.Tensor(shape, at)

    def require(self, condition: Cond, message: str) -> None:
        """Do nothing: terms are already well typed."""

    def operand(self, number: int, shape: tuple[Extent, ...]) -> index.Tensor:
        """Return an operand as a tensor of values. The value at a position depends on only one element: the element of the
        operand at this position.
        """
        return index.Tensor(shape, lambda *position: Parts((Item(ALWAYS, number, position),), ALWAYS))

    def total(self, extent: Extent, body: Callable[[Affine], Parts]) -> Parts:
        outer, self.depth = self.depth, self.depth + 1
        choices = np.arange(int(extent)).reshape((-1,) + (1,) * outer)  # type: ignore[arg-type]
        try:
            value = body(Affine(self.box, (0,) * self.box.rank, choices))
        finally:
            self.depth = outer
        support = value.support
        if max(support.sure.ndim, support.possible.ndim) > outer:
            shape = np.broadcast_shapes(support.sure.shape, support.possible.shape)
            wide = SummationGuard(
                np.broadcast_to(support.sure, shape), np.broadcast_to(support.possible, shape), support.causes
            )
            support = wide.somewhere()
        return Parts(value.items, support)

    def select(self, condition: SummationGuard | bool, then: Parts, other: Parts) -> Parts:
        if not isinstance(condition, SummationGuard):
            return then if condition else other
        return then.where(condition) + other.where(~condition)

    def number(self, value: Affine | Extent) -> Parts:
        if isinstance(value, Affine):
            if not value.fixed:
                raise Undecidable("the value of an element is computed from the output position itself")
            return Parts((Item(ALWAYS),), ALWAYS)
        return Parts((Item(ALWAYS),), ALWAYS) if value else Parts((), NEVER)

    def call(self, function: str, *arguments: Parts) -> Parts:
        """Return the value of a function. The arguments are numbers, not elements of operands. The result is a number."""
        if any(item.operand is not None for value in arguments for item in value.items):
            raise Undecidable(f"the function {function} of input elements is not a polynomial in the inputs")
        return Parts(tuple(item for value in arguments for item in value.items), ALWAYS)

    def maximum(self, extent: Extent, body: Callable[[Affine], Parts]) -> Parts:
        raise Undecidable("a maximum of elements is not a polynomial in the inputs")

    def picked(self, value: Parts, extent: Extent, body: Callable[[Affine], Parts]) -> Parts:
        raise Undecidable("an element whose position is read at run time is not a polynomial in the inputs")

    def entry(self, matrix: object, row: object, column: object) -> Parts:
        raise Undecidable("an entry of a constant table is read at a position that depends on the output position")

    def lowest(self) -> Parts:
        raise Undecidable("minus infinity has no value in a prime field")


def read_demands(root: Term, box: Box) -> Mapping[Term, Demand]:
    """Return a mapping from the subterms of `root` to positions. A subterm is read at these positions to compute the box of the
    output.

    The composite operators in `root` must be expanded (see `expand_program_composites`). The positions of a subterm are given
    by a second mapping, from linear parts to offsets. A linear part has one vector per axis of the subterm, and the offsets are
    one sorted array per axis. For the position of the box with the vector q, an index along axis a of the subterm is
    `dot(linear[a], q) + offset`, where `offset` is in `offsets[a]`. All combinations of these indices along the axes are read.

    Raises:
        Cut: A condition holds in only a part of the box.
        Undecidable: The program is not a polynomial.
    """
    found: dict[Term, Demand] = {term: {} for term in subterms(root)}
    start = output_position(box)
    found[root][tuple(i.coefficients for i in start)] = tuple(i.offsets.reshape(1) for i in start)
    for term in reversed(subterms(root)):
        for linear, offsets in found[term].items():
            if not term.is_variable:
                _read(term, linear, offsets, box, found)
    return found


def _read(term: Term, linear: Linear, offsets: Offsets, box: Box, found: Mapping[Term, Demand]) -> None:
    """Find the elements of operands that are read to compute the term at the given positions, and add these reads to `found`.

    The given positions have the index `dot(linear[a], q) + offset` along each axis a of the term, for every vector q of a
    position in the box and every offset in `offsets[a]`.
    """
    rank = len(linear)
    position = tuple(
        Affine(box, row, numbers.reshape((1,) * axis + (-1,) + (1,) * (rank - 1 - axis)))
        for axis, (row, numbers) in enumerate(zip(linear, offsets, strict=True))
    )
    reading = Reading(box, rank)
    try:
        with index.interpreted(reading):
            value = interpret(term, [reading.operand(n, arg.shape) for n, arg in enumerate(term.args)]).at(*position)
    except Undecidable as error:
        raise Undecidable(f"{term.op}: {error}") from error
    settled: dict[int, Array] = {}
    for item in value.items:
        chosen = settled.get(id(item.guard))
        if chosen is None:
            chosen = settled[id(item.guard)] = item.guard.settled(box)
        if item.operand is not None and chosen.any():
            rows = tuple(i.coefficients if isinstance(i, Affine) else (0,) * box.rank for i in item.position)
            columns = tuple(_offsets(i, chosen) for i in item.position)
            known = found[term.args[item.operand]]
            before = known.get(rows)
            known[rows] = columns if before is None else tuple(map(np.union1d, before, columns))


def _offsets(position: Affine | int, chosen: Array) -> Array:
    """Return the distinct offsets of an index in increasing order. Only the combinations of summation indices for which
    `chosen` is True are taken into account.
    """
    if not isinstance(position, Affine):
        return np.asarray([position])
    offsets = position.offsets
    if offsets.size == 1 or chosen.all():
        return np.unique(offsets)
    rank = max(offsets.ndim, chosen.ndim)
    offsets = offsets.reshape((1,) * (rank - offsets.ndim) + offsets.shape)
    chosen = chosen.reshape((1,) * (rank - chosen.ndim) + chosen.shape)
    kept = chosen.any(axis=tuple(a for a in range(rank) if offsets.shape[a] == 1), keepdims=True)
    shape = np.broadcast_shapes(offsets.shape, kept.shape)
    return np.unique(np.broadcast_to(offsets, shape)[np.broadcast_to(kept, shape)])
