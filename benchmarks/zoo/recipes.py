"""Recipes for the models of the zoo. A recipe has the parameters of a model, and writes the model to a file.

The libraries that a model needs are imported only when the model is written.
"""

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
    """Return the seed of a model's weights. The seed depends only on the name of the model."""
    return zlib.crc32(name.encode())


@dataclass(frozen=True)
class Input:
    """An example of an input: random numbers, random tokens or ones. A dimension with a name is dynamic in the model."""

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
    """A model that can be written to a file. `scripts/zoo --list` prints the recipe as text."""

    packages: ClassVar[tuple[str, ...]]
    """The packages that are needed to write the model."""

    only_by_name: ClassVar[bool] = False
    """Whether the model is left out unless its full name is given."""

    @abstractmethod
    def write(self, name: str, target: Path) -> None:
        """Write the model to the file, and external data, if there is any, to the same folder."""


@dataclass(frozen=True)
class Exported(Recipe):
    """An exported torch module. If an input has no name, the exporter names all inputs."""

    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "onnx", "onnxscript")
    builder: str
    """The class or function that creates the module, as `module.attribute` of this package."""
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
    """Return the distinct words in order. If a word occurs several times, the number of times precedes the word."""
    return ", ".join(f"{words.count(word)} x {word}" if words.count(word) > 1 else word for word in dict.fromkeys(words))


@dataclass(frozen=True)
class Quantized(Recipe):
    """A model with one image input, and with weights and activations of 8 bits.

    Pairs of QuantizeLinear and DequantizeLinear nodes represent the quantization.
    """

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
    """A model that the onnx package ships without weights. The weights are random."""

    packages: ClassVar[tuple[str, ...]] = ("onnx", "numpy")
    light: str

    def write(self, name: str, target: Path) -> None:
        from benchmarks.zoo.standard import weighted

        target.write_bytes(weighted(self.light, seed(name)).SerializeToString())

    def __str__(self) -> str:
        return f"light_{self.light} of the onnx package, with random weights"


@dataclass(frozen=True)
class Synthetic(Recipe):
    """Linear layers of equal width. The weights are external data."""

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
