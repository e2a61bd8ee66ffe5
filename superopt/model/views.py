"""Express the values and nodes of a model as variables and terms, with symbolic sizes for dynamic dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from superopt.algebra.dim_binding import FIXED, DimBinding
from superopt.algebra.extent import AllOf, AnyOf, Compare, Cond, Extent, Size, atoms
from superopt.algebra.integers import is_unknown, prove, prove_equal
from superopt.algebra.terms import Shape, Term, subterms, variable
from superopt.model.dimensions import dimension_assumptions, dynamic_dimensions, sample_sizings
from superopt.model.lift import leaf_of, lift_node, results_of
from superopt.model.load import Model, analysis_copy, normalized_copy, opset_of
from superopt.model.shape_values import ShapeValues

GENERAL = (
    "Every dynamic dimension of an input is at least 1; at 0 the result is checked where the original runs, not proved.",
    "Integers that the model computes from sizes do not overflow.",
)
"""Assumptions that are made for every model with dynamic dimensions."""


class Views:
    """A copy of a model for analysis. The copy's values can be expressed as variables, and the copy's nodes can be expressed as
    terms.

    Terms have symbolic sizes for dynamic dimensions. A node is expressed as terms only if the terms are proved to have the
    node's result shapes at all sizes of at least 1. If the terms require that extents are equal, the equality must be proved
    for all sizes too.
    """

    def __init__(self, model: Model) -> None:
        self.opset = opset_of(model)
        dimensions = dynamic_dimensions(model)
        self.dynamic = bool(dimensions)
        self.small: tuple[DimBinding, ...] = sample_sizings(model) if self.dynamic else FIXED
        self.assumptions: tuple[str, ...] = ()
        self._known: dict[tuple[int, ...], list[Extent]] = {}
        self._shapes: dict[ir.Value, Shape] = {}
        self._leaves: dict[ir.Value, Term | None] = {}
        if not self.dynamic:
            self.model = analysis_copy(model)
            return
        copy = normalized_copy(model)
        inputs = {value.name: value for value in copy.graph.inputs}
        placed = {(inputs[name], axis): extent for (name, axis), extent in dimensions.items()}
        self.values = ShapeValues(copy, self.opset, placed)
        self.model = copy
        self.assumptions = (*GENERAL, *dimension_assumptions(model), *self.values.assumptions)

    def leaf(self, value: ir.Value) -> Term | None:
        """Return a variable that stands for the value in terms, or None if no variable can have the value's type or shape.

        The variable has the value's name. An extent that depends on the dynamic dimensions is an expression.
        """
        if not self.dynamic:
            return leaf_of(value)
        if value not in self._leaves:
            self._leaves[value] = self._leaf(value)
        return self._leaves[value]

    def _leaf(self, value: ir.Value) -> Term | None:
        found: Term | None = self.values.leaf(value)
        if found is None or all(isinstance(n, int) for n in found.shape):
            return found
        shape = self._shapes.get(value) or tuple(map(self._canonical, found.shape))
        return variable(found.name, shape, condition=found.condition, position=found.position)

    def lift(self, node: ir.Node, operands: Sequence[Term | None]) -> tuple[Term, ...] | None:
        """Return the terms of the node's outputs. `operands` contains the term of each input, or None for an input without a
        term.

        Returns None if the algebra cannot express the node, or if the terms are not proved to be right at all sizes.
        """
        if not self.dynamic:
            return _of_known_shape(node, lift_node(node, operands, self.opset), self.opset)
        lifted = lift_node(node, operands, self.opset, self.values.content)
        results = results_of(node, self.opset)
        if lifted is None or not all(map(self._is_proved, results, lifted)):
            return None
        old = set(subterms(*(t for t in operands if t is not None)))
        if not all(_is_certain(c) for t in subterms(*lifted) if t not in old for c in t.requires):
            return None
        for value, term in zip(results, lifted, strict=True):
            if value not in self._shapes:
                self._shapes[value] = term.shape
                for extent in term.shape:
                    self._canonical(extent)
        return lifted

    def _is_proved(self, value: ir.Value, term: Term) -> bool:
        """Return whether the term is proved to have the shape of the value at all sizes of the dynamic dimensions."""
        shape = self.values.shape(value)
        if shape is None or len(shape) != term.rank or any(is_unknown(a) for n in term.shape for a in atoms(n)):
            return False
        return all(prove_equal(mine, its) for mine, its in zip(term.shape, shape, strict=True))

    def _canonical(self, extent: Extent) -> Extent:
        """Return the first known expression that is proved to equal the extent at all sizes, or the extent itself if there is
        none.
        """
        if not isinstance(extent, Size):
            return extent
        known = self._known.setdefault(self._numbers(extent), [])
        found = next((n for n in known if prove_equal(n, extent)), None)
        if found is None:
            found = extent
            known.append(extent)
        return found

    def _numbers(self, extent: Extent) -> tuple[int, ...]:
        """Return the extent's values at a few fixed sizes of the dynamic dimensions. Equal extents have equal values."""
        return tuple(int(str(sizing.extent(extent))) for sizing in self.small)


def _is_certain(condition: Cond) -> bool:
    """Return whether a requirement of a term is proved for all sizes, or needs no proof.

    Requirements that numbers are equal or unequal (`==`, `!=`) need a proof. Requirements of the form `n >= 0` need no proof:
    ONNX itself makes these requirements, so the model can run only at sizes that meet them.
    """
    match condition:
        case Compare("==" | "!="):
            return prove(condition)
        case AllOf(parts):
            return all(map(_is_certain, parts))
        case AnyOf(parts):
            return prove(condition) or all(map(_is_certain, parts))
        case _:
            return True


def _of_known_shape(node: ir.Node, lifted: tuple[Term, ...] | None, opset: int) -> tuple[Term, ...] | None:
    """If the terms `lifted` have the shapes of the node's results, return the terms. Return None if a shape differs or is not
    known.
    """
    results = results_of(node, opset)
    if lifted is None or any(v.shape is None or tuple(v.shape) != t.shape for v, t in zip(results, lifted, strict=True)):
        return None
    return lifted
