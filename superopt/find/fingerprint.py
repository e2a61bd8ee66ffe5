"""Fingerprints: terms evaluated exactly in a few random environments, a whole batch of one kind at a time.

Inputs are halves of small integers, so float64 holds every value exactly once the quotients of means and pools are cleared,
and order is kept: relu and maxima are right. A fingerprint only suggests an equality; it never separates terms that are equal.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from superopt import index
from superopt.errors import NotExactError, ShapeError
from superopt.evaluate import Floats
from superopt.graph import Atom, Attribute, Extent, Shape, Sym, Term, substitute, substitute_attribute, substitute_cond
from superopt.op import defined, operator

Array = npt.NDArray[np.float64]
LARGEST = 2.0**52
BATCH = 512


class Stacked:
    """The interpretation on index grids in which every value carries one more, trailing axis: the terms of a batch."""

    def __init__(self) -> None:
        self.domain = Floats()
        self.depth = 0

    def tensor(self, shape: tuple[Extent, ...], at: Callable[..., Any]) -> index.Tensor:
        extents = tuple(int(n) for n in shape)  # type: ignore[arg-type]
        outer, self.depth = self.depth, len(extents)
        try:
            value = np.asarray(at(*_grids(extents)))
        finally:
            self.depth = outer
        terms = value.shape[-1] if value.ndim else 1
        return self.leaf(np.broadcast_to(value, (*extents, terms)))

    def leaf(self, data: Array) -> index.Tensor:
        """A tensor of one array per term, stacked on the last axis; positions out of bounds read some element."""
        limits = data.shape[:-1]

        def at(*position: Any) -> Any:
            return data[tuple(np.clip(i, 0, n - 1) for i, n in zip(position, limits, strict=True))]

        return index.Tensor(limits, at, data)

    def require(self, condition: object, message: str) -> None:
        if not condition:
            raise ShapeError(message)

    def _reduced(
        self, extent: Extent, body: Callable[[Any], Any], reduce: Callable[[Array], Array], alone: Callable[[Any], Any]
    ) -> Any:
        outer = self.depth
        self.depth = outer + 1
        try:
            value = np.asarray(body(np.arange(int(extent)).reshape((-1,) + (1,) * outer)))  # type: ignore[arg-type]
        finally:
            self.depth = outer
        return reduce(value) if value.ndim == outer + 2 else alone(value)

    def total(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return self._reduced(extent, body, self.domain.sum, lambda value: value * self.domain.number(extent))

    def maximum(self, extent: Extent, body: Callable[[Any], Any]) -> Any:
        return self._reduced(extent, body, self.domain.max, lambda value: value)

    def select(self, condition: Any, then: Any, other: Any) -> Any:
        return np.where(np.asarray(condition)[..., None], then, other)

    def call(self, function: str, *arguments: Any) -> Any:
        return self.domain.call(function, *map(np.asarray, arguments))

    def number(self, value: Any) -> Any:
        number = self.domain.number(value)
        return number[..., None] if isinstance(value, np.ndarray) else number

    def lowest(self) -> Any:
        return self.domain.lowest()


@functools.lru_cache(maxsize=4096)
def _grids(extents: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], ...]:
    rank = len(extents)
    return tuple(np.arange(n).reshape((1,) * a + (-1,) + (1,) * (rank - 1 - a)) for a, n in enumerate(extents))


@dataclass(frozen=True)
class Environment:
    """Numbers for the symbols, an array for every variable, and a common denominator of all values."""

    symbols: Mapping[str, Extent]
    arrays: Mapping[str, Array]
    denominator: int

    def value(self, atom: Atom) -> Extent | None:
        """The lookup that `substitute` takes."""
        return self.symbols.get(atom.name) if isinstance(atom, Sym) else None


def environment(
    variables: Sequence[Term],
    ranges: Mapping[str, Sequence[Extent]],
    divisors: Sequence[str],
    legal: Callable[[Environment], bool],
    rng: np.random.Generator,
) -> Environment:
    """A random environment in which `legal` holds: symbols from their ranges, inputs halves of integers from -3 to 3.

    `divisors` names the extents that means and pools divide by.
    """
    while True:
        symbols = {name: values[int(rng.integers(len(values)))] for name, values in ranges.items()}
        drawn = Environment(symbols, {}, 1)
        if not legal(drawn):
            continue
        shapes = {v.name: tuple(int(substitute(n, drawn.value)) for n in v.shape) for v in variables}  # type: ignore[arg-type]
        arrays = {name: rng.integers(-6, 7, shape) / 2.0 for name, shape in shapes.items()}
        counts = range(1, max((int(symbols[name]) for name in divisors), default=1) + 1)  # type: ignore[arg-type]
        return Environment(symbols, arrays, math.lcm(*counts) ** 4 * 2**6)


@functools.lru_cache(maxsize=65536)
def _shape_text(shape: Shape) -> bytes:
    return repr(shape).encode()


class Fingerprints:
    """Values of terms in all environments, remembered for those that later terms are built from."""

    def __init__(self, environments: Sequence[Environment]) -> None:
        self.environments = environments
        self.values: dict[Term, tuple[Array, ...]] = {}

    def of(self, terms: Sequence[Term], *, remember: bool) -> dict[Term, bytes]:
        """A digest for each term that is defined, exact and finite in all environments; arguments must be known already."""
        found: dict[Term, tuple[Array, ...]] = {}
        digests: dict[Term, bytes] = {}
        groups: dict[tuple[object, ...], list[Term]] = {}
        for term in terms:
            groups.setdefault((term.op, len(term.args), term.attributes, tuple(a.shape for a in term.args)), []).append(term)
        for group in groups.values():
            for first in range(0, len(group), BATCH):
                part = group[first : first + BATCH]
                found = self._evaluated(part)
                digests.update((term, self._digest(term, arrays)) for term, arrays in found.items())
                if remember:
                    self.values.update(found)
        return {term: digest for term, digest in digests.items() if digest}

    def _evaluated(self, group: Sequence[Term]) -> dict[Term, tuple[Array, ...]]:
        per_environment: list[Array] = []
        for number, environment_ in enumerate(self.environments):
            try:
                per_environment.append(self._in(number, environment_, group))
            except (ShapeError, NotExactError):
                return {}
        return {
            term: tuple(np.ascontiguousarray(stacked[..., i if stacked.shape[-1] > 1 else 0]) for stacked in per_environment)
            for i, term in enumerate(group)
        }

    def _in(self, number: int, environment_: Environment, group: Sequence[Term]) -> Array:
        first = group[0]
        if first.is_variable:
            return np.stack([environment_.arrays[t.name] for t in group], axis=-1)
        if any(substitute_cond(c, environment_.value) is not True for c in first.requires):
            raise ShapeError("not typed in this environment")
        attributes: dict[str, Attribute] = {k: substitute_attribute(v, environment_.value) for k, v in first.attributes}
        grid = Stacked()
        operands = [
            grid.leaf(np.stack([self.values[t.args[position]][number] for t in group], axis=-1))
            for position in range(len(first.args))
        ]
        with index.interpreted(grid):
            result = defined(operator(first.op), operands, attributes)
        return np.asarray(result.data)

    def _digest(self, term: Term, arrays: tuple[Array, ...]) -> bytes:
        digest = hashlib.blake2b(_shape_text(term.shape), digest_size=16)
        for array, environment_ in zip(arrays, self.environments, strict=True):
            cleared = np.rint(array * environment_.denominator)
            if not np.isfinite(cleared).all() or np.abs(cleared).max(initial=0.0) > LARGEST:
                return b""
            digest.update(cleared.astype(np.int64).tobytes())
        return digest.digest()
