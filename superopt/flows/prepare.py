"""Prepare a model for the search: load it, read its inputs and sizes, run it once, and find its islands (rewritable regions).

`read_request` and `prepare` are the first stages of `superopt.optimize`, `superopt.replay` and `superopt optimize --dry-run`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from superopt.algebra.dim_binding import DimBinding
from superopt.child.program import release_memory
from superopt.cost.first_run import FirstRun, cached_first_run, cached_search_pace
from superopt.cost.forecast import ForecastClock, unpriced_reason
from superopt.errors import CheckFailedError, InvalidModelError, ShapeError
from superopt.flows.settings import OptimizationSettings
from superopt.model.bodies import count_body_runs
from superopt.model.convert_opset import convert_opset
from superopt.model.dimensions import named_sizes, representative_sizings
from superopt.model.examples import Given, example_sizes, read_examples
from superopt.model.external_data import Scratch
from superopt.model.inline_functions import inline_functions
from superopt.model.islands import Charts
from superopt.model.load import Loaded, Model, Source, count, load, weight_bytes
from superopt.model.save import loadable
from superopt.model.session_metadata import config_of
from superopt.model.specialize import Fixable, agreeing_examples, at_fixed_sizes, read_fixed, specialize
from superopt.policy import OPTIMIZATION
from superopt.protobuf.specialize import Specialization
from superopt.protobuf.stored import Loadable, parse_model
from superopt.report.progress import Listener, Progress
from superopt.rules.rule import Rule
from superopt.rules.store import load_rules
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Device
from superopt.runtime.settings import with_choices
from superopt.runtime.tuning import Tuning, tune
from superopt.search.judging import CandidateJudge
from superopt.search.passes import search_budget_seconds
from superopt.search.segments import Runs
from superopt.search.selection import weight_budget


@dataclass(frozen=True, eq=False)
class Request:
    """A loaded model with the inputs and sizes for which the model is optimized.

    Attributes:
        loaded: The model that the caller gave.
        original: The same model in the form that ONNX Runtime loads.
        given: The examples that the user gave, and the fixed inputs.
        fixed: The fixed inputs and sizes.
        sizings: Sizes of the dynamic dimensions.
        chosen: Whether the user chose these sizes.
    """

    loaded: Loaded
    original: Loadable
    given: InputSource
    fixed: Specialization
    sizings: Sequence[DimBinding]
    chosen: bool


def read_request(
    model: Source, settings: OptimizationSettings, inputs: Sequence[Given], fix: Mapping[str, Fixable], scratch: Scratch
) -> Request:
    """Load the model, and read its examples, fixed inputs and sizes. See `optimize` for the arguments."""
    loaded = load(model)
    if settings.ort_config:
        config_of(loaded.model)
    given = [inputs] if isinstance(inputs, str | os.PathLike | Mapping) else inputs
    fixed, examples = read_fixed(fix, loaded.model), read_examples(given, loaded.model)
    asked = [*filter(None, settings.shapes), *example_sizes(examples, loaded.model)]
    sizes = at_fixed_sizes(named_sizes(loaded.model, asked), fixed)
    sizings = representative_sizings(loaded.model, sizes)
    original = loadable(loaded.model, scratch, loaded.path)
    source = InputSource(examples=agreeing_examples(examples, fixed), fixed=fixed.values, fixed_sizes=fixed.sizes)
    return Request(loaded, original, source, fixed, sizings, chosen=bool(sizes))


class PhaseTimer:
    """Reports the phases of a run to a listener, and sums up the seconds of each phase.

    After each phase, free memory is returned to the system. Otherwise, the memory of a process that optimizes many models would
    keep growing.

    Args:
        listener: Receives the progress of the run.
        stages: The names of the expected phases of the run, in order.
    """

    def __init__(self, listener: Listener, stages: Sequence[str] = ()) -> None:
        self._listener, self._stages, self._open = listener, stages, list[str]()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Report the start of the named phase, and add the time inside the context to the seconds of the phase."""
        self._open.append(name)
        self.listener(Progress(name))
        start = time.monotonic()
        try:
            yield
        finally:
            self._open.pop()
            release_memory()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start

    def listener(self, progress: Progress) -> None:
        """Report progress together with the stage of the run. The stage is the outermost phase."""
        stage = self._open[0] if self._open else progress.phase
        place = self._stages.index(stage) + 1 if stage in self._stages else 0
        self._listener(replace(progress, stage=stage, place=place, stages=len(self._stages)))


