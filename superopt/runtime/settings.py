"""ONNX Runtime session settings for the choices that tuning tries, such as `prefer_nhwc=1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from superopt.runtime.device import WITHOUT, Device

LEVEL, THREADS = "graph_optimization_level", "intra_op_num_threads"
"""The names of the session options that a tuning choice may set."""
NHWC, GRAPH, CONV_SEARCH = "prefer_nhwc", "enable_cuda_graph", "cudnn_conv_algo_search"
"""The names of the options of the CUDA provider that a tuning choice may set."""
EXTENDED = 2
"""ONNX Runtime's number for the optimization level `ORT_ENABLE_EXTENDED`.

Unlike the highest level, this level uses no memory layouts that are specific to the processor of the current machine.
"""


@dataclass(frozen=True)
class Settings:
    """Session settings that differ from the defaults.

    Attributes:
        entries: session configuration entries, by key.
        options: session options, by the names of the attributes of `onnxruntime.SessionOptions`.
        provider_options: options of the CUDA provider.
    """

    entries: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)
    provider_options: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether there are any settings."""
        return bool(self.entries or self.options or self.provider_options)

    def __str__(self) -> str:
        """Return all settings as text, each in the form `name=value`."""
        every = {**self.entries, **self.options, **self.provider_options}
        return ", ".join(f"{name}={value}" for name, value in every.items())


def settings(choices: Sequence[str]) -> Settings:
    """Return the session settings for these tuning choices.

    A choice is the name of an ONNX Runtime optimizer to switch off, or `option=value` to set an option.
    """
    values = _values(choices)
    without = [choice for choice in choices if "=" not in choice]
    return Settings(
        {WITHOUT: ";".join(without)} if without else {},
        {name: int(value) for name, value in values.items() if name in (LEVEL, THREADS)},
        {name: value for name, value in values.items() if name in (NHWC, GRAPH, CONV_SEARCH)},
    )


def with_choices(device: Device, choices: Sequence[str]) -> Device:
    """Return a copy of the device. Sessions on this copy use the tuning choices in `choices`.

    A choice is the name of an ONNX Runtime optimizer to switch off, or `option=value` to set an option. The copy switches off
    the optimizers in `choices` and no other optimizer. An optimizer that only `device` switches off is on in the copy.

    Raises:
        ProviderError: a choice requires a different execution provider.
    """
    values = _values(choices)
    return replace(
        device,
        without=tuple(choice for choice in choices if "=" not in choice),
        threads=int(values.get(THREADS, device.threads)),
        portable=device.portable or LEVEL in values,
        nhwc=device.nhwc or NHWC in values,
        cuda_graph=device.cuda_graph or GRAPH in values,
        conv_search=values.get(CONV_SEARCH, device.conv_search),
    )


def _values(choices: Sequence[str]) -> dict[str, str]:
    return dict(choice.split("=", 1) for choice in choices if "=" in choice)
