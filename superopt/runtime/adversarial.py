"""Adversarial input values: masks, infinities, NaN, extreme numbers and constant rows.

On such values, a rewrite that is correct for real numbers may fail in floating-point arithmetic.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto

from superopt.policy import CHECK
from superopt.protobuf.graphs import all_graphs
from superopt.runtime.input_source import InputSource
from superopt.runtime.rounding import largest_of
from superopt.runtime.session import Array, Port, is_floating

_WINDOWED = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"})


@dataclass(frozen=True)
class _Magnitudes:
    """Special magnitudes of a floating-point type.

    Attributes:
        huge: a number whose square overflows.
        tiny: a number whose square underflows.
        denormal: a subnormal number.
        mixed: a factor such that numbers between `1 / mixed` and `mixed` have finite sums.
        mask: the value with which models usually mask elements.
        lowest: the lowest finite number.
    """

    huge: float
    tiny: float
    denormal: float
    mixed: float
    mask: float
    lowest: float


_HALF = _Magnitudes(1e3, 1e-5, 3e-7, 1e2, -1e4, float(np.finfo(np.float16).min))
_SINGLE = _Magnitudes(1e25, 1e-25, 1e-40, 1e6, -1e9, float(np.finfo(np.float32).min))
_BRAIN = replace(_SINGLE, lowest=-largest_of(np.dtype(ml_dtypes.bfloat16)))
_DOUBLE = _Magnitudes(1e200, 1e-200, 1e-310, 1e6, -1e9, float(np.finfo(np.float64).min))


@dataclass(frozen=True)
class _Draw:
    """The data from which a `_Change` computes adversarial values for one input.

    Attributes:
        rng: the random generator.
        of: the special magnitudes of the input's type.
        apart: the shape of the array of random numbers to draw. The array has one number for each element of the input or, for
            an image, one number for each plane.
    """

    rng: np.random.Generator
    of: _Magnitudes
    apart: tuple[int, ...]


_Change = Callable[[Array, _Draw], Array]
"""A function that maps ordinary values of one input to adversarial values, in float64."""


@dataclass(frozen=True)
class InputValues:
    """A named set of values for all inputs of a model. The function `make` computes the values."""

    name: str
    make: Callable[[], dict[str, Array]]


def image_inputs(model: ModelProto) -> frozenset[str]:
    """Return the names of the inputs whose adversarial values have equal magnitudes at all pixels of a plane (one channel of an
    image).

    A convolution or pooling reads these inputs, directly or through other operators. Kernels for these operators compute whole
    tiles of pixels at once, so an extreme pixel can change neighbouring outputs. For this reason, `adversarial_values` gives
    all pixels of a plane the same magnitude.
    """
    found: set[str] = set()
    for graph in all_graphs(model):
        reached: set[str] = set()
        for node in reversed(graph.node):
            if node.op_type in _WINDOWED:
                reached.update(node.input[:1])
            elif reached.intersection(node.output):
                reached.update(node.input)
        found |= reached
    return frozenset(port.name for port in model.graph.input if port.name in found)


def adversarial_values(
    ports: Sequence[Port],
    seed: int,
    sizes: Mapping[str, int] | None,
    source: InputSource,
    windowed: frozenset[str] = frozenset(),
    numbers: frozenset[str] = frozenset(),
    constants: Sequence[int] = (),
) -> list[InputValues]:
    """Return sets of adversarial values for all inputs, the most significant first.

    The model may compute with the elements of an integer input as plain numbers (see `number_inputs`). In the first sets, these
    integer inputs have small, large and negative values, and values near the integer constants of the model. In the later sets,
    these integer inputs have the values of masks. All other integer and boolean inputs are treated as masks or indices. Each
    set has one of four patterns of masks and indices: all elements are 0, one row is 0, all elements have the largest value, or
    all elements are random.

    Args:
        ports: the inputs.
        seed: the seed of the values.
        sizes: the sizes of dynamic dimensions.
        source: the source of the bounds of integers, and of the values from which adversarial values are made.
        windowed: the names of the inputs that are images (see `image_inputs`).
        numbers: the names of the integer inputs whose elements are plain numbers (see `number_inputs`).
        constants: the integers in the model.
    """
    floats = [port.name for port in ports if is_floating(port.dtype)]
    kinds: list[tuple[str, dict[str, _Change], str]]
    if not floats:
        some = any(port.dtype.kind in "iub" for port in ports)
        kinds = [(switch, {}, switch) for switch in ("all off", "one row off", "all on") if some]
    else:
        kinds = [(name, change, switch) for (name, change), switch in zip(_changes(floats), itertools.cycle(_SWITCHES))]

    def make(number: int, change: Mapping[str, _Change], switch: str) -> dict[str, Array]:
        rng = np.random.default_rng([seed, number])
        feeds = source.drawn(ports, seed + number, sizes)
        for name, value in feeds.items():
            if is_floating(value.dtype) and name in change:
                apart = tuple(1 if name in windowed and axis > 1 else extent for axis, extent in enumerate(value.shape))
                of = {"float16": _HALF, "bfloat16": _BRAIN, "float64": _DOUBLE}.get(value.dtype.name, _SINGLE)
                with np.errstate(all="ignore"):
                    feeds[name] = change[name](value.astype(np.float64), _Draw(rng, of, apart)).astype(value.dtype)
            elif value.dtype.kind in "iub" and value.size:
                feeds[name] = _SWITCHES[switch](value, max(1, source.bounds.get(name, 2) - 1))
        return {**feeds, **source.fixed}

    def counted(number: int, draw: _Integers) -> dict[str, Array]:
        rng = np.random.default_rng([seed, len(kinds) + number])
        feeds = source.drawn(ports, seed + number, sizes)
        drawn = {name: _fitting(draw(rng, value.shape), value.dtype) for name, value in feeds.items() if name in numbers}
        return {**feeds, **drawn, **source.fixed}

    near = [one + step for one in constants for step in (-1, 0, 1)]
    ways: dict[str, _Integers] = {
        "integers up to 10": lambda rng, shape: rng.integers(0, 11, shape),
        "integers up to 1000": lambda rng, shape: rng.integers(-1000, 1001, shape),
        **({"integers of the model": lambda rng, shape: rng.choice(near, shape)} if near else {}),
    }
    return [
        *(InputValues(name, functools.partial(counted, n, draw)) for n, (name, draw) in enumerate(ways.items()) if numbers),
        *(
            InputValues(name, functools.partial(make, number, change, switch))
            for number, (name, change, switch) in enumerate(kinds)
        ),
    ]


_Integers = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""A function that draws an array of integers of the given shape."""


