"""Where the values of a model's inputs come from: given by the user, or drawn at random within bounds."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx import ModelProto

from superopt.runtime.bounds import IndexRange, index_bounds
from superopt.runtime.session import Array, Port, is_floating, random_inputs

Example = Mapping[str, Array]
"""Values of a model's inputs that the user gave, by the name of the input. Inputs may be missing."""


@dataclass(frozen=True)
class InputSource:
    """The examples that the user gave, and bounds for integers that are drawn at random.

    Attributes:
        bounds: The bounds of integer inputs, as `random_inputs` takes them.
        examples: The examples. An example is used where the sizes of the dynamic dimensions are those of its arrays.
    """

    bounds: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()

    @classmethod
    def of(cls, model: ModelProto, examples: Sequence[Example] = ()) -> InputSource:
        """Return the source for a model. Integers that only examples bound are drawn from the range of the examples."""
        return cls({**_ranges(examples), **index_bounds(model)}, tuple(examples))

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the examples, or an empty text if there are none. The model and the code determine the bounds."""
        digest = hashlib.blake2b(digest_size=16)
        for example in self.examples:
            for name, value in sorted(example.items()):
                digest.update(f"{name} {value.dtype} {value.shape}".encode())
                digest.update(value.tobytes() if value.dtype != object else repr(value.tolist()).encode())
        return digest.hexdigest() if self.examples else ""

    def fitting(self, ports: Sequence[Port], sizes: Mapping[str, int] | None) -> list[Example]:
        """Return the examples whose arrays have the shapes of the inputs at these sizes of the dynamic dimensions."""
        shapes = {port.name: port.concrete(sizes or {}) for port in ports}
        return [e for e in self.examples if all(value.shape == shapes.get(name) for name, value in e.items())]

    def values(self, ports: Sequence[Port], seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
        """Return values for all inputs: those of a fitting example if there is one, and random values otherwise.

        Raises:
            InvalidModelError: As `random_inputs`.
        """
        fitting = self.fitting(ports, sizes)
        return self._with(fitting[seed % len(fitting)] if fitting else {}, ports, seed, sizes)

    def drawn(self, ports: Sequence[Port], seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
        """Return random values for all inputs. Only floats are random where an example fits; its other values are kept.

        Raises:
            InvalidModelError: As `random_inputs`.
        """
        fitting = self.fitting(ports, sizes)
        example = fitting[seed % len(fitting)] if fitting else {}
        return self._with({n: v for n, v in example.items() if not is_floating(v.dtype)}, ports, seed, sizes)

    def _with(self, known: Example, ports: Sequence[Port], seed: int, sizes: Mapping[str, int] | None) -> dict[str, Array]:
        open_ports = [port for port in ports if port.name not in known]
        return {**random_inputs(open_ports, seed, sizes=sizes, high=self.bounds), **known}


DRAWN = InputSource()
"""The source without examples and bounds."""


def _ranges(examples: Sequence[Example]) -> dict[str, int]:
    """Return, by name, the range of the integers that the examples have for an input."""
    found: dict[str, IndexRange] = {}
    for example in examples:
        for name, value in example.items():
            if value.dtype.kind in "iu" and value.size:
                low, high = int(value.min()), int(value.max()) + 1
                known = found.get(name)
                found[name] = IndexRange(high, low) if known is None else IndexRange(max(high, known), min(low, known.low))
    return {**found}
