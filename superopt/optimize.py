"""FLOW 2, a faster model: load -> islands -> lift -> search -> lower -> splice -> measure -> check."""

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

from superopt.absorption import absorption
from superopt.accuracy import admitted
from superopt.active import limited_memory, short_of_memory, stoppable, stopping
from superopt.certificate import Evidence
from superopt.dim_binding import DimBinding
from superopt.errors import CheckFailedError, InvalidModelError, ShapeError, failure
from superopt.execute import collecting_rarely
from superopt.figures import details, environment, prediction, reason, rounding, timing, tuned
from superopt.fp_flags import FpMode
from superopt.judge import COMPARING, Judge
from superopt.kept import Kept
from superopt.model.bodies import runs
from superopt.model.bounds import index_bounds
from superopt.model.cache import Cache, default_path
from superopt.model.check import FACTOR, Check
from superopt.model.compare import RESIDENT
from superopt.model.dimensions import representative
from superopt.model.embedded import config_of
from superopt.model.everywhere import Compared
from superopt.model.first import FirstRun, first_once, pace_once
from superopt.model.forecast import ForecastClock, Forecasts, unpriced
from superopt.model.inlined import inlined
from superopt.model.islands import Charts
from superopt.model.load import Loaded, Model, ModelProto, count, load, opset_of, weight_bytes
from superopt.model.measure import Clock
from superopt.model.placed import Scratch, temporary
from superopt.model.prices import Prices, target
from superopt.model.raised import raised
from superopt.model.save import loadable
from superopt.model.session import Device
from superopt.model.settings import chosen
from superopt.model.splice import require_valid
from superopt.model.stored import Loadable, parsed
from superopt.model.tuning import Tuning, tune
from superopt.optimized import Optimized, result
from superopt.options import Options
from superopt.partial.library import library
from superopt.passes import LEAST, budget_of, improvements
from superopt.report.optimization import Report
from superopt.report.progress import Listener, Progress, silent
from superopt.rewrite.apply import PARTLY
from superopt.rewrite.gate import SPECIAL
from superopt.rule import Rule
from superopt.search import Search
from superopt.segments import Gain, Passes, Runs, whole, written
from superopt.selection import (
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
from superopt.store import load_rules

MOVES = ("rules", "mutants")
"""What a search may do: rewrite by rules, exchange operators for corrected mutants."""
LEEWAY = 4.0
"""How much further than the tolerance the error of an algorithm, one operator of many, may grow for it to be tried."""
FORGONE = 0.1
"""The share of that time that is left for what fusions would gain that are not allowed."""
SMALLEST = 0.01
"""The share of a run that what is found has to save by the cost model to be checked and compared: half of what is accepted."""
OPENING = 4.0
"""Seconds until a session has run once (a GPU's libraries choose its kernels), from which no more are made than must be."""
WHOLE, STOPPED = "every segment was searched", "it was asked to stop"
"""What a report says of a search that no budget ended, and of one that somebody ended."""
HURRIED = 3.0
"""Seconds that a comparison takes after that."""
OUT_OF_MEMORY = "the memory allowed is used up"
MEMORY_FACTOR, MEMORY_BYTES = 3.0, 3 * 2**28
"""How many times the model's bytes, and how many bytes besides, a search may take before it ends. Comparing and checking what
it found come on top: together, four times the model's bytes and 1 GiB are allowed.
"""
RETRIES, RETRYING, FAILING = 3, 10.0, 18.0
"""How many smaller choices are tried where one is not faster; seconds of judging after which none is, and where one failed."""


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
    """A model that computes the same and measures faster in ONNX Runtime, or the given one where none was found.

    The result is an `onnx.ModelProto` for an `onnx.ModelProto`, an `onnx_ir.Model` for a path or an `onnx_ir.Model`; what is
    given is left unchanged. `provider` is "cpu", "cuda" or "tensorrt", `threads` the CPU threads of its sessions, `cuda_graph`
    whether their runs are replayed as a CUDA graph, `budget` the seconds that the search may take (checking and comparing come
    on top; by default 10, and up to 30 for a model of several hundred nodes, one that runs for long, or a slow machine), `seed`
    that of every random choice. `cache` is the file of known times, in the user's cache folder by default; a model that stays
    as it is after a whole search is known there, and not searched again. With `tune`, sessions are first measured with other
    settings than the defaults (`model.tuning`), and the model is optimized for the best; with `ort_config` too, what of these
    ONNX Runtime can read there is in the result's metadata (`model.embedded`), also where the model itself stays as it is.
    `tolerance` is how many times the original's error of rounding, against a float64 run, the result's may be; with a larger
    one, algorithms are tried too that are less accurate. `growth` is the share of what they are by which the weights may become
    larger (by default 3, but no more than 256 MiB, or 0.5 if that is more). `moves` are what the search may do, of `MOVES`;
    with none of them the model stays as it is. `fp` is the floating-point mode, "precise", "relaxed" or "fast"
    (docs/floating-point.md). `device_profile` is the file in which `superopt profile` described a device that
    is not here: the model is optimized for it by predicted times, nothing is measured, and what is given back gains more than
    the predictions may err by. With `allow_contrib`, the result may have operators that ONNX Runtime alone knows
    (docs/contrib.md); with an `opset`, it has that one's, and what they offer: it is newer than the model's, and what stays as
    it is keeps its own. Once `stop` is set, by another thread or a signal's handler, the search ends; the best so far is
    checked and compared in short, and returned if it passes, the original otherwise. `progress` is told where the work stands.

    Where inputs have open dimensions, they stay open: the result computes the same at every size, and is measured at each of
    the `shapes`, which give numbers for them by name; what they leave out is 1 where it comes first in an input, 224 as the
    side of an image, and 128 elsewhere.

    A model that cannot be run on random inputs (one of them is a sequence, say), and one of which nothing that was found passes
    the check, is returned as it is; the report says why.

    Raises:
        ModelNotFoundError, InvalidModelError: the model cannot be loaded, see `model.load` and `model.session`.
        ProviderError, RuntimeMissingError: the provider, or ONNX Runtime, is not there.
        ProfileError: the device profile is none, or is of another provider.
        OpsetError: the model cannot be brought to the opset.
        StoreError: the stored rules are not proved as they stand.
        CheckFailedError: what was found cannot be put into the model, for it would have a cycle.
        ValueError: a number is too small or NaN, there is no such move or mode, sessions are to be tuned for a device that is
            not here, or `ort_config` is given alone.
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
            kept = None if tune or prices is not None else Kept(path, run.about(budget, opset), original)
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
    """Refuse numbers below the least that each may be, and what is no number."""
    for name, (number, least) in given.items():
        if number is not None and not least <= number < math.inf:
            raise ValueError(f"{name} must be a number of at least {least}, not {number!r}")


def mode_of(name: str) -> FpMode:
    """The floating-point mode of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in {*FpMode}:
        raise ValueError(f"unknown floating-point mode {name!r}: expected one of {', '.join(FpMode)}")
    return FpMode(name)


@dataclass
class _Run:
    """One optimization under way: its settings, and what the report will say."""

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
    compared: Compared | Forecasts | None = None
    stopped: str = WHOLE

    def __post_init__(self) -> None:
        self.charts = Charts(self.mode)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tells the listener of a phase and keeps its time."""
        self.listener(Progress(name))
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start

    def about(self, budget: float | None, opset: int | None) -> list[Any]:
        """All that what is found depends on, but for the model and the code; where nothing is tuned, and the device is here."""
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
        """The model `inlined`. The original has run once, if it can: that sets the budget if none is given. Where there are
        prices, they predict.
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

    def judge(self, original: Loadable) -> Judge:
        """Return what checks candidates against the original and compares them with it."""

        def told(done: float) -> None:
            self.listener(Progress("measure", round(100 * done), 100))

        how: dict[str, Any] = {"seed": self.seed, "tolerance": self.tolerance, "forecaster": self.forecaster}
        how |= {"adversarial": self.mode is not FpMode.FAST, "phase": self.phase, "told": told}
        return Judge(original, self.device, self.sizings, self.cache, **how)

    def written(self, model: Model, rules: list[Rule], clock: Clock, judge: Judge, scratch: Scratch) -> tuple[Gain, ...]:
        """All islands in the nodes that lowering writes, where these alone measure faster, or would but for the noise: an
        exporter's nodes may be such that ONNX Runtime's fusions find less. Models too large to be there twice are left as they
        are, for their weights may have to be laid out anew, and so are those of which each session takes long to make.
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

    def rewritten(self, model: Model, rules: list[Rule], judge: Judge, scratch: Scratch) -> Model:
        """Return the `accepted` candidate of a search.

        If the candidates fail the check and have algorithms less accurate than the tolerance, a second search does without
        these. If those left fail it and have steps that spread NaN and infinities of inputs, a strict search does without both.
        Each takes a third of the time. `failed` says why nothing passes.
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
        """Whether the relaxed mode took steps that may let NaN or infinities of an input reach more elements than before."""
        names = {step.rule for found in (self.passes, *self.others) for taken in found for g in taken for step in g.found.steps}
        partly = any(name.startswith(PARTLY) for name in names)
        exposing = any(absorption(rule).exposed for rule in rules if rule.name in names and rule.flags & SPECIAL)
        return self.mode is FpMode.RELAXED and (partly or exposing)

    def improved(
        self, model: Model, rules: list[Rule], budget: float, judge: Judge, scratch: Scratch, *, strict: bool = False
    ) -> Model:
        """The model with every segment in the cheapest form that the search finds within the budget, in seconds.

        A `strict` search takes no value for finite because inputs are ordinary.
        """
        times, weights = Cache(self.cache), weight_bytes(model)
        clock = self.forecaster or Clock(self.device, times, resident=weights, together=self.first.short)
        with self.phase("search"):
            partial = library() if rules else ()
            how_free: dict[str, Any] = {"contrib": self.contrib, "mode": self.mode, "strict": strict}
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
            self.forgone = search.forgone(whole(self.charts.of(model), self.runs), seconds)
        times.close()
        return model

    def accepted(
        self, model: Model, candidate: Model, judge: Judge, scratch: Scratch, doubtful: AbstractSet[str] = frozenset()
    ) -> tuple[Model, CheckFailedError | None]:
        """The first of the candidate, which takes all gains, and of models that take fewer, that measures faster and passes the
        check; the last one tried where none does. And why the first that failed the check did. None is tried where all gains
        together are too small, and none after one that fails where there are steps of `doubtful` rules, which others have too.
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
        """The share of a run that what was found saves by the cost model, where that is too little to compare; 0 elsewhere."""
        saved = sum(gain.seconds for taken in self.passes for gain in taken)
        hopeless = not (self.forms or self.first.short or self.forecaster) and 0 < saved < SMALLEST * self.first.seconds
        return saved / self.first.seconds if hopeless else 0.0

    def choices(self) -> Iterator[Passes]:
        """What to take until something is accepted; while nothing passes the check, ever fewer steps of what gains most."""
        every = selections(self.passes, self.forms or (), self.others)
        passes: Passes = ()
        for passes in islice((c for c in every if sum(gain.bytes for taken in c for gain in taken) <= self.room), 1 + RETRIES):
            yield passes
        best = max(passes[0] if passes else (), key=lambda gain: gain.seconds, default=None)
        while self.compared is None and best is not None and (best := best.halved()) is not None:
            yield ((best,),)

    def tune(self, original: Loadable) -> None:
        """From here on, sessions are made as is best for the original, at the first of the sizes that matter."""
        high = index_bounds(parsed(original, external=False))
        self.tuned = tune(original, self.device, seconds=COMPARING, seed=self.seed, sizes=self.sizings[0].numbers, high=high)
        self.device = chosen(self.device, self.tuned.choices)

    def evidence(self, original: Model, rules: list[Rule], report: Report, opset: int | None) -> Evidence:
        """What a certificate is made of."""
        sizes = [sizing.numbers for sizing in self.sizings if sizing.numbers]
        taken = self.taken if report.accepted else ()
        return Evidence(
            original, report.accepted, taken, rules, sizes, opset, arithmetic=report.arithmetic, assumptions=self.assumptions
        )

    def report(self, loaded: Loaded, candidate: Model, rules: list[Rule]) -> Report:
        """What there is to say when all is done."""
        accepted = self.compared is not None and self.compared.faster
        measured = self.compared if isinstance(self.compared, Compared) else None
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
