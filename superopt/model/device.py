"""Devices that sessions run on, and what ONNX Runtime is told of them: providers, their options, and their libraries."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from superopt.errors import ProviderError, RuntimeMissingError
from superopt.model.hardware import cpu_name, gpu_name

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
QUIET = 4
WITHOUT = "optimization.disable_specified_optimizers"
"""The session configuration entry that names optimizers to leave out, with semicolons between them."""
LOAD_CONFIG = "ORT_LOAD_CONFIG_FROM_MODEL"
"""The environment variable with which, at 1, sessions have the options that stand in the model, and no others."""


@functools.cache
def runtime() -> Any:
    """The onnxruntime module.

    Raises:
        RuntimeMissingError: it is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise RuntimeMissingError(
            "ONNX Runtime is not installed: pip install 'superopt[gpu]' (or 'superopt[cpu]', for the CPU alone)"
        ) from error
    return onnxruntime


@dataclass(frozen=True)
class Device:
    """Where sessions run: a provider, its number of CPU threads and, on CUDA, whether runs are replayed as a CUDA graph.

    On `tensorrt`, CUDA takes what TensorRT does not. `without` names ONNX Runtime's own optimizers that a session does without;
    with `portable`, it does without the last level of them, where the layouts are that one machine's processor prefers. With
    `nhwc`, CUDA's operators work on images whose channels stand last.
    """

    provider: str = "cpu"
    threads: int = 1
    cuda_graph: bool = False
    without: tuple[str, ...] = ()
    portable: bool = False
    nhwc: bool = False

    def __post_init__(self) -> None:
        if self.provider not in PROVIDERS:
            raise ProviderError(f"unknown provider {self.provider!r}: expected one of {', '.join(PROVIDERS)}")
        if self.cuda_graph and self.provider != "cuda":
            raise ProviderError("CUDA graphs require the provider cuda")
        if self.nhwc and self.provider != "cuda":
            raise ProviderError("the layout NHWC requires the provider cuda")
        available = runtime().get_available_providers()
        if PROVIDERS[self.provider] not in available:
            raise ProviderError(f"the installed ONNX Runtime has no provider {self.provider}; it has {', '.join(available)}")

    @property
    def memory(self) -> str:
        """What ONNX Runtime calls the device in a binding."""
        return "cpu" if self.provider == "cpu" else "cuda"

    @property
    def name(self) -> str:
        """The hardware's name."""
        return cpu_name() if self.provider == "cpu" else gpu_name()

    @property
    def identity(self) -> str:
        """Everything about the device and the runtime that a measured time depends on."""
        graph = "graph" if self.cuda_graph else "stream"
        rounding = ("no TF32",) if self.provider != "cpu" and _is_without_tf32() else ()
        layout = (*(("portable",) if self.portable else ()), *(("nhwc",) if self.nhwc else ()))
        settings = (*rounding, *layout, *self.without)
        return "|".join((self.name, self.provider, graph, str(self.threads), runtime().__version__, *settings))


def begins_with(device: Device, *, exact: bool = False, shown: bool = False) -> str:
    """The provider that is first offered the nodes of a session on the device; those after it take what it does not.

    TensorRT has no option that turns TF32 off for one session: where values are `exact`, CUDA's own kernels stand in for it,
    unless the environment variable NVIDIA_TF32_OVERRIDE=0 turns it off for the whole process. Nor does a graph that is written,
    or a trace, have the nodes that are in an engine: where they are to be `shown`, the CPU has what TensorRT would be given.
    """
    if device.provider != "tensorrt":
        return device.provider
    if shown:
        return "cpu"
    return "cuda" if exact and not _is_without_tf32() else "tensorrt"


def providers(device: Device, *, exact: bool = False, shown: bool = False) -> list[Any]:
    """The providers of a session on the device, as `onnxruntime.InferenceSession` takes them; see `begins_with`.

    Runs are replayed as a CUDA graph only where values are not `exact`: what is compared is not bound to one place.
    """
    cuda = {"use_tf32": "0" if exact else "1", "enable_cuda_graph": "1" if device.cuda_graph and not exact else "0"}
    if device.nhwc:
        cuda["prefer_nhwc"] = "1"
    order = ("tensorrt", "cuda", "cpu")
    first = order.index(begins_with(device, exact=exact, shown=shown))
    return [(PROVIDERS[name], cuda) if name == "cuda" else PROVIDERS[name] for name in order[first:]]


def _is_without_tf32() -> bool:
    """Whether the process has no TF32 at all: the CUDA libraries read this once, when they are loaded."""
    return os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"


@contextlib.contextmanager
def taken_from_the_program() -> Iterator[None]:
    """Sessions have the options that they are given: with `LOAD_CONFIG`, ONNX Runtime would take those of the model alone."""
    before = os.environ.pop(LOAD_CONFIG, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[LOAD_CONFIG] = before


@contextlib.contextmanager
def silenced(device: Device) -> Iterator[None]:
    """No output from loading the libraries of a GPU: whether they could be loaded is asked afterwards."""
    if device.provider == "cpu":
        yield
        return
    ort = runtime()
    _preload_cuda()
    if device.provider == "tensorrt":
        _preload_tensorrt()
    ort.set_default_logger_severity(QUIET)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        ort.set_default_logger_severity(2)


@functools.cache
def _preload_cuda() -> None:
    """Loads the CUDA and cuDNN libraries that pip installed, where this version of ONNX Runtime can."""
    preload = getattr(runtime(), "preload_dlls", None)
    if preload is not None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
            preload()


@functools.cache
def _preload_tensorrt() -> None:
    """Loads the TensorRT libraries that pip installed, which its own module does."""
    with contextlib.suppress(Exception):
        importlib.import_module("tensorrt")
