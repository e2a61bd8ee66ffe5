"""Device profiles: files with a device's roofline and measured node times, for use on other machines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from superopt.cost.demand import demand
from superopt.cost.roofline import Roofline, finite_positive
from superopt.errors import ProfileError, SuperoptError
from superopt.files import write_text_atomically
from superopt.runtime.cache import Cache, Json, json_digest, json_list, json_object, text_of
from superopt.runtime.kernel import KernelTiming
from superopt.runtime.session import PROVIDERS, Device, runtime

FORMAT = "superopt device profile"
VERSION = 1


@dataclass(frozen=True)
class MeasuredNode:
    """A node with its measured time.

    Attributes:
        signature: The node's operator, attributes and inputs (`Kernel.signature`).
        cold: Whether the node's weights were in no cache.
        timing: The measured time, and the types and shapes of the node's outputs.
    """

    signature: Sequence[Json]
    cold: bool
    timing: KernelTiming

    @property
    def text(self) -> str:
        """The line for this node in the profile's file. The lines of nodes are sorted."""
        return text_of([self.signature, self.cold, *self.timing.as_json()])


@dataclass(frozen=True)
class DeviceProfile:
    """The measured speed of a device, which may be on another machine.

    `identity` is the device's `Device.identity`, which contains everything on which times depend. `versions` contains the
    software versions.
    """

    name: str
    provider: str
    threads: int
    identity: str
    versions: Mapping[str, str]
    roofline: Roofline
    kernels: tuple[MeasuredNode, ...]

    @property
    def text(self) -> str:
        """The profile as a JSON object with one node per line."""
        head = {
            "format": FORMAT,
            "version": VERSION,
            "device": {"name": self.name, "provider": self.provider, "threads": self.threads, "identity": self.identity},
            "versions": dict(sorted(self.versions.items())),
            "roofline": self.roofline.as_json(),
        }
        lines = [f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in head.items()]
        kernels = ",\n".join(known.text for known in self.kernels)
        return "{\n" + ",\n".join([*lines, f'"kernels": [\n{kernels}\n]']) + "\n}\n"

    @property
    def digest(self) -> str:
        """A digest of all data on which predicted times depend."""
        return json_digest(self.text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile to the file at `path`.

        Raises:
            TargetError: the file cannot be written. An existing file is not changed.
        """
        write_text_atomically(self.text, path)

    def store(self, cache: Cache) -> None:
        """Add the profile's times to the cache. If the cache already contains the time of a node, this time does not change."""
        cache.put(["roofline", self.identity], self.roofline.as_json())
        cache.put(["overhead", self.identity], [self.roofline.call, self.roofline.node])
        for known in self.kernels:
            key: list[Json] = ["kernel", self.identity, known.cold, known.signature]
            if cache.get(key) is None:
                cache.put(key, known.timing.as_json())


def build_profile(device: Device, roofline: Roofline, cache: Cache) -> DeviceProfile:
    """Return the profile of a device of this machine. The profile contains all node times in the cache for the device."""
    times = ((key, value) for key, value in cache.entries("kernel") if key[1] == device.identity)
    kernels = _ordered(MeasuredNode(json_list(key[3]), key[2] is True, KernelTiming.of_json(value)) for key, value in times)
    versions = {"onnxruntime": runtime().__version__}
    return DeviceProfile(device.name, device.provider, device.threads, device.identity, versions, roofline, kernels)


def read_profile(path: str | os.PathLike[str]) -> DeviceProfile:
    """Read the device profile in the file at `path`.

    Raises:
        ProfileError: the file does not exist, or is not a complete profile of this version of the format.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or 'the file cannot be read'}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not a device profile (the file is not text)") from error
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: not a device profile, or a truncated device profile (the file is not JSON)") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ProfileError(f"{path}: not a device profile (`superopt profile --export` writes device profiles)")
    if value.get("version") != VERSION:
        raise ProfileError(
            f"{path}: the device profile has version {value.get('version')!r}, but this superopt reads version {VERSION}"
        )
    try:
        return _of_json(value)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, SuperoptError) as error:
        raise ProfileError(f"{path}: the device profile is damaged ({error})") from error


def _of_json(value: Mapping[str, Json]) -> DeviceProfile:
    device = json_object(value["device"])
    name, provider, identity = (_text(device[key]) for key in ("name", "provider", "identity"))
    if provider not in PROVIDERS:
        raise ValueError(f"unknown provider {provider!r}")
    versions = {package: _text(version) for package, version in json_object(value["versions"]).items()}
    kernels = _ordered(_known(json_list(value["kernels"])))
    return DeviceProfile(
        name,
        provider,
        int(finite_positive(device["threads"])),
        identity,
        versions,
        Roofline.of_json(value["roofline"]),
        kernels,
    )


def _ordered(kernels: Iterable[MeasuredNode]) -> tuple[MeasuredNode, ...]:
    return tuple(sorted(kernels, key=lambda known: known.text))


def _known(values: Iterable[Json]) -> Iterable[MeasuredNode]:
    for signature, cold, seconds, outputs in map(json_list, values):
        if not isinstance(cold, bool):
            raise TypeError("the entry of a node does not say whether the node's weights were in a cache")
        known = MeasuredNode(json_list(signature), cold, KernelTiming.of_json([finite_positive(seconds, zero=True), outputs]))
        demand(known.signature, known.timing.outputs)
        yield known


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"the profile has {value!r} where a text is expected")
    return value
