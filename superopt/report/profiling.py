"""The report of `superopt profile`: the rates of a device, the times of measured nodes, and the accuracy of predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from superopt.report.number_texts import duration


@dataclass(frozen=True)
class Rate:
    """The rate at which a device does one kind of work.

    `highest` is the highest rate in units per second. `half_from` is the smallest amount of work for which the rate is at least
    half of `highest`.
    """

    name: str
    unit: str
    highest: float
    half_from: float


@dataclass(frozen=True)
class NodeTime:
    """A measured node: the operator, the shapes of the operands, and the run time in seconds, measured in isolation.

    If `cold` is True, the node's weights were in no cache of the processor during the measurement.
    """

    operator: str
    shapes: str
    cold: bool
    seconds: float


@dataclass(frozen=True)
class ModelTime:
    """The total time of the nodes of a model, after ONNX Runtime's graph optimizations.

    Attributes:
        model: The name of the model.
        nodes: The number of nodes.
        measured: The sum of the nodes' measured seconds.
        predicted: The sum of the nodes' predicted seconds. The prediction for a node does not use the node's measured time.
        reason: The reason why there are no times. The text is empty if there are times.
    """

    model: str
    nodes: int = 0
    measured: float = 0.0
    predicted: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class PredictionErrors:
    """The accuracy of predicted times, as factors between the predicted and the measured times of nodes.

    A node has a predicted time and a measured time. The factor of the node is the larger time divided by the smaller time. The
    prediction for a node does not use the node's measured time.

    Attributes:
        two_thirds: Two thirds of the nodes have at most this factor.
        nine_tenths: Nine tenths of the nodes have at most this factor.
    """

    two_thirds: float
    nine_tenths: float


@dataclass(frozen=True)
class Profiling:
    """The report of one run of `superopt profile`.

    Attributes:
        device: The name of the device.
        provider: The execution provider.
        threads: The CPU threads of a session.
        runtime: The version of ONNX Runtime.
        rates: The rates of arithmetic and of memory traffic.
        memory: The rate of reading from memory, in bytes per second.
        call: The fixed overhead of a run in seconds, which is added to the time of the nodes.
        node: The run time in seconds of a node with one element.
        caches: The sizes in bytes of the processor's caches.
        known: The number of measured nodes.
        largest: The measured nodes with the longest times.
        roofline: The accuracy of predictions from the roofline alone. The value is None if there are too few measured nodes.
        corrected: The accuracy of predictions from the roofline and from similar nodes. The value is None if there are too few
            measured nodes.
        models: The times of the given models.
        others: The number of measured nodes of each further device in the cache.
        unkept: The reason why times could not be stored. The text is empty if all times were stored.
    """

    device: str
    provider: str
    threads: int
    runtime: str
    rates: tuple[Rate, ...]
    memory: float
    call: float
    node: float
    caches: tuple[int, ...]
    known: int
    largest: tuple[NodeTime, ...]
    roofline: PredictionErrors | None
    corrected: PredictionErrors | None
    models: tuple[ModelTime, ...]
    others: Mapping[str, int]
    unkept: str = ""


def profiling_tables(found: Profiling) -> RenderableType:
    """Return the report as tables for a terminal."""
    parts: list[RenderableType] = [_rates(found)]
    if found.models:
        parts.append(_models(found.models))
    if found.largest:
        parts.append(_largest(found.largest))
    parts.append(_known(found))
    device = f"{found.device}, {found.provider}, {found.threads} threads, ONNX Runtime {found.runtime}"
    parts.append(Text(f"{device}: {found.known} nodes are known", style="bold green"))
    return Group(*parts)


def _rates(found: Profiling) -> Table:
    table = Table(title="Roofline", title_justify="left")
    for heading, side in (("rate of", "left"), ("highest", "right"), ("half of it from", "right")):
        table.add_column(heading, justify="right" if side == "right" else "left")
    for rate in found.rates:
        table.add_row(
            rate.name, f"{format_metric(rate.highest)}{rate.unit}/s", f"{format_metric(rate.half_from)}{rate.unit} at once"
        )
    table.add_row("bytes from memory", f"{format_metric(found.memory)}B/s", "")
    return table


def _models(models: tuple[ModelTime, ...]) -> Table:
    table = Table(title="Models, the sum over their nodes", title_justify="left")
    table.add_column("model")
    for heading in ("nodes", "measured", "predicted", "ratio"):
        table.add_column(heading, justify="right")
    for model in models:
        if model.reason:
            table.add_row(escape(model.model), "", escape(model.reason), "", "")
        else:
            ratio = f"{model.predicted / model.measured:.2f}" if model.measured else ""
            times = duration(model.measured), duration(model.predicted)
            table.add_row(escape(model.model), str(model.nodes), *times, ratio)
    return table


def _largest(nodes: tuple[NodeTime, ...]) -> Table:
    table = Table(title="Known nodes, the longest", title_justify="left")
    table.add_column("operator")
    table.add_column("operands", overflow="fold")
    table.add_column("weights")
    table.add_column("time", justify="right")
    for node in nodes:
        table.add_row(escape(node.operator), node.shapes, "in no cache" if node.cold else "", duration(node.seconds))
    return table


def _known(found: Profiling) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("a run", f"{duration(found.call)} whatever the model, {duration(found.node)} for its smallest node")
    if found.caches:
        table.add_row("caches", ", ".join(f"{size >> 10} KiB" for size in found.caches))
    for name, errors in (("roofline alone", found.roofline), ("with similar nodes", found.corrected)):
        if errors is not None:
            bounds = f"{errors.two_thirds:.2f} for two thirds of the known nodes, {errors.nine_tenths:.2f} for nine tenths"
            table.add_row(name, f"right within a factor of {bounds}")
    for device, count in found.others.items():
        table.add_row("also known", f"{count} nodes of {escape(device)}")
    if found.unkept:
        table.add_row("not kept", escape(found.unkept))
    return table


def format_metric(number: float) -> str:
    """Return the number as text that ends with a metric prefix, such as `2.5 k` for 2500. The caller appends the unit."""
    power = min(max(int(math.log10(number)) // 3, 0), 4) if number > 0 else 0
    return f"{number / 1000**power:.3g} {('', 'k', 'M', 'G', 'T')[power]}"
