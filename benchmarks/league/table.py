"""The figures of the league as a table: a line for each network, a column for each contender, and the geometric means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks.league.contenders import CONTENDERS

Rows = Sequence[dict[str, Any]]


def league_table(rows: Rows, way: str, title: str) -> Table:
    """Return the table of one way to run. A cell contains the original's time divided by the contender's time."""
    table = Table(title=f"{title}, {way}", caption="original / contender: more than 1 is faster than the original")
    table.add_column("network", no_wrap=True)
    table.add_column("original, ms", justify="right")
    for name in CONTENDERS:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*cells(row, way))
    table.add_section()
    table.add_row("geometric mean", "", *(shown(mean(rows, way, name)) for name in CONTENDERS))
    return table


def cells(row: dict[str, Any], way: str) -> list[str]:
    """Return the line of one network: its name, the original's time in milliseconds, and the ratio of each contender."""
    speeds = row["ways"].get(way, {})
    original = next((f"{speed['original_ms']:.3f}" for speed in speeds.values()), "")
    return [row["model"], original, *(shown(ratio(row, way, name)) for name in CONTENDERS)]


def ratio(row: dict[str, Any], way: str, name: str) -> float | None:
    """Return how much faster than the original the contender is, or None if the contender was not measured."""
    speed = row["ways"].get(way, {}).get(name)
    return None if speed is None else float(speed["ratio"])


def mean(rows: Rows, way: str, name: str) -> float | None:
    """Return the geometric mean of the contender's ratios over the networks on which the contender was measured."""
    found = [value for row in rows if (value := ratio(row, way, name)) is not None]
    return math.exp(statistics.fmean(map(math.log, found))) if found else None


def shown(value: float | None) -> str:
    """Return the ratio with two decimals, or a dash for a contender that was not measured."""
    return "-" if value is None else f"{value:.2f}"
