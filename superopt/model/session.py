"""ONNX Runtime sessions: a model loaded on a device, and runs that measure the model and not the machinery around it."""

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
from superopt.model.bounds import IndexRange
from superopt.model.device import (
    PROVIDERS,
    QUIET,
    WITHOUT,
    Device,
    begins_with,
    providers,
    runtime,
    silenced,
    taken_from_the_program,
)
from superopt.model.names import is_unnamed
from superopt.model.stored import Loadable, Placed
from superopt.model.turns import alone
from superopt.model.values import BFLOAT16, array_of, value_of

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
    """An input of a model; an extent is an int, or a name where it is left open: its own, or the port's and axis'.

    Where it is no tensor of numbers, the elements are objects, and `kind` is ONNX Runtime's text for its type.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]
    kind: str = ""

    def concrete(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with dynamic extents taken from `sizes`, by `input[axis]` or else by name, 1 where that does not say."""
        return tuple(
            extent if isinstance(extent, int) else sizes.get(f"{self.name}[{axis}]", sizes.get(extent, 1))
            for axis, extent in enumerate(self.shape)
        )


class Session:
    """A model loaded in ONNX Runtime on a device, one thread unless the device says otherwise, with no spinning.

    `optimize` is whether graph optimizations run (all of them) or none. `exact` turns TF32 off, for comparing values, as
    `begins_with` says.
    `saved` is where ONNX Runtime's optimized graph is written, its initializers in the files where the model has them, or else
    in it; such a session packs no weights, so that its runs tell nothing of time. TensorRT's is the graph that it is given.
    `traced` begins the name of the file that `trace` gives, for TensorRT of a run on the CPU. With `anywhere`, no node need be
    placed on the provider; with `portable`, the graph is optimized without the layouts that this machine's processor alone
    prefers. `sizes` are numbers for open dimensions that the session is to take for fixed.

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
            with silenced(device), taken_from_the_program(), alone(device):
                offered = providers(device, exact=exact, shown=shown)
                self._session = ort.InferenceSession(
                    source if isinstance(source, bytes) else os.fspath(source), options, providers=offered
                )
        except Exception as error:
            raise InvalidModelError(f"ONNX Runtime cannot load the model: {first_line(error)}") from error
        self._session.disable_fallback()
        self._require(begins_with(device, exact=exact, shown=shown), anywhere=anywhere)
        self.inputs = tuple(_port(p) for p in self._session.get_inputs())
        self.outputs = tuple(p.name for p in self._session.get_outputs())
        kinds = {_dtype(port.type) for port in (*self._session.get_inputs(), *self._session.get_outputs())}
        self._plain, self._narrow = _OBJECT in kinds, BFLOAT16 in kinds

    def _require(self, provider: str, *, anywhere: bool) -> None:
        """Nothing, where the session has the provider, and nodes on it unless they may be `anywhere`.

        Raises:
            ProviderError: it has not.
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
        """How many nodes run on each provider; empty where this version of ONNX Runtime does not tell."""
        count: Counter[str] = Counter()
        short = {long: name for name, long in PROVIDERS.items()}
        if hasattr(self._session, "get_provider_graph_assignment_info"):
            for part in self._session.get_provider_graph_assignment_info():
                count[short.get(part.ep_name, part.ep_name)] += len(part.get_nodes())
        return count

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs' values; a sequence is a list of its elements.

        Raises:
            InvalidModelError: ONNX Runtime fails while it runs the model.
        """
        with _failing(), alone(self.device):
            if self._plain or not self._narrow:
                values: list[Array] = self._session.run(None, dict(feeds))
                return values
            placed = {name: value_of(array, "cpu", runtime()) for name, array in feeds.items()}
            return [array_of(value) for value in self._session.run_with_ort_values(None, placed)]

    def trace(self) -> Path:
        """A file of all nodes that have run so far, as ONNX Runtime's profiler writes it; the session notes no more."""
        return Path(self._session.end_profiling())

    def bind(self, feeds: Mapping[str, Array], *, wall: bool = False) -> Bound:
        """The session with its inputs on the device and its outputs' places fixed, run once and ready to be timed; by the time
        that passes if `wall`, see `Bound.seconds`.
        """
        return Bound(self._session, self.device, self.outputs, feeds, wall=wall)

    def ready(self, feeds: Mapping[str, Array], *, wall: bool = False) -> Bound | Unbound:
        """The session run once and ready to be timed, bound where all its inputs and outputs are tensors of numbers. What is
        fed to inputs that it does not have is left out; `wall` is as in `bind`.
        """
        own = {port.name: feeds[port.name] for port in self.inputs if port.name in feeds}
        return Unbound(self, own) if self._plain else self.bind(own, wall=wall)


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    """What ONNX Runtime raises while it runs a model, as an error of ours."""
    try:
        yield
    except Exception as error:
        raise InvalidModelError(f"ONNX Runtime cannot run the model: {first_line(error)}") from error


