"""A model seen at several sizes at once: what its nodes compute as terms over its open dimensions.

Lifting reads numbers. A node of a model with open dimensions is lifted at several numbers for them, and the terms that come of
it are read as one: where the numbers differ, as the polynomial in the open dimensions that takes all of these values. The
one term has to be the lifted one again at each of the numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import TypeVar

import onnx_ir as ir

from superopt.errors import ShapeError
from superopt.graph import Attribute, Extent, Shape, Term, variable
from superopt.model.dimensions import FIXED, SMALL, Sizing, dimension, sized, views
from superopt.model.lift import leaf_of, lift_node, results_of
from superopt.model.load import Model, charted, nodes_of, opset_of
from superopt.op import apply, operator, rebuild

MOST = 6
"""Sums of more operands are not told apart at several sizings."""
Vector = tuple[Extent, ...]
T = TypeVar("T")


class Views:
    """A model's copies for analysis, one for each sizing, and its values as leaves, its nodes as terms."""

    def __init__(self, model: Model) -> None:
        self.sizings = views(model)
        self.dynamic = len(self.sizings) > 1
        self.models = [charted(model, partial(sized, sizing=s)) for s in self.sizings] or [charted(model)]
        self.opset = opset_of(model)
        columns = list(zip(*map(nodes_of, self.models), strict=True)) if self.dynamic else []
        self._nodes = {column[0]: column for column in columns}
        self._leaves: dict[ir.Value, tuple[ir.Value, ...]] = {}
        for column in self._nodes.values():
            for row in zip(*([*n.inputs, *n.outputs] for n in column), strict=True):
                if row[0] is not None:
                    self._leaves[row[0]] = tuple(v for v in row if v is not None)
        self._shapes: dict[ir.Value, Shape] = {}
        self._reading = _Reading(self.sizings, self._fitted)
        self._extents: dict[Vector, Extent] = {}
        self._vectors: dict[Extent, Vector] = {}
        for name in self.sizings[0].numbers if self.dynamic else ():
            self._extents[tuple(s.numbers[name] for s in self.sizings)] = dimension(name)

    @property
    def small(self) -> tuple[Sizing, ...]:
        """The sizings at which lowering shows how the nodes depend on the open dimensions."""
        return tuple(self.sizings[:SMALL]) or FIXED

    @property
    def model(self) -> Model:
        """The copy whose nodes and values all others are told by."""
        return self.models[0]

    def leaf(self, value: ir.Value) -> Term | None:
        """The variable named after the value, as `leaf_of` has it, over the open dimensions."""
        if not self.dynamic:
            return leaf_of(value)
        found = [leaf_of(v) for v in self._leaves.get(value, (value,))]
        first = found[0]
        if first is None or first.constant:
            return first
        shapes = [t.shape for t in found if t is not None]
        if len(shapes) < len(found) or len({len(s) for s in shapes}) > 1:
            return None
        if value in self._shapes:
            return variable(first.name, self._shapes[value], condition=first.condition, position=first.position)
        shape: Shape | None = _complete(self._fitted(column, ()) for column in zip(*shapes, strict=True))
        return None if shape is None else variable(first.name, shape, condition=first.condition, position=first.position)

    def lift(self, node: ir.Node, operands: Sequence[Term | None]) -> tuple[Term, ...] | None:
        """The terms of the node's outputs over those of its inputs, as `lift_node` has them; None where sizings disagree."""
        if not self.dynamic:
            return _lifted(node, operands, self.opset)
        rows: list[tuple[Term, ...]] = []
        for twin, sizing in zip(self._nodes[node], self.sizings, strict=True):
            lifted = _lifted(twin, [None if t is None else sizing.at(t) for t in operands], self.opset)
            if lifted is None:
                return None
            rows.append(lifted)
        found = self._reading.common_all(operands, list(zip(*rows, strict=True)))
        if found is None:
            found = self._over_leaves(node, operands)
        for value, term in zip((v for v in node.outputs if v.name), found or (), strict=False):
            self._shapes.setdefault(value, term.shape)
            for extent in term.shape:
                self._extents.setdefault(self._vector(extent), extent)
        return found

    def _over_leaves(self, node: ir.Node, operands: Sequence[Term | None]) -> tuple[Term, ...] | None:
        """What the node computes of variables, with its operands put in for them."""
        leaves = [None if v is None else self.leaf(v) for v in node.inputs]
        pairs = {v: t for v, t in zip(leaves, operands, strict=True) if v is not None and t is not None and v is not t}
        if not pairs:
            return None
        lifted = self.lift(node, leaves)
        try:
            return None if lifted is None else tuple(rebuild(t, pairs) for t in lifted)
        except ShapeError:
            return None

    def _fitted(self, values: Vector, near: Sequence[Extent]) -> Extent | None:
        """The extent that has these values: a number, a known extent, or made of the open dimensions and those near."""
        if all(v == values[0] for v in values):
            return values[0]
        if values in self._extents:
            return self._extents[values]
        candidates = [*self._candidates(near)]
        for some, vector in candidates:
            if all(v * vector[0] == values[0] * w for v, w in zip(values, vector, strict=True)):
                extent, factor = math.prod(some), Fraction(values[0]) / Fraction(vector[0])  # type: ignore[arg-type]
                if factor.denominator == 1:
                    return extent * int(factor)
                whole = extent // factor.denominator
                if self._vector(whole * factor.numerator) == values:
                    return whole * factor.numerator
        for some, vector in candidates:
            if all(v - w == values[0] - vector[0] for v, w in zip(values, vector, strict=True)):
                return math.prod(some) + (values[0] - vector[0])
        return None

    def _candidates(self, near: Sequence[Extent]) -> Iterator[tuple[tuple[Extent, ...], Vector]]:
        """Extents and pairs and triples of them, with the values of their products."""
        single = dict.fromkeys((*self._extents.values(), *(n for n in near if not isinstance(n, int))))
        known = [(extent, self._vector(extent)) for extent in single]
        for count in range(1, 4):
            for some in itertools.combinations_with_replacement(known, count):
                vector = tuple(map(math.prod, zip(*(values for _, values in some), strict=True)))
                if 0 not in vector:
                    yield tuple(extent for extent, _ in some), vector

    def _vector(self, extent: Extent) -> Vector:
        if extent not in self._vectors:
            self._vectors[extent] = tuple(s.extent(extent) for s in self.sizings)
        return self._vectors[extent]


