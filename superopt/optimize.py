"""FLOW 2, a faster model: load -> islands -> lift -> search -> lower -> splice -> check -> measure."""

from __future__ import annotations

import functools
import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from superopt.accuracy import admitted
from superopt.certificate import Evidence
from superopt.errors import CheckFailedError
from superopt.figures import environment, reason, rounding, timing, tuned
from superopt.fusion import fusions
from superopt.model.bodies import runs
from superopt.model.cache import Cache, default_path
from superopt.model.check import FACTOR, Check, index_bounds
from superopt.model.dimensions import Sizing, other_sizings, representative
from superopt.model.everywhere import Compared, check_everywhere, compare_once
from superopt.model.first import first_run
from superopt.model.islands import Chart
from superopt.model.known import with_known_stored
from superopt.model.load import Loaded, Model, ModelProto, as_model, as_proto, count, load, opset_of, tensors
from superopt.model.measure import Clock
from superopt.model.save import copy, loadable, parsed, save
from superopt.model.session import Device, Loadable
from superopt.model.splice import require_valid
from superopt.model.tuning import Tuning, tune
from superopt.mutation import search_mutants
from superopt.partial.library import library
from superopt.report.optimization import Report
from superopt.report.progress import Listener, Progress, silent
from superopt.rewrite.island import search_island
from superopt.rewrite.search import OUT_OF_TIME
from superopt.rewrite.search import search as windowed
from superopt.rule import Rule
from superopt.segments import Gain, Passes, Runs, Search, Segment, chosen, segments, whole
from superopt.selection import affordable, applied_rules, segment_rows, selections, spliced
from superopt.store import load_rules

MOVES = ("rules", "mutants")
"""What a search may do: rewrite by rules, exchange operators for corrected mutants."""
GROWTH = 0.5
"""How much larger the weights may become, as a share of those of the original."""
GROWTH_AT_LEAST = 2**20
"""Bytes that the weights may grow by in any case."""
COMPARING = 10.0
"""Seconds that the last comparison takes."""
RETRIES, RETRYING = 3, 15.0
"""How many smaller choices of rewrites are tried where all of them together do not measure faster, in half the time each, and
after how many seconds of measuring none is."""

M = TypeVar("M", Model, ModelProto)


@dataclass(frozen=True, eq=False)
class Optimized(Generic[M]):
    """A model and the report on it.

    `session_entries` are configuration entries with which ONNX Runtime's sessions of it should be made, where that was asked
    for: the model was measured in such sessions. `source` is the file that already holds exactly this model, if one does;
    `external` whether the model that was given kept tensors in other files. `evidence` is what its certificate is made of.
    """

    model: M
    report: Report
    evidence: Evidence
    source: Path | None = None
    external: bool = False

    @property
    def session_entries(self) -> dict[str, str]:
        """For `onnxruntime.SessionOptions.add_session_config_entry`; empty where nothing beats the defaults."""
        return dict(self.report.tuning.entries) if self.report.tuning is not None else {}

    @functools.cached_property
    def certificate(self) -> str:
        """What was done, step by step, as a JSON object with which `superopt verify` checks the model; it is of the model as it
        is when this is first asked for.
        """
        return self.evidence.certificate(as_model(self.model))

    def save(self, path: str | os.PathLike[str]) -> None:
        """The file at `path` holds the model; tensors that are too large for it, or were external, in `<file name>.data`.

        Raises:
            TargetError: it cannot be written; files that were there are as they were.
        """
        if self.source is not None:
            copy(self.source, path)
        else:
            save(as_model(self.model), path, external=self.external)


@overload
def optimize(
    model: ModelProto,
    *,
    provider: str = "cpu",
    budget: float = 30.0,
    seed: int = 0,
    threads: int = 1,
    shapes: Sequence[Mapping[str, int]] = (),
    cache: str | os.PathLike[str] | None = None,
    tune: bool = False,
    tolerance: float = FACTOR,
    growth: float = GROWTH,
    moves: Sequence[str] = MOVES,
    allow_contrib: bool = False,
    progress: Listener | None = None,
) -> Optimized[ModelProto]: ...


