"""The demand of a node of an optimized graph: the number of its operations, and the number of bytes that the node moves.

The demand is computed from the node's operator, its attributes, and the types and shapes of its inputs and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from superopt.runtime.cache import Json, json_integer, json_list, json_text
from superopt.runtime.kernel import VIEWS, Operand, np_dtype

Shape: TypeAlias = "tuple[int, ...]"

PRODUCT, CONVOLUTION, DEPTHWISE, WINDOW, FUNCTION, REDUCTION, ELEMENT = KINDS = (
    "product",
    "convolution",
    "depthwise",
    "window",
    "function",
    "reduction",
    "element",
)
"""The kinds of operations. A device has a separate rate for each kind."""
# fmt: off
_FUNCTIONS = frozenset((
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BiasGelu", "BiasSoftmax", "Celu", "Cos", "Cosh", "Elu", "Erf",
    "Exp", "FastGelu", "Gelu", "Log", "LogSoftmax", "Mish", "Pow", "QuickGelu", "Selu", "Sigmoid", "Sin", "Sinh",
    "Softmax", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh",
))
_REDUCTIONS = frozenset((
    "ArgMax", "ArgMin", "GroupNorm", "GroupNormalization", "InstanceNormalization", "LayerNormalization",
    "LpNormalization", "MeanVarianceNormalization", "RMSNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
))
# fmt: on
_RECURRENT = frozenset(("LSTM", "GRU", "RNN"))
_FREE = VIEWS | {"Shape", "Size"}
"""Operators that neither read nor write elements."""
_PARTS = frozenset(("Gather", "GatherElements", "GatherND", "Slice", "Split"))
"""Operators that copy elements to the result and read no other elements of the operand."""


@dataclass(frozen=True)
class Demand:
    """The operations of a node, and the bytes that the node moves.

    In matrix products and convolutions, each multiplication and each addition counts as 1. In pooling, each element of each
    window counts as 1. In most other nodes, each element of the largest input or output counts as 1. If a node, such as an
    LSTM, computes in successive steps, all numbers are for one step.

    Attributes:
        kind: the kind of the operations, one of `KINDS`.
        operations: the number of operations.
        moved: the number of bytes that are read and written, each counted once.
        weights: the number of moved bytes that belong to constants.
        steps: the number of steps.
    """

    kind: str
    operations: float
    moved: int
    weights: int
    steps: int = 1


def demand(signature: Sequence[Json], outputs: Sequence[Operand | None]) -> Demand:
    """Return the demand of one run of a node: the number of operations, and the number of bytes that the node moves.

    `signature` is the node's `Kernel.signature`: operator, attributes and inputs.
    """
    op_type = json_text(signature[1])
    attributes = {json_text(name): value for name, value in map(json_list, json_list(signature[3]))}
    inputs = [*map(_input, json_list(signature[4]))]
    firsts = [entry for position, entry in enumerate(inputs) if entry is not None and entry.first == position]
    read = sum(entry.bytes for entry in firsts)
    weights = sum(entry.bytes for entry in firsts if entry.constant)
    made = [o for o in outputs if o is not None]
    if op_type in _FREE:
        return Demand(ELEMENT, 0, 0, 0)
    shapes = [None if entry is None else entry.shape for entry in inputs]
    moved = read + sum(o.bytes for o in made)
    if op_type in _RECURRENT and made:
        recurrent = inputs[2]
        if recurrent is None:
            raise TypeError("a recurrent node has no recurrent weights")
        return _recurrence(shapes, recurrent.itemsize)
    counted = _COUNTED.get(op_type)
    if counted is not None and shapes and made:
        kind, operations = counted(attributes, shapes, made[0].shape)
        return Demand(kind, operations, moved, weights)
    elements = max([o.size for o in made] + [math.prod(entry.shape) for entry in firsts], default=0)
    if op_type in _PARTS:
        moved, weights, elements = 2 * sum(o.bytes for o in made), 0, sum(o.size for o in made)
    return Demand(_kind(op_type), elements, moved, weights)


def _kind(op_type: str) -> str:
    if op_type in _FUNCTIONS:
        return FUNCTION
    return REDUCTION if op_type in _REDUCTIONS else ELEMENT


@dataclass(frozen=True)
class _Input:
    """An input of a node. `first` is the position of the node's first input with this value."""

    first: int
    element: int
    shape: Shape
    constant: bool

    @property
    def itemsize(self) -> int:
        return np_dtype(self.element).itemsize

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.itemsize


