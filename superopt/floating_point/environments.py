"""Inputs on which floating-point arithmetic often differs from real arithmetic.

Inputs are produced in batches. A row of a batch has one value for each input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from superopt.floating_point.floats import FLOAT32, Array, Format, Mask
from superopt.floating_point.scalars import Input
from superopt.policy import FLOATING_POINT

SIZES = (
    *(0.0, 1e-45, 1.1754944e-38, 1e-37, 1e-30, 1e-20, 1e-10, 1e-6, 1e-3, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 20.0, 80.0, 95.0),
    *(100.0, 300.0, 1e3, 4097.0, 65504.0, 1e6, 12582912.0, 16777217.0, 1e9, 1e10, 1e20, 1e30, 1e37, 1e38, 3.4028235e38),
)
"""Magnitudes at which kernels and models change behavior: limits of the format, values in attention masks, special constants,
and limits of the range of exp.
"""
EXTREMES = (1e-45, 1e-40, 1.1754944e-38, 1e30, 1e38, 3.4028235e38)
"""Magnitudes at which results underflow or overflow."""
DYADIC = np.array([-3.0, -2.0, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
"""Numbers whose sums and products are exact. If all finite inputs of a row are `DYADIC` numbers, only an infinity or NaN in the
row can make the sides of a rule differ.
"""
COMBINED = (
    *(0.0, -0.0, 1.0, -1.0, np.inf, np.nan, -np.inf, 3.4028235e38, 1e-45, -3.4028235e38, 1e30, 1e-30, 2.0, -1e-45, -1e30, 0.1),
    *(-3.0, 1e9, 12582912.0, -1e9, 1.1754944e-38, 1.0000001, 100.0, -100.0, 1e20, -0.3, 65504.0, 16777217.0),
)
"""Special values such as zeros, infinities, NaN and the largest finite number. `special_value_rows` builds rows from all
combinations of the first n values, for the largest n that its limit on rows allows.
"""
FINITE, INFINITE = 0, 1


@dataclass(frozen=True, eq=False)
class Environments:
    """A batch of inputs. `values` maps each input to an array with one value for each row of the batch."""

    values: Mapping[Input, Array]
    rows: int

    def beside(self, other: Environments) -> Environments:
        """Return a batch with the rows of this batch and the rows of `other`."""
        joined = {one: np.concatenate([values, other.values[one]]) for one, values in self.values.items()}
        return Environments(joined, self.rows + other.rows)

    def chunks(self, size: int) -> Iterator[Environments]:
        """Yield the batch in parts of at most `size` rows."""
        for start in range(0, self.rows, size):
            stop = min(start + size, self.rows)
            yield Environments({one: values[start:stop] for one, values in self.values.items()}, stop - start)


def draw(inputs: Sequence[Input], conditions: Collection[str], rows: int, rng: np.random.Generator) -> Environments:
    """Draw a batch of random rows for these inputs.

    Some rows contain ordinary numbers. Other rows contain special numbers, a few special numbers among zeros and ones, mixed
    magnitudes, nearly equal numbers, infinities or NaN. `conditions` contains the names of boolean variables. The elements of
    these variables are 0 or 1.
    """
    kind = rng.choice(3, size=rows, p=FLOATING_POINT.row_kind_shares)
    names = sorted({name for name, _ in inputs})
    mode = rng.integers(0, 11, rows)
    background = rng.integers(0, 3, rows)
    telling = _some_of(len(inputs), rows, rng)
    positive = rng.random(rows) < 0.35
    chosen = rng.integers(0, max(len(names), 1), rows)
    place = np.where(rng.random(rows) < 0.6, rng.integers(0, max(len(inputs), 1), rows), -1)
    extreme = rng.random(rows) < 0.5
    zeros = rng.choice([0.5, 0.8, 0.95], rows)
    base = _one_of(SIZES, rows, rng)
    near = rng.standard_normal(rows) * np.power(10.0, rng.integers(-3, 4, rows))
    own = {name: np.power(10.0, rng.uniform(-37, 37, rows)) for name in names}
    values: dict[Input, Array] = {}
    for number, (name, position) in enumerate(inputs):
        if name in conditions:
            values[name, position] = rng.integers(0, 2, rows).astype(np.float64)
            continue
        dyadic = rng.choice(DYADIC, rows)
        normal = rng.standard_normal(rows)
        special = _one_of(SIZES, rows, rng)
        here = names.index(name) == chosen
        plain = np.select([background == 0, background == 1], [0.0, 1.0], default=rng.integers(0, 2, rows))
        finite = np.select(
            [mode == 0, mode == 1, mode == 2, mode == 3, mode == 4, mode == 5, mode == 6, mode == 7, mode >= 9],
            [
                normal,
                dyadic,
                special,
                np.where(here & (rng.random(rows) < 0.7), base * rng.choice([1.0, -1.0, 0.5], rows), dyadic),
                near * (1.0 + rng.integers(-3, 4, rows) * 2.0**-23),
                normal * own[name],
                np.where(here, normal * own[name], normal),
                np.where(rng.random(rows) < zeros, 0.0, 1.0) * rng.choice([1.0, -1.0], rows),
                np.where(telling[number], np.where(extreme, _one_of(EXTREMES, rows, rng), special), plain),
            ],
            default=np.where(rng.random(rows) < 0.25, special, dyadic),
        )
        finite = np.where(positive, np.abs(finite), finite)
        several = (here & (rng.random(rows) < 0.5)) | (rng.random(rows) < 0.05)
        alone = np.where(place >= 0, place == number, several)
        beside = np.where(positive, np.abs(dyadic), dyadic)
        infinite = np.where(alone, rng.choice([np.inf, -np.inf], rows), beside)
        missing = np.where(alone, np.where(rng.random(rows) < 0.8, np.nan, infinite), beside)
        values[name, position] = FLOAT32.round(np.select([kind == FINITE, kind == INFINITE], [finite, infinite], missing))
    return Environments(values, rows)


def _some_of(inputs: int, rows: int, rng: np.random.Generator) -> Mask:
    """Choose one to three inputs in each row at random. Return a mask of shape (inputs, rows)."""
    order = np.argsort(rng.random((inputs, rows)), axis=0).argsort(axis=0)
    return np.asarray(order < rng.integers(1, 4, rows))


def _one_of(magnitudes: Sequence[float], rows: int, rng: np.random.Generator) -> Array:
    """Draw one of the magnitudes for each row, with a random sign."""
    return np.asarray(rng.choice(np.array(magnitudes), rows) * rng.choice([1.0, -1.0], rows))


def environments_of(rows: Sequence[Mapping[Input, float]]) -> Environments:
    """Return a batch with these rows. Each row contains a value for every input."""
    values = {one: np.array([row[one] for row in rows]) for one in rows[0]}
    return Environments(values, len(rows))


def special_value_rows(inputs: Sequence[Input], conditions: Collection[str], rows: int) -> Environments:
    """Return all combinations of the first n values of `COMBINED` for the inputs.

    `COMBINED` contains special values such as zeros, infinities and NaN. The number n is the largest number that gives at most
    `rows` combinations. A combination with an infinity or NaN is used only if all of its finite values are in `DYADIC` (small
    numbers with exact sums and products). Without this restriction, an overflow might be mistaken for an effect of the
    infinity.
    """
    count = next((n for n in range(len(COMBINED), 1, -1) if n ** len(inputs) <= rows), 0)
    if not count or not inputs:
        return Environments({one: np.zeros(0) for one in inputs}, 0)
    found = _product(inputs, conditions, FLOAT32.round(np.array(COMBINED[:count])).tolist())
    stacked = np.stack([found.values[one] for one in inputs])
    plain = ~np.isfinite(stacked) | np.isin(stacked, DYADIC)
    kept = np.isfinite(stacked).all(axis=0) | plain.all(axis=0)
    return Environments({one: values[kept] for one, values in found.values.items()}, int(kept.sum()))


def exhaustive_rows(inputs: Sequence[Input], conditions: Collection[str], form: Format) -> Environments:
    """Return a batch in which the inputs take every combination of values of the format. NaN counts as one value."""
    return _product(inputs, conditions, numbers_of(form))


def _product(inputs: Sequence[Input], conditions: Collection[str], numbers: Sequence[float]) -> Environments:
    choices = [np.array([0.0, 1.0]) if name in conditions else np.array(numbers) for name, _ in inputs]
    grid = np.meshgrid(*choices, indexing="ij") if inputs else [np.zeros(1)]
    return Environments({one: g.ravel() for one, g in zip(inputs, grid, strict=False)}, grid[0].size)


def numbers_of(form: Format) -> list[float]:
    """Return all values of the format, including both zeros, both infinities and one NaN."""
    found = [k * form.tiny for k in range(1 << (form.precision - 1))]
    for exponent in range(form.least, form.most + 1):
        unit = 2.0 ** (exponent - form.precision + 1)
        found += [k * unit for k in range(1 << (form.precision - 1), 1 << form.precision)]
    found.append(np.inf)
    return [*found, *(-v for v in found), np.nan]
