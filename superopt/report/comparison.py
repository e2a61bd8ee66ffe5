"""The report of `superopt.compare`: two models side by side, in speed, outputs, operators and size."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from superopt.protobuf.kernels import is_kernel_domain
from superopt.report.number_texts import counted, duration
from superopt.report.optimization import RunEnvironment, Timing


@dataclass(frozen=True)
class OutputDifference:
    """The differences between one output of the first model and the same output of the second model, over all compared inputs.

    Attributes:
        name: The name of the output.
        largest: The largest distance between two elements that are finite in both models. For an output without
            floating-point numbers, the value is 0.
        relative: The largest distance between two finite elements, divided by the largest magnitude of the first model's output
            on the same input.
        different: The share of elements that are not equal. Two floating-point elements count as equal if both are finite,
            both are NaN, or both are the same infinity.
    """

    name: str
    largest: float
    relative: float
    different: float


@dataclass(frozen=True)
class ModelContent:
    """The content of a model: the name for messages, the count of nodes of each operator, and the bytes of all weights."""

    name: str
    operators: Mapping[str, int]
    weight_bytes: int

    @property
    def nodes(self) -> int:
        """The number of nodes, including nodes in the bodies of control flow."""
        return sum(self.operators.values())


@dataclass(frozen=True)
class ModelComparison:
    """The comparison of two models.

    Attributes:
        first: The content of the first model, usually an original.
        second: The content of the second model, usually an optimized model.
        timings: A mapping from texts to timings, with one timing for each choice of sizes of the dynamic dimensions. The text
            states the sizes. The text is empty for a model without dynamic dimensions. In a timing, the field `original` is the
            time of the first model.
        outputs: The differences between the outputs.
        inputs: The number of sets of input values on which the outputs were compared.
        environment: The device and the versions for which the measurements are valid.
        libraries: The paths of the libraries of kernels with which both models ran.
    """

    first: ModelContent
    second: ModelContent
    timings: Mapping[str, Timing]
    outputs: tuple[OutputDifference, ...]
    inputs: int
    environment: RunEnvironment
    libraries: tuple[str, ...] = ()

    @property
    def speedup(self) -> float:
        """The time of the first model divided by the time of the second model, at the sizes with the smallest ratio."""
        return min(timing.speedup for timing in self.timings.values())

    @property
    def verdict(self) -> str:
        """One sentence on the speedup of the second model, and on the differences of the outputs."""
        ratios = sorted(timing.speedup for timing in self.timings.values())
        span = f"{ratios[0]:.2f}" if len(ratios) == 1 else f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        least = min(self.timings.values(), key=lambda timing: timing.speedup)
        within = least.low <= 1 + least.noise and least.high >= 1 - least.noise
        noise = ", which is within the noise" if within else ""
        worst = max((output.relative for output in self.outputs), default=0.0)
        share = max((output.different for output in self.outputs), default=0.0)
        others = f"; up to {share:.2%} of the elements of an output are different" if share else ""
        return (
            f"{self.second.name}: {span} times as fast as {self.first.name}{noise}; outputs differ by at most {worst:.1e} of "
            f"their magnitude{others}"
        )

    def json(self) -> str:
        """Return the comparison as a JSON object with a final newline."""
        return json.dumps({**dataclasses.asdict(self), "speedup": self.speedup}, indent=2, ensure_ascii=False) + "\n"


def comparison_summary(compared: ModelComparison) -> RenderableType:
    """Return the comparison as text and tables for a terminal, with the verdict first."""
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for sizes, t in compared.timings.items():
        where = f" at {sizes}" if sizes else ""
        change = f"{duration(t.original)} to {duration(t.optimized)}, {t.speedup:.3f}x ({t.low:.3f} to {t.high:.3f})"
        facts.add_row("time", f"{change}, noise {t.noise:.1%}, {t.rounds} rounds{escape(where)}")
    first, second = compared.first, compared.second
    facts.add_row("nodes", f"{first.nodes} to {second.nodes}")
    facts.add_row("weights", f"{first.weight_bytes / 1e6:.2f} MB to {second.weight_bytes / 1e6:.2f} MB")
    e = compared.environment
    facts.add_row(
        "on", f"{e.device}, {e.provider}, {counted(e.threads, 'thread')}, onnxruntime {e.versions.get('onnxruntime', '')}"
    )
    if compared.libraries:
        facts.add_row("with", escape(", ".join(compared.libraries)))
    elif any(is_kernel_domain(name) for name in (*first.operators, *second.operators)):
        facts.add_row("next", "give the library of kernels, such as b.kernels.so, with --library: the kernels did not run")
    verdict = Text(compared.verdict, style="bold")
    return Group(verdict, Text(), facts, Text(), _outputs(compared), Text(), _operators(first, second))


def _outputs(compared: ModelComparison) -> Table:
    table = Table(title=f"Outputs on {compared.inputs} sets of inputs", title_justify="left")
    table.add_column("output", overflow="fold")
    for heading in ("largest difference", "of the magnitude", "different elements"):
        table.add_column(heading, justify="right")
    for output in compared.outputs:
        figures = f"{output.largest:.2e}", f"{output.relative:.1e}", f"{output.different:.2%}"
        table.add_row(escape(output.name), *figures)
    return table


def _operators(first: ModelContent, second: ModelContent) -> Table:
    table = Table(title="Operators with different counts", title_justify="left")
    table.add_column("operator", overflow="fold")
    table.add_column("first", justify="right")
    table.add_column("second", justify="right")
    for name in sorted({*first.operators, *second.operators}):
        counts = first.operators.get(name, 0), second.operators.get(name, 0)
        if counts[0] != counts[1]:
            table.add_row(escape(name), *map(str, counts))
    return table
