"""What a generation of rules went through, as a table: a line for each universe of terms, and their sum."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

COLUMNS = ("built", "graphs", "classes", "candidates", "redundant", "proved", "refuted", "unknown", "kept")
HEADINGS = {"built": "terms built", "graphs": "graphs they stand for"}


class Counts(Protocol):
    """What became of one universe."""

    @property
    def family(self) -> str: ...

    @property
    def universe(self) -> str: ...

    @property
    def seconds(self) -> float: ...


def counts_table(rows: Iterable[Counts], seconds: float, peak_bytes: int) -> RenderableType:
    """The counts of every universe; `seconds` and `peak_bytes` are those of the whole run."""
    rows = list(rows)
    table = Table(title="Rules generated", title_justify="left", show_footer=True)
    table.add_column("family", "all")
    table.add_column("universe")
    for column in COLUMNS:
        table.add_column(HEADINGS.get(column, column), _number(sum(_count(row, column) for row in rows)), justify="right")
    table.add_column("seconds", f"{seconds:.1f}", justify="right")
    for row in rows:
        numbers: Sequence[str] = [_number(_count(row, column)) for column in COLUMNS]
        table.add_row(escape(row.family), escape(row.universe), *numbers, f"{row.seconds:.1f}")
    return Group(table, Text(f"{seconds:.1f} s of processor time, {peak_bytes / 2**30:.2f} GiB of memory at most"))


def generation_json(rows: Iterable[Counts], seed: int, templates: int, seconds: float, peak_bytes: int) -> str:
    """The counts of every universe and of every family, as a JSON object with a final newline.

    `templates` is how many distinct operators with attributes the terms were built of.
    """
    rows = list(rows)
    families = [_summed(family, [r for r in rows if r.family == family]) for family in dict.fromkeys(r.family for r in rows)]
    universes = [{"universe": r.universe, **_summed(r.family, [r])} for r in rows]
    run = {"seed": seed, "templates": templates, "user_seconds": seconds, "peak_bytes": peak_bytes}
    return json.dumps({**run, "families": families, "universes": universes}, indent=2) + "\n"


def _summed(family: str, rows: Sequence[Counts]) -> dict[str, str | int | float]:
    counts = {column: sum(_count(row, column) for row in rows) for column in COLUMNS}
    return {"family": family, **counts, "seconds": sum(row.seconds for row in rows)}


def _count(row: Counts, column: str) -> int:
    return int(getattr(row, column))


def _number(count: int) -> str:
    return f"{count:,}"
