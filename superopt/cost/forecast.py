"""Predicted times of models on a device that is not present.

Times are predicted from the device's profile and from the graphs that ONNX Runtime optimizes on this machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, ModelProto

from superopt.algebra.dim_binding import DimBinding
from superopt.cost.measure import Clock, Piece, clock_spare_cache_bytes, clock_structure_digest
from superopt.cost.prices import Price, Prices
from superopt.cost.roofline import Roofline
from superopt.errors import InvalidModelError
from superopt.policy import COMPARISON, COST
from superopt.protobuf.stored import Loadable
from superopt.runtime.cache import Json, text_of
from superopt.runtime.kernel import Kernel, Operand
from superopt.runtime.session import Device

_BODIES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


@dataclass(frozen=True)
class Plan:
    """The nodes that a run of a model executes.

    `nodes` maps each distinct node to its price (predicted time) and its count. The keys are the texts of the nodes'
    signatures, which contain the operator, the attributes and the inputs.
    """

    nodes: Mapping[str, tuple[Price, int]]

    @property
    def seconds(self) -> float:
        """The predicted seconds of a run."""
        return math.fsum(price.seconds * count for price, count in self.nodes.values())

    @property
    def known(self) -> float:
        """The share that measured nodes have in the predicted seconds. A measured node was timed on the device."""
        known = math.fsum(price.seconds * count for price, count in self.nodes.values() if price.known)
        return known / self.seconds if self.nodes else 1.0


@dataclass(frozen=True)
class Forecast:
    """The predicted seconds of a run of the original model and of a candidate model.

    The saving is the difference of the two times. If both models contain a node, the error of the node's time cancels in the
    saving. So only nodes with different counts in the two models are considered. The time of each of these nodes may differ
    from the node's price (predicted time) by `COST.forecast_sigmas` standard deviations. A removed node is assumed to be
    cheaper than its price, and an added node is assumed to be more expensive. The errors of different nodes are assumed to be
    independent.

    Attributes:
        original: predicted seconds of the original.
        candidate: predicted seconds of the candidate.
        doubt: the number of seconds by which the saving may be smaller than predicted.
        known: the share that measured nodes have in the predicted seconds. A measured node was timed on the device. The smaller
            share of the two models is used.
    """

    original: float
    candidate: float
    doubt: float
    known: float

    @property
    def ratio(self) -> float:
        """The predicted speed of the candidate as a multiple of the original's speed."""
        return self.original / self.candidate if self.candidate else 1.0

    @property
    def gains(self) -> bool:
        """Whether the predicted saving of time exceeds the possible error of the prediction, `doubt`."""
        return self.original - self.candidate > self.doubt

    @property
    def faster(self) -> bool:
        """Whether the saving exceeds `doubt`, and the predicted speedup is at least `1 + COMPARISON.min_gain_margin_share`."""
        return self.gains and self.ratio >= 1 + COMPARISON.min_gain_margin_share

    @property
    def slower(self) -> bool:
        """Whether the candidate is predicted to be slower than the original."""
        return self.candidate > self.original


def forecast(before: Plan, after: Plan) -> Forecast:
    """Return the predicted times of an original with the plan `before` and of a candidate with the plan `after`."""
    variance = 0.0
    for name in {**before.nodes, **after.nodes}:
        price = (before.nodes.get(name) or after.nodes[name])[0]
        change = _count(after, name) - _count(before, name)
        variance += (change * price.doubt(math.copysign(COST.forecast_sigmas, change))) ** 2
    return Forecast(before.seconds, after.seconds, math.sqrt(variance), min(before.known, after.known))


def _count(plan: Plan, name: str) -> int:
    return plan.nodes[name][1] if name in plan.nodes else 0


