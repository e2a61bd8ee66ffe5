"""The measured cost of a segment (a part of a model).

ONNX Runtime optimizes the segment like a whole model, and each node of the optimized graph is timed in isolation. If the nodes
are so short that the time between two nodes is not negligible, the whole segment is timed instead.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from superopt.cost.roofline import Roofline
from superopt.errors import InvalidModelError, ProviderError
from superopt.files import scratch_folder
from superopt.policy import COMPARISON, COST
from superopt.protobuf.names import dimension_key
from superopt.protobuf.nodes import with_hollow_data
from superopt.protobuf.stored import Loadable
from superopt.runtime.cache import Cache, Json, json_digest, json_list, json_number, json_text
from superopt.runtime.compare import Comparison, compare
from superopt.runtime.kernel import (
    VIEWS,
    Kernel,
    KernelTiming,
    Operand,
    kernel_attribute_value,
    last_level_cache,
    least_seconds,
    random_values,
)
from superopt.runtime.session import Bound, Device, Session

_COPIES = ("MemcpyToHost", "MemcpyFromHost")
_BLOCKED = "com.microsoft.nchwc"


@dataclass(frozen=True)
class Piece:
    """A node of an optimized graph: its operator, and its time in seconds."""

    op_type: str
    seconds: float


class Clock:
    """A clock that times optimized graphs on one device. Times that were measured before are read from a cache.

    Args:
        device: the device that runs the graphs.
        cache: the cache of times. If `cache` is None, the clock creates its own cache.
        resident: the number of bytes of the whole model's weights. If the weights do not fit into the last-level cache, nodes
            with large weights are timed cold, that is, with these weights in no cache.
        together: whether whole graphs are timed, instead of single nodes.
    """

    portable = False
    """Whether graphs are optimized without layouts that are specific to the processor of this machine."""

    def __init__(self, device: Device, cache: Cache | None = None, *, resident: int = 0, together: bool = False) -> None:
        self.device = device
        self.together = together
        self.cache = cache if cache is not None else Cache()
        self.spare = clock_spare_cache_bytes(device.provider, resident, last_level_cache())
        self._identity = device.identity
        self._overhead: tuple[float, float] | None = None
        self._reference: tuple[str, Bound] | None = None
        self._least = 1.0

    @property
    def cold(self) -> bool:
        """Whether large weights are in no processor cache when a run begins."""
        return self.spare < 0

    @property
    def settings(self) -> tuple[Json, ...]:
        """The settings on which times depend, except the graph that is timed."""
        return self._identity, self.cold, self.together

    @property
    def roofline(self) -> Roofline | None:
        """The device's roofline, or None if the device was not calibrated."""
        with contextlib.suppress(ValueError):
            return Roofline.of_json(self.cache.get(["roofline", self._identity]))
        return None

    def seconds(self, model: ModelProto) -> float:
        """Return the seconds of one run of the model: the sum of the times of the nodes in its optimized graph.

        Conversions to and from blocked layouts at the model's inputs and outputs are left out. These conversions occur only
        because the model was cut out of a larger model. If the whole graph is timed, the fixed cost of a run is subtracted.

        Raises:
            InvalidModelError: ONNX Runtime cannot load the model, or cannot run one of its nodes.
        """
        return self._whole(model) if self.together else sum(piece.seconds for piece in self.pieces(model))

    def beside(self, model: ModelProto, reference: ModelProto) -> float:
        """Return the seconds of one run of the model. If whole graphs are timed, the model and the reference run alternately.

        Other load on the machine then affects the times of both models alike. So the times of two models are comparable if both
        models ran alternately with the same reference. If a model seems faster than the reference and all earlier models, the
        model is timed for more rounds. Without these rounds, the lowest of many noisy times would be too low. If single nodes
        are timed, this method returns the same result as `seconds`.

        Raises:
            InvalidModelError: See `Clock.seconds`.
        """
        if not self.together:
            return self.seconds(model)
        key = ["beside", self._identity, clock_structure_digest(model), clock_structure_digest(reference)]
        known = 1.0 if key[2] == key[3] else self.cache.get(key)
        if known is None:
            if self._reference is None or self._reference[0] != key[3]:
                self._reference, self._least = (key[3], self._bound(reference)), 1.0
            bound = self._bound(model)
            ratio = _ratio(bound, self._reference[1])
            if ratio < self._least:
                ratio = _ratio(bound, self._reference[1], COST.fastest_turn_factor)
                self._least = min(ratio, self._least)
            self.cache.put(key, ratio)
        else:
            ratio = json_number(known)
        return ratio * self._whole(reference)

    def stands(self, before: ModelProto, after: ModelProto, predicted: float, least: float) -> bool:
        """Time the two whole models alternately, and return whether the times confirm that the second model is faster.

        If `together` is False, the speedup that is estimated from `predicted` and these times must exceed `1 + least`. If
        `together` is True, the measured gain must exceed the noise. If the weights do not fit into the processor's caches, the
        weights are in no cache when a run starts.

        Args:
            before: the first model.
            after: the second model.
            predicted: the first model's seconds divided by the second model's seconds, both from `seconds`.
            least: the smallest relative gain that is accepted.

        Raises:
            InvalidModelError: ONNX Runtime cannot run one of the models.
        """
        found = self._compared(before, after)
        return found.low > 1 + found.noise if self.together else _believed(predicted, found) > 1 + least

    def ratio(self, before: ModelProto, after: ModelProto) -> float:
        """Return the speed of the second model as a multiple of the first model's speed.

        The result combines `seconds` and the timing of whole models, as in `stands`.

        Raises:
            InvalidModelError: ONNX Runtime cannot run one of the models.
        """
        found = self._compared(before, after)
        return found.ratio if self.together else _believed(self._predicted(before, after), found)

    def _predicted(self, before: ModelProto, after: ModelProto) -> float:
        return max(self.seconds(before), COST.min_node_seconds) / max(self.seconds(after), COST.min_node_seconds)

    def _compared(self, before: ModelProto, after: ModelProto) -> Comparison:
        with scratch_folder() as one, scratch_folder() as other:
            models = [with_hollow_data(model, folder) for model, folder in ((before, one), (after, other))]
            try:
                seconds = COST.segment_comparison_seconds if self.together else COST.segment_comparison_seconds / 2
                loads = (
                    1 if not self.together and self.seconds(before) >= COMPARISON.long_run_seconds else COST.segment_load_count
                )
                return compare(models[0], models[1], self.device, seconds=seconds, cold=self.cold, loads=loads)
            except ProviderError as error:
                raise InvalidModelError(str(error)) from error

    def nodes(self, model: Loadable) -> tuple[int, float]:
        """Return the number and the total seconds of the nodes in the model's optimized graph.

        Nodes that move no elements, such as Reshape, are left out. The model must have no dynamic dimensions.

        Raises:
            InvalidModelError: ONNX Runtime cannot load the model or run one of its nodes in isolation, or the shape of a value
                cannot be determined.
        """
        kernels = [kernel for kernel in self.kernels(model) if kernel.node.op_type not in VIEWS]
        return len(kernels), sum(self.net(self.timing(kernel).seconds) for kernel in kernels)

    def warm(self) -> Clock:
        """Return a clock that times nodes with weights in the processor's caches."""
        return Clock(self.device, self.cache, together=self.together)

    def _bound(self, model: ModelProto) -> Bound:
        with scratch_folder() as folder:
            session = Session(with_hollow_data(model, folder), self.device, anywhere=True)
        kinds = [(port.name, _static(port)) for port in model.graph.input]
        return session.bind({name: random_values(k.element, k.shape, n) for n, (name, k) in enumerate(kinds) if k is not None})

    def _whole(self, model: ModelProto) -> float:
        key = ["whole", self._identity, clock_structure_digest(model)]
        found = self.cache.kept(key, lambda: least_seconds([self._bound(model)], COST.segment_timing_seconds))
        return self.net(json_number(found))

    def pieces(self, model: ModelProto) -> tuple[Piece, ...]:
        """Return the nodes of the model's optimized graph with their times. `seconds` returns the sum of the times."""
        plan_key = ["plan", self._identity, clock_structure_digest(model)]
        stored, kernels = self.cache.get(plan_key), list[Kernel]()
        if stored is None:
            kernels = self.kernels(model)
            stored = [kernel.signature() for kernel in kernels]
            self.cache.put(plan_key, stored)
        plan = [json_list(signature) for signature in json_list(stored)]
        known = [self.cache.get(self._key(signature)) for signature in plan]
        if None in known:
            kernels = kernels or self.kernels(model)
            return tuple(Piece(k.node.op_type, self.net(self.timing(k).seconds)) for k in kernels)
        times = (self.net(KernelTiming.of_json(t).seconds) for t in known)
        return tuple(Piece(json_text(signature[1]), seconds) for signature, seconds in zip(plan, times, strict=True))

    def _key(self, signature: Json) -> list[Json]:
        return ["kernel", self._identity, self.cold, signature]

    def timing(self, kernel: Kernel) -> KernelTiming:
        """Return the time of a node in a session with only this node, and the types and shapes of the node's outputs.

        Raises:
            InvalidModelError: ONNX Runtime cannot run the node in isolation.
        """

        def timed() -> Json:
            return kernel.timed(self.device, cold=self.cold, call=self.overhead[0]).as_json()

        return KernelTiming.of_json(self.cache.kept(self._key(kernel.signature()), timed))

    def net(self, seconds: float) -> float:
        """Return the seconds of a node within a longer graph, given the seconds of a run of only this node."""
        call, node = self.overhead
        return max(seconds - call, node)

    @property
    def overhead(self) -> tuple[float, float]:
        """A pair: the fixed overhead of a run in seconds, and the time of a node with one element in seconds."""
        if self._overhead is None:
            call, node = json_list(self.cache.kept(["overhead", self._identity], self._measured_overhead))
            self._overhead = json_number(call), json_number(node)
        return self._overhead

    def _measured_overhead(self) -> Json:
        one, many = (least_seconds([_chain(n, self.device)], 0.02) for n in (1, 1 + COST.overhead_chain_count))
        node = max((many - one) / COST.overhead_chain_count, COST.min_node_seconds)
        return [max(one - node, 0.0), node]

    def kernels(self, model: Loadable, sizes: Mapping[str, int] | None = None) -> list[Kernel]:
        """Return the nodes of the optimized graph that ONNX Runtime makes from the model.

        `sizes` contains the sizes of the model's dynamic dimensions. If ONNX Runtime does not report the shape of a node's
        output, the node is run to determine the shape.

        Raises:
            InvalidModelError: ONNX Runtime cannot load the model, or the shape of a value cannot be determined.
        """
        optimized = self._optimized(model, sizes)
        graph = optimized.graph
        opsets = tuple((o.domain, o.version) for o in optimized.opset_import)
        known: dict[str, Operand] = {t.name: Operand(t.data_type, tuple(t.dims), t) for t in graph.initializer}
        for port in (*graph.value_info, *graph.input, *graph.output):
            operand = _static(port, sizes)
            if operand is not None:
                known.setdefault(port.name, operand)
        kernels: list[Kernel] = []
        for node in graph.node:
            kernel = Kernel(node, known, opsets, optimized.ir_version)
            kernels.append(kernel)
            if missing := [name for name in node.input if name and name not in known]:
                raise InvalidModelError(f"the shape of {missing[0]!r} is not known before the model runs")
            if any(name and name not in known for name in node.output):
                outputs = self._outputs(kernel)
                known.update((n, o) for n, o in zip(node.output, outputs, strict=True) if o is not None)
        artefacts = _boundary(graph)
        return [k for k, a in zip(kernels, artefacts, strict=True) if not a]

    def _outputs(self, kernel: Kernel) -> tuple[Operand | None, ...]:
        return self.timing(kernel).outputs

    def _optimized(self, model: Loadable, sizes: Mapping[str, int] | None) -> ModelProto:
        with scratch_folder() as folder:
            path = folder / "optimized.onnx"
            source = with_hollow_data(model, folder) if isinstance(model, ModelProto) else model
            Session(source, self.device, anywhere=True, portable=self.portable, saved=path, sizes=sizes)
            return onnx.load(path, load_external_data=False)


