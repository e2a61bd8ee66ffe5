"""Costs on a device that is not here: what its profile says of the nodes that ONNX Runtime makes of a model on this machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, ModelProto

from superopt.dim_binding import DimBinding
from superopt.errors import InvalidModelError
from superopt.model.cache import text_of
from superopt.model.compare import MARGIN
from superopt.model.kernel import Kernel, Operand
from superopt.model.measure import Clock, Piece, spare, structure
from superopt.model.prices import Price, Prices
from superopt.model.roofline import Roofline
from superopt.model.session import Device
from superopt.model.stored import Loadable

SIGMAS = 2.0
"""By how many standard deviations prices are taken to err against a gain, for it to be believed."""
_BODIES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


@dataclass(frozen=True)
class Plan:
    """The nodes that a run executes: each kind by the text of its signature, its price, and how many there are of it."""

    nodes: Mapping[str, tuple[Price, int]]

    @property
    def seconds(self) -> float:
        """The predicted time of a run."""
        return math.fsum(price.seconds * count for price, count in self.nodes.values())

    @property
    def known(self) -> float:
        """The share of that time in nodes whose time was measured on the device."""
        known = math.fsum(price.seconds * count for price, count in self.nodes.values() if price.known)
        return known / self.seconds if self.nodes else 1.0


@dataclass(frozen=True)
class Forecast:
    """Two models' predicted seconds a run; `doubt` is how much less the candidate may save, `known` as in `Plan`.

    Only nodes that one has and the other has not, or has less often, can make the difference wrong: equal ones have equal
    errors and cancel. Nodes that go may be cheaper than their price by `SIGMAS` of its standard deviations, and those that come
    dearer; the errors of different ones are taken to be independent.
    """

    original: float
    candidate: float
    doubt: float
    known: float

    @property
    def ratio(self) -> float:
        """How many times as fast as the original the candidate is, as predicted."""
        return self.original / self.candidate if self.candidate else 1.0

    @property
    def gains(self) -> bool:
        """Whether the candidate saves more than is in doubt."""
        return self.original - self.candidate > self.doubt

    @property
    def faster(self) -> bool:
        """Whether it gains, and by as much as a measured gain would have to be to count."""
        return self.gains and self.ratio >= 1 + MARGIN

    @property
    def slower(self) -> bool:
        """Whether the candidate is predicted to be slower."""
        return self.candidate > self.original


def forecast(before: Plan, after: Plan) -> Forecast:
    """What the plans predict of the two models that they are of."""
    variance = 0.0
    for name in {**before.nodes, **after.nodes}:
        price = (before.nodes.get(name) or after.nodes[name])[0]
        change = _count(after, name) - _count(before, name)
        variance += (change * price.doubt(math.copysign(SIGMAS, change))) ** 2
    return Forecast(before.seconds, after.seconds, math.sqrt(variance), min(before.known, after.known))


def _count(plan: Plan, name: str) -> int:
    return plan.nodes[name][1] if name in plan.nodes else 0


class ForecastClock(Clock):
    """A clock whose times are predicted: nothing is run on the device, and sessions on `device`, which is here, say what
    ONNX Runtime fuses, and what shapes come out. Where the provider is another one, they do so without layouts of this one's.
    """

    def __init__(self, device: Device, prices: Prices, *, resident: int = 0) -> None:
        super().__init__(device)
        profile = prices.profile
        self.prices = prices
        self.portable = profile.provider != device.provider
        self.spare = spare(profile.provider, resident, profile.roofline.last_level)
        self._plans: dict[str, Plan] = {}

    @property
    def settings(self) -> tuple[object, ...]:
        """What the predictions depend on besides what is predicted."""
        return self.prices.profile.digest, self.cold

    @property
    def roofline(self) -> Roofline:
        """The device's roofline."""
        return self.prices.profile.roofline

    @property
    def overhead(self) -> tuple[float, float]:
        """Seconds that a run costs whatever the model, and seconds that the smallest node costs."""
        return self.roofline.call, self.roofline.node

    def warm(self) -> ForecastClock:
        """The clock for weights that are in the processor's caches."""
        return ForecastClock(self.device, self.prices)

    def seconds(self, model: ModelProto) -> float:
        """The predicted time of one run of the model.

        Raises:
            InvalidModelError: ONNX Runtime cannot load the model here, or the shape of a value cannot be learned.
        """
        return self._known_plan(model).seconds

    def beside(self, model: ModelProto, reference: ModelProto) -> float:  # noqa: ARG002 (a prediction needs no reference)
        """The predicted time of one run of the model.

        Raises:
            InvalidModelError: as `seconds`.
        """
        return self.seconds(model)

    def stands(self, before: ModelProto, after: ModelProto, predicted: float, least: float) -> bool:  # noqa: ARG002 (both are its own)
        """Whether the second model is predicted to be faster by more than the prediction's error."""
        return forecast(self._known_plan(before), self._known_plan(after)).gains

    def ratio(self, before: ModelProto, after: ModelProto) -> float:
        """How many times as fast the second model is predicted to be."""
        return forecast(self._known_plan(before), self._known_plan(after)).ratio

    def pieces(self, model: ModelProto) -> tuple[Piece, ...]:
        """The nodes that `seconds` sums over."""
        return tuple(Piece(k.node.op_type, self._price(k).seconds) for k in self.kernels(model))

    def plan(self, model: Loadable, sizes: Mapping[str, int] | None = None) -> Plan:
        """The model's nodes with their prices, `sizes` put in for open dimensions.

        Raises:
            InvalidModelError: as `seconds`, or a node has a body, of which nobody knows how often it runs.
        """
        return self._planned(self.kernels(model, sizes))

    def _known_plan(self, model: ModelProto) -> Plan:
        key = structure(model)
        if key not in self._plans:
            self._plans[key] = self.plan(model)
        return self._plans[key]

    def _planned(self, kernels: Iterable[Kernel]) -> Plan:
        counts: Counter[str] = Counter()
        prices: dict[str, Price] = {}
        for kernel in kernels:
            if any(attribute.type in _BODIES for attribute in kernel.node.attribute):
                raise InvalidModelError(f"a node has a body ({kernel.node.op_type}), and no price")
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
    """Forecasts at the sizings that matter, in their order."""

    at: tuple[tuple[DimBinding, Forecast], ...]

    @property
    def least(self) -> Forecast:
        """The one in which the candidate gains least."""
        return min((found for _, found in self.at), key=lambda f: f.ratio)

    @property
    def faster(self) -> bool:
        """Whether the candidate is faster at one sizing at least, and slower at none."""
        found = [forecast for _, forecast in self.at]
        return any(f.faster for f in found) and not any(f.slower for f in found)


def forecast_everywhere(
    clock: ForecastClock, original: Loadable, candidate: Loadable, sizings: Sequence[DimBinding]
) -> Forecasts:
    """What is predicted of the two models at every sizing.

    Raises:
        InvalidModelError: as `ForecastClock.plan`.
    """
    return Forecasts(tuple((s, forecast(clock.plan(original, s.numbers), clock.plan(candidate, s.numbers))) for s in sizings))


def unpriced(clock: ForecastClock, model: Loadable, sizings: Sequence[DimBinding]) -> str:
    """Why the model cannot be priced at these sizings, where it cannot."""
    try:
        for sizing in sizings:
            clock.plan(model, sizing.numbers)
    except InvalidModelError as error:
        return f"the model has no predicted time on {clock.prices.profile.name}: {error}; the original is kept"
    return ""
