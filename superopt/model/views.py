"""Lift the values and nodes of a model, with expressions over its dynamic dimensions as sizes, for use in islands."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from superopt.algebra.dim_binding import FIXED, DimBinding
from superopt.algebra.extent import AllOf, AnyOf, Compare, Cond, Extent, Size, atoms
from superopt.algebra.integers import is_unknown, prove, prove_equal
from superopt.algebra.terms import Shape, Term, subterms, variable
from superopt.model.dimensions import dynamic_dimensions, sample_sizings, trust_assumptions
from superopt.model.lift import leaf_of, lift_node, results_of
from superopt.model.load import Model, analysis_copy, normalized_copy, opset_of
from superopt.model.shape_values import ShapeValues

GENERAL = (
    "Every dynamic dimension of an input is at least 1; at 0 the result is checked where the original runs, not proved.",
    "Integers that the model computes from sizes do not overflow.",
)
"""Assumptions that are made for every model with dynamic dimensions."""


class Views:
    """The copy of a model for analysis. Its values become variables, and its nodes become terms.

    With dynamic dimensions, nodes lift with symbolic sizes. A node lifts only if its terms are proved to have the node's result
    shapes at all sizes of at least 1. Equalities of extents that the terms require must be proved for all sizes too.
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
        self.assumptions = (*GENERAL, *trust_assumptions(model), *self.values.assumptions)

    def leaf(self, value: ir.Value) -> Term | None:
        """Return the variable for the value, as `leaf_of` does, with its shape over the dynamic dimensions."""
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
        """Return the terms of the node's outputs, or None if they are not proved right at all sizes."""
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
        """Return whether the term is proved to have the value's shape."""
        shape = self.values.shape(value)
        if shape is None or len(shape) != term.rank or any(is_unknown(a) for n in term.shape for a in atoms(n)):
            return False
        return all(prove_equal(mine, its) for mine, its in zip(term.shape, shape, strict=True))

    def _canonical(self, extent: Extent) -> Extent:
        """Return the form of this extent that was seen first.

        Extents that are proved equal at all sizes have the same form.
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
        """Return the extent's values at a few sizes. If two extents are equal, these values are equal."""
        return tuple(int(str(sizing.extent(extent))) for sizing in self.small)


def _is_certain(condition: Cond) -> bool:
    """Return whether a requirement of a term is proved for all sizes, or is not an equality.

    Other requirements need no proof, because ONNX also makes them for the node.
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
    """Return the node's terms if they have the known shapes of its results, else None."""
    results = results_of(node, opset)
    if lifted is None or any(v.shape is None or tuple(v.shape) != t.shape for v, t in zip(results, lifted, strict=True)):
        return None
    return lifted
