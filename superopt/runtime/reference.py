"""Evaluate a model in float64 with ONNX's reference evaluator, and with faster convolution and pooling.

In the evaluator, the implementations of convolution and pooling iterate over pixels in Python. The classes in this module
iterate over the taps (positions) of the kernel instead.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    helper,
    numpy_helper,
)
from onnx.external_data_helper import uses_external_data
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_gru, op_lstm, op_resize, op_rnn

from superopt.errors import first_line
from superopt.policy import CHECK
from superopt.protobuf.graphs import all_graphs
from superopt.runtime.session import Array, Device, Session, is_floating

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_ULPS = {
    TensorProto.DOUBLE: 2.0**-52,
    TensorProto.FLOAT: 2.0**-23,
    TensorProto.FLOAT16: 2.0**-10,
    TensorProto.BFLOAT16: 2.0**-7,
}
"""The relative distance between neighbouring numbers, by element type."""
_LEAST = {
    TensorProto.DOUBLE: 2.0**-1022,
    TensorProto.FLOAT: 2.0**-126,
    TensorProto.FLOAT16: 2.0**-24,
    TensorProto.BFLOAT16: 2.0**-126,
}
"""The smallest magnitude that kernels distinguish from 0, by element type.

Kernels for float16 keep subnormal numbers. Kernels for wider types may flush subnormal numbers to 0.
"""
_DEQUANTIZES = 19
"""The first opset for which ONNX's reference evaluator has DequantizeLinear."""
_SOFTMAX_OF_ONE_AXIS = 13
"""The first opset in which Softmax, LogSoftmax and Hardmax work along one axis, and not along all axes from `axis` on."""
_EXPONENTIALS = frozenset({"Exp", "Sinh", "Cosh"})
"""Operators whose results may overflow even in float64."""
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv"})
"""Operators that sum products. A partial sum may overflow even if the sum does not."""
_PICKS = frozenset({"Gather", "GatherElements", "GatherND"})
"""Operators that select elements of a tensor.

The selected elements, not the whole tensor, are converted to float64 and rounded.
"""
_SUMS_OF_ONE = frozenset({"Celu", "Elu", "GRU", "LSTM", "Selu", "Sigmoid"})
"""Operators whose kernels in ONNX Runtime add a number to 1 or to 1/2. So the absolute error of a small result is as large as
the error of the sum.

The largest error of Sigmoid for negative operands was 1.14 * 2**-23 in ONNX Runtime 1.31.1, for small and large results alike.
The gates of GRU and LSTM also have this error: for results below 1e-4, the largest error was 0.93 * 2**-23.
"""
_EXACT = frozenset({"Pow", "Resize", "Upsample"})
"""Operators whose operands after the first are exponents or sizes, which random rounding must not change."""
_STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training"})
_IR_VERSION = 8
"""The IR version of the one-node models with which ONNX Runtime computes single operators.

Every supported version of ONNX Runtime reads this IR version.
"""
_TYPE_ATTRIBUTES = {"Cast": "to", "EyeLike": "dtype"}


class NoReferenceError(Exception):
    """The reference evaluator does not support an operator of the model, or an operator fails."""


