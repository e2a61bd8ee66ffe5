"""Prices (predicted times) of nodes on a device that is known only by its profile.

The price of a node in the profile is its measured time. The price of any other node is the roofline's estimate, corrected by
the errors of the roofline for similar nodes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from superopt.cost.demand import Demand, demand
from superopt.cost.device_profile import DeviceProfile, MeasuredNode, read_profile
from superopt.errors import ProfileError
from superopt.policy import COST
from superopt.runtime.cache import Json, json_text, text_of
from superopt.runtime.kernel import Operand

Numbers: TypeAlias = "npt.NDArray[np.float64]"

_ONE_SIGMA = 0.68
"""The share of a normal distribution within one standard deviation."""


@dataclass(frozen=True)
class Price:
    """The predicted time of a node within a longer graph.

    Attributes:
        seconds: The predicted seconds.
        error: The standard deviation of the logarithm of the true time.
        known: Whether the profile contains the measured time of the node.
    """

    seconds: float
    error: float
    known: bool

    def doubt(self, sigmas: float) -> float:
        """Return the seconds by which the predicted time may be too low if the error is `sigmas` standard deviations.

        If `sigmas` is negative, the result is negative. The magnitude of the result is then the number of seconds by which the
        predicted time may be too high.
        """
        return self.seconds * math.expm1(sigmas * self.error)


class Prices:
    """The prices of nodes on the device of a profile.

    The price of a node in the profile is its measured time. For any other node, the roofline predicts a time. For the profile's
    nodes with the same operator, both a measured and a predicted time are known. The prediction is multiplied by the average
    ratio of measured to predicted time of these nodes. Nodes that are more similar have a larger weight in the average.
    """

    def __init__(self, profile: DeviceProfile) -> None:
        self.profile = profile
        self._numbers = {_name(known.signature, cold=known.cold): n for n, known in enumerate(profile.kernels)}
        self._wanted = [demand(known.signature, known.timing.outputs) for known in profile.kernels]
        self._coordinates = np.array([_place(w, cold=k.cold) for w, k in zip(self._wanted, profile.kernels, strict=True)])
        self._off = np.array([*map(self._off_by, profile.kernels, self._wanted)])
        self._similar: dict[tuple[str, str], list[int]] = {}
        for number, (known, wanted) in enumerate(zip(profile.kernels, self._wanted, strict=True)):
            self._similar.setdefault((json_text(known.signature[1]), wanted.kind), []).append(number)

    def price(self, signature: Sequence[Json], outputs: Sequence[Operand | None], *, cold: bool) -> Price:
        """Return the price (predicted time) of a node, given its `Kernel.signature` and its outputs.

        If `cold` is True, the node's weights are in no cache.
        """
        number = self._numbers.get(_name(signature, cold=cold))
        if number is not None:
            return Price(self._net(self.profile.kernels[number]), COST.known_time_error, known=True)
        return self._predicted(json_text(signature[1]), demand(signature, outputs), cold=cold)

    def beside(self, signature: Sequence[Json], *, cold: bool) -> tuple[float, Price]:
        """Return the measured seconds of a node in the profile, and the time that is predicted without this measurement."""
        return self._beside(self._numbers[_name(signature, cold=cold)])

    @cached_property
    def unseen_error(self) -> float:
        """The error that is assumed for the roofline's estimate if an operator has no nodes in the profile.

        The error is log(t / e), where t is the true time and e is the estimate. For 68 percent of the operators in the profile,
        the average error of the roofline is at most the assumed error. The assumed error is at least
        `COST.unknown_operator_error`.
        """
        means = [abs(float(self._off[numbers].mean())) for numbers in self._similar.values()]
        return (
            max(COST.unknown_operator_error, float(np.quantile(means, _ONE_SIGMA)))
            if len(means) >= COST.min_known_operators
            else COST.unknown_operator_error
        )

    def errors(self) -> list[float]:
        """Return the error of the predicted time of each node in the profile. The node's own measurement is not used.

        The error is log(m / p), where m is the measured time and p is the predicted time.
        """
        both = map(self._beside, range(len(self._wanted)))
        return [math.log(measured / price.seconds) for measured, price in both]

    def roofline_errors(self) -> list[float]:
        """Return log(m / e) for each node in the profile, where m is the measured time and e is the roofline's estimate."""
        return [float(off) for off in self._off]

    def _beside(self, number: int) -> tuple[float, Price]:
        known = self.profile.kernels[number]
        price = self._predicted(json_text(known.signature[1]), self._wanted[number], cold=known.cold, without=number)
        return self._net(known), price

    def _predicted(self, op_type: str, wanted: Demand, *, cold: bool, without: int | None = None) -> Price:
        """Return the price of a node from the roofline and similar nodes of the profile.

        `wanted` contains the node's number of operations and the number of bytes that the node moves. The profile's node with
        the index `without` is ignored.
        """
        seconds = self.profile.roofline.seconds(wanted, cold=cold)
        similar = [number for number in self._similar.get((op_type, wanted.kind), ()) if number != without]
        if not similar:
            return Price(seconds, self.unseen_error, known=False)
        weights = np.exp(-np.abs(self._coordinates[similar] - _place(wanted, cold=cold)).sum(axis=1))
        total = float(weights.sum()) + COST.roofline_weight_share
        mean = float(weights @ self._off[similar]) / total
        variance = (
            float(weights @ (self._off[similar] - mean) ** 2) + COST.roofline_weight_share * self.unseen_error**2
        ) / total
        return Price(seconds * math.exp(mean), max(math.sqrt(variance), COST.known_time_error), known=False)

    def _off_by(self, known: MeasuredNode, wanted: Demand) -> float:
        return math.log(self._net(known) / self.profile.roofline.seconds(wanted, cold=known.cold))

    def _net(self, known: MeasuredNode) -> float:
        """Return the time, in seconds, that a measured node takes within a longer graph.

        The node was measured in a run of its own. The fixed cost of this run is subtracted. The result is at least the
        time of a node with one element.
        """
        return max(known.timing.seconds - self.profile.roofline.call, self.profile.roofline.node)


def load_prices(path: str | os.PathLike[str], provider: str = "cpu") -> Prices:
    """Return the prices (predicted times) of nodes on the device whose profile is in the file.

    Raises:
        ProfileError: `provider` is neither the default nor the profile's provider, or the file is not a profile.
    """
    profile = read_profile(path)
    if provider not in ("cpu", profile.provider):
        raise ProfileError(
            f"{path}: the profile is for the provider {profile.provider}, but the provider {provider} was requested"
        )
    return Prices(profile)


def _name(signature: Sequence[Json], *, cold: bool) -> str:
    return text_of([cold, signature])


def _place(wanted: Demand, *, cold: bool) -> Numbers:
    """Return a node's coordinates in a space in which similar nodes of one operator lie close together.

    The first three coordinates are the logarithms of the numbers of operations, moved bytes and weight bytes. The last
    coordinate is 1 if the node is cold, and 0 otherwise.
    """
    logarithms = (math.log(max(amount, 1)) for amount in (wanted.operations, wanted.moved, wanted.weights))
    return np.array([*logarithms, float(cold)])