class Unbound:
    """A session and its inputs, run once; where values are no tensors of numbers, they cannot lie on the device beforehand."""

    def __init__(self, session: Session, feeds: Mapping[str, Array]) -> None:
        self._session, self._feeds = session, feeds
        self.run()

    def alone(self) -> AbstractContextManager[None]:
        """See `turns.alone`."""
        return alone(self._session.device)

    def run(self) -> None:
        """One run."""
        self._session.run(self._feeds)

    def seconds(self, runs: int) -> float:
        """The mean time of `runs` runs."""
        with self.alone():
            start = time.perf_counter()
            for _ in range(runs):
                self.run()
            return max(time.perf_counter() - start, 1e-9) / runs


class Bound:
    """A session whose inputs and outputs lie on the device, so that a run is the model's own work.

    An output of another shape than the model declares cannot be bound in advance. Where there is one, the outputs in `_free`,
    which are then all of them, are bound anew before each run and placed by ONNX Runtime.
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
        return alone(self._device)

    def _placed(self, array: Array) -> Any:
        with _failing(), alone(self._device):
            return value_of(array, self._device.memory, runtime())

    def _shapes(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs of a run outside the capture: a CUDA graph needs its buffers before its first run."""
        options = runtime().RunOptions()
        options.add_run_config_entry("gpu_graph_id", "-1")
        with _failing(), alone(self._device):
            values: list[Array] = self._session.run(list(outputs), dict(feeds), options)
        return values

    def run(self) -> None:
        """One run, finished on the device when this returns."""
        with _failing(), alone(self._device):
            self._run_once()

    def _run_once(self) -> None:
        for name in self._free:
            self._binding.bind_output(name, self._device.memory, 0)
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[Array]:
        """The values that the last run left in the outputs.

        Raises:
            InvalidModelError: one of them is no tensor.
        """
        with _failing():
            values = dict(zip(dict.fromkeys(self._names), self._binding.get_outputs(), strict=True))
            return [array_of(values[name]) for name in self._names]

    def seconds(self, runs: int) -> float:
        """The mean time of `runs` runs, each finished on the device before the next begins.

        Where the calling thread does all the work, the time is that thread's processor time: on an idle machine it is the time
        that passes, and on a busy one it leaves out the turns of other processes. No run options are passed: with any, ONNX
        Runtime makes a logger for each run, which takes 24 microseconds. A clock that has not moved counts as a nanosecond.
        """
        run, binding, now = self._session.run_with_iobinding, self._binding, self._now
        with _failing(), alone(self._device):
            start = now()
            if self._free:
                for _ in range(runs):
                    self._run_once()
            else:
                for _ in range(runs):
                    run(binding)
            return max(now() - start, 1e-9) / runs


def _is_as_declared(declared: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    """Whether an output has the shape that the model declares; only then does ONNX Runtime fill a buffer bound in advance."""
    pairs = zip(declared, shape, strict=False)
    return len(declared) == len(shape) and all(n == size for n, size in pairs if isinstance(n, int) and n >= 0)


def random_inputs(
    ports: Sequence[Port],
    seed: int = 0,
    *,
    sizes: Mapping[str, int] | None = None,
    high: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """A value for each input: floats are standard normal, integers lie in [0, high[name]) (0 and 1 without), booleans are even.

    A bound that is an `IndexRange` says where integers begin, and what a float input is everywhere.

    Texts are digits. Extents left open are taken from `sizes` and are 1 otherwise.

    Raises:
        InvalidModelError: an input is no tensor, or one of a type that numpy does not have.
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
    """Integers below `end`, and within what more it says where it is an `IndexRange`."""
    if not isinstance(end, IndexRange):
        return rng.integers(0, max(1, end), shape)
    if end.columns and shape and shape[-1] <= len(end.columns):
        return rng.integers(end.low, np.maximum(end.columns[: shape[-1]], end.low + 1), shape)
    return rng.integers(end.low, max(end.low + 1, int(end)), shape)


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether values of the type are floating-point numbers, bfloat16 included."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _dtype(type_text: str) -> np.dtype[Any]:
    """The numpy type behind ONNX Runtime's text for a type, `tensor(float)` say; that of objects if it has none."""
    chosen: DTypeLike = _DTYPES.get(type_text.removeprefix("tensor(").removesuffix(")"), object)
    return np.dtype(chosen)


def _port(arg: Any) -> Port:
    return port_of(arg.name, arg.type, arg.shape)


def port_of(name: str, kind: str, extents: Sequence[int | str | None]) -> Port:
    """The input of this name, ONNX Runtime's text for its type, and extents as ONNX Runtime tells them."""

    def extent(axis: int, given: int | str | None) -> int | str:
        if isinstance(given, int) and given >= 0:
            return given
        return f"{name}.{axis}" if is_unnamed(str(given or "")) else str(given)

    shape = tuple(extent(axis, given) for axis, given in enumerate(extents))
    dtype = _dtype(kind)
    return Port(name, dtype, shape, kind if dtype == _OBJECT else "")


def _source(model: Loadable, options: Any) -> str | bytes:
    """What a session is made of; the options say in which folder its other files are, where it has no path."""
    if isinstance(model, Placed):
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
