"""The benchmark of one model with superopt and with other optimizers.

All optimized files are timed in the same rounds and checked. superopt's file is also timed in OpenVINO.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from benchmarks.peers import elsewhere
from benchmarks.peers.contenders import PEERS, SUPEROPT, Row, optimized
from benchmarks.peers.summary import OPENVINO
from superopt.algebra.dim_binding import DimBinding
from superopt.errors import CheckFailedError, InvalidModelError, ProviderError, SuperoptError
from superopt.model.dimensions import dynamic_dimension_names, representative_sizings, size_combinations
from superopt.model.load import load
from superopt.policy import CHECK, OPTIMIZATION
from superopt.protobuf.stored import parse_model
from superopt.runtime.check import Check, check_candidate
from superopt.runtime.compare import Comparison, compare_all, compare_settings
from superopt.runtime.input_source import DRAWN, InputSource
from superopt.runtime.multi_shape import SizeComparisons
from superopt.runtime.session import Array, Device, Session
from superopt.runtime.settings import settings, with_choices

STANDARD = {"", "ai.onnx", "ai.onnx.ml"}
CONTRIB = "com.microsoft"
CHECKING = 30.0
"""The time limit in seconds for the numerical checks of all optimized files of a model. No run starts after the limit."""


@dataclass(frozen=True)
class Settings:
    """The settings of a benchmark.

    Attributes:
        budget: The seconds of superopt's search. If None, superopt chooses the budget by the size of the model.
        measure: The seconds of a timing comparison. A comparison in CUDA graphs or in OpenVINO gets half of this time.
        timeout: The seconds after which another optimizer is stopped.
        seed: The seed of the search and of random inputs.
        shapes: Sizes of dynamic dimensions, by name.
        cache: The time cache. If None, each model starts with an empty cache.
        tune: Whether superopt also runs with `tune=True`, and so tunes session settings before the search.
        tolerance: The argument `tolerance` of `superopt.optimize`.
        growth: The argument `growth` of `superopt.optimize`.
        allow_contrib: The argument `allow_contrib` of `superopt.optimize`.
    """

    budget: float | None
    measure: float
    timeout: float
    seed: int
    shapes: Mapping[str, Sequence[int]]
    cache: Path | None
    tune: bool = False
    tolerance: float = CHECK.max_error_factor
    growth: float = OPTIMIZATION.weight_growth_share
    allow_contrib: bool = False


@dataclass(frozen=True)
class Case:
    """A model to benchmark, with the device and the settings of the benchmark."""

    path: Path
    device: Device
    settings: Settings

    @functools.cached_property
    def shapes(self) -> list[dict[str, int]]:
        """The combinations of the sizes in the settings, for the dynamic dimensions of this model."""
        known = dynamic_dimension_names(load(self.path).model)
        return size_combinations({name: sizes for name, sizes in self.settings.shapes.items() if name in known})

    @functools.cached_property
    def sizings(self) -> list[DimBinding]:
        return representative_sizings(load(self.path).model, self.shapes)

    @functools.cached_property
    def source(self) -> InputSource:
        """The source of random inputs. Indices stay within their bounds."""
        return DRAWN.bounded(parse_model(self.path, external=False))

    @functools.cached_property
    def feeds(self) -> list[Mapping[str, Array]]:
        """Random inputs at each combination of sizes."""
        ports = Session(self.path, self.device).inputs
        return [self.source.values(ports, self.settings.seed, s.numbers) for s in self.sizings]


def everything(case: Case, folder: Path, peers: Path | None) -> Row:
    """Optimize, time and check one model, and return the results.

    The optimized models are written below `folder`. `peers` is the Python interpreter that has the other optimizers. If `peers`
    is None, only superopt runs.

    Raises:
        SuperoptError: The model cannot be loaded or run, or superopt fails on the model.
    """
    files = {name: folder / name / case.path.name for name in (SUPEROPT, *(PEERS if peers else ()))}
    for file in files.values():
        file.parent.mkdir()
    ours, report = superoptimized(case, files[SUPEROPT], again=peers is not None)
    others = {name: peer(case, peers, name, files[name]) for name in PEERS} if peers else {}
    fit = {name: file for name, file in files.items() if "failed" not in others.get(name, {})}
    compared = speeds(case, fit, case.device, case.settings.measure)
    checked = {name: rounding(case, file, CHECKING / len(fit)) for name, file in fit.items()}
    beside = {
        name: {**row, "speed": measured(compared[name].least), "rounding": checked[name]} if name in fit else row
        for name, row in others.items()
    }
    launched = case.device.provider == "cuda" and not case.device.cuda_graph
    at = {str(sizing): measured(comparison) for sizing, comparison in compared[SUPEROPT].at if sizing.numbers}
    return {
        "optimization": ours,
        "prediction": prediction(report),
        "report": {**report, "model": case.path.name},
        "speed": measured(compared[SUPEROPT].least),
        **({"speed at": at} if at else {}),
        **({"cuda graph": in_graph(case, files[SUPEROPT])} if launched else {}),
        "rounding": checked[SUPEROPT],
        **({"tuning": tuned(case, folder / "tuned" / case.path.name)} if case.settings.tune else {}),
        **({"peers": beside, OPENVINO: in_openvino(case, files[SUPEROPT], peers)} if peers else {}),
        "checks": checks(case, files[SUPEROPT]),
    }


def superoptimized(case: Case, target: Path, *, again: bool = False, tune: bool = False) -> tuple[Row, Row]:
    """Optimize the model with superopt in a separate process, and return the figures of the run and the report.

    If `again` is True, superopt runs a second time with the time cache of the first run, and the figures include the seconds of
    the second run. If `tune` is True, superopt tunes session settings before the search.

    Raises:
        SuperoptError: superopt failed.
    """
    device, settings = case.device, case.settings
    cache = settings.cache or target.with_name("times.sqlite")
    effort = {"budget": settings.budget, "seed": settings.seed}
    chosen = {
        **effort,
        "provider": device.provider,
        "threads": device.threads,
        "cuda_graph": device.cuda_graph,
        "shapes": case.shapes,
        "cache": str(cache.resolve()),
        "tune": tune,
        "tolerance": settings.tolerance,
        "growth": settings.growth,
        "allow_contrib": settings.allow_contrib,
    }
    first = optimized(sys.executable, SUPEROPT, case.path, target, options=chosen)
    if "failed" in first:
        raise SuperoptError(first["failed"])
    report: Row = json.loads(target.with_suffix(".json").read_text(encoding="utf-8"))
    ours = {**{key: first[key] for key in ("seconds", "peak_mib", "nodes")}, **effort, "budget": report["budget"]}
    if again:
        warm = target.parent / "again" / target.name
        warm.parent.mkdir()
        second = optimized(sys.executable, SUPEROPT, case.path, warm, options=chosen)
        if "failed" in second:
            raise SuperoptError(f"the second time, {second['failed']}")
        phases = json.loads(warm.with_suffix(".json").read_text(encoding="utf-8"))["seconds"]
        ours |= {"warm_seconds": second["seconds"], "warm_phases": phases}
    return ours, report


def tuned(case: Case, target: Path) -> Row:
    """Run superopt with `tune=True`, and return the chosen session settings and their speedups.

    The chosen settings are in `entries`, and the speedup of each tried setting is in `tried`. Two speedups compare a session
    with the chosen settings to the original in a plain session: `alone` for the original, and `speed` for superopt's result.
    Both are None if no setting was chosen.

    Raises:
        SuperoptError: superopt fails on the model.
    """
    target.parent.mkdir()
    ours, report = superoptimized(case, target, tune=True)
    choices: list[str] = report["tuning"]["chosen"]
    told = settings(choices)
    entries = {**told.entries, **{name: f"{name}={value}" for name, value in {**told.options, **told.provider_options}.items()}}
    tried = {name: round(one["speedup"], 4) for name, one in report["tuning"]["tried"].items()}
    if not entries:
        return {"entries": {}, "tried": tried, "alone": None, "speed": None}
    device = with_choices(case.device, choices)
    found = compare_settings(
        (case.path, case.device),
        [(case.path, device), (target, device)],
        at=[sizing.numbers for sizing in case.sizings],
        seconds=case.settings.measure,
        seed=case.settings.seed,
        source=case.source,
    )
    alone, both = (min((c[which] for c in found), key=lambda c: c.ratio) for which in (0, 1))
    return {"entries": entries, "tried": tried, "alone": measured(alone), "speed": measured(both), "seconds": ours["seconds"]}


def prediction(report: Row) -> Row | None:
    """Return the speedup that the cost model predicts for the applied rules, and the speedup that the optimization measured.

    The result is None if no candidate was timed. For a model with dynamic dimensions, the times at all sizes are added up.
    """
    if report["timing"] is None:
        return None
    timings = list(report["shapes"].values()) or [report["timing"]]
    before, after = (sum(timing[which] for timing in timings) for which in ("original", "optimized"))
    saved = sum(rule["gain"] for rule in report["rules"])
    predicted = round(before / (before - saved), 4) if saved < before else None
    return {"saved_ms": round(saved * 1e3, 4), "ratio": predicted, "measured": round(before / after, 4)}


def peer(case: Case, python: Path, name: str, target: Path) -> Row:
    """Run another optimizer on the model, and return the figures of the run.

    If the optimizer fails, or if its result does not run on inputs of the original, the reason is in `failed`.
    """
    row = optimized(python, name, case.path, target, timeout=case.settings.timeout)
    if "failed" in row:
        return row
    try:
        session = Session(target, case.device)
        for feeds in case.feeds:
            session.run(feeds)
    except SuperoptError as error:
        row["failed"] = str(error)
    return row


def speeds(case: Case, files: Mapping[str, Path], device: Device, seconds: float) -> dict[str, SizeComparisons]:
    """Time each file against the original on the device, at every combination of sizes.

    At each combination, all files are timed in the same rounds.
    """
    found: dict[str, list[tuple[DimBinding, Comparison]]] = {name: [] for name in files}
    for sizing in case.sizings:
        compared = compare_all(
            case.path,
            list(files.values()),
            device,
            seconds=seconds / len(case.sizings),
            seed=case.settings.seed,
            sizes=sizing.numbers,
            source=case.source,
        )
        for name, comparison in zip(files, compared, strict=True):
            found[name].append((sizing, comparison))
    return {name: SizeComparisons(tuple(at)) for name, at in found.items()}


def in_graph(case: Case, candidate: Path) -> Row:
    """Time the candidate against the original in CUDA graphs, and return the comparison at the sizes with the smallest gain."""
    replaying = replace(case.device, cuda_graph=True)
    try:
        found = speeds(case, {SUPEROPT: candidate}, replaying, case.settings.measure / 2)
    except (InvalidModelError, ProviderError) as error:
        return {"failed": str(error)}
    return {"speed": measured(found[SUPEROPT].least)}


def in_openvino(case: Case, candidate: Path, python: Path) -> Row:
    """Time the candidate against the original in OpenVINO, and return the comparison at the sizes with the smallest gain."""
    if case.device.provider != "cpu":
        return {"failed": "it would run on the CPU, for which the file was not optimized"}
    at: list[tuple[DimBinding, Comparison]] = []
    version = ""
    try:
        for sizing, feeds in zip(case.sizings, case.feeds, strict=True):
            each = case.settings.measure / 2 / len(case.sizings)
            version, comparison = elsewhere.compared(python, case.path, candidate, feeds, seconds=each)
            at.append((sizing, comparison))
    except elsewhere.ElsewhereError as error:
        return {"failed": str(error)}
    return {"version": version, "speed": measured(SizeComparisons(tuple(at)).least)}


def rounding(case: Case, candidate: Path, seconds: float) -> Row:
    """Return the largest errors of the original and of the candidate, or the reason if the candidate fails the check."""
    found: list[Check] = []
    try:
        for sizing in case.sizings:
            each = seconds / len(case.sizings)
            how: dict[str, Any] = {"seed": case.settings.seed, "factor": case.settings.tolerance, "seconds": each}
            found.append(check_candidate(case.path, candidate, case.device, **how, sizes=sizing.numbers))
    except (CheckFailedError, InvalidModelError) as error:
        return {"failed": str(error)}
    return {
        "original": max(f.original_error for f in found),
        "optimized": max(f.candidate_error for f in found),
        "reference": found[0].reference,
        "inputs": list(found[0].inputs),
        "left_out": list(found[0].left_out),
    }


def measured(comparison: Comparison) -> Row:
    return {
        "original_ms": round(comparison.original * 1e3, 4),
        "optimized_ms": round(comparison.candidate * 1e3, 4),
        "ratio": round(comparison.ratio, 4),
        "interval": [round(comparison.low, 4), round(comparison.high, 4)],
        "control": round(comparison.control, 4),
        "noise": round(comparison.noise, 4),
        "rounds": comparison.rounds,
    }


def checks(case: Case, target: Path) -> dict[str, bool]:
    """Check that the optimized file is valid, keeps names and versions, and has only allowed operators. Return each result."""
    before = onnx.load(case.path, load_external_data=False)
    allowed = STANDARD | domains(before) | ({CONTRIB} if case.settings.allow_contrib else set())
    after = onnx.load(target, load_external_data=False)
    return {
        "onnx.checker": is_valid(target),
        "input names": [p.name for p in before.graph.input] == [p.name for p in after.graph.input],
        "output names": [p.name for p in before.graph.output] == [p.name for p in after.graph.output],
        "opset": opsets(before).items() <= opsets(after).items(),
        "IR version": before.ir_version == after.ir_version,
        "metadata": {p.key: p.value for p in before.metadata_props} == {p.key: p.value for p in after.metadata_props},
        "standard operators": domains(after) | opsets(after).keys() <= allowed | opsets(before).keys(),
    }


def is_valid(path: Path) -> bool:
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        print(f"bench: {path.name}: {error}", file=sys.stderr)
        return False
    return True


def opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {o.domain: o.version for o in model.opset_import}


def domains(model: onnx.ModelProto) -> set[str]:
    return {node.domain for node in model.graph.node}
