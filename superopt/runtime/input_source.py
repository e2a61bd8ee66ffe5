"""Sources of the values of a model's inputs: the user's examples, the user's fixed values, or random values within bounds."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import ModelProto

from superopt.protobuf.normalization import Normalization, denormalized, normalizations
from superopt.runtime.bounds import IndexRange, index_bounds
from superopt.runtime.session import Array, Port, is_floating, random_inputs

Example = Mapping[str, Array]
"""Values of a model's inputs that the user gave, by the name of the input. Inputs may be missing."""


@dataclass(frozen=True)
class InputSource:
    """The examples and fixed inputs that the user gave, and bounds for integers that are drawn at random.

    Attributes:
        bounds: The bounds of integer inputs, in the form that `random_inputs` takes.
        examples: The examples. An example is used if its arrays have the current sizes of the dynamic dimensions.
        fixed: The values of the inputs that the user fixed.
        fixed_sizes: The sizes of the dynamic dimensions that the user fixed, by the keys of `dynamic_dimension_keys`.
        normalized: A mapping from the names of inputs to the normalizations that the model applies to these inputs.
    """

    bounds: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    fixed: Example = field(default_factory=dict)
    fixed_sizes: Mapping[str, int] = field(default_factory=dict)
    normalized: Mapping[str, Normalization] = field(default_factory=dict)

    def bounded(self, model: ModelProto) -> InputSource:
        """Return a copy of the source with the bounds of the model's integer inputs, and with the model's normalizations.

        The bounds follow from the model. If the model implies no bounds for an integer input, the bounds are the smallest and
        largest values of this input in the examples.
        """
        return replace(self, bounds={**_ranges(self.examples), **index_bounds(model)}, normalized=normalizations(model))

    @functools.cached_property
    def digest(self) -> str:
        """A digest of examples and fixed inputs, or an empty text if there are none.

        The bounds are not included, because the model and the code determine the bounds.
        """
        if not (self.examples or self.fixed or self.fixed_sizes):
            return ""
        digest = hashlib.blake2b(repr(sorted(self.fixed_sizes.items())).encode(), digest_size=16)
        for example in (self.fixed, *self.examples):
            for name, value in sorted(example.items()):
                digest.update(f"{name} {value.dtype} {value.shape}".encode())
                digest.update(value.tobytes() if value.dtype != object else repr(value.tolist()).encode())
        return digest.hexdigest()

    def fixed_ports(self, ports: Sequence[Port]) -> tuple[Port, ...]:
        """Insert the fixed sizes into the shapes of the inputs, and return the inputs."""

        def fixed(port: Port, axis: int, extent: int | str) -> int | str:
            own = self.fixed_sizes.get(f"{port.name}[{axis}]", self.fixed_sizes.get(str(extent), extent))
            return extent if isinstance(extent, int) else own

        return tuple(replace(p, shape=tuple(fixed(p, axis, n) for axis, n in enumerate(p.shape))) for p in ports)

    def fitting(self, ports: Sequence[Port], sizes: Mapping[str, int] | None) -> list[Example]:
        """Return the examples whose arrays have the shapes of the inputs at these sizes of the dynamic dimensions."""
        shapes = {port.name: port.concrete(sizes or {}) for port in ports}
        return [e for e in self.examples if all(value.shape == shapes.get(name) for name, value in e.items())]

    def values(self, ports: Sequence[Port], seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
        """Return values for all inputs. If an example fits, its values are used. All other values are random.

        Raises:
            InvalidModelError: See `random_inputs`.
        """
        fitting = self.fitting(ports, sizes)
        return self._with(fitting[seed % len(fitting)] if fitting else {}, ports, seed, sizes)

    def drawn(self, ports: Sequence[Port], seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
        """Return random values for all inputs.

        If the arrays of an example have the types and shapes of the inputs, the example's integers, booleans and strings
        replace the random values.

        Raises:
            InvalidModelError: See `random_inputs`.
        """
        fitting = self.fitting(ports, sizes)
        example = fitting[seed % len(fitting)] if fitting else {}
        return self._with({n: v for n, v in example.items() if not is_floating(v.dtype)}, ports, seed, sizes)

    def denormalized(self, feeds: Example) -> dict[str, Array]:
        """Apply the inverse of the model's normalization to the value of each normalized input, and return all inputs.

        If the model has input `x` and begins with `(x - mean) / std`, the value `n` of `x` becomes `n * std + mean`.
        """
        return {name: denormalized(self.normalized, name, value) for name, value in feeds.items()}

    def _with(self, known: Example, ports: Sequence[Port], seed: int, sizes: Mapping[str, int] | None) -> dict[str, Array]:
        known = {**known, **self.fixed}
        open_ports = [port for port in ports if port.name not in known]
        return {**random_inputs(open_ports, seed, sizes=sizes, high=self.bounds), **known}


DRAWN = InputSource()
"""The source without examples, bounds or fixed inputs."""


def _ranges(examples: Sequence[Example]) -> dict[str, int]:
    """Return the range of the values of each integer input in the examples, by the name of the input."""
    found: dict[str, IndexRange] = {}
    for example in examples:
        for name, value in example.items():
            if value.dtype.kind in "iu" and value.size:
                low, high = int(value.min()), int(value.max()) + 1
                known = found.get(name)
                found[name] = IndexRange(high, low) if known is None else IndexRange(max(high, known), min(low, known.low))
    return {**found}
