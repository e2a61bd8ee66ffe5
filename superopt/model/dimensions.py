"""Open dimensions of a model's inputs, as extents of the algebra, and numbers put in for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from superopt.errors import DimensionError
from superopt.graph import (
    Atom,
    Dim,
    Extent,
    Size,
    Term,
    intern_term,
    size,
    substitute,
    substitute_attribute,
    variable,
)
from superopt.model.load import Model
from superopt.op import apply

Numbers = Mapping[str, int]
"""What open dimensions are, by their names."""
ROWS = (
    (5, 7, 11, 10007),
    (13, 17, 19, 10009),
    (23, 29, 31, 10037),
    (37, 41, 43, 10039),
    (47, 53, 59, 10061),
    (61, 67, 71, 10067),
)
"""Numbers for open dimensions, no two of which are alike; the last of each row is beyond the bounds that models have."""
COARSE = 32
"""What the height and width of an image are multiples of, so that layers which halve them several times fit together."""
SMALL = 3
"""How many numbers of a row are small: terms are lowered at those alone, and lifted at all."""
BATCH, LENGTH, SIDE = 1, 128, 224
"""What a first dimension, any other, and the side of an image are taken for in measuring where nothing is said."""


def dimension(name: str) -> Size:
    """The extent that is an open dimension of the model; no variable of a rule is called so."""
    return size(Dim(f"%{name}", 0))


def dimension_name(value: ir.Value, axis: int, extent: object) -> str:
    """What the open dimension at an axis of an input is called: its own name if it has one."""
    name = extent.value if isinstance(extent, ir.SymbolicDim) else None
    return name or f"{value.name}.{axis}"


class Sizing:
    """Numbers for all open dimensions, and terms with these numbers put in."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = dict(numbers)
        self._values: dict[Atom, Extent] = {next(dimension(n).atoms()): value for n, value in numbers.items()}
        self._known: dict[Term, Term] = {}
        self._ordered: dict[Term, Term] = {}

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.numbers.items())

    def extent(self, extent: Extent) -> Extent:
        """The extent as a number."""
        return substitute(extent, self._values.get)

    def at(self, term: Term) -> Term:
        """The term with numbers for its extents."""
        return _over(term, self._known, self._numeric) if self.numbers else term

    def in_order(self, term: Term) -> Term:
        """The term with numbers put in, the operands of sums and products in the same order at every sizing."""
        return _over(term, self._ordered, self._in_order) if self.numbers else term

    def _in_order(self, term: Term) -> Term:
        numeric = self.at(term)
        args = tuple(self._ordered[a] for a in term.args)
        if term.is_variable or args == numeric.args:
            return numeric
        return intern_term(numeric.op, args, numeric.attributes, numeric.shape)

    def _numeric(self, term: Term) -> Term:
        if term.is_variable:
            shape = tuple(self.extent(n) for n in term.shape)
            return variable(term.name, shape, constant=term.constant, condition=term.condition, position=term.position)
        attributes = {name: substitute_attribute(value, self._values.get) for name, value in term.attributes}
        return apply(term.op, *(self._known[a] for a in term.args), **attributes)


FIXED = (Sizing({}),)
"""The one sizing of what has no open dimensions."""


def _over(root: Term, known: dict[Term, Term], made: Callable[[Term], Term]) -> Term:
    """What is made of the term, its operands first; what is known is not looked into."""
    stack = [root]
    while root not in known:
        term = stack[-1]
        missing = [a for a in term.args if a not in known]
        if missing:
            stack.extend(missing)
        else:
            if term not in known:
                known[term] = made(term)
            stack.pop()
    return known[root]


def open_dimensions(model: Model) -> dict[str, bool]:
    """The names of the open dimensions of the model's inputs, each with whether it is the side of an image."""
    found: dict[str, bool] = {}
    for value in model.graph.inputs:
        if value.is_initializer() or value.shape is None:
            continue
        for axis, extent in enumerate(value.shape):
            if not isinstance(extent, int):
                name = dimension_name(value, axis, extent)
                found[name] = found.get(name, False) or (len(value.shape) == 4 and axis >= 2)
    return found


def views(model: Model) -> list[Sizing]:
    """Sizings at which the model is looked at to see how its shapes depend on its open dimensions; just one if it has none."""
    found = open_dimensions(model)
    if not found:
        return [Sizing({})]
    if len(found) > len(ROWS):
        return []
    chosen = dict(zip(found, ROWS, strict=False))
    return [Sizing({n: row[v] * (COARSE if found[n] else 1) for n, row in chosen.items()}) for v in range(len(ROWS[0]))]


def representative(model: Model, given: Sequence[Numbers]) -> list[Sizing]:
    """The sizings that matter: those `given`, with what is usual for what they leave out; the usual alone if none are given.

    Raises:
        DimensionError: a name is not that of an open dimension.
    """
    found = open_dimensions(model)
    unknown = sorted({name for numbers in given for name in numbers} - set(found))
    if unknown:
        open_ones = f"its open dimensions are {', '.join(found)}" if found else "it has none"
        raise DimensionError(f"the model has no open dimension {unknown[0]!r}: {open_ones}")
    firsts = {dimension_name(v, 0, v.shape[0]) for v in model.graph.inputs if v.shape is not None and len(v.shape)}
    usual = {n: SIDE if image else BATCH if n in firsts else LENGTH for n, image in found.items()}
    return [Sizing({**usual, **numbers}) for numbers in given or [{}]]


def combinations(choices: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Every choice of one number for each name."""
    return [dict(zip(choices, row, strict=True)) for row in itertools.product(*choices.values())]


def sized(model: Model, sizing: Sizing) -> Model:
    """The model, changed in place, with numbers for its open dimensions, and no other shape that is not a number."""
    if not sizing.numbers:
        return model
    inputs = set(model.graph.inputs)
    for value in (*model.graph.inputs, *(v for node in model.graph for v in node.outputs), *model.graph.outputs):
        if value.shape is None:
            continue
        extents: list[int | ir.SymbolicDim] = []
        for axis, extent in enumerate(value.shape):
            if isinstance(extent, int):
                extents.append(extent)
            else:
                known = dimension_name(value, axis, extent) if value in inputs else extent.value or ""
                extents.append(sizing.numbers.get(known, ir.SymbolicDim(None)))
        value.shape = ir.Shape(extents)
    return model