class Reference:
    """A model that is evaluated in float64. Each weight is converted to float64 when a node reads the weight.

    Args:
        model: the model. Weights may be in other files.
        folder: the folder that contains the files with weights.
        tiles: whether an infinity or NaN in the input of a convolution makes all outputs in the same tile NaN, as in Winograd's
            algorithm.

    Raises:
        NoReferenceError: the evaluator does not support an operator of the model.
    """

    def __init__(self, model: ModelProto, folder: Path = Path(), *, tiles: bool = False) -> None:
        wide = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
        graph, own = wide.graph, model.graph
        graph.name = own.name
        for part in ("node", "input", "output", "value_info"):
            getattr(graph, part).extend(getattr(own, part))
        _widen_graph(graph, folder)
        for function in wide.functions:
            _widen_nodes(function.node, folder)
        weights = {tensor.name: functools.partial(_read, tensor, folder) for tensor in own.initializer}
        evaluator = type("Evaluator", (_Evaluator,), {"weights": weights})
        try:
            opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
            kinds = [value.type.tensor_type.elem_type for value in (*own.input, *own.output)]
            kinds += [tensor.data_type for tensor in own.initializer]
            floats = [kind for kind in kinds if kind in _ULPS] or [TensorProto.FLOAT]
            self._ulp, self._least = (max(by_type[kind] for kind in floats) for by_type in (_ULPS, _LEAST))
            own_ops: list[type[OpRun]] = [
                type("Conv", (Conv,), {"tiles": tiles}),
                AveragePool,
                BatchNormalization,
                ConvTranspose,
                GlobalMaxPool,
                MaxPool,
                GatherElements,
                GRU,
                LSTM,
                Loop,
                RNN,
                type("Resize", (Resize,), {"opsets": model.opset_import}),
                ZipMap,
                *([Softmax, LogSoftmax, Hardmax] if opset < _SOFTMAX_OF_ONE_AXIS else []),
                *([DequantizeLinear] if opset < _DEQUANTIZES else []),
                *(_runtime_kernels(model) if self._ulp > _ULPS[TensorProto.FLOAT] else []),
            ]
            self._evaluator = evaluator(wide, new_ops=own_ops)
        except Exception as error:
            raise NoReferenceError(first_line(error)) from error

    def run_rounded(self, feeds: Mapping[str, Array], seed: int, *, stored: bool = True) -> list[object]:
        """Evaluate the model, and change every value at random by up to one unit in the last place of the model's type.

        The results of all nodes change. If `stored` is True, inputs and weights change too, except tensors from which a node
        selects elements. Values near the smallest magnitude of the type become multiples of this magnitude. The spread of the
        outputs over several seeds shows the effect of rounding, even if terms that depend on the same input cancel (Monte Carlo
        arithmetic, Parker 1997).

        Raises:
            NoReferenceError: an operator fails.
        """
        evaluator = type(self._evaluator)  # the bodies of control flow have evaluators of the same class
        evaluator.rounded = _Rounding(self._ulp, self._least, np.random.default_rng(seed), stored)
        try:
            return self.run(feeds)
        finally:
            evaluator.rounded = None

    def run(self, feeds: Mapping[str, Array], *, partial: bool = False) -> list[object]:
        """Evaluate the model, and return the outputs. Floats are returned as float64, and sequences as lists.

        If `partial` is True, `peak` (the largest magnitude of a value) also covers partial sums of products.

        Raises:
            NoReferenceError: an operator fails.
        """
        wide = {name: _wide(value) for name, value in feeds.items()}
        evaluator = type(self._evaluator)  # as in `run_rounded`
        evaluator.peak, evaluator.partial = 0.0, partial
        try:
            with np.errstate(all="ignore"):
                outputs = self._evaluator.run(None, wide)
                return [value if value is None or isinstance(value, list) else np.asarray(value) for value in outputs]
        except Exception as error:
            raise NoReferenceError(first_line(error)) from error

    @property
    def peak(self) -> float:
        """The largest magnitude of a value in the last call of `run`, including values in control flow bodies.

        Only finite values count, with one exception: an infinite exponential of a finite value counts too. If `run` was called
        with `partial=True`, the partial sums of a sum of products also count, for any order of summation.
        """
        return float(type(self._evaluator).peak)


@dataclass(frozen=True)
class _Rounding:
    """A function that changes each float in an array at random by up to `ulp` times the float's magnitude.

    If this product is less than `least`, the float is instead rounded up or down at random to a multiple of `least`. Small
    integers do not change, because a float64 result that is an integer is exact in the original too. Otherwise, `1 - mask`
    would not be 0 where the mask is 1, and a product with the lowest number would be huge. If the field `stored` is True,
    inputs and weights change too.
    """

    ulp: float
    least: float
    rng: np.random.Generator
    stored: bool

    def __call__(self, value: object) -> object:
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            return value
        flat = value.reshape(-1)
        changed = np.empty(flat.shape)
        for start in range(0, flat.size, CHECK.max_rounded_elements):
            part = slice(start, start + CHECK.max_rounded_elements)
            changed[part] = self._changed(flat[part])
        return changed.reshape(value.shape)

    def _changed(self, value: Array) -> Array:
        change = self.rng.uniform(-1, 1, value.shape)
        small = np.abs(value) * self.ulp < self.least
        multiple = np.floor(value / self.least + (1 + change) / 2) * self.least if small.any() else value
        exact = (value == np.rint(value)) & (np.abs(value) <= CHECK.max_exact_integer)
        return np.select([exact, small], [value, multiple], value * (1 + self.ulp * change))

    def beside_one(self, value: object) -> object:
        """Add a random number between `-ulp` and `ulp` to each float of the array, and return the result."""
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            return value + self.ulp * self.rng.uniform(-1, 1, value.shape)
        return value