def _complete(found: Iterable[T | None]) -> tuple[T, ...] | None:
    """All that was found, or None where one is missing."""
    listed = tuple(found)
    whole = tuple(one for one in listed if one is not None)
    return whole if len(whole) == len(listed) else None


def _lifted(node: ir.Node, operands: Sequence[Term | None], opset: int) -> tuple[Term, ...] | None:
    """The node's terms, where they have the shapes that are known of its results."""
    lifted = lift_node(node, operands, opset)
    results = results_of(node, opset)
    if lifted is None or any(v.shape is None or tuple(v.shape) != t.shape for v, t in zip(results, lifted, strict=True)):
        return None
    return lifted


class _Reading:
    """Terms at several sizings read as one term."""

    def __init__(self, sizings: Sequence[Sizing], fit: Callable[[Vector, Sequence[Extent]], Extent | None]) -> None:
        self.sizings, self.fit = sizings, fit
        self.known: dict[tuple[Term, ...], Term] = {}
        self.near: list[Extent] = []

    def common_all(self, operands: Sequence[Term | None], columns: Sequence[tuple[Term, ...]]) -> tuple[Term, ...] | None:
        """The terms over these operands that are each of the columns' at its sizing, or None."""
        given = [t for t in operands if t is not None]
        self.near = list(dict.fromkeys(n for t in given for n in t.shape))
        self.known.update((tuple(s.at(t) for s in self.sizings), t) for t in given)
        return _complete(map(self.common, columns))

    def common(self, terms: tuple[Term, ...]) -> Term | None:
        """The term that is each of these at its sizing."""
        if terms not in self.known:
            found = self._read(terms)
            if found is None or tuple(s.at(found) for s in self.sizings) != terms:
                return None
            self.known[terms] = found
        return self.known[terms]

    def _read(self, terms: tuple[Term, ...]) -> Term | None:
        first = terms[0]
        if first.is_variable:
            return first if all(t is first for t in terms) else None
        if len({(t.op, len(t.args), tuple(k for k, _ in t.attributes)) for t in terms}) > 1:
            return None
        columns = zip(*(t.attributes for t in terms), strict=True)
        attributes = {column[0][0]: self._attribute([value for _, value in column]) for column in columns}
        if None in attributes.values():
            return None
        args = self._operands(terms)
        try:
            return None if args is None else apply(first.op, *args, **{k: v for k, v in attributes.items() if v is not None})
        except ShapeError:
            return None

    def _operands(self, terms: tuple[Term, ...]) -> Sequence[Term] | None:
        """Common operands; those of sums and products are told in whatever order they stand in."""
        if not operator(terms[0].op).commutative:
            return _complete(map(self.common, zip(*(t.args for t in terms), strict=True)))
        if len(terms[0].args) > MOST:
            return None
        rest = [list(t.args) for t in terms[1:]]
        found: list[Term] = []
        for operand in terms[0].args:
            options = ((operand, *others) for others in itertools.product(*rest))
            term, column = next(((t, c) for c in options if (t := self.common(c)) is not None), (None, ()))
            if term is None:
                return None
            found.append(term)
            for others, taken in zip(rest, column[1:], strict=True):
                others.remove(taken)
        return found

    def _attribute(self, values: Sequence[Attribute]) -> Attribute | None:
        first = values[0]
        if all(v == first and type(v) is type(first) for v in values):
            return first
        if isinstance(first, tuple):
            columns = [c for v in values if isinstance(v, tuple) for c in [v]]
            if len({len(c) for c in columns}) > 1 or len(columns) < len(values):
                return None
            return _complete(self.fit(column, self.near) for column in zip(*columns, strict=True))
        numbers = tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool))
        return self.fit(numbers, self.near) if len(numbers) == len(values) else None
