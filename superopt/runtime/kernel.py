"""The timing of a single node of an optimized graph. A node's signature contains all properties on which the time depends."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from superopt.errors import InvalidModelError
from superopt.files import scratch_folder
from superopt.policy import COST
from superopt.protobuf.nodes import Hollow, hollow_tensor, with_hollow_data
from superopt.protobuf.stored import Loadable
from superopt.runtime.cache import Json, json_integer, json_list, json_number
from superopt.runtime.session import Array, Bound, Device, Session, is_floating

VIEWS = frozenset(("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))
"""Operators that only change the shape of a tensor.

Within a graph, the output shares the memory of the operand. A node that is timed in isolation would copy the operand.
"""


@cache
def last_level_cache() -> int:
    """Return the size of the processor's last-level cache in bytes, or 32 MiB if the system does not report the size."""
    for level in ("SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        with contextlib.suppress(ValueError, OSError):
            size = os.sysconf(level)
            if size > 0:
                return size
    return 32 << 20


@dataclass(frozen=True)
class Operand:
    """An input of a node: its ONNX element type, its shape, and its tensor if the input is constant."""

    element: int
    shape: tuple[int, ...]
    tensor: TensorProto | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size of the values in bytes."""
        return self.size * np_dtype(self.element).itemsize

    def described(self) -> list[Json]:
        """Return a description of the operand as JSON: the type, the shape, and whether the operand is constant.

        The description of a small integer constant also contains the values, which may be axes, a shape or pads.
        """
        described: list[Json] = [self.element, list(self.shape), self.tensor is not None]
        if self.tensor is not None and self.size <= COST.max_described_elements and np_dtype(self.element).kind in "iu":
            described.append(numpy_helper.to_array(self.tensor).tolist())
        return described


@dataclass(frozen=True)
class KernelTiming:
    """The time in seconds of one run of a node, and the type and shape of each output. None stands for an absent optional
    output.
    """

    seconds: float
    outputs: tuple[Operand | None, ...]

    def as_json(self) -> list[Json]:
        return [self.seconds, [None if o is None else [o.element, list(o.shape)] for o in self.outputs]]

    @staticmethod
    def of_json(value: Json) -> KernelTiming:
        seconds, outputs = json_list(value)
        return KernelTiming(json_number(seconds), tuple(None if o is None else _output(o) for o in json_list(outputs)))


@dataclass(frozen=True)
class Kernel:
    """A node with the types and shapes of its operands, and the opsets of the model.

    Kernels with equal signatures take equal times.
    """

    node: NodeProto
    operands: Mapping[str, Operand]
    opsets: tuple[tuple[str, int], ...]
    ir_version: int

    def signature(self) -> list[Json]:
        """Return the properties on which the node's time depends, except the device."""
        first = {name: position for position, name in reversed(list(enumerate(self.node.input)))}
        return [
            self.node.domain,
            self.node.op_type,
            dict(self.opsets).get(self.node.domain, 1),
            sorted([a.name, kernel_attribute_value(a)] for a in self.node.attribute),
            [[first[name], *self.operands[name].described()] if name else None for name in self.node.input],
            [bool(name) for name in self.node.output],
        ]

    @property
    def weight_bytes(self) -> int:
        """The size of the constant operands in bytes."""
        return sum(o.bytes for o in self._used().values() if o.tensor is not None)

    def _used(self) -> dict[str, Operand]:
        return {name: self.operands[name] for name in self.node.input if name}

    def model(self, copies: int = 1) -> ModelProto:
        """Return a model that contains only the node, or `copies` copies of the node with the same operands.

        Constants without values are filled at random, because their values do not change the time. The largest constants are in
        a file (see `nodes.WEIGHTS`).
        """
        inputs, initializers = [], []
        for position, (name, operand) in enumerate(self._used().items()):
            if operand.tensor is None:
                inputs.append(helper.make_tensor_value_info(name, operand.element, operand.shape))
            elif operand.tensor.external_data and operand.bytes >= COST.min_mapped_constant_bytes:
                initializers.append(hollow_tensor(Hollow.of(np_dtype(operand.element), operand.shape), name))
            elif operand.tensor.external_data:
                values = random_values(operand.element, operand.shape, position)
                initializers.append(numpy_helper.from_array(values, name))
            else:
                initializers.append(operand.tensor)
        nodes = [self.node, *(_renamed(self.node, f"#{copy}") for copy in range(1, copies))]
        outputs = [helper.make_empty_tensor_value_info(name) for node in nodes for name in node.output if name]
        graph = helper.make_graph(nodes, "kernel", inputs, outputs, initializers)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)

    def timed(self, device: Device, *, cold: bool = False, call: float = 0.0) -> KernelTiming:
        """Time the node in isolation, without graph optimizations. Operators in `VIEWS` are assumed to take no time.

        On a GPU, a node is launched while the previous node still runs. So a short node is timed twice: by itself, and together
        with a second copy. The result is the additional time of the copy, plus the fixed cost `call` of a run.

        Args:
            device: the device to run on.
            cold: whether several copies of the node are run alternately, so that large weights are in no cache. Only one copy
                is used if reading the weights from memory takes only a small part of the time.
            call: the fixed cost of a run on a GPU, in seconds.

        Raises:
            InvalidModelError: ONNX Runtime cannot run the node alone.
        """
        if self.node.op_type in VIEWS:
            return KernelTiming(0.0, self.outputs(device))
        model, feeds = self.model(), self._feeds()
        hollow = any(tensor.external_data for tensor in model.graph.initializer)
        source: Loadable = model if hollow else model.SerializeToString()
        with contextlib.ExitStack() as stack:

            def loaded(source: Loadable) -> Bound:
                if isinstance(source, ModelProto):
                    folder = stack.enter_context(scratch_folder())
                    source = with_hollow_data(source, folder)
                return Session(source, device, optimize=False, anywhere=True).bind(feeds)

            bound = [loaded(source)]
            kinds = self._kinds(bound[0])
            if device.provider != "cpu" and min(bound[0].seconds(1) for _ in range(3)) < COST.max_overlapped_run_seconds:
                return KernelTiming(call + _added(bound[0], loaded(self.model(2))), kinds)
            seconds = least_seconds(bound)
            if cold and self.weight_bytes >= max(
                COST.min_cold_weight_bytes, COST.min_fetch_time_share * COST.min_memory_bytes_per_second * seconds
            ):
                copies = min(COST.max_cold_copies, 1 + -(-3 * last_level_cache() // (2 * self.weight_bytes)))
                bound += [loaded(source) for _ in range(copies - 1)]
                seconds = least_seconds(bound)
            return KernelTiming(seconds, kinds)

    def outputs(self, device: Device) -> tuple[Operand | None, ...]:
        """Run the node once on the device, and return the type and shape of each output.

        Raises:
            InvalidModelError: ONNX Runtime cannot run the node alone.
        """
        with scratch_folder() as folder:
            session = Session(with_hollow_data(self.model(), folder), device, optimize=False, anywhere=True)
            return self._kinds(session.bind(self._feeds()))

    def _feeds(self) -> dict[str, Array]:
        used = enumerate(self._used().items())
        return {name: random_values(o.element, o.shape, position) for position, (name, o) in used if o.tensor is None}

    def _kinds(self, bound: Bound) -> tuple[Operand | None, ...]:
        values = iter(bound.outputs())
        return tuple(None if not name else _kind(next(values)) for name in self.node.output)


def least_seconds(bound: Sequence[Bound], budget: float = COST.node_timing_seconds) -> float:
    """Time short batches of runs, and return the mean time of a run in the fastest batch, in seconds.

    At least three batches are timed, and timing continues until `budget` seconds have passed. If `bound` contains several
    sessions, a batch is one run of each session. If the first run takes longer than `budget`, there are no batches. Instead,
    each session runs once more, and the result is the shorter of two times: the mean time of these runs, and the time of the
    first run.
    """
    with bound[0].alone():
        for b in bound[1:]:
            b.run()
        once = bound[0].seconds(1)
        if once > budget:
            return min(once, statistics.mean(b.seconds(1) for b in bound))
        once = min(once, *(bound[0].seconds(1) for _ in range(2)))
        runs = max(1, int(COST.timing_batch_seconds / once)) if len(bound) == 1 else 1
        best, done, end = math.inf, 0, time.perf_counter() + budget
        while done < 3 or time.perf_counter() < end:
            best = min(best, sum(b.seconds(runs) for b in bound) / len(bound))
            done += 1
        return best


def _added(one: Bound, two: Bound) -> float:
    """Return the difference between the run times of two sessions, in seconds: the time of `two` minus the time of `one`.

    Runs are timed in short batches. The run time of a session is the mean time of a run in its fastest batch. The two sessions
    run alternately, so that other load on the machine affects both times equally. If the difference is negative, the result is
    0.
    """
    with one.alone():
        runs, least = max(1, int(COST.timing_batch_seconds / one.seconds(1))), [math.inf, math.inf]
        end = time.perf_counter() + 2 * COST.node_timing_seconds
        while math.isinf(least[0]) or time.perf_counter() < end:
            least = [min(best, bound.seconds(runs)) for best, bound in zip(least, (one, two), strict=True)]
        return max(least[1] - least[0], 0.0)


def kernel_attribute_value(attribute: AttributeProto) -> Json:
    """Return an attribute's value as JSON. Tensors and graphs become digests."""
    if attribute.type in (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.INTS, AttributeProto.FLOATS):
        value = helper.get_attribute_value(attribute)
        return list(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value
    if attribute.type == AttributeProto.STRING:
        return attribute.s.decode(errors="replace")
    return hashlib.blake2b(attribute.SerializeToString(), digest_size=16).hexdigest()


def random_values(element: int, shape: Sequence[int], salt: int = 0) -> Array:
    """Return an array of the ONNX element type `element` for timing nodes.

    Floats have magnitudes from 1/2 to 3/2 and either sign, so no float is near the subnormal numbers. Equal values of `salt`
    give equal floats. Values of other types are zero.
    """
    dtype = np_dtype(element)
    count = math.prod(shape)
    if not is_floating(dtype):
        return np.zeros(shape, dtype)
    values = _noise()[977 * salt % 65521 :]
    chosen = values[:count] if count <= values.size else np.resize(values, count)
    return chosen.astype(dtype, copy=False).reshape(shape)


@cache
def _noise() -> Array:
    values = np.random.default_rng(0).random(1 << 20, np.float32) * 2 - 1
    return values + np.copysign(np.float32(0.5), values)


def np_dtype(element: int) -> np.dtype[Any]:
    """Return the numpy type of an ONNX element type.

    Raises:
        InvalidModelError: numpy has no such type.
    """
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(element))
    except (KeyError, TypeError) as error:
        raise InvalidModelError(f"ONNX element type {element} is not supported") from error


def _renamed(node: NodeProto, suffix: str) -> NodeProto:
    """Return the node with the suffix added to its name and to the names of its outputs."""
    other = NodeProto()
    other.CopyFrom(node)
    other.name += suffix
    other.output[:] = [name and name + suffix for name in node.output]
    return other


def _output(value: Json) -> Operand:
    element, shape = json_list(value)
    return Operand(json_integer(element), tuple(map(json_integer, json_list(shape))))


def _kind(value: Array) -> Operand:
    return Operand(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
