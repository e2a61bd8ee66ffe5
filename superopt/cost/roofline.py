"""The roofline of a device: a lower bound on a node's time from the device's measured rates of arithmetic and memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from superopt.cost.demand import CONVOLUTION, KINDS, PRODUCT, Demand
from superopt.runtime.cache import Json

Curve: TypeAlias = "tuple[tuple[float, float], ...]"
"""Pairs of an amount of work in one node, and the rate per second for this amount, in ascending order of amounts."""


@dataclass(frozen=True)
class Roofline:
    """A device's rates of arithmetic and of memory.

    Attributes:
        rates: for each kind of operation, the operations per second, as a function of the number of operations of a node.
        traffic: bytes per second, as a function of the number of bytes that a node moves.
        memory: bytes per second for weights that are in no cache.
        call: the fixed overhead of a run in seconds.
        node: the seconds of a node with one element.
        last_level: the size of the last-level cache in bytes. If a model's weights are larger, the weights are in no cache.
        caches: sizes of the processor's caches in bytes, the fastest first, if the system reports them.
    """

    rates: Mapping[str, Curve]
    traffic: Curve
    memory: float
    call: float
    node: float
    last_level: int
    caches: tuple[int, ...] = ()

    def seconds(self, wanted: Demand, *, cold: bool = False) -> float:
        """Return the estimated seconds of a node within a longer graph.

        `wanted` contains the node's operations and the bytes that the node moves. If `cold` is True, weights are read from
        memory instead of a cache.
        """
        computing = wanted.operations / rate(self.rates[wanted.kind], wanted.operations) if wanted.operations else 0.0
        moving = wanted.moved / rate(self.traffic, wanted.moved) if wanted.moved else 0.0
        fetching = wanted.weights / self.memory if cold else 0.0
        return self.node + wanted.steps * max(computing, moving, fetching)

    @property
    def peaks(self) -> tuple[float, float]:
        """The highest rate of operations in products and convolutions, and the highest rate of bytes, both per second."""
        computing = (speed for kind in (PRODUCT, CONVOLUTION) for _, speed in self.rates[kind])
        return max(computing), max(speed for _, speed in self.traffic)

    def as_json(self) -> Json:
        """Return the roofline as JSON values."""
        rates = {kind: [list(point) for point in curve] for kind, curve in self.rates.items()}
        traffic = [list(point) for point in self.traffic]
        numbers = {"memory": self.memory, "call": self.call, "node": self.node, "last_level": self.last_level}
        return {"rates": rates, "traffic": traffic, **numbers, "caches": list(self.caches)}

    @staticmethod
    def of_json(value: Json) -> Roofline:
        """Return the roofline for JSON values in the form of `as_json`.

        Raises:
            ValueError: `value` is not a roofline.
        """
        given = value.get("rates") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(given, dict) or {*given} != {*KINDS}:
            raise ValueError(f"the roofline must have exactly the rates {', '.join(KINDS)}")
        rates = {kind: _curve(points) for kind, points in given.items()}
        memory, node = finite_positive(value.get("memory")), finite_positive(value.get("node"))
        call, last_level = (finite_positive(value.get(name), zero=True) for name in ("call", "last_level"))
        caches = value.get("caches")
        if not isinstance(caches, list):
            raise ValueError("the roofline has no list of cache sizes")
        return Roofline(
            rates,
            _curve(value.get("traffic")),
            memory,
            call,
            node,
            int(last_level),
            tuple(int(finite_positive(c)) for c in caches),
        )


def finite_positive(value: Json, *, zero: bool = False) -> float:
    """Return the value as a finite number above 0. If `zero` is True, the number may also be 0.

    Raises:
        ValueError: `value` is not a finite number, or is too small.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is not a finite number of at least 0")
    if value == 0 and not zero:
        raise ValueError(f"{value!r} is not a number above 0")
    return float(value)


def _curve(points: Json) -> Curve:
    pairs = [p for p in points if isinstance(p, list) and len(p) == 2] if isinstance(points, list) else []
    if not isinstance(points, list) or not pairs or len(pairs) < len(points):
        raise ValueError("each rate in the roofline must be a list of number pairs")
    curve = tuple((finite_positive(amount), finite_positive(rate)) for amount, rate in pairs)
    if any(a >= b for (a, _), (b, _) in itertools.pairwise(curve)):
        raise ValueError("a rate of the roofline has amounts that are not in ascending order")
    return curve


def rate(curve: Curve, amount: float) -> float:
    """Return the rate at which a node does this amount of work, by linear interpolation on logarithmic axes.

    The curve contains measured rates for some amounts of work. Beyond the ends of the curve, the rate is constant.
    """
    if amount <= curve[0][0]:
        return curve[0][1]
    for (low, slow), (high, fast) in itertools.pairwise(curve):
        if amount <= high:
            share = math.log(amount / low) / math.log(high / low)
            return math.exp((1 - share) * math.log(slow) + share * math.log(fast))
    return curve[-1][1]


def fit_curve(points: Sequence[tuple[float, float]]) -> Curve:
    """Return a curve: the rate for each measured amount of work.

    A point is an amount of work and the seconds that this work took. If several points have equal amounts, the least time is
    used.
    """
    least: dict[float, float] = {}
    for amount, seconds in points:
        least[float(amount)] = min(seconds, least.get(amount, math.inf))
    return tuple((amount, amount / seconds) for amount, seconds in sorted(least.items()))
