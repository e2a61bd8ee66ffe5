"""Prices of nodes on a device of which only a profile is there: known times, else the roofline as it errs on similar nodes."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from superopt.errors import ProfileError
from superopt.model.cache import text_of
from superopt.model.demand import Demand, demand
from superopt.model.kernel import Operand
from superopt.model.profile import DeviceProfile, Known, read

Json: TypeAlias = "Any"
Numbers: TypeAlias = "npt.NDArray[np.float64]"

KNOWN_ERROR = 0.1
"""The relative error of a known time: nodes timed alone sum to 0.89 to 0.99 of what a model takes end to end."""
UNFOUNDED = math.log(2)
"""The logarithm of the factor by which the roofline is taken to err, at least, for an operator that is not known."""
_ENOUGH = 5
"""Known operators from which on they say how far the roofline is off for another one."""
_PRIOR = 0.1
"""What the roofline as it is weighs against similar nodes; one that is alike in all numbers weighs 1."""
_ONE_SIGMA = 0.68
"""The share of a normal distribution within one standard deviation."""


@dataclass(frozen=True)
class Price:
    """Seconds of a node within a longer graph, and the standard deviation of the logarithm of what it may truly take."""

    seconds: float
    error: float
    known: bool

    def doubt(self, sigmas: float) -> float:
        """The seconds by which the price may be too low, at so many standard deviations; too high, by minus what is given for a
        negative number of them.
        """
        return self.seconds * math.expm1(sigmas * self.error)


@dataclass(frozen=True)
class _Group:
    """Nodes of one operator: their coordinates, and how far the roofline is off for each, in logarithms."""

    coordinates: Numbers
    off: Numbers

    def correction(self, at: Numbers, spread: float, leave_out: int | None = None) -> tuple[float, float]:
        """By how much to correct the roofline there, as similar nodes say, and how far these are from what is said of them."""
        weights = np.exp(-np.abs(self.coordinates - at).sum(axis=1))
        if leave_out is not None:
            weights[leave_out] = 0.0
        total = float(weights.sum()) + _PRIOR
        mean = float(weights @ self.off) / total
        variance = (float(weights @ (self.off - mean) ** 2) + _PRIOR * spread**2) / total
        return mean, math.sqrt(variance)


class Prices:
    """What nodes cost on the device of the profile.

    A node that the profile knows has the time that it says. Of another one, the roofline says a time, and nodes of the same
    operator that the profile knows, the more similar the more, say by what factor the roofline errs.
    """

    def __init__(self, profile: DeviceProfile) -> None:
        self.profile = profile
        self._known = {_name(known.signature, cold=known.cold): known for known in profile.kernels}
        self._similar: dict[tuple[str, str], list[Known]] = {}
        self._places: dict[int, int] = {}
        for known in profile.kernels:
            wanted = demand(known.signature, known.timing.outputs)
            similar = self._similar.setdefault((known.signature[1], wanted.kind), [])
            self._places[id(known)] = len(similar)
            similar.append(known)
        self._groups: dict[tuple[str, str], _Group] = {}

    def price(self, signature: Json, outputs: Sequence[Operand | None], *, cold: bool) -> Price:
        """The price of a node, `signature` being that of `Kernel.signature`; if `cold`, its weights are in no cache."""
        known = self._known.get(_name(signature, cold=cold))
        if known is not None:
            return Price(self._net(known), KNOWN_ERROR, known=True)
        wanted = demand(signature, outputs)
        seconds = self.profile.roofline.seconds(wanted, cold=cold)
        group = self._group(signature[1], wanted.kind)
        if group is None:
            return Price(seconds, self.unseen_error, known=False)
        correction, error = group.correction(_coordinates(wanted, cold=cold), self.unseen_error)
        return Price(seconds * math.exp(correction), max(error, KNOWN_ERROR), known=False)

    @cached_property
    def unseen_error(self) -> float:
        """How far off the roofline alone is taken to be for an operator of which no node is known, as a logarithm: as far as it
        is, on average, for two thirds of the known operators at most, and by a factor of two at least.
        """
        off = [abs(float(np.mean([self._off(known) for known in similar]))) for similar in self._similar.values()]
        return max(UNFOUNDED, float(np.quantile(off, _ONE_SIGMA))) if len(off) >= _ENOUGH else UNFOUNDED

    def errors(self) -> list[float]:
        """For each known node, the logarithm of its time over the price that it would have were it not known."""
        return [math.log(measured / priced) for measured, priced in map(self._beside, self.profile.kernels)]

    def roofline_errors(self) -> list[float]:
        """For each known node, the logarithm of its time over what the roofline alone says."""
        return [*map(self._off, self.profile.kernels)]

    def beside(self, signature: Json, *, cold: bool) -> tuple[float, float]:
        """The seconds of a known node, and those of the price that it would have were it not known."""
        return self._beside(self._known[_name(signature, cold=cold)])

    def _beside(self, known: Known) -> tuple[float, float]:
        wanted = demand(known.signature, known.timing.outputs)
        key = known.signature[1], wanted.kind
        group = self._group(*key)
        assert group is not None, "there is a known node"
        at, place = _coordinates(wanted, cold=known.cold), self._places[id(known)]
        correction, _ = group.correction(at, self.unseen_error, leave_out=place)
        seconds = self.profile.roofline.seconds(wanted, cold=known.cold)
        return self._net(known), seconds * math.exp(correction)

    def _group(self, op_type: str, kind: str) -> _Group | None:
        key = op_type, kind
        if key not in self._groups and key in self._similar:
            similar = self._similar[key]
            places = [_coordinates(demand(k.signature, k.timing.outputs), cold=k.cold) for k in similar]
            self._groups[key] = _Group(np.array(places), np.array([self._off(known) for known in similar]))
        return self._groups.get(key)

    def _off(self, known: Known) -> float:
        roofline = self.profile.roofline
        wanted = demand(known.signature, known.timing.outputs)
        return math.log(self._net(known) / roofline.seconds(wanted, cold=known.cold))

    def _net(self, known: Known) -> float:
        """A known node's time within a longer graph."""
        return max(known.timing.seconds - self.profile.roofline.call, self.profile.roofline.node)


def target(path: str | os.PathLike[str], provider: str = "cpu") -> Prices:
    """The prices of the device whose profile is in the file; a `provider` other than the default has to be the profile's.

    Raises:
        ProfileError: it is another one, or the file holds no profile.
    """
    profile = read(path)
    if provider not in ("cpu", profile.provider):
        raise ProfileError(f"{path}: a profile for the provider {profile.provider}, and {provider} was asked for")
    return Prices(profile)


def _name(signature: Json, *, cold: bool) -> str:
    return text_of([cold, signature])


def _coordinates(wanted: Demand, *, cold: bool) -> Numbers:
    """Where a node lies among those of its operator: similar ones are near."""
    logarithms = (math.log(max(amount, 1)) for amount in (wanted.operations, wanted.moved, wanted.weights))
    return np.array([*logarithms, float(cold)])