def clock_spare_cache_bytes(provider: str, resident: int, last_level: int) -> float:
    """Return the number of bytes of the last-level cache that are free when `resident` bytes are cached.

    The result is negative if `resident` bytes do not fit. The result is infinity for any provider other than the CPU, because
    the last-level cache matters only for CPUs.
    """
    return last_level - resident if provider == "cpu" else math.inf


def _believed(predicted: float, found: Comparison) -> float:
    """Estimate a model's speedup from two sources: the predicted speedup, and the comparison of whole models.

    The prediction is the sum of node times, without the time between nodes. The speed of a whole model varies between sessions.
    So the logarithm of the estimate is the mean of the logarithms of both speedups, weighted by their inverse variances.
    """
    gain = math.log(predicted)
    sums = max(COST.min_summed_gain_error, COST.summed_gain_error_share * abs(gain)) ** -2
    wholes = max(COST.min_ratio_error, math.log(found.high / found.low) / 4) ** -2
    return math.exp((sums * gain + wholes * math.log(found.ratio)) / (sums + wholes))


def _ratio(one: Bound, other: Bound, more: int = 1) -> float:
    """Time two sessions in turn, and return the ratio of their run times (the first divided by the second).

    The ratio is the median over `more * COST.segment_turn_count` rounds. A round times each of the two sessions once.
    """
    with one.alone():
        runs = max(
            1, round(COST.segment_timing_seconds / 2 / COST.segment_turn_count / min(other.seconds(1) for _ in range(3)))
        )
        return statistics.median(one.seconds(runs) / other.seconds(runs) for _ in range(more * COST.segment_turn_count))