@overload
def optimize(
    model: str | os.PathLike[str] | Model,
    *,
    provider: str = "cpu",
    budget: float = 30.0,
    seed: int = 0,
    threads: int = 1,
    shapes: Sequence[Mapping[str, int]] = (),
    cache: str | os.PathLike[str] | None = None,
    tune: bool = False,
    tolerance: float = FACTOR,
    growth: float = GROWTH,
    moves: Sequence[str] = MOVES,
    allow_contrib: bool = False,
    progress: Listener | None = None,
) -> Optimized[Model]: ...


def optimize(
    model: str | os.PathLike[str] | Model | ModelProto,
    *,
    provider: str = "cpu",
    budget: float = 30.0,
    seed: int = 0,
    threads: int = 1,
    shapes: Sequence[Mapping[str, int]] = (),
    cache: str | os.PathLike[str] | None = None,
    tune: bool = False,
    tolerance: float = FACTOR,
    growth: float = GROWTH,
    moves: Sequence[str] = MOVES,
    allow_contrib: bool = False,
    progress: Listener | None = None,
) -> Optimized[Model] | Optimized[ModelProto]:
    """A model that computes the same and measures faster in ONNX Runtime, or the given one where none was found.

    The result is an `onnx.ModelProto` for an `onnx.ModelProto`, an `onnx_ir.Model` for a path or an `onnx_ir.Model`; what is
    given is left unchanged. `provider` is "cpu" or "cuda", `threads` the CPU threads of its sessions, `budget` the seconds that
    the search may take (checking and comparing come on top), `seed` that of every random choice. `cache` is the file that keeps
    measured times, in the user's cache folder by default. With `tune`, sessions of the model are first measured without each of
    ONNX Runtime's own optimizers that has an effect on it, and what is better off without some is optimized for such sessions.
    `tolerance` is how many times the original's error of rounding, against a float64 run, the result's may be; with a larger
    one, algorithms are tried too that are less accurate by so much. `growth` is the share of what they are by which the weights
    may become larger. `moves` are what the search may do, of `MOVES`; with none of them the model stays as it is. With
    `allow_contrib`, the result may have operators that ONNX Runtime alone knows (docs/contrib.md). `progress` is told where the
    work stands.

    Where inputs have open dimensions, they stay open: the result computes the same at every size, and is measured at each of
    the `shapes`, which give numbers for them by name; what they leave out is 1 where it comes first in an input, 224 as the
    side of an image, and 128 elsewhere.

    A model that cannot be run on random inputs (one of them is a sequence, say) is returned as it is; the report says why.

    Raises:
        ModelNotFoundError, InvalidModelError: the model cannot be loaded, see `model.load` and `model.session`.
        ProviderError, RuntimeMissingError: the provider, or ONNX Runtime, is not there.
        StoreError: the stored rules are not proved as they stand.
        CheckFailedError: the rewritten model is not valid, or strays further from a float64 run than the original.
        ValueError: there is no such move.
    """
    if unknown := set(moves) - {*MOVES}:
        raise ValueError(f"no move {min(unknown)!r}: they are {' and '.join(MOVES)}")
    path = Path(cache) if cache is not None else default_path()
    fused = tuple(fusions().values()) if allow_contrib else ()
    run = _Run(Device(provider, threads), budget, seed, path, progress or silent, tolerance, growth, moves, fused)
    with tempfile.TemporaryDirectory(prefix="superopt-") as folder:
        with run.phase("load"):
            rules = admitted(load_rules(), tolerance)
            loaded = load(model)
            run.sizings = representative(loaded.model, shapes)
            original = loadable(loaded.model, Path(folder), loaded.path)
            run.refused, run.short = first_run(original, loaded, run.device, run.sizings)
            run.runs = {} if run.refused else runs(original, run.device, seed=seed, sizes=run.sizings[0].numbers)
        candidate = loaded.model
        if not run.refused:
            if tune:
                with run.phase("tune"):
                    run.tune(original)
            with run.phase("search"):
                start = with_known_stored(loaded.model)
                candidate = run.improved(start, rules)
            candidate = run.accepted(start, candidate, original, Path(folder))
    report = run.report(loaded, candidate, rules)
    evidence = run.evidence(loaded.model, rules, accepted=report.accepted)
    if isinstance(model, ModelProto):
        return Optimized(as_proto(candidate) if report.accepted else model, report, evidence, external=loaded.external)
    unchanged = None if report.accepted or loaded.external else loaded.path
    return Optimized(candidate if report.accepted else loaded.model, report, evidence, unchanged, loaded.external)