@dataclass(frozen=True, eq=False)
class PreparedModel:
    """A model that is ready to be searched.

    Attributes:
        loaded: The model that the caller gave.
        original: The same model in the form that ONNX Runtime loads.
        source: The source of the inputs.
        settings: The validated arguments of `superopt.optimize`.
        phases: The timer of the run's phases.
        scratch: A temporary folder for large tensors.
        first: The results of the first run of the model. If the model cannot be optimized, these results contain the reason.
        sizings: The sizes of the dynamic dimensions at which the model runs.
        budget: The seconds that the search may take.
        device: The device, with the session settings that tuning found.
        forecaster: The predictor of times on the device of a device profile, or None if times are measured.
        charts: A cache of copies of models for analysis.
        start: The model that is searched. In this model, functions are inlined, inputs and sizes are fixed as requested, and
            branches with known conditions are inlined. The opset is the requested opset, and constants are folded.
        weight_budget: The bytes by which the weights of `start` may grow.
        runs: The number of times that each control flow body (such as the body of a Loop) runs in one run of the model.
        rules: The stored rules and the user's rules. Empty if no part of the model can be rewritten.
        islands: The number of islands (the regions that a search can rewrite), and the number of nodes in all islands.
        assumptions: The assumptions about dynamic dimensions.
        specialization: The fixed inputs and sizes, and the branches that were inlined.
        tuning: The session settings that were tried, if tuning was requested.
        failed: The reason why the model cannot be searched, or an empty text.
    """

    loaded: Loaded
    original: Loadable
    source: InputSource
    settings: OptimizationSettings
    phases: PhaseTimer
    scratch: Scratch
    first: FirstRun
    sizings: Sequence[DimBinding]
    budget: float
    device: Device
    forecaster: ForecastClock | None
    charts: Charts
    start: Model
    weight_budget: float = 0.0
    runs: Runs = field(default_factory=dict)
    rules: Sequence[Rule] = ()
    islands: tuple[int, int] = (0, 0)
    assumptions: tuple[str, ...] = ()
    specialization: Specialization = field(default_factory=Specialization)
    tuning: Tuning | None = None
    failed: str = ""

    @property
    def candidate_judge(self) -> CandidateJudge:
        """The judge that checks the results of candidate models, and compares the speed of candidate models and original."""
        cache, check, run_bytes = self.settings.cache, self.settings.check, self.first.run_bytes

        def progress(share: float) -> None:
            self.phases.listener(Progress("measure", round(100 * share), 100))

        return CandidateJudge(
            self.original,
            self.device,
            self.sizings,
            cache,
            check,
            self.forecaster,
            self.source,
            self.phases,
            progress,
            run_bytes,
        )


def prepare(request: Request, settings: OptimizationSettings, phases: PhaseTimer, scratch: Scratch) -> PreparedModel:
    """Prepare the requested model for the search.

    The function runs the model for the first time, sets the time budget, tunes session settings if requested, and finds the
    model's islands (the regions that a search can rewrite).
    """
    loaded, original, fixed, sizings = request.loaded, request.original, request.fixed, request.sizings
    with phases("load"):
        device = settings.device
        first = cached_first_run(
            original, loaded, device.one_thread, sizings, settings.cache, request.given, chosen=request.chosen
        )
        source = request.given.bounded(parse_model(original, external=False))
        sizings = [DimBinding(numbers) for numbers in first.sizes] or sizings
        plain, weights, budget = inline_functions(loaded.model), weight_bytes(loaded.model), settings.budget
        if budget is None:
            budget = search_budget_seconds(
                count(plain), first.seconds, len(sizings), weights, cached_search_pace(settings.cache)
            )
        forecaster = None if settings.prices is None else ForecastClock(device, settings.prices, resident=weights)
        if forecaster is not None:
            first = replace(first, refused=first.refused or unpriced_reason(forecaster, original, sizings))
        charts = Charts(settings.mode, native_half=device.provider != "cpu")
        prepared = PreparedModel(
            loaded, original, source, settings, phases, scratch, first, sizings, budget, device, forecaster, charts, start=plain
        )
        if first.refused:
            return prepared
    if settings.tune:
        with phases("tune"):
            tuning = tune(
                original,
                device,
                seconds=OPTIMIZATION.full_comparison_seconds,
                seed=settings.seed,
                sizes=sizings[0].numbers,
                source=source,
            )
            prepared = replace(prepared, tuning=tuning, device=with_choices(device, tuning.choices))
    try:
        with phases("load"):
            special, specialization = specialize(plain, fixed)
            inlined = original if special is loaded.model else loadable(special, scratch)
            counts = count_body_runs(inlined, device.one_thread, seed=settings.seed, sizes=sizings[0].numbers, source=source)
            start = charts.begun(special if settings.opset is None else convert_opset(special, settings.opset))
            chart = charts.of(start)
            nodes = [len(island.nodes) for island in chart.islands()]
            return replace(
                prepared,
                start=start,
                weight_budget=weight_budget(weight_bytes(start), settings.growth),
                runs=counts,
                rules=[*load_rules(), *settings.user_rules] if nodes else [],
                islands=(len(nodes), sum(nodes)),
                assumptions=chart.views.assumptions,
                specialization=specialization,
            )
    except (CheckFailedError, InvalidModelError, ShapeError) as error:
        return replace(prepared, failed=f"the model cannot be searched: {error}")
