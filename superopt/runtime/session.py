"""ONNX Runtime sessions: load a model on a device, run the model, and time runs without copies of inputs and outputs."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike
from onnx import ModelProto

from superopt.errors import InvalidModelError, ProviderError, first_line
from superopt.protobuf.names import is_unnamed
from superopt.protobuf.stored import Loadable, StoredModel
from superopt.runtime.bounds import IndexRange
from superopt.runtime.device import (
    PROVIDERS,
    QUIET,
    WITHOUT,
    Device,
    first_provider,
    ignore_model_options,
    providers,
    runtime,
    silence_gpu_libraries,
)
from superopt.runtime.gpu_lock import hold_gpu
from superopt.runtime.ort_values import BFLOAT16, array_of, ort_value_of

__all__ = [
    "PROVIDERS",
    "WITHOUT",
    "Array",
    "Bound",
    "Device",
    "Port",
    "Session",
    "Unbound",
    "is_floating",
    "random_inputs",
    "runtime",
]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_DTYPES: dict[str, DTypeLike] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": BFLOAT16,
    "bool": np.bool_,
    **{name: np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
}
_OBJECT = np.dtype(object)


@dataclass(frozen=True)
class Port:
    """An input of a model.

    Attributes:
        name: the name of the input.
        dtype: the numpy type of the elements, or the object type if the input is not a tensor of numbers.
        shape: for each axis, an integer or the name of a dynamic dimension. The name of an unnamed dimension consists of the
            input and the axis, such as `x.0`.
        kind: ONNX Runtime's name for the type, such as `tensor(string)`, if `dtype` is the object type. Otherwise, `kind` is an
            empty text.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]
    kind: str = ""

    def concrete(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape with a number for each dynamic dimension.

        `sizes` is searched for the key `input[axis]`, such as `x[0]`, then for the dimension's name. A dimension with neither
        key has size 1.
        """
        return tuple(
            extent if isinstance(extent, int) else sizes.get(f"{self.name}[{axis}]", sizes.get(extent, 1))
            for axis, extent in enumerate(self.shape)
        )


class Session:
    """A model loaded in ONNX Runtime on a device.

    The device gives the number of threads. Threads do not spin while they wait for work.

    Args:
        model: the model.
        device: the device.
        optimize: whether ONNX Runtime's graph optimizations run.
        exact: whether TF32 is off, so that values can be compared (see `first_provider`).
        anywhere: whether to accept a session in which the device's provider runs none of the nodes.
        portable: whether the graph is optimized without memory layouts that are specific to this machine's processor.
        saved: the path to which ONNX Runtime's optimized graph is written. Initializers of the written graph are in the graph
            itself or in the files of `model`. If `saved` is given, the session does not prepack weights, so its run times are
            meaningless. For TensorRT, the written graph is the graph that TensorRT receives.
        traced: the first part of the path of the profile file. The method `trace` returns the whole path. If `traced` is None,
            no profile is written. For TensorRT, the profile is from a run on the CPU.
        sizes: sizes of dynamic dimensions. The session treats these dimensions as fixed.
        pooled: whether ONNX Runtime keeps the memory of a run for later runs. If `pooled` is False, runs at many sizes need
            less memory, and each run takes longer.

    Raises:
        InvalidModelError: ONNX Runtime cannot load the model.
        ProviderError: ONNX Runtime fell back to another provider.
    """

    def __init__(
        self,
        model: Loadable,
        device: Device,
        *,
        optimize: bool = True,
        exact: bool = False,
        anywhere: bool = False,
        portable: bool = False,
        saved: Path | None = None,
        traced: Path | None = None,
        sizes: Mapping[str, int] | None = None,
        pooled: bool = True,
    ) -> None:
        ort = runtime()
        self.device = device
        self._pooled = pooled and device.provider == "cpu"
        options = _options(device, optimize, saved)
        options.enable_cpu_mem_arena = options.enable_mem_pattern = pooled
        if (portable or device.portable) and optimize:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        if saved is not None and optimize and device.provider == "tensorrt":
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        for name, extent in (sizes or {}).items():
            options.add_free_dimension_override_by_name(name, extent)
        if traced is not None:
            options.enable_profiling, options.profile_file_prefix = True, str(traced)
        source, shown = _source(model, options), saved is not None or traced is not None
        try:
            with silence_gpu_libraries(device), ignore_model_options(), hold_gpu(device):
                offered = providers(device, exact=exact, shown=shown)
                self._session = ort.InferenceSession(
                    source if isinstance(source, bytes) else os.fspath(source), options, providers=offered
                )
        except Exception as error:
            raise InvalidModelError(f"ONNX Runtime cannot load the model: {first_line(error)}") from error
        self._session.disable_fallback()
        self._require(first_provider(device, exact=exact, shown=shown), anywhere=anywhere)
        self.inputs = tuple(_port(p) for p in self._session.get_inputs())
        self.outputs = tuple(p.name for p in self._session.get_outputs())
        kinds = {_dtype(port.type) for port in (*self._session.get_inputs(), *self._session.get_outputs())}
        self._plain, self._narrow = _OBJECT in kinds, BFLOAT16 in kinds

    def _require(self, provider: str, *, anywhere: bool) -> None:
        """Check that ONNX Runtime uses `provider`, and that `provider` runs at least one node.

        The second check applies only to GPUs, and only if `anywhere` is False.

        Raises:
            ProviderError: a check fails.
        """
        taken = self._session.get_providers()[0]
        if taken != PROVIDERS[provider]:
            libraries = "CUDA, cuDNN or TensorRT library" if provider == "tensorrt" else "CUDA or cuDNN library"
            raise ProviderError(
                f"the provider {provider} could not be used; ONNX Runtime fell back to {taken} "
                f"(a missing or mismatched {libraries}, or no device)"
            )
        if not anywhere and provider != "cpu" and self.placement and not self.placement.get(provider):
            raise ProviderError(f"ONNX Runtime placed none of the model's nodes on the provider {provider}")

    @functools.cached_property
    def placement(self) -> Mapping[str, int]:
        """A mapping from each provider to the count of nodes that run on the provider.

        The mapping is empty if this version of ONNX Runtime does not report these counts.
        """
        count: Counter[str] = Counter()
        short = {long: name for name, long in PROVIDERS.items()}
        if hasattr(self._session, "get_provider_graph_assignment_info"):
            for part in self._session.get_provider_graph_assignment_info():
                count[short.get(part.ep_name, part.ep_name)] += len(part.get_nodes())
        return count

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Run the model, and return the values of the outputs. A sequence is returned as a list.

        Raises:
            InvalidModelError: ONNX Runtime fails while it runs the model.
        """
        with _failing(), hold_gpu(self.device):
            if self._plain or not self._narrow:
                values: list[Array] = self._session.run(None, dict(feeds))
                return values
            placed = {name: ort_value_of(array, "cpu", runtime()) for name, array in feeds.items()}
            return [array_of(value) for value in self._session.run_with_ort_values(None, placed)]

    def trace(self) -> Path:
        """Stop profiling, and return the path of the profile file. The file contains all nodes that have run so far."""
        return Path(self._session.end_profiling())

    def bind(self, feeds: Mapping[str, Array], *, wall: bool = False) -> Bound:
        """Bind inputs and outputs to memory on the device, run the model once, and return the bound session for timing.

        If `wall` is True, the bound session measures wall-clock time (see `Bound.seconds`).
        """
        return Bound(self._session, self.device, self.outputs, feeds, wall=wall, pooled=self._pooled)

    def ready(self, feeds: Mapping[str, Array], *, wall: bool = False) -> Bound | Unbound:
        """Run the model once, and return the session with these inputs, ready for timing.

        The result is a `Bound` if all inputs and outputs are tensors of numbers, and an `Unbound` otherwise. If the session has
        no input with the name of an entry in `feeds`, the entry is ignored. `wall` is as in `bind`.
        """
        own = {port.name: feeds[port.name] for port in self.inputs if port.name in feeds}
        return Unbound(self, own) if self._plain else self.bind(own, wall=wall)


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    """Convert every error that ONNX Runtime raises while running a model into an `InvalidModelError`."""
    try:
        yield
    except Exception as error:
        raise InvalidModelError(f"ONNX Runtime cannot run the model: {first_line(error)}") from error


def _freeing() -> Any:
    """Return options for a run on the CPU. After this run, ONNX Runtime frees the memory that the session does not use."""
    options = runtime().RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


class Unbound:
    """A session with inputs, for timing a model that has an input or output other than a tensor of numbers.

    Strings, sequences and maps cannot be bound to device memory in advance.
    """

    def __init__(self, session: Session, feeds: Mapping[str, Array]) -> None:
        self._session, self._feeds = session, feeds
        self.run()

    def alone(self) -> AbstractContextManager[None]:
        """Return a context in which no other process of superopt uses the device's GPU."""
        return hold_gpu(self._session.device)

    def run(self) -> None:
        """Run the model once."""
        self._session.run(self._feeds)

    def seconds(self, runs: int) -> float:
        """Return the mean time of `runs` runs, in seconds."""
        with self.alone():
            start = time.perf_counter()
            for _ in range(runs):
                self.run()
            return max(time.perf_counter() - start, 1e-9) / runs


class Bound:
    """A session with inputs and outputs bound to memory on the device, so that a timed run contains no copies to the device.

    An output whose shape differs from the declared shape cannot be bound in advance. If there is such an output, `_free` lists
    all outputs, and ONNX Runtime allocates all outputs anew in each run.

    In the first run, ONNX Runtime allocates the values one by one. In later runs, ONNX Runtime allocates one block for all
    values. If `pooled` is True, the session keeps the memory of its runs, and the memory of the first run is freed after this
    run.
    """

    def __init__(
        self,
        session: Any,
        device: Device,
        outputs: Sequence[str],
        feeds: Mapping[str, Array],
        *,
        wall: bool = False,
        pooled: bool = False,
    ) -> None:
        self._session, self._device, self._names = session, device, tuple(outputs)
        alone = device.provider == "cpu" and device.threads == 1 and not wall
        self._now = time.thread_time if alone else time.perf_counter
        self._binding = session.io_binding()
        for name, array in feeds.items():
            self._binding.bind_ortvalue_input(name, self._placed(array))
        if device.cuda_graph:
            for name, array in zip(outputs, self._shapes(outputs, feeds), strict=True):
                self._binding.bind_ortvalue_output(name, self._placed(array))
        self._free: Sequence[str] = () if device.cuda_graph else tuple(dict.fromkeys(outputs))
        self.run(_freeing() if pooled else None)
        if not device.cuda_graph:
            declared = {port.name: port.shape for port in session.get_outputs()}
            values = dict(zip(self._free, self._binding.get_outputs(), strict=True))
            if all(_is_as_declared(declared[name], value.shape()) for name, value in values.items()):
                for name, value in values.items():
                    self._binding.bind_ortvalue_output(name, value)
                self._free, self._values = (), values

    def alone(self) -> AbstractContextManager[None]:
        """Return a context in which no other process of superopt uses the device's GPU."""
        return hold_gpu(self._device)

    def _placed(self, array: Array) -> Any:
        with _failing(), hold_gpu(self._device):
            return ort_value_of(array, self._device.memory, runtime())

    def _shapes(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Run the model once without a CUDA graph, and return the outputs.

        The caller allocates output buffers that have the shapes of the returned arrays. A CUDA graph needs these buffers before
        its first run.
        """
        options = runtime().RunOptions()
        options.add_run_config_entry("gpu_graph_id", "-1")
        with _failing(), hold_gpu(self._device):
            values: list[Array] = self._session.run(list(outputs), dict(feeds), options)
        return values

    def run(self, options: Any = None) -> None:
        """Run the model once, and wait until the device has finished. `options` are ONNX Runtime's options for this run."""
        with _failing(), hold_gpu(self._device):
            self._run_once(options)

    def _run_once(self, options: Any = None) -> None:
        for name in self._free:
            self._binding.bind_output(name, self._device.memory, 0)
        self._session.run_with_iobinding(self._binding, options)

    def outputs(self) -> list[Array]:
        """Return the values of the outputs after the last run.

        Raises:
            InvalidModelError: an output is not a tensor.
        """
        with _failing():
            values = dict(zip(dict.fromkeys(self._names), self._binding.get_outputs(), strict=True))
            return [array_of(values[name]) for name in self._names]

    def seconds(self, runs: int) -> float:
        """Return the mean time of `runs` runs in seconds. Each run is finished on the device before the next run begins.

        If the calling thread does all the work, the CPU time of the thread is measured, unless `wall=True` was passed to
        `bind`. In all other cases, wall-clock time is measured. On an idle machine, CPU time equals wall-clock time. On a busy
        machine, CPU time excludes the time of other processes.

        No run options are passed. With run options, ONNX Runtime would create a logger for each run, which takes 24
        microseconds. If the clock shows no difference, all runs together count as one nanosecond.
        """
        run, binding, now = self._session.run_with_iobinding, self._binding, self._now
        with _failing(), hold_gpu(self._device):
            start = now()
            if self._free:
                for _ in range(runs):
                    self._run_once()
            else:
                for _ in range(runs):
                    run(binding)
            return max(now() - start, 1e-9) / runs


def _is_as_declared(declared: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    """Return whether `shape`, the actual shape of an output, fits the shape that the model declares.

    A dynamic dimension fits every size. If the shapes do not fit, ONNX Runtime does not write the output into a buffer that was
    bound in advance.
    """
    pairs = zip(declared, shape, strict=False)
    return len(declared) == len(shape) and all(n == size for n, size in pairs if isinstance(n, int) and n >= 0)


def random_inputs(
    ports: Sequence[Port],
    seed: int = 0,
    *,
    sizes: Mapping[str, int] | None = None,
    high: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """Return a random value for each input.

    Floats have a standard normal distribution. Integers are at least 0 and less than `high[name]`, or less than 2 if `high` has
    no entry for the input. Booleans are true with probability 1/2. Strings are single digits. If `high[name]` is an
    `IndexRange`, integers are at least `high[name].low`, and all elements of a float input equal `high[name].low`. The sizes of
    dynamic dimensions come from `sizes`. A dimension without an entry has size 1.

    Raises:
        InvalidModelError: an input is not a tensor, or has a type that numpy does not have.
    """
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for port in ports:
        shape = port.concrete(sizes or {})
        if port.kind == "tensor(string)":
            feeds[port.name] = rng.integers(0, 10, shape).astype(str).astype(object)
        elif port.dtype == _OBJECT:
            raise InvalidModelError(f"no values of type {port.kind} can be made for the input {port.name!r}")
        elif port.dtype.kind in "iub":
            end = 2 if port.dtype.kind == "b" else (high or {}).get(port.name, 2)
            feeds[port.name] = _integers(rng, end, shape).astype(port.dtype)
        elif isinstance(fixed := (high or {}).get(port.name), IndexRange):
            feeds[port.name] = np.full(shape, fixed.low).astype(port.dtype)
        else:
            feeds[port.name] = rng.standard_normal(shape, np.float32).astype(port.dtype)
    return feeds


def _integers(rng: np.random.Generator, end: int, shape: tuple[int, ...]) -> Array:
    """Return random integers that are at least 0 and less than `end`.

    If `end` is an `IndexRange`, integers are at least `end.low`, and `end.columns` limits each position of the last axis.
    """
    if not isinstance(end, IndexRange):
        return rng.integers(0, max(1, end), shape)
    if end.columns and shape and shape[-1] <= len(end.columns):
        return rng.integers(end.low, np.maximum(end.columns[: shape[-1]], end.low + 1), shape)
    return rng.integers(end.low, max(end.low + 1, int(end)), shape)


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Return whether values of the type are floating-point numbers. bfloat16 is included."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _dtype(type_text: str) -> np.dtype[Any]:
    """Return the numpy type for ONNX Runtime's name of a type, such as `tensor(float)`.

    The result is the object type if the name does not denote a tensor of numbers or booleans.
    """
    chosen: DTypeLike = _DTYPES.get(type_text.removeprefix("tensor(").removesuffix(")"), object)
    return np.dtype(chosen)


def _port(arg: Any) -> Port:
    return port_of(arg.name, arg.type, arg.shape)


def port_of(name: str, kind: str, extents: Sequence[int | str | None]) -> Port:
    """Return the description of a model's input from the facts that ONNX Runtime reports.

    Args:
        name: the name of the input.
        kind: ONNX Runtime's name for the type, such as `tensor(float)`.
        extents: for each axis, the size, the name of a dynamic dimension, or None.
    """

    def extent(axis: int, given: int | str | None) -> int | str:
        if isinstance(given, int) and given >= 0:
            return given
        return f"{name}.{axis}" if is_unnamed(str(given or "")) else str(given)

    shape = tuple(extent(axis, given) for axis, given in enumerate(extents))
    dtype = _dtype(kind)
    return Port(name, dtype, shape, kind if dtype == _OBJECT else "")


def _source(model: Loadable, options: Any) -> str | bytes:
    """Return the path or the bytes from which ONNX Runtime creates a session.

    For a `StoredModel`, the folder of the external data is set in `options`.
    """
    if isinstance(model, StoredModel):
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.folder))
        return model.content
    if isinstance(model, bytes):
        return model
    return model.SerializeToString() if isinstance(model, ModelProto) else os.fspath(model)


def _options(device: Device, optimize: bool, saved: Path | None) -> Any:
    ort = runtime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = device.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    if device.without:
        options.add_session_config_entry(WITHOUT, ";".join(device.without))
    for library in device.libraries:
        try:
            options.register_custom_ops_library(library)
        except Exception as error:
            raise InvalidModelError(f"ONNX Runtime cannot load the library {library}: {first_line(error)}") from error
    if device.provider != "cpu":
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if saved is not None:
        options.optimized_model_filepath = str(saved)
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options