class _Values(dict[str, object]):
    """The values that exist at one point of the evaluation of a graph, by name.

    A weight is read from the model again at each access, and not cached.
    """

    def __init__(self, weights: Mapping[str, Callable[..., Array]], rounded: _Rounding | None) -> None:
        super().__init__({"": None})
        self.weights, self.rounded = weights, rounded

    def __missing__(self, name: str) -> Array:
        weight = self.weights[name]()
        return weight if self.rounded is None or not self.rounded.stored else np.asarray(self.rounded(weight))

    def read_by(self, node: OpRun) -> list[object]:
        """Return the values of the inputs of a node.

        If the node selects elements of a weight, the weight keeps its type and is not rounded.
        """
        if node.op_type not in _PICKS or node.input[0] in self:
            return [self[name] for name in node.input]
        return [self.weights[node.input[0]](wide=False), *(self[name] for name in node.input[1:])]

    def restored(self, operands: list[object]) -> list[object]:
        """Undo the random rounding of simple numbers in all operands of a node except the first, and return all operands.

        A simple number is a multiple of 1/1024. If rounding changed an exponent, a power of a negative base would become
        undefined. If rounding changed a scale of a Resize, the size of the result might change.
        """
        if self.rounded is None:
            return operands
        return [operands[0], *(_simple(value, 2 * self.rounded.ulp) for value in operands[1:])]


def _simple(value: object, share: float) -> object:
    """Round each float that is near a multiple of 1/1024 to this multiple, and return the array.

    A float is near a multiple if the relative distance is at most `share`.
    """
    array = np.asarray(value)
    if value is None or array.dtype.kind != "f":
        return value
    near = np.rint(array * 1024) / 1024
    return np.where(np.abs(array - near) <= share * np.abs(near), near, array)


class _Evaluator(ReferenceEvaluator):
    """A reference evaluator that frees each value after the last node that reads the value.

    The attributes of the class apply to the whole model, including its control flow bodies. `weights` maps the name of each
    weight to a function that reads the weight.
    """

    weights: Mapping[str, Callable[..., Array]] = {}
    rounded: _Rounding | None = None
    peak = 0.0
    partial = False

    def run(  # type: ignore[override]
        self,
        output_names: Sequence[str] | None,
        feed_inputs: Mapping[str, object],
        attributes: dict[str, object] | None = None,
        **_: object,
    ) -> list[object]:
        """Run the graph, and return the values of the named outputs, or of all outputs."""
        wanted = self.output_names if output_names is None else output_names
        known = _Values(self.weights, self.rounded)
        known.update(self.rt_inits_)
        changes = self.rounded if self.rounded is not None and self.rounded.stored else None
        known.update(feed_inputs if changes is None else {name: changes(v) for name, v in feed_inputs.items()})
        for node, dead in zip(self.rt_nodes_, self._last_uses, strict=True):
            given: dict[str, object] = {"linked_attributes": attributes} if node.has_linked_attribute and attributes else {}
            if node.need_context():
                given["context"] = known
            operands = known.read_by(node)
            found = node.run(*(known.restored(operands) if node.op_type in _EXACT else operands), **given)
            if node.op_type in _PICKS:
                found = tuple(map(_wide, found))
            if self.rounded is not None and (changes is not None or node.op_type != "Constant"):
                found = tuple(map(self.rounded, found))
                if node.op_type in _SUMS_OF_ONE:
                    found = tuple(map(self.rounded.beside_one, found))
            known.update(zip(node.output, found, strict=False))
            for value in found:
                if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
                    counted = (
                        np.isfinite(np.asarray(known[node.input[0]])) if node.op_type in _EXPONENTIALS else np.isfinite(value)
                    )
                    highest, lowest = (f(value, where=counted, initial=0.0) for f in (np.max, np.min))
                    type(self).peak = max(self.peak, float(highest), -float(lowest))
            if self.partial and node.op_type in _PRODUCTS:
                left, right = (np.asarray(known[name]) for name in node.input[:2])
                type(self).peak = max(self.peak, _partial_sums(node.onnx_node, left, right))
            for name in dead:
                known.pop(name, None)
        return [known[name] for name in wanted]

    @functools.cached_property
    def _last_uses(self) -> list[set[str]]:
        """For each node, the names of the values to free after the node.

        No later node reads these values, and none of these values is an output of the graph.
        """
        needed = {"", *self.output_names}
        found = []
        for node in reversed(self.nodes_):
            names = {*_names(node)}
            found.append(names - needed)
            needed |= names
        return found[::-1]


def _partial_sums(node: NodeProto, left: Array, right: Array) -> float:
    """Return an upper bound on the magnitudes of all partial sums of a matrix product or convolution.

    The bound holds for any order of summation.
    """
    flipped = {attribute.name for attribute in node.attribute if attribute.i}
    a, b = (np.abs(np.where(np.isfinite(value), value, 0.0)) for value in (left, right))
    if node.op_type == "Conv":
        return float(a.max(initial=0.0) * b.sum(axis=tuple(range(1, b.ndim))).max(initial=0.0))
    rows = a.sum(axis=0 if "transA" in flipped or a.ndim < 2 else -1).max(initial=0.0)
    columns = b.sum(axis=-1 if "transB" in flipped or b.ndim < 2 else -2).max(initial=0.0)
    return float(min(a.max(initial=0.0) * columns, rows * b.max(initial=0.0)))