def _fitting(integers: Array, dtype: np.dtype[Any]) -> Array:
    """Return the integers as an array of the type `dtype`.

    An integer outside the range of `dtype` is replaced by the nearest integer in the range.
    """
    limits, wide = np.iinfo(dtype), np.iinfo(np.int64)
    return np.asarray(np.clip(integers, max(limits.min, wide.min), min(limits.max, wide.max)), dtype)


def _one_row_off(value: Array, last: int) -> Array:  # noqa: ARG001
    """Set the middle slice along each axis to 0 in a copy of the array, and return the copy."""
    off = value.copy()
    for axis in range(value.ndim):
        off[(slice(None),) * axis + (value.shape[axis] // 2,)] = 0
    return off


_SWITCHES: dict[str, Callable[[Array, int], Array]] = {
    "all off": lambda value, last: np.zeros_like(value),  # noqa: ARG005
    "one row off": _one_row_off,
    "all on": np.full_like,
    "random": lambda value, last: value,  # noqa: ARG005
}
"""Changes to masks and indices, by name. `off` means the element 0, and `on` means the largest element, such as the last index.
"""


def _changes(floats: Sequence[str]) -> Iterator[tuple[str, dict[str, _Change]]]:
    """Yield named changes to the floating-point inputs. Changes to all inputs alternate with changes to one input."""
    together = [(name, dict.fromkeys(floats, change)) for name, change in _TOGETHER.items()]
    alone = [
        (f"{name} in {port}", {port: change})
        for name, change in _ALONE.items()
        for port in floats[: CHECK.max_inputs_changed_alone]
        if len(floats) > 1 or name not in _TOGETHER
    ]
    for pair in itertools.zip_longest(together, alone):
        yield from (change for change in pair if change is not None)


def _masked(choose: Callable[[_Magnitudes], float]) -> _Change:
    return lambda value, draw: np.where(draw.rng.random(draw.apart) < CHECK.masked_share, choose(draw.of), value)


def _scaled(choose: Callable[[_Magnitudes], float]) -> _Change:
    return lambda value, draw: np.asarray(value * choose(draw.of))


def _one(odd: float) -> _Change:
    def change(value: Array, draw: _Draw) -> Array:
        if value.size:
            value.flat[draw.rng.integers(value.size)] = odd
        return value

    return change


def _mixed(value: Array, draw: _Draw) -> Array:
    return np.asarray(value * draw.of.mixed ** draw.rng.uniform(-1, 1, draw.apart))


def _mixed_rows(value: Array, draw: _Draw) -> Array:
    return np.asarray(value * draw.of.mixed ** draw.rng.uniform(-1, 1, value.shape[:1] + (1,) * (value.ndim - 1)))


def _half_zero(value: Array, draw: _Draw) -> Array:
    return np.where(draw.rng.random(value.shape) < 1 / 2, np.copysign(0.0, value), value)


def _constant_rows(value: Array, draw: _Draw) -> Array:  # noqa: ARG001
    return np.broadcast_to(value[..., :1], value.shape) if value.ndim else value


_TOGETHER: dict[str, _Change] = {
    "masked": _masked(lambda of: of.mask),
    "huge": _scaled(lambda of: of.huge),
    "mixed": _mixed,
    "tiny magnitudes": _scaled(lambda of: of.tiny),
    "mixed rows": _mixed_rows,
    "half zero": _half_zero,
    "constant rows": _constant_rows,
    "lowest": _masked(lambda of: of.lowest),
    "denormal": _scaled(lambda of: of.denormal),
}
"""Changes to all inputs at once, the most significant first."""
_ALONE: dict[str, _Change] = {
    "one infinity": _one(np.inf),
    "one -inf": _one(-np.inf),
    "-inf": _masked(lambda of: -np.inf),  # noqa: ARG005
    "masked": _masked(lambda of: of.mask),
    "one NaN": _one(np.nan),
}
"""Changes to one input, while the other inputs are ordinary."""
