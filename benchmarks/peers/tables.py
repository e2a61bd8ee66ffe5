"""Results as tables for a terminal: a line for each contender on each model, and the ratios of all side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from benchmarks.peers.summary import CONTENDERS, TITLES, Entry, Result, entries, mean, of

CAPTION = "speed is original / optimized; A/A is the original against itself; errors are relative, against float64"
RATIOS = "original / optimized; OpenVINO runs superopt's file; without a file that computes the same, a ratio counts as 1"
NUMBERS = ("original ms", "optimized ms", "speed", "95 %", "A/A", "error", "of original", "seconds", "MiB")


def measurements(rows: Sequence[Result], title: str) -> Table:
    """Every figure of every contender on every model."""
    beside = any("peers" in row for row in rows)
    table = Table(title=title, caption=CAPTION)
    table.add_column("model", no_wrap=True)
    if beside:
        table.add_column("optimizer", no_wrap=True)
    for heading in NUMBERS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("checks")
    for row in rows:
        for entry in entries(row):
            named = [TITLES.get(entry.contender, entry.contender)] if beside else []
            table.add_row(row["model"], *named, *numbers(entry), escape("; ".join(entry.notes) or "all pass"))
        if beside:
            table.add_section()
    return table


def numbers(entry: Entry) -> list[str]:
    """The cells under NUMBERS."""
    speed = entry.speed
    timed = [] if speed is None else [f"{speed[key]:.3f}" for key in ("original_ms", "optimized_ms", "ratio")]
    timed += [] if speed is None else ["{:.3f}-{:.3f}".format(*speed["interval"]), f"{speed['control']:.3f}"]
    errors = [number(entry.rounding, key, ".1e") for key in ("optimized", "original")]
    return [*(timed or [""] * 5), *errors, shown(entry.seconds, ".1f"), shown(entry.peak_mib, ".0f")]


def number(values: Mapping[str, Any], key: str, form: str) -> str:
    return shown(values.get(key), form)


def shown(value: float | None, form: str) -> str:
    """The number in that form; nothing where it is not known."""
    return "" if value is None else format(value, form)


def ratios(rows: Sequence[Result], title: str) -> Table:
    """A line for each model with the ratio of each contender, and their geometric means below."""
    table = Table(title=title, caption=RATIOS)
    table.add_column("model", no_wrap=True)
    for name in CONTENDERS:
        table.add_column(TITLES.get(name, name), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row["model"], *(entry.cell for entry in entries(row)))
    table.add_section()
    table.add_row("geometric mean", *(shown(mean(of(name, rows)), ".3f") for name in CONTENDERS))
    return table
