"""The devices on which sessions run, with the execution providers, provider options and libraries for each device."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from superopt.child.process import LOAD_CONFIG
from superopt.errors import ProviderError, RuntimeMissingError
from superopt.runtime.hardware import cpu_name, gpu_name

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
QUIET = 4
WITHOUT = "optimization.disable_specified_optimizers"
"""The session configuration entry that lists the optimizers to switch off, separated by semicolons."""


@functools.cache
def runtime() -> Any:
    """Return the onnxruntime module.

    Raises:
        RuntimeMissingError: ONNX Runtime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise RuntimeMissingError(
            "ONNX Runtime is not installed: run `pip install 'superopt[gpu]'`, "
            "or `pip install 'superopt[cpu]'` for the CPU only"
        ) from error
    return onnxruntime


@dataclass(frozen=True)
class Device:
    """A device for sessions, with options for these sessions.

    Attributes:
        provider: `cpu`, `cuda` or `tensorrt`. With `tensorrt`, CUDA runs the nodes that TensorRT does not support.
        threads: the number of CPU threads.
        cuda_graph: whether runs are replayed as a CUDA graph. Requires the provider `cuda`.
        without: the names of ONNX Runtime's own optimizers to switch off.
        portable: whether to switch off the highest optimization level. This level uses memory layouts for the processor of the
            current machine.
        nhwc: whether CUDA's image operators use the channels-last layout. Requires the provider `cuda`.
        conv_search: the way in which cuDNN chooses the algorithm of a convolution. `EXHAUSTIVE` times all algorithms,
            `HEURISTIC` uses a heuristic, and `DEFAULT` always uses the default algorithm. An empty text means ONNX Runtime's
            default, which is `EXHAUSTIVE`. Requires the provider `cuda`.
        libraries: the paths of libraries of generated kernels that sessions register.
    """

    provider: str = "cpu"
    threads: int = 1
    cuda_graph: bool = False
    without: tuple[str, ...] = ()
    portable: bool = False
    nhwc: bool = False
    conv_search: str = ""
    libraries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.provider not in PROVIDERS:
            raise ProviderError(f"unknown provider {self.provider!r}: expected one of {', '.join(PROVIDERS)}")
        if self.cuda_graph and self.provider != "cuda":
            raise ProviderError("CUDA graphs require the provider cuda")
        if self.nhwc and self.provider != "cuda":
            raise ProviderError("the layout NHWC requires the provider cuda")
        if self.conv_search and self.provider != "cuda":
            raise ProviderError("cudnn_conv_algo_search requires the provider cuda")
        available = runtime().get_available_providers()
        if PROVIDERS[self.provider] not in available:
            raise ProviderError(
                f"the installed ONNX Runtime has no provider {self.provider}; its providers are {', '.join(available)}"
            )

    @property
    def one_thread(self) -> Device:
        """The same device with one thread.

        Models that may fail are run on this device, because ONNX Runtime may end the process if a node fails in one of several
        threads. The model silero_vad_half of `scripts/wild` is an example (ONNX Runtime 1.31.1).
        """
        return replace(self, threads=1)

    @property
    def memory(self) -> str:
        """The name of the device's memory in ONNX Runtime's I/O binding: `cpu` or `cuda`."""
        return "cpu" if self.provider == "cpu" else "cuda"

    @property
    def name(self) -> str:
        """The name of the processor or GPU."""
        return cpu_name() if self.provider == "cpu" else gpu_name()

    @property
    def identity(self) -> str:
        """A key for measured times. The key contains the device's name and options, and the version of ONNX Runtime."""
        graph = "graph" if self.cuda_graph else "stream"
        rounding = ("no TF32",) if self.provider != "cpu" and _is_without_tf32() else ()
        layout = (
            *(("portable",) if self.portable else ()),
            *(("nhwc",) if self.nhwc else ()),
            *filter(None, [self.conv_search]),
        )
        settings = (*rounding, *layout, *self.without, *(Path(library).stem for library in self.libraries))
        return "|".join((self.name, self.provider, graph, str(self.threads), runtime().__version__, *settings))


def first_provider(device: Device, *, exact: bool = False, shown: bool = False) -> str:
    """Return the execution provider that a session on the device prefers for all nodes.

    The result is the device's provider, with two exceptions for TensorRT. If `exact` is True, the result is `cuda`, because
    TensorRT has no option that turns TF32 off for one session. This exception does not apply if the environment variable
    NVIDIA_TF32_OVERRIDE=0 turns TF32 off for the whole process. If `shown` is True, the result is `cpu`, because a saved graph
    or a trace does not contain the nodes inside a TensorRT engine.

    Args:
        device: the device.
        exact: whether the session must compute without TF32.
        shown: whether a saved graph or a trace must contain the session's nodes.
    """
    if device.provider != "tensorrt":
        return device.provider
    if shown:
        return "cpu"
    return "cuda" if exact and not _is_without_tf32() else "tensorrt"


def providers(device: Device, *, exact: bool = False, shown: bool = False) -> list[str | tuple[str, dict[str, str]]]:
    """Return the execution providers of a session on the device, in the form that `onnxruntime.InferenceSession` takes.

    `exact` and `shown` are as in `first_provider`. If `exact` is True, CUDA graphs are off. A CUDA graph requires inputs and
    outputs at fixed addresses. A session whose values are compared uses new addresses in each run.
    """
    cuda = {"use_tf32": "0" if exact else "1", "enable_cuda_graph": "1" if device.cuda_graph and not exact else "0"}
    if device.nhwc:
        cuda["prefer_nhwc"] = "1"
    if device.conv_search:
        cuda["cudnn_conv_algo_search"] = device.conv_search
    order = ("tensorrt", "cuda", "cpu")
    first = order.index(first_provider(device, exact=exact, shown=shown))
    return [(PROVIDERS[name], cuda) if name == "cuda" else PROVIDERS[name] for name in order[first:]]


def _is_without_tf32() -> bool:
    """Return whether the environment variable NVIDIA_TF32_OVERRIDE turns TF32 off for the whole process.

    The CUDA libraries read the variable once, when the libraries are loaded.
    """
    return os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"


@contextlib.contextmanager
def ignore_model_options() -> Iterator[None]:
    """Ensure that new sessions use the caller's options, and not options from the model, while the context is open.

    If the environment variable named by `LOAD_CONFIG` is 1, ONNX Runtime uses only the options in the model. So the variable is
    removed while the context is open.
    """
    before = os.environ.pop(LOAD_CONFIG, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[LOAD_CONFIG] = before


@contextlib.contextmanager
def silence_gpu_libraries(device: Device) -> Iterator[None]:
    """Load the device's GPU libraries, and suppress warnings and log output while the context is open.

    No error is raised if the libraries cannot be loaded. Callers check afterwards whether the session uses the GPU. For a CPU
    device, the context does nothing.
    """
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
    """Load the CUDA and cuDNN libraries that pip installed, if this version of ONNX Runtime has `preload_dlls`."""
    preload = getattr(runtime(), "preload_dlls", None)
    if preload is not None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
            preload()


@functools.cache
def _preload_tensorrt() -> None:
    """Load the TensorRT libraries that pip installed, by importing the Python module of TensorRT."""
    with contextlib.suppress(Exception):
        importlib.import_module("tensorrt")