class ForecastClock(Clock):
    """A clock that predicts times from the profile of a device, and runs nothing on that device.

    The device `device` is present. Sessions on this device show which nodes ONNX Runtime fuses, and which shapes the results
    have. If the profile's provider is not the provider of `device`, these sessions use no processor-specific layouts.
    """

    def __init__(self, device: Device, prices: Prices, *, resident: int = 0) -> None:
        super().__init__(device)
        profile = prices.profile
        self.prices = prices
        self.portable = profile.provider != device.provider
        self.spare = clock_spare_cache_bytes(profile.provider, resident, profile.roofline.last_level)
        self._plans: dict[str, Plan] = {}

    @property
    def settings(self) -> tuple[Json, ...]:
        """The settings on which predictions depend, except the model."""
        return self.prices.profile.digest, self.cold

    @property
    def roofline(self) -> Roofline:
        """The roofline of the profile's device."""
        return self.prices.profile.roofline

    @property
    def overhead(self) -> tuple[float, float]:
        """A pair: the fixed overhead of a run in seconds, and the time of a node with one element in seconds."""
        return self.roofline.call, self.roofline.node

    def warm(self) -> ForecastClock:
        """Return a clock that predicts times for weights in the processor's caches."""
        return ForecastClock(self.device, self.prices)

    def seconds(self, model: ModelProto) -> float:
        """Return the predicted seconds of one run of the model.

        Raises:
            InvalidModelError: ONNX Runtime cannot load the model on this machine, or the shape of a value cannot be determined.
        """
        return self._known_plan(model).seconds

    def beside(self, model: ModelProto, reference: ModelProto) -> float:  # noqa: ARG002 (a prediction needs no reference)
        """Return the predicted seconds of one run of the model. `reference` has no effect on predicted times.

        Raises:
            InvalidModelError: See `ForecastClock.seconds`.
        """
        return self.seconds(model)

    def stands(self, before: ModelProto, after: ModelProto, predicted: float, least: float) -> bool:  # noqa: ARG002 (unused)
        """Return whether the second model is predicted to be faster by more than the error of the prediction."""
        return forecast(self._known_plan(before), self._known_plan(after)).gains

    def ratio(self, before: ModelProto, after: ModelProto) -> float:
        """Return the predicted speed of the second model as a multiple of the first model's speed."""
        return forecast(self._known_plan(before), self._known_plan(after)).ratio

    def pieces(self, model: ModelProto) -> tuple[Piece, ...]:
        """Return the nodes of the model's optimized graph with their predicted times. `seconds` returns the sum."""
        return tuple(Piece(k.node.op_type, self._price(k).seconds) for k in self.kernels(model))

    def plan(self, model: Loadable, sizes: Mapping[str, int] | None = None) -> Plan:
        """Return the nodes of the model's optimized graph with their prices (predicted times).

        `sizes` contains the sizes of the model's dynamic dimensions.

        Raises:
            InvalidModelError: ONNX Runtime cannot load the model, the shape of a value cannot be determined, or a node has a
                body (nested graph). The number of runs of a body is not known.
        """
        return self._planned(self.kernels(model, sizes))

    def _known_plan(self, model: ModelProto) -> Plan:
        key = clock_structure_digest(model)
        if key not in self._plans:
            self._plans[key] = self.plan(model)
        return self._plans[key]

    def _planned(self, kernels: Iterable[Kernel]) -> Plan:
        counts: Counter[str] = Counter()
        prices: dict[str, Price] = {}
        for kernel in kernels:
            if any(attribute.type in _BODIES for attribute in kernel.node.attribute):
                raise InvalidModelError(
                    f"the time of a {kernel.node.op_type} node cannot be predicted, because the node contains a graph"
                )
            name = text_of(kernel.signature())
            counts[name] += 1
            if name not in prices:
                prices[name] = self._price(kernel)
        return Plan({name: (prices[name], count) for name, count in counts.items()})

    def _price(self, kernel: Kernel) -> Price:
        made: list[Operand | None] = [kernel.operands.get(name) for name in kernel.node.output]
        return self.prices.price(kernel.signature(), made, cold=self.cold)

    def _outputs(self, kernel: Kernel) -> tuple[Operand | None, ...]:
        return kernel.outputs(self.device)


@dataclass(frozen=True)
class Forecasts:
    """Forecasts of the times of an original and a candidate, one for each choice of sizes of the dynamic dimensions."""

    at: tuple[tuple[DimBinding, Forecast], ...]

    @property
    def least(self) -> Forecast:
        """The forecast at the sizes where the candidate gains the least."""
        return min((found for _, found in self.at), key=lambda f: f.ratio)

    @property
    def faster(self) -> bool:
        """Whether the candidate is faster at some sizes, and slower at no sizes."""
        found = [forecast for _, forecast in self.at]
        return any(f.faster for f in found) and not any(f.slower for f in found)


def forecast_everywhere(
    clock: ForecastClock, original: Loadable, candidate: Loadable, sizings: Sequence[DimBinding]
) -> Forecasts:
    """Return the forecasts for the original and the candidate at all given sizes of the dynamic dimensions.

    Raises:
        InvalidModelError: See `ForecastClock.plan`.
    """
    return Forecasts(tuple((s, forecast(clock.plan(original, s.numbers), clock.plan(candidate, s.numbers))) for s in sizings))


def unpriced_reason(clock: ForecastClock, model: Loadable, sizings: Sequence[DimBinding]) -> str:
    """Return the reason why the time of the model cannot be predicted at these sizes.

    If the time can be predicted, return an empty text.
    """
    try:
        for sizing in sizings:
            clock.plan(model, sizing.numbers)
    except InvalidModelError as error:
        return f"the model has no predicted time on {clock.prices.profile.name}: {error}; the original is kept"
    return ""
