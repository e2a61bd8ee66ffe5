"""The table of the figures that `scripts/bench_pack` measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from superopt.report.number_texts import duration

RATES = ("side by side", "packed", "ratio")
HEADINGS = ("models", *(f"full load: {name}" for name in RATES), "p99 bound", *RATES, "differs by")


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return the texts of a table row for the figures of one set of models."""
    full, within = (
        [f"{row[key]['side_by_side']:,.0f}/s", f"{row[key]['packed']:,.0f}/s", f"{row[key]['ratio']:.2f}"]
        for key in ("full_load", "within_bound")
    )
    return [row["name"], *full, duration(row["bound_seconds"]), *within, f"{row['largest_difference']:.1e}"]