def _input(entry: Json) -> _Input | None:
    """Return an input in a `Kernel.signature`, or None if the node has no such input."""
    if entry is None:
        return None
    first, element, shape, constant, *_ = json_list(entry)
    return _Input(json_integer(first), json_integer(element), tuple(map(json_integer, json_list(shape))), constant is True)


# ---------------------------------------------------------------- operations of nodes that sum over elements

Attributes: TypeAlias = "Mapping[str, Json]"
Shapes: TypeAlias = "Sequence[Shape | None]"


def _of(shapes: Shapes, position: int) -> Shape:
    shape = shapes[position] if position < len(shapes) else None
    return () if shape is None else shape


def _convolution(_: Attributes, shapes: Shapes, made: Shape) -> tuple[str, float]:
    weight = _of(shapes, 1)
    of_one_channel = weight[1:2] == (1,) and _of(shapes, 0)[1:2] != (1,)
    return DEPTHWISE if of_one_channel else CONVOLUTION, 2.0 * math.prod(made) * math.prod(weight[1:])


def _transposed_convolution(_: Attributes, shapes: Shapes, __: Shape) -> tuple[str, float]:
    return CONVOLUTION, 2.0 * math.prod(_of(shapes, 0)) * math.prod(_of(shapes, 1)[1:])


def _product(attributes: Attributes, shapes: Shapes, made: Shape) -> tuple[str, float]:
    x = _of(shapes, 0)
    inner = x[-2] if attributes.get("transA") and len(x) > 1 else x[-1] if x else 1
    return PRODUCT, 2.0 * math.prod(made) * inner


def _einsum(attributes: Attributes, shapes: Shapes, made: Shape) -> tuple[str, float]:
    terms = str(attributes.get("equation", "")).replace(" ", "").partition("->")[0].split(",")
    pairs = zip(terms, shapes, strict=False)
    extents = {letter: n for term, shape in pairs for letter, n in zip(term, shape or (), strict=False)}
    return PRODUCT, 2.0 * max(math.prod(extents.values()), math.prod(made))


def _recurrence(shapes: Shapes, itemsize: int) -> Demand:
    """Return the demand (operations and moved bytes) of a recurrent node, such as an LSTM. All numbers are for one time step.

    A step computes products with the input and with the state. A step reads the recurrent weights from a cache.
    """
    steps, batch = _of(shapes, 0)[:2]
    inward, recurrent = math.prod(_of(shapes, 1)), math.prod(_of(shapes, 2))
    return Demand(PRODUCT, 2.0 * batch * (inward + recurrent), recurrent * itemsize, 0, steps)


def _attention(attributes: Attributes, shapes: Shapes, made: Shape) -> tuple[str, float]:
    """Return the kind and the number of operations of an Attention node.

    The inputs of ONNX Runtime's own Attention operator are a sequence and weights. The inputs of ONNX's Attention operator are
    queries and keys.
    """
    x, weight = _of(shapes, 0), _of(shapes, 1)
    if len(weight) > 2:
        return _heads(attributes, shapes, made)
    rows, length, width = math.prod(x[:-1]), (x[-2] if len(x) > 1 else 1), made[-1]
    return PRODUCT, 2.0 * rows * math.prod(weight) + 4.0 * rows * length * width


def _heads(_: Attributes, shapes: Shapes, made: Shape) -> tuple[str, float]:
    key = _of(shapes, 1)
    return PRODUCT, 4.0 * math.prod(made) * (key[-2] if len(key) > 1 else 1)


def _window(attributes: Attributes, shapes: Shapes, made: Shape) -> tuple[str, float]:
    window = attributes.get("kernel_shape")
    return WINDOW, float(
        math.prod(made) * math.prod(map(json_integer, json_list(window))) if window else math.prod(_of(shapes, 0))
    )


_COUNTED: Mapping[str, Callable[[Attributes, Shapes, Shape], tuple[str, float]]] = {
    **dict.fromkeys(("Conv", "FusedConv"), _convolution),
    "ConvTranspose": _transposed_convolution,
    **dict.fromkeys(("MatMul", "FusedMatMul", "Gemm", "FusedGemm", "TransposeMatMul"), _product),
    "Einsum": _einsum,
    "Attention": _attention,
    "MultiHeadAttention": _heads,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"), _window),
}
