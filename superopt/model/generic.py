"""Lowering over open dimensions: nodes that compute the terms whatever the dimensions are.

Terms are lowered at several sizings. Nodes that are the same at all of them are the nodes; where a shape or a bound differs, it
is written as ONNX writes what it is to find out by itself: -1 and 0 in the shape of a Reshape, 1 in that of an Expand, a bound
from the end of a Slice.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.composite import unfolded, without
from superopt.errors import ShapeError
from superopt.graph import Term, subterms, variable
from superopt.model.dimensions import Sizing
from superopt.model.lower import Array, Constants, lower
from superopt.model.nodes import Deferred, Hollow, Lowered, NodeText, now
from superopt.op import apply, operator

LAST = np.iinfo(np.int64).max
"""A bound of a slice beyond any end."""
Shapes = Sequence[tuple[int, ...]]


def lower_everywhere(
    outputs: Mapping[str, Term],
    opset: int,
    sizings: Sequence[Sizing],
    *,
    constant: Constants | None = None,
    dtype: npt.DTypeLike = np.float32,
    prefix: str = "superopt.",
    conditions: Collection[str] | None = None,
) -> Lowered:
    """As `lower`, nodes that are right at every sizing, and where the sizings tell the open dimensions apart at any other.

    Raises:
        ShapeError: the opset cannot express a term, or not one for all sizes.
    """
    how: dict[str, Any] = {"constant": constant, "dtype": dtype, "prefix": prefix, "conditions": conditions}
    try:
        return _everywhere(outputs, opset, sizings, **how)
    except ShapeError:
        names = dict.fromkeys(t.op for t in subterms(*outputs.values()) if _is_unfit(_alone(t), opset, tuple(sizings)))
        if not names:
            raise
    terms = tuple(outputs.values())
    for name in names:
        terms = tuple(without(name, terms))
    return _everywhere(dict(zip(outputs, terms, strict=True)), opset, sizings, **how)


def _alone(term: Term) -> Term:
    """The term's root on variables in the place of its operands."""
    operands = (variable(f"x{position}", a.shape, constant=a.constant) for position, a in enumerate(term.args))
    return apply(term.op, *operands, **dict(term.attributes)) if term.args else term


@functools.lru_cache(maxsize=4096)
def _is_unfit(term: Term, opset: int, sizings: tuple[Sizing, ...]) -> bool:
    """Whether an operator that is composed is to be written out before numbers are put in, for either it has no node at the
    opset or the nodes that it has are not the same at all sizings.
    """
    definition = unfolded(term) if term.args and operator(term.op).composite else None
    if definition is None or len(sizings) == 1:
        return False
    try:
        own, written = (_everywhere({"y": t}, opset, sizings).nodes for t in (term, definition))
    except ShapeError:
        return True
    return Counter(node.op_type for node in own) == Counter(node.op_type for node in written)


def _everywhere(outputs: Mapping[str, Term], opset: int, sizings: Sequence[Sizing], **how: Any) -> Lowered:
    """`lower_everywhere` without writing out what has no nodes."""

    def at(sizing: Sizing) -> Lowered:
        terms = {name: sizing.in_order(term) for name, term in outputs.items()}
        return lower(terms, opset, by_size=len(sizings) == 1, **how)

    found = [at(sizing) for sizing in sizings]
    return found[0] if len(found) == 1 else _common(found)


def _common(found: Sequence[Lowered]) -> Lowered:
    """The nodes that all of these are."""
    first = found[0]
    if any(f.nodes != first.nodes or f.initializers.keys() != first.initializers.keys() for f in found):
        raise ShapeError("the nodes depend on the open dimensions")
    initializers: dict[str, Array | Deferred] = {}
    for name, array in first.initializers.items():
        others = [f.initializers[name] for f in found]
        same = all(_equal(a, array) for a in others)
        initializers[name] = array if same else _numbers(name, others, found)
    return replace(first, initializers=initializers)