def _boundary(graph: onnx.GraphProto) -> list[bool]:
    """For each node, return whether the node converts the layout of a graph input or output, or copies between devices."""
    inputs = {port.name for port in graph.input}
    uses = Counter(name for node in graph.node for name in node.input)

    def artefact(node: NodeProto) -> bool:
        if node.domain == _BLOCKED and node.op_type == "ReorderInput":
            return node.input[0] in inputs
        if node.domain == _BLOCKED and node.op_type == "ReorderOutput":
            return not uses[node.output[0]]
        return node.op_type in _COPIES

    return [artefact(node) for node in graph.node]


def _static(port: ValueInfoProto, sizes: Mapping[str, int] | None = None) -> Operand | None:
    """Return the type and shape of a value. If the shape is unknown, return None.

    `sizes` contains the sizes of dynamic dimensions.
    """
    kind = port.type.tensor_type
    if not kind.elem_type or not kind.HasField("shape"):
        return None
    names = (dimension_key(port.name, axis, d.dim_param) for axis, d in enumerate(kind.shape.dim))
    extents = (
        d.dim_value if d.HasField("dim_value") else (sizes or {}).get(n) for n, d in zip(names, kind.shape.dim, strict=True)
    )
    shape = tuple(n for n in extents if n is not None)
    return Operand(kind.elem_type, shape) if len(shape) == len(kind.shape.dim) else None


