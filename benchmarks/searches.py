"""Searches in separate processes, the figures of their results, and the files in which scripts keep a row for each model."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from superopt.files import write_text_atomically
from superopt.flows.report_fields import run_environment
from superopt.runtime.compare import Comparison
from superopt.runtime.session import Device


def optimize_in_process(
    program: Sequence[str], model: Path, target: Path, options: Iterable[str], environment: Mapping[str, str] | None = None
) -> bool:
    """Optimize a model for one thread in a separate process, save the result, and return whether the result is faster.

    Args:
        program: the command line before the word `optimize`.
        model: the model.
        target: the file for the result. The report is stored beside the result.
        options: further options of `superopt optimize`.
        environment: the environment variables of the process, if they differ from the variables of this process.

    Raises:
        CalledProcessError: the process failed. The process has printed the reason.
    """
    report = target.with_suffix(".json")
    command = [*program, "optimize", str(model), str(target), "--json", str(report), "--threads", "1", *options]
    finished = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if finished.returncode:
        sys.stderr.write(finished.stderr)
    finished.check_returncode()
    accepted: bool = json.loads(report.read_text(encoding="utf-8"))["accepted"]
    return accepted


def result_figures(accepted: Mapping[str, bool], timed: Iterable[Comparison]) -> dict[str, dict[str, Any]]:
    """Return the figures of each result: the comparison with the original, and whether the search accepted the result.

    `accepted` maps the names of the results to whether the search accepted the result, in the order of `timed`.
    """
    pairs = zip(accepted.items(), timed, strict=True)
    return {name: {**dataclasses.asdict(comparison), "accepted": faster} for (name, faster), comparison in pairs}


def speedup(figures: Mapping[str, Any]) -> float:
    """Return the speedup of a result with these figures. The speedup is 1 if the search kept the original."""
    ratio: float = figures["ratio"]
    return ratio if figures.get("accepted", True) else 1.0


def stored_rows(path: Path | None) -> list[dict[str, Any]]:
    """Return the rows in the file at `path`. The list is empty if there is no such file."""
    if path is None or not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["models"]
    return rows


def store_rows(path: Path, rows: Sequence[Mapping[str, Any]], device: Device, **facts: object) -> None:
    """Write rows to the file at `path`, with the environment and further facts about the run."""
    record = {"environment": dataclasses.asdict(run_environment(device)), **facts, "models": rows}
    write_text_atomically(json.dumps(record, indent=1) + "\n", path)