def _names(node: NodeProto) -> Iterator[str]:
    """Yield the names of the values that the node, or a graph nested in the node, reads or computes."""
    yield from (*node.input, *node.output)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (port.name for port in graph.output)
            for inner in graph.node:
                yield from _names(inner)


def _read(tensor: TensorProto, folder: Path, *, wide: bool = True) -> Array:
    """Return the tensor's values. External data is in `folder`. If `wide` is True, floats are converted to float64."""
    stored = ir.serde.deserialize_tensor(tensor)
    if isinstance(stored, ir.ExternalTensor):
        stored = ir.ExternalTensor(
            (folder / stored.location).resolve(), stored.offset, stored.length, stored.dtype, shape=stored.shape, name=""
        )
    array = stored.numpy()
    if not wide:
        return array
    return _wide(array) if tensor.data_type in _FLOATS else np.array(array)


def _wide(value: Array) -> Array:
    """Return the values, with floats converted to float64."""
    return value.astype(np.float64) if is_floating(value.dtype) else value


def _widen_graph(graph: GraphProto, folder: Path) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor, folder)
    for port in itertools.chain(graph.input, graph.output, graph.value_info):
        if port.type.tensor_type.elem_type in _FLOATS:
            port.type.tensor_type.elem_type = TensorProto.DOUBLE
    _widen_nodes(graph.node, folder)


def _widen_nodes(nodes: Sequence[NodeProto], folder: Path) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _widen_tensor(attribute.t, folder)
            elif attribute.type == AttributeProto.GRAPH:
                _widen_graph(attribute.g, folder)
            elif attribute.name == _TYPE_ATTRIBUTES.get(node.op_type) and attribute.i in _FLOATS:
                attribute.i = TensorProto.DOUBLE
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                value = np.array(helper.get_attribute_value(attribute), np.float64)
                attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(value)))
        if node.op_type == "ConstantOfShape" and not node.attribute:  # its default value is a float32
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))


def _widen_tensor(tensor: TensorProto, folder: Path) -> None:
    """Convert the tensor's floats to float64, and read external data from `folder` into the tensor."""
    if tensor.data_type in _FLOATS or uses_external_data(tensor):
        tensor.CopyFrom(numpy_helper.from_array(_read(tensor, folder), tensor.name))


def _halves(count: int, mode: str) -> tuple[int, int]:
    """Divide `count` pads of an axis, and return the number before and the number after the axis. If `count` is odd, the number
    after the axis is larger in the mode SAME_UPPER, and the number before the axis is larger in any other mode.
    """
    smaller, larger = count // 2, count - count // 2
    return (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)


