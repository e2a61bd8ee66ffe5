"""Render the report of a rule generation: a line for each universe (a vocabulary for terms), and the totals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

COLUMNS = ("built", "graphs", "classes", "candidates", "idle", "redundant", "proved", "refuted", "unknown", "kept")
HEADINGS = {"built": "terms built", "graphs": "graphs they stand for"}
STAGES = ("enumerate", "dedupe", "verify")


class GenerationCounts(Protocol):
    """The counts of terms and rules for one universe (a vocabulary for terms), and the time and memory of its generation.

    `seconds` is the CPU time in seconds. `peak_bytes` is the largest peak memory of a process that worked on the universe.
    """

    @property
    def family(self) -> str: ...

    @property
    def universe(self) -> str: ...

    @property
    def seconds(self) -> float: ...

    @property
    def peak_bytes(self) -> int: ...


class GenerationRun(Protocol):
    """The results of one generation of rules. Times and memory depend on the machine, and counts depend only on the seed."""

    @property
    def seed(self) -> int: ...

    @property
    def counts(self) -> Sequence[GenerationCounts]: ...

    @property
    def core(self) -> int: ...

    @property
    def search(self) -> int: ...

    @property
    def stages(self) -> Mapping[str, float]: ...

    @property
    def elapsed(self) -> float: ...

    @property
    def peak_bytes(self) -> int: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def processes(self) -> int: ...

    @property
    def resumed(self) -> int: ...


def counts_table(run: GenerationRun) -> RenderableType:
    """Return a table of the counts for every universe (a vocabulary for terms), followed by the totals of the run."""
    table = Table(title="Rules generated", title_justify="left", show_footer=True)
    table.add_column("family", "all")
    table.add_column("universe")
    for column in COLUMNS:
        total = sum(_count(row, column) for row in run.counts)
        table.add_column(HEADINGS.get(column, column), f"{total:,}", justify="right")
    table.add_column("seconds", f"{sum(row.seconds for row in run.counts):.1f}", justify="right")
    for row in run.counts:
        numbers = [f"{_count(row, column):,}" for column in COLUMNS]
        table.add_row(escape(row.family), escape(row.universe), *numbers, f"{row.seconds:.1f}")
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in run.stages.items())
    where = f"in {run.processes} processes and this one" if run.processes else "in this process"
    again = f"; {run.resumed} tasks' results were there already" if run.resumed else ""
    lines = (
        f"{run.core} rules in the core, {run.search} more for the search",
        f"processor seconds: {stages}",
        f"{run.elapsed:.1f} s on the clock, {where}{again}",
        f"memory at most: {run.peak_bytes / 2**30:.2f} GiB in one process, {run.total_bytes / 2**30:.2f} GiB in all together",
    )
    return Group(table, *map(Text, lines))


def generation_json(run: GenerationRun, templates: int) -> str:
    """Return the counts of every universe and family as a JSON object with a final newline.

    A universe is a vocabulary for terms, and a family is a group of universes. `templates` is the count of distinct templates
    from which terms were built. A template is an operator with given attributes. Two runs with the same seed differ only in
    seconds, bytes, processes and resumed tasks.
    """
    rows = list(run.counts)
    whole = {
        "seed": run.seed,
        "templates": templates,
        "core": run.core,
        "search": run.search,
        "user_seconds": sum(run.stages.values()),
        "stages": dict(run.stages),
        "elapsed_seconds": run.elapsed,
        "processes": run.processes,
        "resumed_tasks": run.resumed,
        "peak_bytes": run.peak_bytes,
        "total_bytes": run.total_bytes,
    }
    families = [_summed(family, [r for r in rows if r.family == family]) for family in dict.fromkeys(r.family for r in rows)]
    universes = [{"universe": r.universe, **_summed(r.family, [r])} for r in rows]
    return json.dumps({**whole, "families": families, "universes": universes}, indent=2) + "\n"


def _summed(family: str, rows: Sequence[GenerationCounts]) -> dict[str, str | int | float]:
    """Return a JSON object with the sums of the rows' counts, the sums of their CPU times, and their largest peak memory."""
    counts = {column: sum(_count(row, column) for row in rows) for column in COLUMNS}
    spent = {stage: sum(float(getattr(row, stage)) for row in rows) for stage in (*STAGES, "seconds")}
    return {"family": family, **counts, **spent, "peak_bytes": max(row.peak_bytes for row in rows)}


def _count(row: GenerationCounts, column: str) -> int:
    return int(getattr(row, column))
