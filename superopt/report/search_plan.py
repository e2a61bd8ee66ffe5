"""The plan of a search: the parts of a model that `superopt optimize` would search, the sizes, and the time budget."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from superopt.model.coverage import OperatorShare, UncoveredNodes
from superopt.policy import REPORT
from superopt.report.number_texts import counted, duration, percent
from superopt.report.optimization import RunEnvironment
from superopt.report.optimization_summary import data_table, labelled_rows


@dataclass(frozen=True)
class PlannedIsland:
    """An island: a region of the model that the search can rewrite.

    Attributes:
        nodes: The number of nodes.
        operators: The count of nodes of each operator, the largest count first.
        outputs: The names of the island's outputs.
    """

    nodes: int
    operators: Mapping[str, int]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class SearchPlan:
    """The plan of a search.

    Attributes:
        model: The name of the model.
        nodes: The number of nodes.
        islands: The regions that the search can rewrite, the largest first.
        sizes: The sizes of the dynamic dimensions for measurements. The tuple is empty if the model has no dynamic dimensions.
        budget: The largest number of seconds that the search would take.
        seed: The random seed.
        mode: The floating-point mode.
        environment: The device and the versions.
        run_seconds: The seconds of one run of the model, summed over all sizes.
        assumptions: The statements about dynamic dimensions on which the search would rely.
        fixed: The fixed values of inputs and fixed sizes of dimensions, as text. The result would be right only for these
            values and sizes.
        operators: The share of the run time of each operator.
        uncovered: The nodes that the search cannot rewrite, by operator and reason.
        failed: The reason why the model cannot be searched. The text is empty if the model can be searched.
    """

    model: str
    nodes: int
    islands: tuple[PlannedIsland, ...]
    sizes: tuple[str, ...]
    budget: float
    seed: int
    mode: str
    environment: RunEnvironment
    run_seconds: float
    assumptions: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    operators: tuple[OperatorShare, ...] = ()
    uncovered: tuple[UncoveredNodes, ...] = ()
    failed: str = ""

    @property
    def verdict(self) -> str:
        """One sentence about the parts that the search would rewrite."""
        if self.failed:
            return f"{self.model}: {self.failed}"
        count = sum(island.nodes for island in self.islands)
        where = counted(len(self.islands), "island")
        return f"{self.model}: {count} of {self.nodes} nodes can be rewritten, in {where}; nothing was searched or written"

    def json(self) -> str:
        """Return the plan as a JSON object with a final newline."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"


def plan_summary(plan: SearchPlan, *, verbose: bool = False) -> RenderableType:
    """Return the plan for a terminal. If `verbose` is True, all islands and all operators are listed."""
    islands = plan.islands if verbose else plan.islands[: REPORT.max_planned_islands]
    table = data_table("Islands", "ends at", "nodes")
    table.add_column("operators", overflow="fold")
    for island in islands:
        ends = ", ".join(island.outputs[: REPORT.max_reasons]) + (", …" if len(island.outputs) > REPORT.max_reasons else "")
        operators = ", ".join(f"{count} {name}" for name, count in island.operators.items())
        table.add_row(escape(ends), str(island.nodes), escape(operators))
    if others := plan.islands[len(islands) :]:
        table.add_row(counted(len(others), "smaller island"), str(sum(island.nodes for island in others)), "")
    parts: list[RenderableType] = [Text(plan.verdict, style="bold"), Text(), labelled_rows(_rows(plan, verbose=verbose))]
    parts += [Text(), table] if islands else []
    return Group(*parts)


def _rows(plan: SearchPlan, *, verbose: bool) -> Iterator[tuple[str, str]]:
    yield from (("sizes", sizes) for sizes in plan.sizes)
    yield "run", duration(plan.run_seconds)
    yield "search", f"budget {duration(plan.budget)}, seed {plan.seed}, floating-point mode {plan.mode}"
    if plan.fixed:
        yield "fixed", ", ".join(f"{name}={value}" for name, value in plan.fixed.items())
    yield from (("assumes", sentence) for sentence in plan.assumptions)
    threads = counted(plan.environment.threads, "thread")
    yield "on", f"{plan.environment.device}, {plan.environment.provider}, {threads}"
    count = len(plan.operators) if verbose else REPORT.max_time_operators
    shares = ", ".join(f"{row.operator} ({percent(row.share)})" for row in plan.operators[:count])
    if shares:
        yield "time", shares
    rows = plan.uncovered if verbose else plan.uncovered[: REPORT.max_uncovered_operators]
    for row in rows:
        yield "cannot rewrite", f"{row.nodes} x {row.operator}: {percent(row.share)} of the time, {row.reason}"
    if others := plan.uncovered[len(rows) :]:
        yield "cannot rewrite", counted(sum(row.nodes for row in others), "other node")
