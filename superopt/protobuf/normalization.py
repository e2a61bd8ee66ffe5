"""The normalization of a model's inputs: constants that are subtracted, and constants by which the difference is divided.

A model that computes `(x - mean) / std` usually receives values near `mean`. Its rounding errors at inputs near 0 are not
typical. Inputs that exactly equal a constant also matter, because a difference is then 0, or a comparison has equal operands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from superopt.protobuf.graphs import attribute_values

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Normalization:
    """The elementwise map `x * scale + offset` that a model first applies to an input.

    The arrays are in float64, have the rank of the input, and broadcast against the input.
    """

    scale: Array
    offset: Array

    def inputs(self, normal: Array) -> Array | None:
        """Return the input values that the map turns into `normal`.

        The result is None if one of these values is not finite, or if `normal` does not have the shape of the input.
        """
        try:
            with np.errstate(all="ignore"):
                found = (normal - self.offset) / self.scale
        except ValueError:
            return None
        return found if found.shape == normal.shape and bool(np.isfinite(found).all()) else None


@dataclass(frozen=True, eq=False)
class _Mapped:
    """A mapped input: a value that is computed from an input by an elementwise map and by moving elements.

    Attributes:
        name: The name of the input.
        axes: For each axis of the value, the corresponding axis of the input. `axes` is None if elements are moved in another
            way than by a permutation of the axes.
        map: The elementwise map.
        shifted: Whether the map adds a constant.
    """

    name: str
    axes: tuple[int, ...] | None
    map: Normalization
    shifted: bool = False

    def aligned(self, constant: Array) -> Array | None:
        """Rearrange a constant and return it. The given constant broadcasts against the value, and the result broadcasts
        against the input.

        The result is None if no rearrangement of the constant broadcasts against the input.
        """
        if self.axes is None:
            return constant.reshape(()) if constant.size == 1 else None
        rank = len(self.axes)
        if constant.ndim > rank:
            return None
        return constant.reshape((1,) * (rank - constant.ndim) + constant.shape).transpose(np.argsort(self.axes))


SHIFTED = "shifted"
"""The name of a set of inputs whose values are near the constants that the model subtracts from the inputs. After
normalization, the values have ordinary magnitudes.
"""


def denormalized(normalized: Mapping[str, Normalization], name: str, normal: Array) -> Array:
    """Return the values of the input `name` that the model normalizes to `normal`. If the model does not normalize the input,
    or if no finite values are found, the array `normal` itself is returned.

    If `normal` contains integers, the values are rounded and limited to the range of their type.
    """
    if name not in normalized or normal.dtype.kind not in "iuf":
        return normal
    values = normalized[name].inputs(normal.astype(np.float64))
    if values is None:
        return normal
    if normal.dtype.kind == "f":
        return values.astype(normal.dtype)
    limits = np.iinfo(normal.dtype)
    whole: Array = np.rint(np.clip(values, limits.min, limits.max)).astype(normal.dtype)
    return whole


def conditioning(normalized: Mapping[str, Normalization]) -> float:
    """Return the largest factor by which normalization enlarges the relative rounding error of an input.

    The result is at least 1.
    """
    return max((float(np.max(np.abs(n.offset), initial=1.0)) for n in normalized.values()), default=1.0)


def normalizations(model: ModelProto) -> dict[str, Normalization]:
    """Return a mapping from the names of inputs to the maps by which the model normalizes these inputs.

    A map includes the first addition or subtraction of a constant, and the multiplications by constants before and after this
    operation. Inputs to which no constant is added are left out.
    """
    found: dict[str, Normalization] = {}
    for _, of, after in _readers(model, _constants(model)):
        if after is not None and after.shifted and (of.name not in found or (of.shifted and found[of.name] is of.map)):
            found[of.name] = after.map
    return found


def boundary_values(model: ModelProto, signed: Collection[str]) -> dict[str, tuple[Array, ...]]:
    """Return the boundary values of each input.

    At a boundary value, an operand that is computed from the input exactly equals a constant of the model. The operand may be
    computed by moving elements and multiplying them by powers of 2. Operands with other factors are left out, because their
    products are rounded and may never equal a constant.

    Args:
        model: The model.
        signed: The names of the values for which the sign of a zero matters.

    Returns:
        A mapping from the name of an input to arrays in float64 that have the rank of the input and broadcast against the
        input. The constants are operands of comparisons, minima, maxima and Clips, such as `c` in `x > c`. The constants are
        also operands of sums and differences whose results are in `signed`, such as `c` in `x - c`.
    """
    stored = _constants(model)
    found: dict[str, list[Array]] = {}
    for node, of, _ in _readers(model, stored):
        difference = node.op_type in ("Add", "Sub") and node.output[0] in signed
        if of.shifted or not (difference or node.op_type in _COMPARISONS) or not _is_exact(of.map.scale):
            continue
        for constant in (of.aligned(stored[name]()) for name in node.input if name in stored):
            if constant is not None:
                found.setdefault(of.name, []).append((-constant if node.op_type == "Add" else constant) / of.map.scale)
    return {name: tuple(values) for name, values in found.items()}


_COMPARISONS = frozenset({"Clip", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min"})


def _is_exact(scale: Array) -> bool:
    """Return whether all elements are powers of 2 or their negatives. Multiplication by such numbers does not round."""
    return bool(np.isin(np.abs(np.frexp(scale)[0]), 1 / 2).all())


_Constants = Mapping[str, Callable[[], Array]]
"""A mapping from the name of each stored floating-point tensor to a function that returns its elements in float64."""


def _readers(model: ModelProto, stored: _Constants) -> Iterator[tuple[NodeProto, _Mapped, _Mapped | None]]:
    """Yield a triple for each node that reads a mapped input (see `_Mapped`): the node, the mapped input, and the node's
    result.

    The third entry is None if the node's result is not a mapped input, or if the node adds or subtracts a second constant.
    """
    mapped: dict[str, _Mapped] = {}
    for port in model.graph.input:
        kind = port.type.tensor_type
        if port.name not in stored and kind.HasField("shape"):
            one = np.ones((1,) * len(kind.shape.dim))
            mapped[port.name] = _Mapped(port.name, tuple(range(one.ndim)), Normalization(one, np.zeros_like(one)))
    for node in model.graph.node:
        of = next((mapped[name] for name in node.input if name in mapped), None)
        if of is None or not node.output or node.domain not in ("", "ai.onnx"):
            continue
        after = _after(node, of, first=mapped.get(node.input[0]) is of, stored=stored)
        if after is not None and of.shifted and _adds(node):
            after = None
        if after is not None:
            mapped[node.output[0]] = after
        yield node, of, after


def _after(node: NodeProto, of: _Mapped, *, first: bool, stored: _Constants) -> _Mapped | None:
    """Return the node's result as a mapped input (see `_Mapped`). If the result is not a mapped input, return None.

    The parameter `of` is the mapped input that the node reads. `first` is True if this input is the node's first operand.
    """
    attributes = attribute_values(node)
    match node.op_type:
        case "Identity":
            return of
        case "Cast":
            return of if attributes.get("to") in _FLOATS else None
        case "Transpose":
            if of.axes is None:
                return of
            order = attributes.get("perm", [*reversed(range(len(of.axes)))])
            return replace(of, axes=tuple(of.axes[axis] for axis in order)) if sorted(order) == [*range(len(of.axes))] else None
        case "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Slice" | "Gather" | "Concat" | "Expand" if first:
            return replace(of, axes=None)
    with np.errstate(all="ignore"):
        rank = 0 if of.axes is None else len(of.axes)
        found = _factor_and_constant(node, attributes, rank=rank, first=first, stored=stored)
        return None if found is None else _scaled_and_shifted(of, *found)


def _factor_and_constant(
    node: NodeProto, attributes: Mapping[str, Any], *, rank: int, first: bool, stored: _Constants
) -> tuple[Array, Array] | None:
    """Return the factor and the constant of a node that multiplies a value of rank `rank` by a factor and adds a constant.

    Returns None for any other node.
    """
    one, zero = np.ones(()), np.zeros(())
    operands = [stored[name]() for name in node.input if name in stored]
    match node.op_type, operands:
        case "BatchNormalization", [*_, mean, variance] if len(operands) == 4 and not attributes.get("training_mode"):
            factor = 1 / np.sqrt(variance + attributes.get("epsilon", 1e-5))
            shape = (-1,) + (1,) * (rank - 2)
            return factor.reshape(shape), (-mean * factor).reshape(shape)
        case "Add", [constant]:
            return one, constant
        case "Sub", [constant]:
            return (one, -constant) if first else (-one, constant)
        case "Mul", [constant]:
            return constant, zero
        case "Div", [constant] if first:
            return 1 / constant, zero
    return None


_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})


def _adds(node: NodeProto) -> bool:
    return node.op_type in ("Add", "Sub", "BatchNormalization")


def _scaled_and_shifted(of: _Mapped, factor: Array, constant: Array) -> _Mapped | None:
    """Multiply a mapped input by `factor`, add `constant`, and return the result as a mapped input. Return None if `factor` or
    `constant` does not fit the input.
    """
    scale, shift = of.aligned(factor), of.aligned(constant)
    if scale is None or shift is None:
        return None
    after = Normalization(of.map.scale * scale, of.map.offset * scale + shift)
    return replace(of, map=after, shifted=of.shifted or bool(np.any(constant)))


def _constants(model: ModelProto) -> _Constants:
    """Return the floating-point constants of the model. Tensors in external files are left out."""
    found: dict[str, Callable[[], Array]] = {t.name: partial(_elements, t) for t in model.graph.initializer if _has_floats(t)}
    for node in model.graph.node:
        if node.op_type == "Constant" and len(node.output) == 1:
            for attribute in node.attribute:
                if attribute.name == "value" and _has_floats(attribute.t):
                    found[node.output[0]] = partial(_elements, attribute.t)
                elif attribute.name == "value_float":
                    found[node.output[0]] = partial(_elements, numpy_helper.from_array(np.asarray(attribute.f)))
    return found


def _has_floats(tensor: TensorProto) -> bool:
    return not tensor.external_data and tensor.data_type in _FLOATS


def _elements(tensor: TensorProto) -> Array:
    return numpy_helper.to_array(tensor).astype(np.float64)
