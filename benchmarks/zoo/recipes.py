"""How the models of the zoo are made: what defines one, what it takes, what writes it. No library is needed until then."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

Fill: TypeAlias = Literal["normal", "tokens", "ones"]
Exporter: TypeAlias = Literal["dynamo", "legacy"]


def seed(name: str) -> int:
    """The seed of a model's weights, which is its own whatever else is written before it."""
    return zlib.crc32(name.encode())


@dataclass(frozen=True)
class Input:
    """An example of an input: random numbers, random tokens or ones. A dimension that has a name stays open in the model."""

    fill: Fill
    shape: tuple[int | str, ...]
    name: str = ""

    @property
    def open_dimensions(self) -> dict[int, str]:
        return {axis: size for axis, size in enumerate(self.shape) if isinstance(size, str)}

    def __str__(self) -> str:
        return f"{self.fill}[{', '.join(map(str, self.shape))}]"


def normal(*shape: int | str, name: str = "") -> Input:
    return Input("normal", shape, name)


def tokens(*shape: int | str, name: str = "") -> Input:
    return Input("tokens", shape, name)


def ones(*shape: int | str, name: str = "") -> Input:
    return Input("ones", shape, name)


class Recipe(ABC):
    """A model that can be written to a file. What it prints as is what `scripts/zoo --list` says of it."""

    packages: ClassVar[tuple[str, ...]]
    """What must be importable for it to be written."""

    only_by_name: ClassVar[bool] = False
    """Whether it is left out unless its whole name is given."""

    @abstractmethod
    def write(self, name: str, target: Path) -> None:
        """The model is in the file afterwards; its external data, if it has any, is in the same folder."""


@dataclass(frozen=True)
class Exported(Recipe):
    """A torch module, exported. Inputs are named as the exporter names them, unless each has a name of its own."""

    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "onnx", "onnxscript")
    builder: str
    """The class or function that makes the module, as `module.name` in this package."""
    inputs: tuple[Input, ...]
    options: Mapping[str, int | bool | str | tuple[int, ...]] = field(default_factory=dict)
    """Keyword arguments of the builder."""
    exporter: Exporter = "dynamo"
    opset: int = 20
    outputs: tuple[str, ...] = ()
    calibrated: bool = False
    """Whether the statistics of batch normalization are those of a batch of random images."""

    def write(self, name: str, target: Path) -> None:
        from benchmarks.zoo.export import export

        export(self, seed(name), target)

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        inputs = _counted([str(each) for each in self.inputs])
        return f"{self.builder}({options}) of {inputs}, {self.exporter} exporter, opset {self.opset}"


def _counted(words: list[str]) -> str:
    """The words in order, each once, with the number of times that it stands there."""
    return ", ".join(f"{words.count(word)} x {word}" if words.count(word) > 1 else word for word in dict.fromkeys(words))


@dataclass(frozen=True)
class Quantized(Recipe):
    """A model of one image input with its weights and activations quantized to 8 bits, as pairs of Q and DQ nodes."""

    packages: ClassVar[tuple[str, ...]] = (*Exported.packages, "onnxruntime")
    name: str
    original: Exported

    def write(self, name: str, target: Path) -> None:
        from benchmarks.zoo.quantized import quantize

        quantize(self, seed(name), target)

    def __str__(self) -> str:
        return f"{self.name}, statically quantized, int8 weights per channel and uint8 activations, QDQ"


@dataclass(frozen=True)
class Trees(Recipe):
    """An ensemble of decision trees, fitted to random rows."""

    packages: ClassVar[tuple[str, ...]] = ("sklearn", "skl2onnx", "onnx", "numpy")
    ensemble: Literal["random forest", "gradient boosting"]
    trees: int
    depth: int
    batch: int

    def write(self, name: str, target: Path) -> None:
        from benchmarks.zoo.trees import fitted

        target.write_bytes(fitted(self, seed(name)).SerializeToString())

    def __str__(self) -> str:
        return f"{self.ensemble}, {self.trees} trees of depth {self.depth}, batch {self.batch}"


@dataclass(frozen=True)
class Standard(Recipe):
    """A model that the onnx package ships without its weights, with random ones."""

    packages: ClassVar[tuple[str, ...]] = ("onnx", "numpy")
    light: str

    def write(self, name: str, target: Path) -> None:
        from benchmarks.zoo.standard import weighted

        target.write_bytes(weighted(self.light, seed(name)).SerializeToString())

    def __str__(self) -> str:
        return f"light_{self.light} of the onnx package, with random weights"


@dataclass(frozen=True)
class Synthetic(Recipe):
    """Linear layers of equal width, whose weights are external data."""

    packages: ClassVar[tuple[str, ...]] = ("onnx", "numpy")
    only_by_name: ClassVar[bool] = True
    width: int
    layers: int
    batch: int = 1

    def write(self, name: str, target: Path) -> None:
        from benchmarks.zoo.synthetic import write

        write(self, seed(name), target)

    def __str__(self) -> str:
        size = 4e-9 * self.layers * self.width**2
        return f"{self.layers} linear layers of width {self.width}, {size:.1f} GB of external data; only when named in full"