def clock_structure_digest(model: ModelProto) -> str:
    """Return a digest of the parts of a model on which optimizations depend.

    Names are left out. If the elements of a large constant are not all equal, the values of this constant are left out too.
    """
    graph = model.graph
    number: dict[str, int] = {"": -1}
    kinds = [[p.type.tensor_type.elem_type, [d.dim_value for d in p.type.tensor_type.shape.dim]] for p in graph.input]
    for port in graph.input:
        number[port.name] = len(number)
    constants = []
    for tensor in graph.initializer:
        number[tensor.name] = len(number)
        constants.append([tensor.data_type, list(tensor.dims), _value_digest(tensor)])
    nodes = []
    for node in graph.node:
        for name in node.output:
            number.setdefault(name, len(number))
        attributes = sorted([a.name, kernel_attribute_value(a)] for a in node.attribute)
        names = [number[name] for name in (*node.input, *node.output)]
        nodes.append([node.domain, node.op_type, attributes, len(node.input), names])
    outputs = [number[port.name] for port in graph.output]
    opsets = sorted([o.domain, o.version] for o in model.opset_import)
    return json_digest([opsets, kinds, constants, nodes, outputs])


def _value_digest(tensor: TensorProto) -> str:
    if tensor.external_data:
        return ""
    values = numpy_helper.to_array(tensor)
    if values.size <= COST.max_described_elements:
        return values.tobytes().hex()
    return f"all {values.flat[0].tobytes().hex()}" if (values == values.flat[0]).all() else ""


def _chain(length: int, device: Device) -> Bound:
    """Load a model that is a chain of `length` Neg nodes on one element, and return a session with a bound input."""
    names = [f"v{i}" for i in range(length + 1)]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in (names[0], names[-1])]
    model = helper.make_model(
        helper.make_graph(nodes, "chain", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    return Session(model, device, optimize=False).bind({names[0]: np.ones(1, np.float32)})
