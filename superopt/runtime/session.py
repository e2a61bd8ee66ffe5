"""ONNX Runtime sessions: a model loaded on a device, and the timing of runs without the overhead of calling them."""

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
from superopt.runtime.ort_values import BFLOAT16, array_of, value_of

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

_DTYPES: dict[str, Any] = {
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

    An extent is an int or, for a dynamic dimension, a name: the dimension's name in the model, or a name made of the input's
    name and the axis. `kind` is ONNX Runtime's text for the input's type. If the input is not a tensor of numbers, `dtype` is
    the object type.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]
    kind: str = ""

    def concrete(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape with sizes for its dynamic dimensions.

        Sizes are looked up under `input[axis]`, then under the dimension's name. If there is none, the size is 1.
        """
        return tuple(
            extent if isinstance(extent, int) else sizes.get(f"{self.name}[{axis}]", sizes.get(extent, 1))
            for axis, extent in enumerate(self.shape)
        )


class Session:
    """A model loaded in ONNX Runtime on a device, without spinning threads, and with one thread unless the device has more.

    Args:
        model: the model.
        device: the device.
        optimize: whether all graph optimizations run, or none.
        exact: whether TF32 is off, for comparing values (see `first_provider`).
        anywhere: whether the session is accepted if the provider runs none of the nodes.
        portable: whether the graph is optimized without the layouts that are specific to this machine's processor.
        saved: the path to which ONNX Runtime's optimized graph is written. Initializers stay in the model's files or are stored
            in the graph. Such a session does not pack weights, so its run times mean nothing. For TensorRT, the written graph
            is the graph that TensorRT receives.
        traced: the beginning of the name of the file that `trace` returns. For TensorRT, the trace is from a run on the CPU.
        sizes: sizes for dynamic dimensions. The session then treats these dimensions as fixed.

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
    ) -> None:
        ort = runtime()
        self.device = device
        options = _options(device, optimize, saved)
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
        """Check that the session has the provider, and that it runs some node there unless nodes may run `anywhere`.

        Raises:
            ProviderError: the check fails.
        """
        taken = self._session.get_providers()[0]
        if taken != PROVIDERS[provider]:
            libraries = "CUDA, cuDNN or TensorRT library" if provider == "tensorrt" else "CUDA or cuDNN library"
            raise ProviderError(
                f"the provider {provider} could not be used, ONNX Runtime fell back to {taken} "
                f"(a missing or mismatched {libraries}, or no device)"
            )
        if not anywhere and provider != "cpu" and self.placement and not self.placement.get(provider):
            raise ProviderError(f"ONNX Runtime placed none of the model's nodes on the provider {provider}")

    @functools.cached_property
    def placement(self) -> Mapping[str, int]:
        """The number of nodes on each provider, or an empty mapping if this version of ONNX Runtime does not report it."""
        count: Counter[str] = Counter()
        short = {long: name for name, long in PROVIDERS.items()}
        if hasattr(self._session, "get_provider_graph_assignment_info"):
            for part in self._session.get_provider_graph_assignment_info():
                count[short.get(part.ep_name, part.ep_name)] += len(part.get_nodes())
        return count

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Run the model, and return the values of its outputs. A sequence is a list of its elements.

        Raises:
            InvalidModelError: ONNX Runtime fails while it runs the model.
        """
        with _failing(), hold_gpu(self.device):
            if self._plain or not self._narrow:
                values: list[Array] = self._session.run(None, dict(feeds))
                return values
            placed = {name: value_of(array, "cpu", runtime()) for name, array in feeds.items()}
            return [array_of(value) for value in self._session.run_with_ort_values(None, placed)]

    def trace(self) -> Path:
        """Stop profiling, and return the profile file, which contains all nodes that have run so far."""
        return Path(self._session.end_profiling())

    def bind(self, feeds: Mapping[str, Array], *, wall: bool = False) -> Bound:
        """Put the inputs on the device, fix the output buffers, run the model once, and return the session ready to be timed.

        If `wall` is True, wall-clock time is measured (see `Bound.seconds`).
        """
        return Bound(self._session, self.device, self.outputs, feeds, wall=wall)

    def ready(self, feeds: Mapping[str, Array], *, wall: bool = False) -> Bound | Unbound:
        """Return the session ready to be timed after one run, bound if all inputs and outputs are tensors of numbers.

        Entries of `feeds` for inputs that the session does not have are ignored. `wall` is as in `bind`.
        """
        own = {port.name: feeds[port.name] for port in self.inputs if port.name in feeds}
        return Unbound(self, own) if self._plain else self.bind(own, wall=wall)


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    """Convert every error of ONNX Runtime while a model runs to an `InvalidModelError`."""
    try:
        yield
    except Exception as error:
        raise InvalidModelError(f"ONNX Runtime cannot run the model: {first_line(error)}") from error


class Unbound:
    """A session and its inputs, for models with values that are not tensors of numbers.

    Such values cannot be put on the device in advance.
    """

    def __init__(self, session: Session, feeds: Mapping[str, Array]) -> None:
        self._session, self._feeds = session, feeds
        self.run()

    def alone(self) -> AbstractContextManager[None]:
        """See `turns.alone`."""
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
    """A session whose inputs and outputs are on the device, so that a run does only the model's own work.

    An output whose shape differs from the declared shape cannot be bound in advance. If there is such an output, `_free` lists
    all outputs. They are bound again before each run, and ONNX Runtime allocates them.
    """

    def __init__(
        self, session: Any, device: Device, outputs: Sequence[str], feeds: Mapping[str, Array], *, wall: bool = False
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
        self.run()
        if not device.cuda_graph:
            declared = {port.name: port.shape for port in session.get_outputs()}
            values = dict(zip(self._free, self._binding.get_outputs(), strict=True))
            if all(_is_as_declared(declared[name], value.shape()) for name, value in values.items()):
                for name, value in values.items():
                    self._binding.bind_ortvalue_output(name, value)
                self._free, self._values = (), values

    def alone(self) -> AbstractContextManager[None]:
        """See `turns.alone`."""
        return hold_gpu(self._device)

    def _placed(self, array: Array) -> Any:
        with _failing(), hold_gpu(self._device):
            return value_of(array, self._device.memory, runtime())

    def _shapes(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Run the model once without a CUDA graph, and return the outputs.

        A CUDA graph needs output buffers before its first run.
        """
        options = runtime().RunOptions()
        options.add_run_config_entry("gpu_graph_id", "-1")
        with _failing(), hold_gpu(self._device):
            values: list[Array] = self._session.run(list(outputs), dict(feeds), options)
        return values

    def run(self) -> None:
        """Run the model once, and wait until the device has finished."""
        with _failing(), hold_gpu(self._device):
            self._run_once()

    def _run_once(self) -> None:
        for name in self._free:
            self._binding.bind_output(name, self._device.memory, 0)
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[Array]:
        """Return the values of the outputs after the last run.

        Raises:
            InvalidModelError: an output is not a tensor.
        """
        with _failing():
            values = dict(zip(dict.fromkeys(self._names), self._binding.get_outputs(), strict=True))
            return [array_of(values[name]) for name in self._names]

    def seconds(self, runs: int) -> float:
        """Return the mean time of `runs` runs in seconds. Each run is finished on the device before the next begins.

        If the calling thread does all the work, the processor time of the thread is measured. On an idle machine, processor
        time equals wall-clock time. On a busy machine, processor time excludes the time of other processes. No run options are
        passed, because ONNX Runtime then makes a logger for each run, which takes 24 microseconds. If the clock has not moved,
        the time counts as one nanosecond.
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
    """Return whether an output has the declared shape.

    ONNX Runtime fills a buffer that is bound in advance only if it has.
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

    Floats have a standard normal distribution. Integers are at least 0 and below `high[name]`, or are 0 or 1 if there is no
    bound. Booleans are true half of the time. Texts are digits. If a bound is an `IndexRange`, it also sets the least integer,
    and the value of all elements of a float input. Sizes of dynamic dimensions are taken from `sizes`. Without an entry, the
    size is 1.

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
    """Return random integers below `end`. If `end` is an `IndexRange`, its other limits apply too."""
    if not isinstance(end, IndexRange):
        return rng.integers(0, max(1, end), shape)
    if end.columns and shape and shape[-1] <= len(end.columns):
        return rng.integers(end.low, np.maximum(end.columns[: shape[-1]], end.low + 1), shape)
    return rng.integers(end.low, max(end.low + 1, int(end)), shape)


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Return whether values of the type are floating-point numbers. bfloat16 is included."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _dtype(type_text: str) -> np.dtype[Any]:
    """Return the numpy type for ONNX Runtime's text for a type, such as `tensor(float)`, or the object type for other texts."""
    chosen: DTypeLike = _DTYPES.get(type_text.removeprefix("tensor(").removesuffix(")"), object)
    return np.dtype(chosen)


def _port(arg: Any) -> Port:
    return port_of(arg.name, arg.type, arg.shape)


def port_of(name: str, kind: str, extents: Sequence[int | str | None]) -> Port:
    """Return the input with this name, ONNX Runtime's text for its type, and the extents that ONNX Runtime reports."""

    def extent(axis: int, given: int | str | None) -> int | str:
        if isinstance(given, int) and given >= 0:
            return given
        return f"{name}.{axis}" if is_unnamed(str(given or "")) else str(given)

    shape = tuple(extent(axis, given) for axis, given in enumerate(extents))
    dtype = _dtype(kind)
    return Port(name, dtype, shape, kind if dtype == _OBJECT else "")


def _source(model: Loadable, options: Any) -> str | bytes:
    """Return the path or bytes from which a session is made.

    For bytes, the folder of the model's external data is set in the options.
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
    if device.provider != "cpu":
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if saved is not None:
        options.optimized_model_filepath = str(saved)
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options
