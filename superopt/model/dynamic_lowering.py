"""ONNX nodes whose shapes, bounds or pads depend on the dynamic dimensions.

When terms are written as ONNX nodes, a node can have a shape, bounds or pads that are expressions over the dynamic dimensions.
ONNX has special constants from which a node derives the values of such expressions at run time. Each expression is replaced by
a special constant. It is proved that the derived value equals the expression at all sizes.

The special constants depend on the operator. A Reshape permits 0 and -1 in its target shape, and an Expand permits 1. In a
Slice, a bound may count from the end of the axis or lie beyond the end. A convolution or pooling can have `auto_pad` instead of
pads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from superopt.algebra.extent import Extent, Size, at_least
from superopt.algebra.integers import base_atoms, evaluate, floor_quotient, maximum, minimum, prove, prove_equal
from superopt.algebra.terms import Shape
from superopt.errors import ShapeError
from superopt.policy import MODEL
from superopt.protobuf.nodes import NodeText

LAST = int(np.iinfo(np.int64).max)
"""A bound of a Slice that lies beyond the end of every axis."""


def has_dynamic_dimensions(value: object) -> bool:
    """Return whether an attribute or operand contains an expression over the dynamic dimensions."""
    return isinstance(value, Size) or (isinstance(value, tuple | list) and any(isinstance(n, Size) for n in value))


def numeric(
    node: NodeText, given: Mapping[str, Sequence[Extent]], shapes: Mapping[str, Shape]
) -> tuple[NodeText, dict[int, list[int]]]:
    """Replace a node's expressions over the dynamic dimensions by constants from which ONNX derives the same values at run
    time.

    Returns the node with new attributes, and a mapping from the positions of changed operands to their new elements.

    Args:
        node: the node.
        given: the elements of the small constant operands, by the operands' names.
        shapes: the known shapes of values, by name.

    Raises:
        ShapeError: an expression cannot be replaced by a constant that is right at all sizes.
    """
    operands: dict[int, list[int]] = {}
    for position, name in enumerate(node.inputs):
        numbers = given.get(name, ())
        if any(isinstance(n, Size) for n in numbers):
            form = _FORMS.get((node.op_type, position))
            if form is None:
                raise ShapeError(f"input {position} of {node.op_type} depends on the dynamic dimensions")
            operands[position] = form(node, numbers, given, shapes)
    for key, value in node.attributes:
        if has_dynamic_dimensions(value):
            node = _with_attribute(node, key, value, shapes)
    return node, operands


def _with_attribute(node: NodeText, key: str, value: object, shapes: Mapping[str, Shape]) -> NodeText:
    numbers = tuple(value) if isinstance(value, tuple | list) else (value,)
    rest = tuple((k, v) for k, v in node.attributes if k != key)
    if key == "pads" and node.op_type in ("Conv", "MaxPool", "AveragePool"):
        return replace(node, attributes=(*rest, ("auto_pad", _auto_pad(node, numbers, shapes))))
    form = _FORMS.get((node.op_type, {"shape": 1, "starts": 1, "ends": 2}.get(key, -1)))
    if form is None:
        raise ShapeError(f"the attribute {key} of {node.op_type} depends on the dynamic dimensions")
    axes = {"axes": tuple(dict(node.attributes).get("axes", range(len(numbers))))}  # type: ignore[arg-type]
    written = form(replace(node, inputs=(node.inputs[0], "", "", "axes")), numbers, axes, shapes)  # type: ignore[arg-type]
    return replace(node, attributes=tuple((k, tuple(written) if k == key else v) for k, v in node.attributes))


def _auto_pad(node: NodeText, pads: Sequence[object], shapes: Mapping[str, Shape]) -> str:
    """Return the value of `auto_pad` (`SAME_UPPER` or `SAME_LOWER`) that gives these pads at all sizes.

    Raises:
        ShapeError: no value of `auto_pad` gives these pads.
    """
    attributes = dict(node.attributes)
    shape = shapes.get(node.inputs[0])
    kernel = attributes.get("kernel_shape") or (
        shapes[node.inputs[1]][2:] if node.inputs[1:] and node.inputs[1] in shapes else ()
    )
    if shape is None or not isinstance(kernel, tuple) or len(kernel) != len(shape) - 2:
        raise ShapeError(f"the shape of the image that {node.op_type} pads is not known")
    once = (1,) * len(kernel)
    strides, dilations = attributes.get("strides", once), attributes.get("dilations", once)
    whole = [
        maximum((-floor_quotient(-n, s) - 1) * s + (k - 1) * d + 1 - n, 0, 1)  # type: ignore[operator, arg-type]
        for n, k, s, d in zip(shape[2:], kernel, strides, dilations, strict=True)  # type: ignore[arg-type]
    ]
    less, more = [floor_quotient(p, 2) for p in whole], [p - floor_quotient(p, 2) for p in whole]
    for name, wanted in (("SAME_UPPER", (*less, *more)), ("SAME_LOWER", (*more, *less))):
        if all(prove_equal(one, other) for one, other in zip(pads, wanted, strict=True)):  # type: ignore[arg-type]
            return name
    raise ShapeError(f"the pads of {node.op_type} depend on the dynamic dimensions, and no value of auto_pad gives these pads")


def unit_axes(node: NodeText, wanted: Sequence[Extent], shapes: Mapping[str, Shape]) -> tuple[list[int], list[int]] | None:
    """Return two lists of axes of extent 1: the axes that a Reshape to the shape `wanted` removes, and the axes that the
    Reshape adds.

    Returns None if the node is not a Reshape, or if the Reshape does more than remove and add axes of extent 1.
    """
    shape = shapes.get(node.inputs[0])
    if node.op_type != "Reshape" or shape is None or [n for n in shape if n != 1] != [n for n in wanted if n != 1]:
        return None
    return [a for a, n in enumerate(shape) if n == 1], [a for a, n in enumerate(wanted) if n == 1]


def flattened_axis(node: NodeText, wanted: Sequence[Extent], shapes: Mapping[str, Shape]) -> int | None:
    """Return the `axis` with which a Flatten gives the same result as a Reshape to the shape `wanted`. Return None if there is
    no such axis.

    The shape `wanted` must consist of two dynamic extents. If an extent is 0, the Flatten works, but a Reshape to `[0, -1]`
    fails.
    """
    shape = shapes.get(node.inputs[0])
    if node.op_type != "Reshape" or shape is None or len(wanted) != 2 or any(isinstance(n, int) for n in wanted):
        return None
    for axis in range(len(shape) + 1):
        if math.prod(shape[:axis]) == wanted[0] and math.prod(shape[axis:]) == wanted[1]:
            return axis
    return None


Form = Callable[[NodeText, Sequence[Extent], Mapping[str, Sequence[Extent]], Mapping[str, Shape]], list[int]]


def _reshaped(
    node: NodeText, wanted: Sequence[Extent], _: Mapping[str, Sequence[Extent]], shapes: Mapping[str, Shape]
) -> list[int]:
    """Return the target shape of a Reshape as integers that are right at all sizes.

    A dynamic extent becomes 0 if the operand has the same extent at the same axis. Any other dynamic extent becomes -1.

    Raises:
        ShapeError: more than one extent would become -1.
    """
    shape = shapes.get(node.inputs[0], ())
    written: list[int] = []
    for axis, n in enumerate(wanted):
        kept = axis < len(shape) and prove_equal(n, shape[axis], 0)
        written.append(n if isinstance(n, int) else 0 if kept else -1)
    if written.count(-1) > 1:
        raise ShapeError("a Reshape gives two axes dynamic extents that differ from the operand's extents on these axes")
    return written


def _expanded(
    node: NodeText, wanted: Sequence[Extent], _: Mapping[str, Sequence[Extent]], shapes: Mapping[str, Shape]
) -> list[int]:
    """Return the target shape of an Expand as integers. A dynamic extent becomes 1, which keeps the operand's extent. The
    operand must have the same dynamic extent at this axis.
    """
    shape = shapes.get(node.inputs[0], ())
    written: list[int] = []
    for back, n in zip(range(-len(wanted), 0), wanted, strict=True):
        if isinstance(n, Size) and not (-back <= len(shape) and prove_equal(n, shape[back], 0)):
            raise ShapeError(f"an Expand repeats its operand along an axis of dynamic extent {n}")
        written.append(n if isinstance(n, int) else 1)
    return written


def _bounds(
    node: NodeText, wanted: Sequence[Extent], given: Mapping[str, Sequence[Extent]], shapes: Mapping[str, Shape]
) -> list[int]:
    """Return the bounds of a Slice as integers. A bound may count from the end of the axis, or lie beyond the end.

    If a bound lies beyond the end of the axis, ONNX uses the end of the axis instead. A bound that counts from the end can lie
    before the start of the axis. ONNX then uses 0 instead, and a backward slice wrongly contains the first element. Therefore,
    a bound of a backward slice is rejected if it counts from the end and may lie before the start.
    """
    shape, axes = shapes.get(node.inputs[0]), given.get(node.inputs[3]) if len(node.inputs) > 3 else None
    if shape is None or axes is None:
        raise ShapeError("the operand of a Slice has an unknown shape, or the Slice has unknown axes")
    steps = given.get(node.inputs[4], [-1] * len(axes)) if len(node.inputs) > 4 else [1] * len(axes)
    found: list[int] = []
    for n, axis, step in zip(wanted, axes, steps, strict=True):
        bound = n if isinstance(n, int) else _bound(n, shape[int(str(axis))])
        forward = isinstance(step, int) and step > 0
        if bound is not n and not forward and -LAST < bound < 0 and not prove(at_least(n, 0)):
            raise ShapeError(f"the bound {n} of a backward Slice may lie before the start of the axis")
        found.append(bound)
    return found


def _bound(bound: Extent, extent: Extent) -> int:
    distance = bound - extent
    if isinstance(distance, int) and distance <= 0:
        return distance or LAST
    if prove(at_least(-1, bound)) and prove(at_least(-extent - 1, bound)):
        return -LAST  # a slice backwards that ends before the start
    if prove_equal(bound, extent):
        return LAST
    far = int(evaluate(bound, dict.fromkeys(base_atoms(bound), MODEL.beyond_all_sizes)))
    if far >= 0 and prove_equal(bound, minimum(far, extent, 1)):
        return far
    back = (
        int(evaluate(distance, dict.fromkeys(base_atoms(distance), MODEL.beyond_all_sizes)))
        if isinstance(distance, Size)
        else 0
    )
    if back < 0 and prove_equal(bound, maximum(extent + back, 0, 1)):
        return back
    raise ShapeError(f"the Slice bound {bound} has no fixed distance from either end of the axis, whose extent is {extent}")


_FORMS: Mapping[tuple[str, int], Form] = {
    ("Reshape", 1): _reshaped,
    ("Expand", 1): _expanded,
    ("Slice", 1): _bounds,
    ("Slice", 2): _bounds,
}