class Window:
    """The kernel of a convolution or pooling, which slides over the spatial axes of an image.

    `kernel` is the shape of the kernel. `places` is the number of positions of the kernel along each axis. `declared` contains
    the node's own pads before and after the image, for each axis. `pads` contains these pads and the pads that `ceil_mode`
    adds.
    """

    def __init__(
        self,
        image: Sequence[int],
        kernel: Sequence[int],
        *,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        **_: object,
    ) -> None:
        rank = len(kernel)
        self.kernel = tuple(kernel)
        self.strides = tuple(strides or (1,) * rank)
        self.dilations = tuple(dilations or (1,) * rank)
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, self.dilations, strict=True)]
        mode = auto_pad or "NOTSET"
        around = list(pads or (0,) * (2 * rank)) if mode == "NOTSET" else [0] * (2 * rank)
        if mode.startswith("SAME"):
            for axis, (size, step) in enumerate(zip(image, self.strides, strict=True)):
                missing = max((-(-size // step) - 1) * step + reach[axis] - size, 0)
                around[axis], around[axis + rank] = _halves(missing, mode)
        self.declared = list(zip(around[:rank], around[rank:], strict=True))
        places, self.pads = [], []
        for size, (before, after), span, step in zip(image, self.declared, reach, self.strides, strict=True):
            free = size + before + after - span
            count = int(free / step) + 1
            if ceil_mode:
                count = -(-free // step) + 1
                count -= (count - 1) * step >= size + before
            places.append(count)
            self.pads.append((before, max((count - 1) * step + span - size - before, after)))
        self.places = tuple(places)

    def padded(self, image: Array, value: float) -> Array:
        """Return the image with its pads filled with `value`."""
        return np.pad(image, [(0, 0), (0, 0), *self.pads], constant_values=value)

    def taps(self, padded: Array, places: Sequence[int] = ()) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Yield the index of each kernel element, with the pixels that this element meets at all positions of the kernel.

        `places` contains the number of positions along each axis. By default, all positions are used.
        """
        for tap in itertools.product(*map(range, self.kernel)):
            cuts = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, s, n in zip(tap, self.dilations, self.strides, places or self.places, strict=True)
            )
            yield tap, padded[:, :, *cuts]

    def blocks(self, image: Array, rows: int) -> Iterator[tuple[slice, Iterator[tuple[tuple[int, ...], Array]]]]:
        """Yield blocks of at most `rows` positions along the first axis, each with the taps (see `taps`) at these positions.

        Only the pixels that a block reads are padded with zeros.
        """
        (before, _), *others = self.pads
        size, step, span = image.shape[2], self.strides[0], (self.kernel[0] - 1) * self.dilations[0] + 1
        for first in range(0, self.places[0], rows):
            last = min(first + rows, self.places[0])
            low, high = first * step - before, (last - 1) * step + span - before
            part = image[:, :, min(max(low, 0), size) : min(max(high, 0), size)]
            above = min(max(-low, 0), high - low)
            pads = [(0, 0), (0, 0), (above, high - low - above - part.shape[2]), *others]
            yield slice(first, last), self.taps(np.pad(part, pads), (last - first, *self.places[1:]))


_TILE = 5
"""The greatest distance along an axis between two pixels of one tile, for the largest tiles of Winograd's algorithm."""


class Conv(OpRun):
    """Convolution (ONNX Conv), computed by matrix products. Each product covers several kernel elements of a group.

    A large image is computed in blocks of rows.

    A tile is a block of pixels that Winograd's algorithm computes together. If `tiles` is True, an output is NaN if its tile
    contains an infinity or NaN. Winograd's algorithm gives NaN for such outputs. A kernel that is enlarged by zeros also gives
    NaN for such outputs.
    """

    op_domain = ""
    tiles = False

    def _run(self, x: Array, w: Array, b: Array | None = None, **attributes: Any) -> tuple[Array]:
        result = self._convolved(x, w, b, **attributes)
        if not self.tiles or np.isfinite(x).all():
            return (result,)
        odd = np.any(~np.isfinite(x), axis=1, keepdims=True).astype(np.float64)
        for axis in range(2, x.ndim):
            wide = np.pad(odd, [(_TILE, _TILE) if a == axis else (0, 0) for a in range(x.ndim)])
            odd = np.lib.stride_tricks.sliding_window_view(wide, 2 * _TILE + 1, axis).max(axis=-1)
        reached = self._convolved(odd, np.ones((1, 1, *w.shape[2:])), **{**attributes, "group": 1})
        return (np.where(reached > 0, np.nan, result),)

    def _convolved(self, x: Array, w: Array, b: Array | None = None, **attributes: Any) -> Array:
        group = attributes.get("group") or 1
        window = Window(x.shape[2:], w.shape[2:], **attributes)
        features, depth = w.shape[:2]
        kernel = w.reshape(group, features // group, depth, *w.shape[2:])
        at_once = max(1, CHECK.max_patch_rows // depth)
        row = x.shape[0] * (features + group * depth * at_once) * math.prod(window.places[1:])
        result = np.empty((x.shape[0], features, *window.places), x.dtype)
        for rows, taps in window.blocks(x, max(1, CHECK.max_convolved_elements // max(row, 1))):
            block = result[:, :, rows]
            total = np.zeros((x.shape[0], group, features // group, math.prod(block.shape[2:])), x.dtype)
            if depth == 1 and features == group:
                for tap, pixels in taps:
                    total += kernel[(slice(None),) * 3 + tap] * pixels.reshape(x.shape[0], group, 1, -1)
            else:
                while some := [*itertools.islice(taps, at_once)]:
                    weight = np.stack([kernel[(slice(None),) * 3 + tap] for tap, _ in some], axis=-1)
                    columns = np.stack([p.reshape(x.shape[0], group, depth, -1) for _, p in some], axis=-2)
                    shape = (x.shape[0], group, depth * len(some), -1)
                    total += weight.reshape(group, features // group, -1) @ columns.reshape(shape)
            block[...] = total.reshape(block.shape)
            if b is not None:
                block += b.reshape(-1, *(1,) * len(window.places))
        return result


class ConvTranspose(OpRun):
    """Transposed convolution (ONNX ConvTranspose), computed by a matrix product for each kernel element.

    The implementation in ONNX's reference evaluator fails if there are several groups, and iterates over pixels in Python.
    """

    op_domain = ""

    def _run(self, x: Array, w: Array, b: Array | None = None, **attributes: Any) -> tuple[Array]:
        rank, group = x.ndim - 2, attributes.get("group") or 1
        strides, dilations = (attributes.get(name) or (1,) * rank for name in ("strides", "dilations"))
        added = attributes.get("output_padding") or (0,) * rank
        kernel = w.reshape(group, w.shape[0] // group, *w.shape[1:])
        images = x.reshape(x.shape[0], group, x.shape[1] // group, -1)
        spans = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations, strict=True)]
        total = np.zeros(
            (x.shape[0], group, w.shape[1], *(span + more for span, more in zip(spans, added, strict=True))), x.dtype
        )
        for tap in itertools.product(*map(range, w.shape[2:])):
            products = np.swapaxes(kernel[(slice(None),) * 3 + tap], 1, 2) @ images
            cuts = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
            )
            total[:, :, :, *cuts] += products.reshape(*products.shape[:3], *x.shape[2:])
        result = total.reshape(x.shape[0], -1, *total.shape[3:])
        for axis, (before, after) in enumerate(_transposed_pads(x.shape[2:], result.shape[2:], strides, attributes)):
            cut = slice(max(before, 0), result.shape[axis + 2] - max(after, 0))
            result = result[(slice(None),) * (axis + 2) + (cut,)]
            result = np.pad(result, [(max(-before, 0), max(-after, 0)) if a == axis + 2 else (0, 0) for a in range(x.ndim)])
        return (result if b is None else result + b.reshape(-1, *(1,) * rank),)


def _transposed_pads(
    image: Sequence[int], result: Sequence[int], strides: Sequence[int], attributes: Mapping[str, Any]
) -> list[tuple[int, int]]:
    """For each axis, return how many pixels a ConvTranspose removes at the start and at the end of the result.

    `result` contains the extents of the result before pixels are removed.
    """
    mode, rank = attributes.get("auto_pad") or "NOTSET", len(image)
    wanted = attributes.get("output_shape") or [n * s for n, s in zip(image, strides, strict=True)]
    if attributes.get("output_shape") or mode.startswith("SAME"):
        missing = [max(have - want, 0) for have, want in zip(result, wanted[-rank:], strict=True)]
        return [_halves(count, mode) for count in missing]
    pads = attributes.get("pads") or (0,) * (2 * rank)
    return [*zip(pads[:rank], pads[rank:], strict=True)]


class MaxPool(OpRun):
    """Maximum pooling (ONNX MaxPool), without its second output."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        if len(self.onnx_node.output) > 1:
            raise NotImplementedError("the output Indices of MaxPool is not supported")
        window = Window(x.shape[2:], attributes.pop("kernel_shape"), **attributes)
        result = np.full((*x.shape[:2], *window.places), -np.inf, x.dtype)
        for _, pixels in window.taps(window.padded(x, -np.inf)):
            np.maximum(result, pixels, out=result)
        return (result,)


class AveragePool(OpRun):
    """Average pooling (ONNX AveragePool).

    Declared pads count in the average if `count_include_pad` is set. The further pads that `ceil_mode` adds never count.
    """

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        window = Window(x.shape[2:], attributes.pop("kernel_shape"), **attributes)
        counted = np.ones((1, 1, *x.shape[2:]), x.dtype)
        if attributes.get("count_include_pad"):
            counted = np.pad(counted, [(0, 0), (0, 0), *window.declared], constant_values=1.0)
            beyond = [(0, p[1] - d[1]) for p, d in zip(window.pads, window.declared, strict=True)]
            counted = np.pad(counted, [(0, 0), (0, 0), *beyond])
        else:
            counted = window.padded(counted, 0.0)
        total = np.zeros((*x.shape[:2], *window.places), x.dtype)
        number = np.zeros((1, 1, *window.places), x.dtype)
        for (_, pixels), (_, ones) in zip(window.taps(window.padded(x, 0.0)), window.taps(counted), strict=True):
            total += pixels
            number += ones
        return (total / number,)


class GlobalMaxPool(OpRun):
    """The maximum over all pixels (ONNX GlobalMaxPool).

    The implementation in ONNX's reference evaluator is right only for images with two spatial axes. For other images, the
    implementation reduces the wrong axes.
    """

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Softmax(OpRun):
    """Softmax along all axes from `axis` on (ONNX Softmax before opset 13)."""

    op_domain = ""

    def _run(self, x: Array, axis: int | None = None) -> tuple[Array]:
        rows = x.reshape(math.prod(x.shape[: 1 if axis is None else axis]), -1)
        return (self.of_rows(rows).reshape(x.shape),)

    def of_rows(self, rows: Array) -> Array:
        """Return the softmax of each row of a matrix."""
        powers: Array = np.exp(rows - rows.max(axis=1, keepdims=True))
        result: Array = powers / powers.sum(axis=1, keepdims=True)
        return result


class LogSoftmax(Softmax):
    """The logarithm of Softmax along all axes from `axis` on (ONNX LogSoftmax before opset 13)."""

    def of_rows(self, rows: Array) -> Array:
        """Return the logarithm of the softmax of each row of a matrix."""
        below: Array = rows - rows.max(axis=1, keepdims=True)
        result: Array = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
        return result


class Hardmax(Softmax):
    """Hardmax along all axes from `axis` on (ONNX Hardmax before opset 13).

    The first maximum becomes one, and all other elements become zero.
    """

    def of_rows(self, rows: Array) -> Array:
        """Return a matrix that has a one at the first maximum of each row of `rows`, and zeros at all other positions."""
        largest: Array = np.arange(rows.shape[1]) == rows.argmax(axis=1)[:, None]
        return largest.astype(rows.dtype)


class _PlainRecurrence(OpRun):
    """A recurrent operator with its default activation functions. All sequences have the length of the input.

    The implementations in ONNX's reference evaluator ignore the input `sequence_lens` and some attributes.
    """

    op_domain = ""
    functions: tuple[str, ...]
    plain: ClassVar[Callable[..., tuple[Array, ...]]]

    def _run(self, *given: Array | None, **attributes: Any) -> tuple[Array, ...]:
        lengths = given[4] if len(given) > 4 else None
        steps = given[0].shape[1 if attributes.get("layout") else 0] if given[0] is not None else 0
        if lengths is not None and (lengths != steps).any():
            raise NotImplementedError("sequences of different lengths are not supported")
        functions = tuple(name.lower() for name in attributes.get("activations") or ())
        default = functions == self.functions * (len(functions) // len(self.functions))
        if not default or attributes.get("clip") or attributes.get("input_forget"):
            raise NotImplementedError(f"this kind of {self.onnx_node.op_type} is not supported")
        return self.plain(*given, **attributes)


class LSTM(_PlainRecurrence, op_lstm.LSTM):
    """ONNX LSTM. See `_PlainRecurrence`."""

    functions = ("sigmoid", "tanh", "tanh")
    plain = op_lstm.LSTM._run


class GRU(_PlainRecurrence, op_gru.GRU):
    """ONNX GRU. See `_PlainRecurrence`."""

    functions = ("sigmoid", "tanh")
    plain = op_gru.GRU._run


class RNN(_PlainRecurrence, op_rnn.RNN_14):
    """ONNX RNN. See `_PlainRecurrence`."""

    functions = ("tanh",)
    plain = op_rnn.RNN_14._run


class BatchNormalization(OpRun):
    """Batch normalization at inference (ONNX BatchNormalization), with one output.

    Before opset 14, the implementation in ONNX's reference evaluator mixes the statistics of the input into the stored
    statistics.
    """

    op_domain = ""

    def _run(self, x: Array, *given: Array, epsilon: float | None = None, **attributes: Any) -> tuple[Array]:
        if len(self.onnx_node.output) > 1 or attributes.get("training_mode") or attributes.get("spatial") == 0:
            raise NotImplementedError("BatchNormalization in training mode is not supported")
        channels = (-1, *(1,) * (x.ndim - 2))
        scale, bias, mean, variance = (v.astype(x.dtype).reshape(channels) for v in given)
        return (scale * (x - mean) / np.sqrt(variance + (1e-5 if epsilon is None else epsilon)) + bias,)


class ZipMap(OpRun):
    """One map for each row of a matrix, from class labels to the numbers in the row (`ai.onnx.ml.ZipMap`)."""

    op_domain = "ai.onnx.ml"

    def _run(
        self, x: Array, classlabels_int64s: Sequence[int] | None = None, classlabels_strings: Sequence[str] | None = None
    ) -> tuple[list[dict[int | str, float]]]:
        labels = classlabels_int64s or classlabels_strings or ()
        return ([dict(zip(labels, row, strict=True)) for row in np.atleast_2d(x)],)


def _runtime_kernels(model: ModelProto) -> Iterator[type[OpRun]]:
    """Yield a `RuntimeKernel` for each operator that neither a standard domain nor a function of the model defines."""
    defined = {(function.domain, function.name) for function in model.functions}
    used = {(node.domain, node.op_type) for graph in all_graphs(model) for node in graph.node}
    for domain, name in sorted(used - defined):
        if domain not in _STANDARD_DOMAINS:
            yield type(name, (RuntimeKernel,), {"op_domain": domain, "opsets": model.opset_import})


class _RunByRuntime:
    """A base class of operators whose nodes are run in ONNX Runtime, in float32."""

    onnx_node: NodeProto
    opsets: Sequence[OperatorSetIdProto] = ()

    def _outputs(self, *given: Array | None) -> list[Any]:
        """Return the outputs of the node for these inputs."""
        narrow = [None if v is None else v.astype(np.float32) if is_floating(v.dtype) else v for v in given]
        feeds = {name: v for name, v in zip(self.onnx_node.input, narrow, strict=False) if v is not None}
        # the sizes of vectors are fixed, because ONNX Runtime needs the number of scales or sizes of a Resize
        key = tuple((name, v.dtype, v.shape if v.ndim < 2 else (None,) * v.ndim) for name, v in feeds.items())
        if key not in self._sessions:
            ports = [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), shape) for name, kind, shape in key
            ]
            outputs = [helper.make_empty_tensor_value_info(name) for name in self.onnx_node.output if name]
            graph = helper.make_graph([self.onnx_node], "kernel", ports, outputs)
            self._sessions[key] = Session(helper.make_model(graph, opset_imports=self.opsets, ir_version=_IR_VERSION), Device())
        return self._sessions[key].run(feeds)

    @functools.cached_property
    def _sessions(self) -> dict[tuple[tuple[str, np.dtype[Any], tuple[int | None, ...]], ...], Session]:
        return {}


class RuntimeKernel(_RunByRuntime, OpRun):
    """An operator that only ONNX Runtime defines, such as an operator of the domain `com.microsoft`.

    ONNX Runtime computes the operator in float32, which is the widest type of most such operators. So the result is a reference
    only for a model whose floats are narrower than float32.
    """

    op_domain = ""

    def _run(self, *given: Array | None, **_: object) -> tuple[Array, ...]:
        found = iter(self._outputs(*given))
        return tuple(_wide(next(found)) if name else np.empty(0) for name in self.onnx_node.output)


class Resize(_RunByRuntime, op_resize.Resize):
    """Resized images (ONNX Resize).

    In the mode `nearest`, ONNX Runtime chooses the pixels, because ONNX Runtime rounds coordinates in float32. With
    `align_corners`, ONNX Runtime computes coordinates from the size of the result, but ONNX's reference evaluator computes
    coordinates from the scale.
    """

    op_domain = ""

    def _run(  # type: ignore[override]
        self, x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None, **attributes: Any
    ) -> tuple[Array]:
        coordinates = attributes.get("coordinate_transformation_mode")
        if attributes.get("mode") == "nearest" and coordinates != "tf_crop_and_resize":
            (pixels,) = self._outputs(np.arange(x.size, dtype=np.int32).reshape(x.shape), roi, scales, sizes)
            return (x.ravel()[pixels],)
        if coordinates == "align_corners" and scales is not None and scales.size and not attributes.get("axes"):
            scales, sizes = None, np.floor(np.array(x.shape) * scales).astype(np.int64)
        (found,) = super()._run(x, roi, scales, sizes, **attributes)
        return (found,)


class GatherElements(OpRun):
    """Elements selected along an axis (ONNX GatherElements).

    The implementation in ONNX's reference evaluator fails if the first axis has size 1.
    """

    op_domain = ""

    def _run(self, data: Array, indices: Array, axis: int | None = None) -> tuple[Array]:
        along = (axis or 0) % data.ndim
        used = tuple(slice(None if a == along else extent) for a, extent in enumerate(indices.shape))
        return (np.take_along_axis(data[used], indices % data.shape[along], along),)


class DequantizeLinear(OpRun):
    """Floats from quantized integers (ONNX DequantizeLinear), for opsets without an implementation in ONNX's evaluator."""

    op_domain = ""

    def _run(self, x: Array, scale: Array, zero: Array | None = None, axis: int = 1, **_: object) -> tuple[Array]:
        along = [-1 if a == axis % max(x.ndim, 1) else 1 for a in range(x.ndim)] if scale.ndim else ()
        found = np.array(x, scale.dtype)
        if zero is not None:
            found -= zero.astype(scale.dtype).reshape(along)
        found *= scale.reshape(along)
        return (found,)


class Loop(OpRun):
    """Repeated evaluation of a body (ONNX Loop).

    The implementation in ONNX's reference evaluator runs no iteration if the condition input is absent. That implementation
    also stacks scan outputs with `numpy.vstack`, which is right only for scan outputs of rank 2.
    """

    op_domain = ""
    body: ReferenceEvaluator
    _run_body: Callable[..., list[object]]

    def need_context(self) -> bool:
        """Return whether the body may read values of outer graphs."""
        return True

    def _run(
        self,
        most: Array | None,
        going: object,
        *carried: object,
        context: Mapping[str, object],
        attributes: dict[str, object] | None = None,
        **_: object,
    ) -> tuple[object, ...]:
        names = self.body.input_names
        state: list[object] = list(carried)
        rows: list[list[object]] = []
        count = 0
        while (going is None or bool(going)) and (most is None or count < most):
            goes = np.asarray(going is None or bool(going))
            feeds = dict(zip(names, [np.asarray(count, np.int64), goes, *state], strict=True))
            going, *found = self._run_body({**context, **feeds}, attributes=attributes)
            state, row = found[: len(carried)], found[len(carried) :]
            rows.append(row)
            count += 1
        if not rows and len(self.body.output_names) > 1 + len(carried):
            raise NotImplementedError("a Loop without iterations has outputs of unknown shape")
        return (*state, *(np.stack([*map(np.asarray, column)]) for column in zip(*rows, strict=True)))
