"""Profile a device: measure its roofline, time the nodes of models, and report the measurements and the predictions."""

from __future__ import annotations

import math
import os
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from superopt.cost.calibrate import calibrate_roofline
from superopt.cost.device_profile import DeviceProfile, MeasuredNode, build_profile, read_profile
from superopt.cost.measure import Clock
from superopt.cost.prices import Prices
from superopt.cost.roofline import Curve
from superopt.errors import InvalidModelError
from superopt.model.dimensions import representative_sizings
from superopt.model.external_data import temporary_scratch
from superopt.model.load import load, weight_bytes
from superopt.model.save import loadable
from superopt.policy import REPORT
from superopt.report.profiling import ModelTime, NodeTime, PredictionErrors, Profiling, Rate
from superopt.report.progress import Listener, Progress, ignore_progress
from superopt.runtime.cache import Cache, default_path, json_list, json_text
from superopt.runtime.kernel import Kernel
from superopt.runtime.session import Device


@dataclass(frozen=True)
class Profile:
    """The profile of a device (measured times and a roofline), and a report of the profile for readers."""

    device: DeviceProfile
    report: Profiling

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the device profile to `path`.

        Raises:
            TargetError: The file cannot be written; an existing file is unchanged.
        """
        self.device.save(path)


def profile(
    models: Sequence[str | os.PathLike[str]] = (),
    *,
    provider: str = "cpu",
    threads: int = 1,
    shapes: Sequence[Mapping[str, int]] = (),
    cache: str | os.PathLike[str] | None = None,
    merged: Sequence[str | os.PathLike[str]] = (),
    progress: Listener | None = None,
) -> Profile:
    """Measure a device of this machine, and return a profile with all measurements of this device that the time cache contains.

    The device's roofline (its rates of arithmetic and memory traffic) is measured unless the time cache contains it.

    Args:
        models: Models whose nodes are timed after ONNX Runtime's graph optimizations.
        provider: "cpu", "cuda" or "tensorrt".
        threads: The CPU threads of a session.
        shapes: Sizes of the dynamic dimensions, as in `superopt.optimize`.
        cache: The file of measured times. By default, the file is in the user's cache folder.
        merged: Files of device profiles whose times are added to the cache. The result contains the times that these files
            state for the measured device.
        progress: Receives progress reports.

    Raises:
        ModelNotFoundError, InvalidModelError, DimensionError: A model cannot be loaded.
        ProviderError, RuntimeMissingError: The provider, or ONNX Runtime, is not installed.
        ProfileError: A file to merge is not a profile.
    """
    told = progress or ignore_progress
    device = Device(provider, threads)
    read_before = [read_profile(path) for path in merged]
    with closing(Cache(Path(cache) if cache is not None else default_path())) as times:
        for other in read_before:
            told(Progress("merge", detail=other.name))
            other.store(times)
        told(Progress("calibrate"))
        roofline = calibrate_roofline(Clock(device, times))
        run = [_timed(path, device, times, shapes, told) for path in models]
        known = build_profile(device, roofline, times)
        unkept = times.error or ("the machine is busy" if times.was_busy else "")
        others = Counter(str(key[1]) for key, _ in times.entries("kernel") if key[1] != device.identity)
    prices = Prices(known)
    rows = tuple(_model_time(timing, prices) for timing in run)
    return Profile(known, _report(known, prices, rows, dict(sorted(others.items())), unkept))


# ---------------------------------------------------------------- models


@dataclass(frozen=True)
class _Timed:
    """The nodes of a model that were timed. If the model could not be run, `reason` says why.

    `cold` says whether the weights are too large for every cache of the processor.
    """

    model: str
    kernels: tuple[Kernel, ...]
    cold: bool
    reason: str = ""


def _timed(
    path: str | os.PathLike[str], device: Device, times: Cache, shapes: Sequence[Mapping[str, int]], told: Listener
) -> _Timed:
    """Measure the nodes of the model at `path`, add their times to the cache, and return the nodes."""
    loaded = load(path)
    clock = Clock(device, times, resident=weight_bytes(loaded.model))
    kernels: list[Kernel] = []
    try:
        with temporary_scratch() as scratch:
            source = loadable(loaded.model, scratch, loaded.path)
            for sizing in representative_sizings(loaded.model, shapes):
                kernels += clock.kernels(source, sizing.numbers)
        for done, kernel in enumerate(kernels, 1):
            told(Progress(f"time {loaded.label}", done, len(kernels)))
            clock.timing(kernel)
    except InvalidModelError as error:
        return _Timed(loaded.label, (), clock.cold, str(error))
    return _Timed(loaded.label, tuple(kernels), clock.cold)


def _model_time(timed: _Timed, prices: Prices) -> ModelTime:
    if timed.reason:
        return ModelTime(timed.model, reason=timed.reason)
    both = [prices.beside(kernel.signature(), cold=timed.cold) for kernel in timed.kernels]
    measured, predicted = math.fsum(seconds for seconds, _ in both), math.fsum(price.seconds for _, price in both)
    return ModelTime(timed.model, len(timed.kernels), measured, predicted)


# ---------------------------------------------------------------- the report


def _report(
    known: DeviceProfile, prices: Prices, models: tuple[ModelTime, ...], others: Mapping[str, int], unkept: str
) -> Profiling:
    roofline = known.roofline
    longest = sorted(known.kernels, key=lambda k: (-k.timing.seconds, k.text))[: REPORT.max_profiled_nodes]
    return Profiling(
        device=known.name,
        provider=known.provider,
        threads=known.threads,
        runtime=known.versions["onnxruntime"],
        rates=tuple(_rates(prices)),
        memory=roofline.memory,
        call=roofline.call,
        node=roofline.node,
        caches=roofline.caches,
        known=len(known.kernels),
        largest=tuple(map(_node_time, longest)),
        roofline=_errors(prices.roofline_errors()),
        corrected=_errors(prices.errors()),
        models=models,
        others=others,
        unkept=unkept,
    )


def _rates(prices: Prices) -> Iterator[Rate]:
    roofline = prices.profile.roofline
    for kind, curve in roofline.rates.items():
        yield Rate(f"{kind} operations", "op", *_shape(curve))
    yield Rate("bytes read and written", "B", *_shape(roofline.traffic))


def _shape(curve: Curve) -> tuple[float, float]:
    """Return the highest rate of a curve, and the smallest amount of work at which at least half of this rate is reached.

    A curve contains a rate (work per second) for each of several amounts of work.
    """
    highest = max(speed for _, speed in curve)
    return highest, next(amount for amount, speed in curve if speed >= highest / 2)


def _node_time(known: MeasuredNode) -> NodeTime:
    operands = [json_list(operand) for operand in json_list(known.signature[4]) if operand is not None]
    shapes = ", ".join("x".join(map(str, json_list(shape))) for _, _, shape, *_ in operands)
    return NodeTime(json_text(known.signature[1]), shapes, known.cold, known.timing.seconds)


def _errors(off: Sequence[float]) -> PredictionErrors | None:
    if len(off) < REPORT.min_predicted_nodes:
        return None
    tenths = statistics.quantiles((math.exp(abs(each)) for each in off), n=30, method="inclusive")
    return PredictionErrors(tenths[19], tenths[26])