def _equal(one: Array | Deferred, other: Array | Deferred) -> bool:
    """Whether the arrays are the same, as far as they hold anything."""
    if one is other:
        return True
    return one.shape == other.shape and (isinstance(one, Hollow) or np.array_equal(now(one), now(other)))


def _numbers(name: str, given: Sequence[Array | Deferred], found: Sequence[Lowered]) -> Array:
    """What stands for shapes or bounds that differ, in all the nodes that read them."""
    arrays = [*map(now, given)]
    if any(a.ndim != 1 or a.dtype.kind != "i" or a.shape != arrays[0].shape for a in arrays):
        raise ShapeError("a weight depends on the open dimensions")
    written = {
        tuple(_FORMS[node.op_type, position](node, columns, found))
        for node in found[0].nodes
        for position, read in enumerate(node.inputs)
        if read == name and _readable(node, position)
        for columns in [[tuple(int(n) for n in column) for column in zip(*arrays, strict=True)]]
    }
    if len(written) != 1:
        raise ShapeError("one constant would have to be several")
    return np.asarray(written.pop(), np.int64)


def _readable(node: NodeText, position: int) -> bool:
    if (node.op_type, position) not in _FORMS:
        raise ShapeError(f"an operand of {node.op_type} depends on the open dimensions")
    return True


def _shapes(name: str, found: Sequence[Lowered]) -> Shapes:
    """The value's shape at each sizing; empty where it is not known."""
    return [f.shapes[name] for f in found if name in f.shapes]


def _reshaped(node: NodeText, columns: Sequence[tuple[int, ...]], found: Sequence[Lowered]) -> list[int]:
    """0 for what the operand has at the same axis, -1 for at most one other extent that is not always the same."""
    shapes = _shapes(node.inputs[0], found)
    written: list[int] = []
    for axis, column in enumerate(columns):
        kept = bool(shapes) and axis < len(shapes[0]) and tuple(s[axis] for s in shapes) == column
        written.append(column[0] if len(set(column)) == 1 else 0 if kept else -1)
    if written.count(-1) > 1:
        raise ShapeError("a shape has two open dimensions that are not its operand's")
    return written


def _expanded(node: NodeText, columns: Sequence[tuple[int, ...]], found: Sequence[Lowered]) -> list[int]:
    """1 for what the operand has already."""
    shapes = _shapes(node.inputs[0], found)
    written: list[int] = []
    for back, column in zip(range(-len(columns), 0), columns, strict=True):
        kept = bool(shapes) and -back <= len(shapes[0]) and tuple(s[back] for s in shapes) == column
        if len(set(column)) > 1 and not kept:
            raise ShapeError("an expanded extent is open")
        written.append(1 if len(set(column)) > 1 else column[0])
    return written


def _bounds(node: NodeText, columns: Sequence[tuple[int, ...]], found: Sequence[Lowered]) -> list[int]:
    """How far from the end the bounds are."""
    shapes = _shapes(node.inputs[0], found)
    axes = [f.initializers.get(node.inputs[3]) for f in found] if len(node.inputs) > 3 else []
    if not shapes or not axes or axes[0] is None:
        raise ShapeError("what is sliced is not known")
    written: list[int] = []
    for axis, column in zip(now(axes[0]).tolist(), columns, strict=True):
        if len(set(column)) == 1:
            written.append(column[0])
            continue
        back = {n - s[axis] for n, s in zip(column, shapes, strict=True)}
        if len(back) > 1 or max(back) > 0:
            raise ShapeError("a bound is at no fixed distance from the end")
        (distance,) = back
        written.append(distance or LAST)
    return written


_FORMS: dict[tuple[str, int], Callable[[NodeText, Sequence[tuple[int, ...]], Sequence[Lowered]], list[int]]] = {
    ("Reshape", 1): _reshaped,
    ("Expand", 1): _expanded,
    ("Slice", 1): _bounds,
    ("Slice", 2): _bounds,
}
