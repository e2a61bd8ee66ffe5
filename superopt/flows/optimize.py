"""Optimization of a model: load, lift islands, search, lower, splice, measure and check."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Unpack, overload

from superopt.algebra.dim_binding import DimBinding
from superopt.budget import limited_memory, short_of_memory, stoppable, stopping
from superopt.cost.first_run import FirstRun, first_once, pace_once
from superopt.cost.forecast import ForecastClock, Forecasts, unpriced
from superopt.cost.measure import Clock
from superopt.cost.prices import Prices, target
from superopt.errors import CheckFailedError, InvalidModelError, ShapeError, failure
from superopt.flows.certificate import Evidence
from superopt.flows.optimized import Optimized, result
from superopt.flows.options import Options
from superopt.flows.report_fields import details, environment, prediction, reason, rounding, timing, tuned
from superopt.model.bodies import runs
from superopt.model.convert_opset import raised
from superopt.model.dimensions import representative
from superopt.model.external_data import Scratch, temporary
from superopt.model.inline_functions import inlined
from superopt.model.islands import Charts
from superopt.model.load import Loaded, Model, ModelProto, count, load, opset_of, weight_bytes
from superopt.model.save import loadable
from superopt.model.session_metadata import config_of
from superopt.model.splice import require_valid
from superopt.partial.library import library
from superopt.protobuf.stored import Loadable, parsed
from superopt.report.optimization import Report
from superopt.report.progress import Listener, Progress, silent
from superopt.rules.accuracy import admitted
from superopt.rules.fp_flags import FpMode
from superopt.rules.rule import Rule
from superopt.rules.store import load_rules
from superopt.runtime.bounds import index_bounds
from superopt.runtime.cache import Cache, default_path
from superopt.runtime.check import FACTOR, Check
from superopt.runtime.compare import RESIDENT
from superopt.runtime.multi_shape import SizeComparisons
from superopt.runtime.session import Device
from superopt.runtime.settings import chosen
from superopt.runtime.tuning import Tuning, tune
from superopt.search.absorption import absorption
from superopt.search.apply import PARTLY
from superopt.search.gate import SPECIAL
from superopt.search.judging import COMPARING, CandidateJudge
from superopt.search.passes import LEAST, budget_of, improvements
from superopt.search.segment_search import Search
from superopt.search.segments import Gain, Passes, Runs, whole, written
from superopt.search.selection import (
    applied_rules,
    arithmetic,
    fitting,
    has_steps_of,
    room,
    segment_rows,
    selections,
    spliced,
    windows_left,
)
from superopt.search.unimproved_cache import UnimprovedModelCache
from superopt.worker_pool import collecting_rarely

MOVES = ("rules", "mutants")
"""The kinds of rewrites: by rules, and of operators by corrected mutants."""
LEEWAY = 4.0
"""An algorithm is tried if its rounding error is at most this many times the tolerance: it is one operator of many."""
FORGONE = 0.1
"""The share of the budget that estimates how much disallowed fusions would gain."""
SMALLEST = 0.01
"""The share of the run time that gains must save by the cost model to be checked and compared: half of what is accepted."""
OPENING = 4.0
"""Seconds to open a session and run it once (a GPU's libraries choose kernels) from which only necessary sessions are made."""
WHOLE, STOPPED = "every segment was searched", "it was asked to stop"
"""The report's words for a search that no budget ended, and for a search that was stopped."""
HURRIED = 3.0
"""Seconds that a comparison takes after a stop was requested."""
OUT_OF_MEMORY = "the memory allowed is used up"
MEMORY_FACTOR, MEMORY_BYTES = 3.0, 3 * 2**28
"""The memory that a search may take before it ends: this factor times the model's bytes, plus this many bytes. Comparing and
checking take memory on top. In total, four times the model's bytes and 1 GiB are allowed.
"""
RETRIES, RETRYING, FAILING = 3, 10.0, 18.0
"""The number of smaller choices tried if a choice is not faster, and the seconds of judging after which no more are tried:
without a failure, and after a failed check.
"""


@overload
def optimize(model: ModelProto, **options: Unpack[Options]) -> Optimized[ModelProto]: ...


@overload
def optimize(model: str | os.PathLike[str] | Model, **options: Unpack[Options]) -> Optimized[Model]: ...


@collecting_rarely()
def optimize(
    model: str | os.PathLike[str] | Model | ModelProto,
    *,
    provider: str = "cpu",
    budget: float | None = None,
    seed: int = 0,
    threads: int = 1,
    cuda_graph: bool = False,
    shapes: Sequence[Mapping[str, int]] = (),
    cache: str | os.PathLike[str] | None = None,
    tune: bool = False,
    ort_config: bool = False,
    tolerance: float = FACTOR,
    growth: float | None = None,
    moves: Sequence[str] = MOVES,
    fp: str = FpMode.RELAXED,
    device_profile: str | os.PathLike[str] | None = None,
    allow_contrib: bool = False,
    opset: int | None = None,
    stop: threading.Event | None = None,
    progress: Listener | None = None,
) -> Optimized[Model] | Optimized[ModelProto]:
    """Return an equivalent model that measures faster in ONNX Runtime, or the given model if none was found.

    The result is an `onnx.ModelProto` for an `onnx.ModelProto`, and an `onnx_ir.Model` for a path or an `onnx_ir.Model`. The
    given model is left unchanged.

    Dynamic dimensions of inputs stay dynamic. The result computes the same at every size, and is measured at each of the
    `shapes`. A model that cannot be run on random inputs (a model with a sequence input, say) is returned unchanged, and so is
    a model without a candidate that passes the check. The report says why.

    Args:
        model: A path, an `onnx_ir.Model` or an `onnx.ModelProto`.
        provider: "cpu", "cuda" or "tensorrt".
        budget: Seconds that the search may take; checking and comparing come on top. By default 10, and up to 30 for a model of
            several hundred nodes, a model that runs for long, or a slow machine.
        seed: The seed of every random choice.
        threads: The CPU threads of a session.
        cuda_graph: Replay runs as a CUDA graph.
        shapes: Sizes of the dynamic dimensions by name. A missing dimension is 1 as the first dimension of an input, 224 as the
            side of an image, and 128 elsewhere.
        cache: The time cache; by default a file in the user's cache folder. A model that a whole search leaves unchanged is
            recorded there, and not searched again.
        tune: Measure sessions with other settings than the defaults first (`model.tuning`), and optimize for the best settings.
        ort_config: With `tune`, embed those of the settings that ONNX Runtime can read from a model in the result's metadata
            (`model.embedded`), also if the model itself is unchanged.
        tolerance: The result's rounding error, against a float64 run, may be this many times the original's. Larger tolerances
            admit less accurate algorithms.
        growth: How much the weights may grow, as a share of their size. By default 3, but no more than 256 MiB, or 0.5 if that
            is more.
        moves: What the search may do, of `MOVES`. Without moves the model stays as it is.
        fp: The floating-point mode: "precise", "relaxed" or "fast" (docs/floating-point.md).
        device_profile: A file in which `superopt profile` described another device. The model is optimized for that device by
            predicted times, without measurements. The result gains more than the predictions may err by.
        allow_contrib: Allow operators that only ONNX Runtime knows (docs/contrib.md).
        opset: The opset of the result, which must be newer than the model's; its operators may be used. A model that stays as
            it is keeps its own opset.
        stop: Once another thread or a signal handler sets the event, the search ends. The best candidate so far is checked and
            compared briefly, and returned if it passes; otherwise the original is returned.
        progress: Receives progress reports.

    Raises:
        ModelNotFoundError, InvalidModelError: The model cannot be loaded, see `model.load` and `model.session`.
        ProviderError, RuntimeMissingError: The provider, or ONNX Runtime, is not installed.
        ProfileError: The file is not a device profile, or is a profile of another provider.
        OpsetError: The model cannot be converted to the opset.
        StoreError: A stored rule lacks a valid proof.
        CheckFailedError: The rewritten nodes cannot be put into the model, because the model would have a cycle.
        ValueError: A number is too small or NaN, a move or mode is unknown, `tune` is given with a device profile, or
            `ort_config` is given without `tune`.
    """
    _require_numbers(seed=(seed, 0), threads=(threads, 1), tolerance=(tolerance, 1), budget=(budget, 0), growth=(growth, 0))
    if unknown := set(moves) - {*MOVES}:
        raise ValueError(f"unknown move {min(unknown)!r}: expected one of {', '.join(MOVES)}")
    if tune and device_profile is not None:
        raise ValueError("tune=True cannot be used with a device profile: it measures sessions on the device")
    if ort_config and not tune:
        raise ValueError("ort_config=True requires tune=True")
    path = Path(cache) if cache is not None else default_path()
    prices = target(device_profile, provider) if device_profile is not None else None
    device = Device(provider if prices is None else "cpu", threads, cuda_graph)
    most = LEAST if budget is None else budget
    run = _Run(device, most, seed, path, progress or silent, tolerance, growth, moves, allow_contrib, mode_of(fp))
    with stoppable(stop), temporary() as scratch:
        with run.phase("load"):
            loaded = load(model)
            if ort_config:
                config_of(loaded.model)
            run.sizings, run.chosen = representative(loaded.model, shapes), any(shapes)
            original = loadable(loaded.model, scratch, loaded.path)
            kept = None if tune or prices is not None else UnimprovedModelCache(path, run.about(budget, opset), original)
            known = kept.before() if kept is not None else None
        if known is not None:
            report = replace(known, model=loaded.label, seconds=run.seconds)
            return result(model, loaded, loaded.model, report, run.evidence(loaded.model, [], report, opset), embed=False)
        with run.phase("load"):
            plain = run.open(loaded, original, budget, prices, scratch)
        candidate, rules = loaded.model, list[Rule]()
        if not run.first.refused:
            if tune:
                with run.phase("tune"):
                    run.tune(original)
            judge = run.judge(original)
            try:
                with run.phase("load"):
                    start = run.charts.begun(plain if opset is None else raised(plain, opset))
                    run.assumptions = run.charts.of(start).views.assumptions
                    rules = load_rules() if run.charts.of(start).islands() else []
                with limited_memory(MEMORY_FACTOR * weight_bytes(loaded.model) + MEMORY_BYTES):
                    candidate = run.rewritten(start, rules, judge, scratch)
            except (CheckFailedError, InvalidModelError, ShapeError) as error:
                run.failed, run.compared = f"the model cannot be searched: {error}", None
        report = run.report(loaded, candidate, rules)
        if kept is not None and run.stopped == WHOLE and not report.accepted:
            kept.remember(report)
    return result(model, loaded, candidate, report, run.evidence(loaded.model, rules, report, opset), embed=ort_config)


def _require_numbers(**given: tuple[float | None, int]) -> None:
    """Refuse numbers that are NaN, infinite or below their minimum."""
    for name, (number, least) in given.items():
        if number is not None and not least <= number < math.inf:
            raise ValueError(f"{name} must be a number of at least {least}, not {number!r}")


def mode_of(name: str) -> FpMode:
    """Return the floating-point mode of this name.

    Raises:
        ValueError: No mode has this name.
    """
    if name not in {*FpMode}:
        raise ValueError(f"unknown floating-point mode {name!r}: expected one of {', '.join(FpMode)}")
    return FpMode(name)


@dataclass
class _Run:
    """An optimization in progress: its settings, and the state that the report is built from."""

    device: Device
    budget: float
    seed: int
    cache: Path
    listener: Listener
    tolerance: float
    growth: float | None
    moves: Sequence[str] = MOVES
    contrib: bool = False
    mode: FpMode = FpMode.RELAXED
    forecaster: ForecastClock | None = None
    sizings: list[DimBinding] = field(default_factory=lambda: [DimBinding({})])
    chosen: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    searched: tuple[Gain, ...] = ()
    assumptions: tuple[str, ...] = ()
    forms: tuple[Gain, ...] | None = None
    passes: Passes = ()
    others: Sequence[Passes] = ()
    taken: Passes = ()
    forgone: float = 0.0
    room: float = 0.0
    too_large: int = 0
    runs: Runs = field(default_factory=dict)
    charts: Charts = field(init=False)
    first: FirstRun = field(default_factory=FirstRun)
    islands: tuple[int, int] = (0, 0)
    checked: Check | None = None
    failed: str = ""
    tuned: Tuning | None = None
    compared: SizeComparisons | Forecasts | None = None
    stopped: str = WHOLE

    def __post_init__(self) -> None:
        self.charts = Charts(self.mode)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report the start of a phase to the listener and add up its time."""
        self.listener(Progress(name))
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start

    def about(self, budget: float | None, opset: int | None) -> list[Any]:
        """Return the settings that a result depends on, besides the model and the code, without tuning or a device profile."""
        settings = [
            self.device.identity,
            budget,
            self.seed,
            self.tolerance,
            self.growth,
            *self.moves,
            self.contrib,
            self.mode,
            opset,
        ]
        return [*settings, *(sizing.numbers for sizing in self.sizings)]

    def open(self, loaded: Loaded, original: Loadable, budget: float | None, prices: Prices | None, scratch: Scratch) -> Model:
        """Return the model `inlined`, after one run of the original.

        The run sets the budget if none is given. A model that cannot run is marked as refused. With `prices`, times are
        predicted from them.
        """
        self.first = first_once(original, loaded, self.device, self.sizings, self.cache, chosen=self.chosen)
        self.sizings = [DimBinding(numbers) for numbers in self.first.sizes] or self.sizings
        plain, weights = inlined(loaded.model), weight_bytes(loaded.model)
        if budget is None:
            pace = pace_once(self.cache)
            self.budget = budget_of(count(plain), self.first.seconds, len(self.sizings), weights, pace)
        if prices is not None:
            self.forecaster = ForecastClock(self.device, prices, resident=weights)
            self.first = replace(self.first, refused=self.first.refused or unpriced(self.forecaster, original, self.sizings))
        if not self.first.refused:
            source = original if plain is loaded.model else loadable(plain, scratch)
            self.runs = runs(source, self.device, seed=self.seed, sizes=self.sizings[0].numbers)
        return plain

    def judge(self, original: Loadable) -> CandidateJudge:
        """Return the judge that checks candidates against the original and compares their speed."""

        def told(done: float) -> None:
            self.listener(Progress("measure", round(100 * done), 100))

        how: dict[str, Any] = {"seed": self.seed, "tolerance": self.tolerance, "forecaster": self.forecaster}
        how |= {"adversarial": self.mode is not FpMode.FAST, "phase": self.phase, "told": told}
        return CandidateJudge(original, self.device, self.sizings, self.cache, **how)

    def written(
        self, model: Model, rules: list[Rule], clock: Clock, judge: CandidateJudge, scratch: Scratch
    ) -> tuple[Gain, ...]:
        """Return all islands re-emitted through lowering, if that alone measures faster, or would but for the noise.

        An exporter may write nodes in which ONNX Runtime's fusions find less. Models too large to be in memory twice are
        skipped, because their weights may have to be laid out anew. Models whose sessions take long to open are skipped too.
        """
        small = 2 * weight_bytes(model) <= RESIDENT and self.first.opening < OPENING
        if not (small and self.moves and self.forecaster is None):
            return ()
        try:
            forms = written(whole(self.charts.of(model), self.runs), rules, self.mode)
            return forms if forms and judge.is_promising(loadable(spliced(model, (forms,)), scratch), clock) else ()
        except Exception as error:  # noqa: BLE001
            failure(error)
            return ()

    def rewritten(self, model: Model, rules: list[Rule], judge: CandidateJudge, scratch: Scratch) -> Model:
        """Return the `accepted` candidate of a search.

        If the candidates fail the check and have algorithms less accurate than the tolerance, a second search omits these
        algorithms. If its candidates fail the check and have steps that spread an input's NaN and infinities, a strict search
        omits both. Each further search takes a third of the time. `failed` says why nothing passes.
        """
        tried, accurate = (admitted(rules, factor * self.tolerance) for factor in (LEEWAY, 1.0))
        doubtful = {rule.name for rule in tried} - {rule.name for rule in accurate}
        improved = self.improved(model, tried, self.budget, judge, scratch)
        candidate, failed = self.accepted(model, improved, judge, scratch, doubtful)
        for strict in (False, True):
            faster = self.compared is not None and self.compared.faster
            if failed is None or faster or stopping():
                break
            if self.spreads(rules) if strict else has_steps_of(doubtful, self.passes, *self.others):
                improved = self.improved(model, accurate, self.budget / 3, judge, scratch, strict=strict)
                candidate, failed = self.accepted(model, improved, judge, scratch)
        self.failed = str(failed) if failed is not None and self.compared is None else ""
        return candidate

    def spreads(self, rules: list[Rule]) -> bool:
        """Return whether relaxed mode took steps that may let NaN or infinities of an input reach more elements than before."""
        names = {step.rule for found in (self.passes, *self.others) for taken in found for g in taken for step in g.found.steps}
        partly = any(name.startswith(PARTLY) for name in names)
        exposing = any(absorption(rule).exposed for rule in rules if rule.name in names and rule.flags & SPECIAL)
        return self.mode is FpMode.RELAXED and (partly or exposing)

    def improved(
        self, model: Model, rules: list[Rule], budget: float, judge: CandidateJudge, scratch: Scratch, *, strict: bool = False
    ) -> Model:
        """Return the model with every segment in the cheapest form that the search finds within the budget, in seconds.

        A `strict` search does not rely on ordinary inputs to conclude that a value is finite.
        """
        times, weights = Cache(self.cache), weight_bytes(model)
        clock = self.forecaster or Clock(self.device, times, resident=weights, together=self.first.short)
        with self.phase("search"):
            partial = library() if rules else ()
            how_free: dict[str, Any] = {"allow_contrib": self.contrib, "mode": self.mode, "strict": strict}
            search = Search(rules, clock, opset_of(model), self.sizings, budget, partial, **how_free)
            islands = [len(island.nodes) for island in self.charts.of(model).islands()]
            self.islands = len(islands), sum(islands)
            self.room = room(weights, self.growth)
            how: dict[str, Any] = {"charts": self.charts, "room": self.room, "runs": self.runs, "listener": self.listener}
            how["budget"] = budget if self.contrib else (1 - FORGONE) * budget
            best, *others = improvements(model, search, self.moves, **how)
            self.searched, self.too_large = best.searched, best.too_large
            self.stopped = (
                STOPPED
                if stopping()
                else OUT_OF_MEMORY
                if short_of_memory()
                else "the budget is spent"
                if best.cut_short
                else self.stopped
            )
            self.passes, self.others = best.passes, [other.passes for other in others]
        with self.phase("forms"):
            if self.forms is None and not stopping():
                self.forms = self.written(model, rules, clock, judge, scratch)
            model = best.model
            if self.forms:
                parts = whole(self.charts.of(best.model), self.runs)
                model, forms, _ = fitting(best.model, written(parts, rules, self.mode))
                self.passes = (*best.passes, tuple(forms))
        with self.phase("search"):
            seconds = 0.0 if self.contrib else FORGONE * budget
            self.forgone = search.contrib_potential_seconds(whole(self.charts.of(model), self.runs), seconds)
        times.close()
        return model

    def accepted(
        self, model: Model, candidate: Model, judge: CandidateJudge, scratch: Scratch, doubtful: AbstractSet[str] = frozenset()
    ) -> tuple[Model, CheckFailedError | None]:
        """Return the first choice of gains that measures faster and passes the check, and the first failure of a check.

        Tries the candidate, which takes all gains, then models that take fewer. Returns the last model tried if none is
        accepted. Tries none if all gains together are too small. Stops after a failure if there are steps of `doubtful` rules,
        because other choices have such steps too.
        """
        failed: CheckFailedError | None = None
        has_doubtful = has_steps_of(doubtful, self.passes, *self.others)
        for number, passes in enumerate(() if self.small else self.choices()):
            if number and (stopping() or judge.seconds > (FAILING if failed else RETRYING)):
                break
            seconds = HURRIED if stopping() else COMPARING / 2 if number else COMPARING
            try:
                candidate = spliced(model, passes) if number else candidate
                require_valid(candidate, model)
                rewritten = loadable(candidate, scratch)
                compared, checked = judge.judged(rewritten, seconds, doubtful=has_doubtful or failed is not None)
            except Exception as error:  # noqa: BLE001
                failed = failed or CheckFailedError(failure(error))
                if has_doubtful:
                    break
                continue
            if self.compared is None or compared.faster:
                self.compared, self.checked, self.taken = compared, checked, passes
            if compared.faster:
                break
        return candidate, failed

    @property
    def small(self) -> float:
        """The share of the run time that the gains save by the cost model, if that is too little to compare; 0 otherwise."""
        saved = sum(gain.seconds for taken in self.passes for gain in taken)
        hopeless = not (self.forms or self.first.short or self.forecaster) and 0 < saved < SMALLEST * self.first.seconds
        return saved / self.first.seconds if hopeless else 0.0

    def choices(self) -> Iterator[Passes]:
        """Yield choices of gains to try. While nothing passes the check, take ever fewer steps of the largest gain."""
        every = selections(self.passes, self.forms or (), self.others)
        passes: Passes = ()
        for passes in islice((c for c in every if sum(gain.bytes for taken in c for gain in taken) <= self.room), 1 + RETRIES):
            yield passes
        best = max(passes[0] if passes else (), key=lambda gain: gain.seconds, default=None)
        while self.compared is None and best is not None and (best := best.halved()) is not None:
            yield ((best,),)

    def tune(self, original: Loadable) -> None:
        """Switch later sessions to the settings that are best for the original at the first sizing."""
        high = index_bounds(parsed(original, external=False))
        self.tuned = tune(original, self.device, seconds=COMPARING, seed=self.seed, sizes=self.sizings[0].numbers, high=high)
        self.device = chosen(self.device, self.tuned.choices)

    def evidence(self, original: Model, rules: list[Rule], report: Report, opset: int | None) -> Evidence:
        """Return the evidence that a certificate is made of."""
        sizes = [sizing.numbers for sizing in self.sizings if sizing.numbers]
        taken = self.taken if report.accepted else ()
        return Evidence(
            original, report.accepted, taken, rules, sizes, opset, arithmetic=report.arithmetic, assumptions=self.assumptions
        )

    def report(self, loaded: Loaded, candidate: Model, rules: list[Rule]) -> Report:
        """Return the final report."""
        accepted = self.compared is not None and self.compared.faster
        measured = self.compared if isinstance(self.compared, SizeComparisons) else None
        found, taken = (sum(map(len, passes)) for passes in (self.passes, self.taken))
        apart = self.tuned is not None and bool(self.tuned.choices)
        said = details(apart=apart, found=found, taken=taken, too_large=self.too_large, small=self.small)
        return Report(
            model=loaded.label,
            accepted=accepted,
            reason=self.first.refused or reason(self.compared, said, self.failed, accepted=accepted),
            nodes=count(loaded.model),
            nodes_in_islands=self.islands[1],
            islands=self.islands[0],
            nodes_after=count(candidate if accepted else loaded.model),
            rules=applied_rules([gain for taken in self.taken for gain in taken], rules),
            segments=segment_rows(self.searched),
            timing=timing(measured.least) if measured else None,
            shapes={str(sizing): timing(c) for sizing, c in measured.at if sizing.numbers} if measured else {},
            prediction=prediction(self.forecaster, self.compared),
            rounding=rounding(self.checked, self.tolerance),
            failed=self.failed,
            tuning=tuned(self.tuned),
            seconds=dict(self.seconds),
            environment=environment(self.device),
            budget=self.budget,
            seed=self.seed,
            stopped=self.stopped,
            forgone=self.forgone,
            windows_left=windows_left(self.searched),
            arithmetic=arithmetic(self.taken, rules, self.mode),
            assumptions=self.assumptions,
        )