@dataclass
class _Run:
    """One optimization under way: its settings, and what the report will say."""

    device: Device
    budget: float
    seed: int
    cache: Path
    listener: Listener
    tolerance: float
    growth: float
    moves: Sequence[str] = MOVES
    fused: Sequence[Rule] = ()
    sizings: list[Sizing] = field(default_factory=lambda: [Sizing({})])
    seconds: dict[str, float] = field(default_factory=dict)
    searched: list[Gain] = field(default_factory=list)
    passes: Passes = ()
    taken: Passes = ()
    forgone: float = 0.0
    room: float = 0.0
    too_large: int = 0
    runs: Runs = field(default_factory=dict)
    refused: str = ""
    short: bool = False
    islands: tuple[int, int] = (0, 0)
    checked: Check | None = None
    tuned: Tuning | None = None
    compared: Compared | None = None
    stopped: str = "every segment was searched"

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tells the listener of a phase and keeps its time."""
        self.listener(Progress(name))
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start

    def improved(self, model: Model, rules: list[Rule]) -> Model:
        """The model with every segment in the cheapest form that the search finds within the budget."""
        start = time.monotonic()
        weights = sum(t.nbytes for t in tensors(model))
        times = Cache(self.cache)
        clock = Clock(self.device, times, resident=weights, together=self.short)
        search = Search(rules, clock, opset_of(model), self.sizings, self.budget, library(), self.fused)
        self.room = room = self.growth * weights + GROWTH_AT_LEAST
        for number, (kind, share) in enumerate(chosen(self.moves).items(), 1):
            chart = Chart(model)
            islands = chart.islands()
            if number == 1:
                self.islands = len(islands), sum(len(i.nodes) for i in islands)
            deadline = start + self.budget * share
            find = {"sweeps": search_island, "mutants": search_mutants}.get(kind, windowed)
            between = kind == "windows between"
            parts = segments(chart, self.runs, between=between) if find is windowed else whole(chart, self.runs)
            found = list(self._told(search.gains(parts, deadline, find=find, room=room), parts, f"search, pass {number}"))
            taken = affordable(found, room)
            room -= sum(gain.bytes for gain in taken)
            self.too_large = max(self.too_large, len(affordable(found, math.inf)) - len(taken))
            self.searched += found
            self.passes = (*self.passes, tuple(taken))
            model = spliced(model, self.passes[-1:])
        if not self.fused:
            chart = Chart(model)
            self.forgone = search.forgone(whole(chart, self.runs))
        times.close()
        return model

    def accepted(self, model: Model, candidate: Model, original: Loadable, folder: Path) -> Model:
        """The first of the candidate, which takes all gains, and of models that take fewer, that passes the check and measures
        faster; the last one tried where none does. What would be faster but for the noise is measured once more.

        Raises:
            CheckFailedError: none passes the check.
        """
        failed: CheckFailedError | None = None
        choices = (c for c in selections(self.passes) if sum(gain.bytes for taken in c for gain in taken) <= self.room)
        for number, passes in enumerate(islice(choices, 1 + RETRIES)):
            if self.seconds.get("measure", 0.0) > RETRYING:
                break
            candidate = spliced(model, passes) if number else candidate
            try:
                with self.phase("check"):
                    require_valid(candidate, model)
                    rewritten = loadable(candidate, folder)
                    sizings, others, factor = self.sizings, other_sizings(model), self.tolerance
                    checked = check_everywhere(original, rewritten, self.device, sizings, others, factor=factor, seed=self.seed)
            except CheckFailedError as error:
                failed = failed or error
                continue
            with self.phase("measure"):
                compared = self._compared(original, rewritten, COMPARING / 2 if number else COMPARING)
                if compared.promising:
                    compared = self._compared(original, rewritten, COMPARING, again=True)
            if self.compared is None or compared.faster:
                self.compared, self.checked, self.taken = compared, checked, passes
            if compared.faster:
                return candidate
        if failed is not None and self.compared is None:
            raise failed
        return candidate

    def _compared(self, original: Loadable, rewritten: Loadable, seconds: float, *, again: bool = False) -> Compared:
        """How the two models compare; what came of it before, where the same two were compared."""

        def told(done: float) -> None:
            self.listener(Progress("measure", round(100 * done), 100))

        how: dict[str, Any] = {"seconds": seconds, "seed": self.seed, "progress": told}
        return compare_once(original, rewritten, self.device, self.sizings, cache=self.cache, again=again, **how)

    def tune(self, original: Loadable) -> None:
        """From here on, sessions are made as is best for the original, at the first of the sizes that matter."""
        high = index_bounds(parsed(original, external=False))
        self.tuned = tune(original, self.device, seconds=COMPARING, seed=self.seed, sizes=self.sizings[0].numbers, high=high)
        self.device = replace(self.device, without=self.tuned.disabled)

    def _told(self, gains: Iterable[Gain], parts: list[Segment], phase: str) -> Iterator[Gain]:
        """The gains, with the listener told of each; a search that the deadline cut short is noted."""
        total = len({part.form.outputs for part in parts})
        self.listener(Progress(phase, 0, total))
        for done, gain in enumerate(gains, 1):
            if gain.found.stopped == OUT_OF_TIME:
                self.stopped = "the budget is spent"
            detail = f"{len(gain.found.steps)} steps save {gain.seconds * 1e6:.0f} us" if gain.found.steps else ""
            self.listener(Progress(phase, done, total, detail))
            yield gain

    def _details(self) -> str:
        """In what sessions both models were measured, where that is not the default; how many of the rewritten segments are in
        what was taken, where some are not.
        """
        sessions = ", both in tuned sessions" if self.tuned is not None and self.tuned.disabled else ""
        found, taken = (sum(len(gains) for gains in passes) for passes in (self.passes, self.taken))
        left_out = f", with {taken} of {found} improved segments (all of them together did not pass)" if taken < found else ""
        large = f", with {self.too_large} improved segments left out for the growth of weights" if self.too_large else ""
        return sessions + left_out + large

    def evidence(self, original: Model, rules: list[Rule], *, accepted: bool) -> Evidence:
        """What a certificate is made of."""
        sizes = [sizing.numbers for sizing in self.sizings if sizing.numbers]
        return Evidence(original, accepted, self.taken if accepted else (), rules, sizes)

    def report(self, loaded: Loaded, candidate: Model, rules: list[Rule]) -> Report:
        """What there is to say when all is done."""
        accepted = self.compared is not None and self.compared.faster
        return Report(
            model=loaded.label,
            accepted=accepted,
            reason=self.refused or reason(self.compared, self._details(), accepted=accepted),
            nodes=count(loaded.model),
            nodes_in_islands=self.islands[1],
            islands=self.islands[0],
            nodes_after=count(candidate if accepted else loaded.model),
            rules=applied_rules([gain for taken in self.taken for gain in taken], rules),
            segments=segment_rows(self.searched),
            timing=None if self.compared is None else timing(self.compared.least),
            shapes={str(sizing): timing(c) for sizing, c in self.compared.at if sizing.numbers} if self.compared else {},
            rounding=rounding(self.checked, self.tolerance),
            tuning=tuned(self.tuned),
            seconds=dict(self.seconds),
            environment=environment(self.device),
            budget=self.budget,
            seed=self.seed,
            stopped=self.stopped,
            forgone=self.forgone,
        )
