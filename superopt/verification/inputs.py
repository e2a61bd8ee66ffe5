"""Sizes and values on which `verify` runs two models.

Sizes are small and large, give different remainders in divisions, and lie just below and above the constants in the model.
Different dynamic dimensions also get different sizes. Values include special values that real models receive: masks,
infinities, NaN, mixed magnitudes in one tensor, zeros, constant rows and denormals. In some inputs, elements are equal to
constants of the model. In other inputs, whole rows have large magnitudes at which exponentials or sigmoids are tiny.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt.policy import VERIFY
from superopt.protobuf.normalization import SHIFTED, denormalized
from superopt.verification.models import DeclaredInput, ModelSource, dimension_expression_extent

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]


def verification_sizes(source: ModelSource, given: Sequence[Mapping[str, int]], seed: int) -> Iterator[dict[str, int]]:
    """Yield sizes of dynamic dimensions at which `superopt verify` tries to run both models, first the sizes in `given`.

    For a model without dynamic dimensions, one empty mapping is yielded.
    """
    names = source.dimensions
    if not names:
        yield {}
        return
    rng = np.random.default_rng(seed)
    seen: set[tuple[int, ...]] = set()
    for found in _candidates(source, given, rng):
        key = tuple(found[name] for name in names)
        elements = sum(math.prod(dimension_expression_extent(axis, found) for axis in port.axes) for port in source.inputs)
        if key not in seen and elements <= VERIFY.max_drawn_elements:
            seen.add(key)
            yield found


def _candidates(source: ModelSource, given: Sequence[Mapping[str, int]], rng: np.random.Generator) -> Iterator[dict[str, int]]:
    names = source.dimensions
    usual = dict.fromkeys(names, 8)
    for numbers in given:
        yield {**usual, **{name: n for name, n in numbers.items() if name in names}}
    around = [n + d for n in source.constants for d in (-1, 0, 1)]
    near = sorted({n for n in around if 0 < n <= 300} | {*VERIFY.plain_sizes})
    far = sorted({n for n in around if n > 300})
    for n in (33, 64, 7, 4, 2, 1, 3, 12, 50):
        yield dict.fromkeys(names, n)
    for n in far:  # each large size for one dimension, with all other dimensions small
        for name in names:
            yield {**dict.fromkeys(names, 2), name: n}
    for n in range(6):  # unequal sizes with different residues
        yield {name: 5 + n + 3 * place + (place * n) % 4 for place, name in enumerate(names)}
    yield {name: 32 * (1 + place % 3) for place, name in enumerate(names)}
    yield dict.fromkeys(names, 0)
    for _ in range(VERIFY.max_size_draws):
        match rng.integers(4):
            case 0:
                yield {name: int(rng.choice(near)) for name in names}
            case 1:
                pool = rng.choice(near, 2)
                yield {name: int(rng.choice(pool)) for name in names}
            case 2:
                pool = rng.choice(VERIFY.coarse_sizes, 2)
                yield {name: int(rng.choice(pool)) for name in names}
            case _:
                pool = rng.choice(near, 2)
                yield {name: int(pool[0] if place else rng.integers(1, 4)) for place, name in enumerate(names)}


# ---------------------------------------------------------------- values


def _half(rng: np.random.Generator, shape: tuple[int, ...], value: float) -> Array:
    return np.where(rng.random(shape) < 0.5, value, rng.standard_normal(shape))


def _one(rng: np.random.Generator, shape: tuple[int, ...], value: float) -> Array:
    array = np.array(rng.standard_normal(shape))
    if array.size:
        array.flat[int(rng.integers(array.size))] = value
    return array


def _saturated(rng: np.random.Generator, shape: tuple[int, ...], sign: int = 1) -> Array:
    """Return rows of numbers whose exponentials and sigmoids are tiny but not 0 in float32.

    If `sign` is -1, return the negatives of such numbers. See `VerifyPolicy.saturated_magnitudes`. Elements of a row differ.
    """
    magnitudes = np.resize(VERIFY.saturated_magnitudes, (*shape[:-1], 1) if shape else ())
    return -sign * (magnitudes + rng.random(shape))


def _half_saturated(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    values = _saturated(rng, shape) * rng.choice((-1, 1), shape)
    return np.where(rng.random(shape) < 0.5, values, rng.standard_normal(shape))


def _rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(rng.standard_normal((*shape[:-1], 1) if shape else ()), shape)


Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
ORDINARY: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "of magnitude 4": lambda rng, shape: 4 * rng.standard_normal(shape),
}
_LEAST, _LARGEST = (f"{bound(VERIFY.saturated_magnitudes):g}" for bound in (min, max))
NEGATIVE_ROWS, POSITIVE_ROWS = f"rows from -{_LEAST} to -{_LARGEST}", f"rows from {_LEAST} to {_LARGEST}"
HALF_SATURATED = f"half from -{_LARGEST} to {_LARGEST}"
ADVERSARIAL: dict[str, Draw] = {
    NEGATIVE_ROWS: _saturated,
    POSITIVE_ROWS: lambda rng, shape: _saturated(rng, shape, -1),
    HALF_SATURATED: _half_saturated,
    "half -1e9": lambda rng, shape: _half(rng, shape, -1e9),
    "half minus infinity": lambda rng, shape: _half(rng, shape, -np.inf),
    "half the least float32": lambda rng, shape: _half(rng, shape, float(np.finfo(np.float32).min)),
    "one infinity": lambda rng, shape: _one(rng, shape, np.inf),
    "one NaN": lambda rng, shape: _one(rng, shape, np.nan),
    "one 1e30": lambda rng, shape: _one(rng, shape, 1e30),
    "all 1e25": lambda _, shape: np.full(shape, 1e25),
    "all 1e-25": lambda _, shape: np.full(shape, 1e-25),
    "magnitudes from 1e-12 to 1e12": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-12, 13, shape),
    "half zeros": lambda rng, shape: _half(rng, shape, 0.0),
    "zeros": lambda _, shape: np.zeros(shape),
    "constant rows": _rows,
    "denormal": lambda rng, shape: rng.standard_normal(shape) * 1e-40,
    "of magnitude 100": lambda rng, shape: 100 * rng.standard_normal(shape),
}
SATURATING = frozenset({NEGATIVE_ROWS, POSITIVE_ROWS, HALF_SATURATED, "of magnitude 100"})
"""The kinds of adversarial values at which sigmoids and exponentials are tiny, and may be 0 for some kernels."""
MODEST = SATURATING | {"all 1e-25", "half zeros", "zeros", "constant rows", "denormal"}
"""The kinds of adversarial values whose magnitudes are not large."""
BOUNDARY = "half equal to constants"
"""The kind of adversarial values in which elements are exactly equal to constants of the model (`ModelSource.boundaries`)."""


def ordinary_feeds(source: ModelSource, at: Mapping[str, int], bound: int, seed: int) -> Iterator[tuple[str, Feeds]]:
    """Yield sets of random input values, each with a name.

    The values have ordinary magnitudes, and the arrays have the sizes in `at`. Integers are below `bound`.
    """
    for turn, (name, draw) in enumerate(ORDINARY.items()):
        rng = np.random.default_rng((seed, turn))
        feeds = {port.name: _array(port, at, draw, bound, turn, rng) for port in source.inputs}
        yield name, feeds
        if name == "normal" and source.normalized:
            yield SHIFTED, {name: denormalized(source.normalized, name, value) for name, value in feeds.items()}


def adversarial_feeds(
    source: ModelSource, at: Mapping[str, int], bound: int, seed: int, *, masks: bool = False
) -> Iterator[tuple[str, Feeds]]:
    """Yield named sets of special input values, on which `superopt verify` compares both models.

    Floating-point arithmetic may fail at special values. Special values are in all inputs, in one input, or in all inputs
    except one. If `masks` is True, infinities, NaN and extreme numbers are only in inputs that may be masks. Sizes come from
    `at`, and integers are below `bound`.
    """
    every = [port for port in source.inputs if np.dtype(port.dtype).kind == "f"]
    booleans = [port for port in source.inputs if np.dtype(port.dtype).kind == "b"]
    normal = ORDINARY["normal"]
    if source.boundaries:
        rng = np.random.default_rng((seed, 400))
        feeds = {port.name: _array(port, at, normal, bound, 0, rng) for port in source.inputs}
        yield BOUNDARY, {name: _with_boundaries(value, source.boundaries.get(name, ()), rng) for name, value in feeds.items()}
    for turn, (name, draw) in enumerate(ADVERSARIAL.items()):
        floating = [port for port in every if not masks or name in MODEST or port.name in source.masks]
        chosen: list[list[DeclaredInput]] = [floating] if floating else []
        if len(floating) > 1:
            chosen.append([floating[turn % len(floating)]])
        if len(floating) > 2:
            chosen.append([port for port in floating if port is not floating[turn % len(floating)]])
        for some in chosen:
            rng = np.random.default_rng((seed, 100 + turn))
            where = "" if len(some) == len(every) else f" in {', '.join(port.name for port in some[:3])}"
            draws = {port.name: draw if port in some else normal for port in source.inputs}
            yield name + where, {p.name: _array(p, at, draws[p.name], bound, turn, rng) for p in source.inputs}
    for value in (False, True) if booleans else ():
        rng = np.random.default_rng((seed, 200 + value))
        feeds = {port.name: _array(port, at, normal, bound, 0, rng) for port in source.inputs}
        feeds.update({port.name: np.full(feeds[port.name].shape, value) for port in booleans})
        yield f"conditions all {value}", feeds
    if booleans:
        rng = np.random.default_rng((seed, 300))
        feeds = {port.name: _array(port, at, normal, bound, 0, rng) for port in source.inputs}
        for port in booleans:
            rows = rng.random(feeds[port.name].shape[:1] or ()) < 0.5
            spread = np.reshape(rows, np.shape(rows) + (1,) * (feeds[port.name].ndim - np.ndim(rows)))
            feeds[port.name] = np.asarray(feeds[port.name] & spread)
        yield "rows of conditions that are False", feeds


def _array(port: DeclaredInput, at: Mapping[str, int], draw: Draw, bound: int, turn: int, rng: np.random.Generator) -> Array:
    shape = tuple(dimension_expression_extent(axis, at) for axis in port.axes)
    dtype = np.dtype(port.dtype)
    match dtype.kind:
        case "b":
            return np.asarray(rng.random(shape) < 0.5)
        case "i" | "u":
            high = min(bound, int(np.iinfo(dtype).max))
            return np.asarray(rng.integers(0, high, shape), dtype) if turn % 3 != 1 else np.full(shape, high - 1, dtype)
        case _:
            with np.errstate(over="ignore", under="ignore"):
                return np.asarray(draw(rng, shape)).astype(dtype)


def _with_boundaries(values: Array, boundaries: Sequence[Array], rng: np.random.Generator) -> Array:
    """Replace half of the elements of an input (but at least one) by boundary values, and return the result."""
    grids = _grids(values, boundaries)
    if not grids:
        return values
    changed = np.reshape(rng.permutation(values.size) < (values.size + 1) // 2, values.shape)
    which = rng.integers(len(grids), size=values.shape)
    for number, grid in enumerate(grids):
        values = np.where(changed & (which == number), grid, values)
    return values


def _grids(values: Array, boundaries: Sequence[Array]) -> list[Array]:
    """Return the boundary values of an input in the type and the shape of the input's values.

    Boundary values that do not fit the shape, or are not finite, are left out. Only floating-point inputs have boundary values.
    """
    if values.dtype.kind != "f":
        return []
    found: list[Array] = []
    for boundary in boundaries:
        with contextlib.suppress(ValueError), np.errstate(over="ignore"):
            grid = np.broadcast_to(boundary.astype(values.dtype), values.shape)
            if np.isfinite(boundary.astype(values.dtype)).all():
                found.append(grid)
    return found


def perturb_feeds(feeds: Feeds, seed: int, boundaries: Mapping[str, Sequence[Array]] = MappingProxyType({})) -> Feeds:
    """Return the inputs of a verified model with the last few bits of each floating-point number changed at random.

    Numbers that equal one of the input's `boundaries` are not changed, because differences of equal numbers are exact.
    """
    rng = np.random.default_rng(seed)

    def near(name: str, array: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        ulp = np.finfo(array.dtype).eps
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            changed = np.asarray(array * (1 + ulp * rng.integers(-2, 3, array.shape)).astype(array.dtype))
        for grid in _grids(array, boundaries.get(name, ())):
            changed = np.where(array == grid, array, changed)
        return changed

    return {name: near(name, array) for name, array in feeds.items()}
