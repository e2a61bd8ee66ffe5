"""What result files say of superopt and of what stands beside it, in one form, and the means over models."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from benchmarks.peers.contenders import PEERS, SUPEROPT
from superopt.policy import COMPARISON

OPENVINO = "openvino"
TITLES: Mapping[str, str] = {OPENVINO: "OpenVINO"}
"""How a contender is called in tables, where that is not its package's name."""
CONTENDERS = (SUPEROPT, *PEERS, OPENVINO)
Result: TypeAlias = Mapping[str, Any]
"""A result file of `scripts/bench`."""


@dataclass(frozen=True)
class Entry:
    """One contender on one model. `speed` is absent where nothing could be measured; `notes` say what went wrong. `kept` says
    that the original was left as it is, byte for byte.

    OpenVINO's speed is that of superopt's file over the original, both in OpenVINO.
    """

    contender: str
    speed: Result | None
    version: str = ""
    rounding: Result = field(default_factory=dict)
    seconds: float | None = None
    peak_mib: float | None = None
    notes: tuple[str, ...] = ()
    kept: bool = False

    @property
    def ratio(self) -> float | None:
        """How much faster the optimized model is; 1 for the original, None where there is none that computes the same."""
        if self.kept:
            return 1.0
        return None if self.speed is None or "failed" in self.rounding else float(self.speed["ratio"])

    @property
    def growth(self) -> float | None:
        """The rounding error of the optimized model over that of the original, where both are known and not zero."""
        before, after = (self.rounding.get(which) for which in ("original", "optimized"))
        return after / before if before and after else None

    @property
    def verdict(self) -> int:
        """1 where the optimized model is faster by the margin and by more than the noise, -1 where slower, 0 otherwise."""
        if self.ratio is None or self.speed is None or self.kept:
            return 0
        (low, high), noise = self.speed["interval"], self.speed["noise"]
        faster, slower = (
            low > 1 + noise and self.ratio >= 1 + COMPARISON.min_gain_margin_share,
            high < 1 - noise and self.ratio <= 1 - COMPARISON.min_gain_margin_share,
        )
        return int(faster) - int(slower)

    @property
    def cell(self) -> str:
        """The ratio, or why there is none, in a word."""
        if self.kept:
            return "kept"
        return f"{self.ratio:.2f}" if self.ratio is not None else "failed" if self.speed is None else "differs"


def entries(row: Result) -> list[Entry]:
    """superopt, the other optimizers and OpenVINO on the model, in the order of CONTENDERS; superopt alone where it is."""
    spent = row["optimization"]
    broken = tuple(name for name, passed in row.get("checks", {}).items() if not passed)
    kept = not row.get("report", {}).get("accepted", True)
    ours = {**spent, "version": row["versions"]["superopt"], "speed": row["speed"], "rounding": row["rounding"]}
    found = [_entry(SUPEROPT, ours, broken, kept=kept)]
    if "peers" in row:
        found += [_entry(name, row["peers"].get(name, {"failed": "not run"})) for name in PEERS]
        found.append(_entry(OPENVINO, row.get(OPENVINO, {"failed": "not run"}), kept=kept))
    return found


def _entry(contender: str, known: Result, notes: tuple[str, ...] = (), *, kept: bool = False) -> Entry:
    rounding = known.get("rounding", {})
    notes += tuple(part["failed"] for part in (known, rounding) if "failed" in part)
    return Entry(
        contender,
        known.get("speed"),
        known.get("version", ""),
        rounding,
        known.get("seconds"),
        known.get("peak_mib"),
        notes,
        kept and "speed" in known,
    )


def of(contender: str, rows: Sequence[Result]) -> list[Entry]:
    """The contender on each of the models."""
    return [entry for row in rows for entry in entries(row) if entry.contender == contender]


def mean(found: Sequence[Entry]) -> float | None:
    """The geometric mean of the ratios of one contender.

    Where an optimizer has no model that computes the same, what is left is the original, and counts as 1; where OpenVINO could
    not run the models, nothing counts.
    """
    ratios = [e.ratio if e.ratio is not None else 1.0 for e in found if e.ratio is not None or e.contender != OPENVINO]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def median(values: Sequence[float | None]) -> float | None:
    """The median of the values that are known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
