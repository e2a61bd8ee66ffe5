"""Optimize a model: load and prepare the model, search for candidate models, and judge candidates until a candidate is
accepted.

`optimize` shows the order of the stages. Each stage is a function of the immutable values that earlier stages returned.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Unpack, overload

from superopt.budget import allow_early_stop, is_memory_short, is_stop_requested, limit_memory_growth, waiting
from superopt.child.process import reuse_child
from superopt.cost.measure import Clock
from superopt.errors import CheckFailedError, InvalidModelError, ShapeError, failure
from superopt.flows.certificate import Evidence
from superopt.flows.hints import RunFacts, hints, reasons, refused_improvements
from superopt.flows.kernels import add_kernels
from superopt.flows.optimized import InMemory, KernelLibrary, Optimized, result
from superopt.flows.options import MOVES, Options, Shapes
from superopt.flows.prepare import PhaseTimer, PreparedModel, prepare, read_request
from superopt.flows.report_fields import (
    arithmetic_of_passes,
    changed_operator_counts,
    prediction,
    reason_details,
    rounding_report,
    rules_applied_by_gains,
    run_environment,
    searched_segment_entries,
    session_tuning,
    timing,
    unsearched_segment_counts,
    verdict_reason,
)
from superopt.flows.settings import OptimizationSettings, settings_of
from superopt.model.coverage import OperatorShare, UncoveredNodes, node_seconds, operator_shares, uncovered_nodes
from superopt.model.dimensions import dynamic_dimension_names
from superopt.model.examples import Given
from superopt.model.external_data import temporary_scratch
from superopt.model.load import ExportedProgram, Model, ModelProto, Source, count, opset_of, weight_bytes
from superopt.model.save import loadable
from superopt.model.specialize import Fixable
from superopt.model.splice import in_valid_form
from superopt.policy import CHECK, COMPARISON, OPTIMIZATION, REPORT
from superopt.report.optimization import Report
from superopt.report.progress import Listener, ignore_progress
from superopt.rules.accuracy import admit_by_growth
from superopt.rules.fp_flags import FpMode
from superopt.rules.rule import Rule
from superopt.runtime.cache import Cache, default_path, replacing_entries
from superopt.runtime.multi_shape import SizeComparisons
from superopt.search.absorption import absorption
from superopt.search.apply import PARTLY
from superopt.search.gate import SPECIAL
from superopt.search.judging import JudgingSeconds, ModelCandidate, ModelOutcome
from superopt.search.passes import ImprovedModel, PassRunner, SearchedModel, improvements
from superopt.search.search_log import SearchLog
from superopt.search.segment_search import SegmentSearch
from superopt.search.segments import Gain, Passes, relower, whole_islands
from superopt.search.selection import fallback_choices, has_steps_of, splice_passes
from superopt.search.unimproved_cache import UnimprovedModelCache
from superopt.worker_pool import defer_garbage_collection

WHOLE, STOPPED = "every part was searched", "a stop was requested"
"""Texts of the report that say why a search ended: nothing was left to search, or a stop was requested."""
OUT_OF_MEMORY = "the memory limit was reached"


@overload
def optimize(model: InMemory, **options: Unpack[Options]) -> Optimized[InMemory]: ...


@overload
def optimize(model: str | os.PathLike[str] | BinaryIO | Model, **options: Unpack[Options]) -> Optimized[Model]: ...


@defer_garbage_collection()
def optimize(
    model: Source,
    *,
    provider: str = "cpu",
    budget: float | str | None = None,
    seed: int = 0,
    threads: int | None = None,
    cuda_graph: bool = False,
    shapes: Shapes = (),
    inputs: Sequence[Given] = (),
    fix: Mapping[str, Fixable] | None = None,
    cache: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    no_cache: bool = False,
    tune: bool = False,
    ort_config: bool = False,
    tolerance: float = CHECK.max_error_factor,
    growth: float | None = None,
    moves: Sequence[str] = MOVES,
    fp: str = FpMode.RELAXED,
    rules: Sequence[str | os.PathLike[str]] = (),
    device_profile: str | os.PathLike[str] | None = None,
    allow_contrib: bool = False,
    kernels: bool = False,
    opset: int | None = None,
    metadata: bool = True,
    stop: threading.Event | None = None,
    progress: Listener | None = None,
) -> Optimized[Model | ModelProto | bytes | ExportedProgram]:
    """Return an equivalent model that is faster in ONNX Runtime according to measurements.

    If no such model is found, return the given model. The result has the type of the given model. For a path or an open file,
    the result is an `onnx_ir.Model`. The given model is not changed.

    Dynamic dimensions of inputs stay dynamic. The returned model is equivalent at every size, and is measured at each
    combination of sizes in `shapes`. A candidate model is returned only if it is faster and passes the numerical check. If
    there is no such candidate, or if the model cannot be run on random inputs (for example, because of a sequence input), the
    given model is returned. The report then gives the reason.

    Args:
        model: A path, a file that is open in binary mode, the bytes of a file, an `onnx.ModelProto`, an `onnx_ir.Model`, or the
            `torch.onnx.ONNXProgram` that `torch.onnx.export(..., dynamo=True)` returns.
        provider: "cpu", "cuda" or "tensorrt".
        budget: The seconds that the search may take, or a text such as "60s" or "2m". Checking and comparing candidates take
            additional time. By default, the budget is 20 seconds. For a model of several hundred nodes, a model with a long run
            time, or a slow machine, the default is up to 30 seconds.
        seed: The seed of every random choice.
        threads: The number of CPU threads of a session. By default, a session uses all cores, as in ONNX Runtime. The search
            times single nodes on one thread. Whole models are compared with this number of threads, and with one thread for the
            report.
        cuda_graph: Run the model by replaying a CUDA graph.
        shapes: Sizes of the dynamic dimensions by name: a mapping such as `{"batch": 1, "length": (64, 128)}`, or a sequence of
            mappings with one size for each name. The default size is 1 for the first dimension of an input, 224 for the
            height and width of an image, and 128 for any other dimension.
        inputs: Examples of the model's inputs: mappings from names to arrays, .npz files, or folders of tensors as in the test
            data of ONNX. The model is run, timed and checked on the examples, at their sizes, and checked on random inputs
            too.
        fix: Fixed values of inputs and fixed sizes of dynamic dimensions, by name, such as `{"sr": 16000}`. The result is valid
            only for these values and sizes. The fixed inputs remain inputs of the result. ONNX Runtime raises an error if the
            result is run with a different value or size. A single number fixes all elements of an input.
        cache: The file for measured times of nodes and for results of searches. By default, the file is in the user's cache
            folder. If a complete search finds no faster model, the file records this result, and the model is not searched
            again. Whole models are always compared anew.
        fresh: Measure and search again, and replace entries of the cache.
        no_cache: Neither read the cache nor write to it.
        tune: First measure the model in sessions with different settings (`superopt.runtime.tuning`), and then optimize the
            model for the best settings.
        ort_config: With `tune`, write the best settings to the metadata of the result. ONNX Runtime can read only some of these
            settings from a model (`superopt.model.session_metadata`). The settings are written even if no faster model was
            found.
        tolerance: The largest rounding error of the result, as a multiple of the original's rounding error. Rounding errors are
            differences from a run in float64. With a larger tolerance, less accurate algorithms are allowed.
        growth: The largest growth of the weights, as a share of their size. By default, weights may grow by 3 times their size
            but at most by 256 MiB. Weights of more than 512 MiB may grow by half their size. Each of these limits is increased
            by 1 MiB.
        moves: The kinds of rewrites that the search may use, from `MOVES`. If `moves` is empty, the model is not rewritten.
        fp: The floating-point mode: "precise", "relaxed" or "fast" (docs/floating-point.md).
        rules: Files and folders with rules of your own, which `superopt rules add` proved (docs/rules.md). These rules are used
            in addition to superopt's rules.
        device_profile: A file in which `superopt profile` described another device. The model is optimized for this device, and
            times are predicted instead of measured. A model is returned as faster only if the predicted gain is larger than the
            error of the predictions.
        allow_contrib: Allow operators that only ONNX Runtime has (docs/contrib.md).
        kernels: Compile islands of the model to kernels if measurements show that the kernels are faster (docs/kernels.md). The
            result has a library of kernels. The result's model also contains the nodes of the islands, in functions, for
            sessions without the library. Requires a C compiler.
        opset: The opset of a rewritten model. This opset must not be older than the opset of the given model. The rewritten
            model may contain all operators of this opset. If the given model is returned, its opset does not change.
        metadata: Write the version of superopt, the content digest of the original, the floating-point mode, and the counts of
            rules and rewrites to the metadata of a rewritten model.
        stop: An event that another thread or a signal handler may set to end the search. The best candidate so far is then
            checked and compared briefly. If the candidate is not accepted, the given model is returned.
        progress: Receives progress reports.

    Raises:
        ModelNotFoundError, InvalidModelError: The model cannot be loaded, see `superopt.model.load` and
            `superopt.runtime.session`.
        ProviderError, RuntimeMissingError: The provider, or ONNX Runtime, is not installed.
        ExampleError: An example cannot be read, or does not fit the model.
        FixedInputError: A name in `fix` is neither an input nor a dimension, or a value does not fit its input or differs from
            an example.
        ProfileError: The file is not a device profile, or is a profile of a different execution provider.
        OpsetError: The model cannot be converted to the opset.
        StoreError: A stored rule, or a rule of `rules`, lacks a valid proof.
        CompilerError: `kernels` is given, and there is no C compiler.
        CheckFailedError: The rewritten nodes cannot be put into the model, because the model would then contain a cycle.
        ValueError: A number is too small or NaN. Or a kind of rewrites or a mode is unknown. Or arguments do not fit together:
            `tune` with a device profile, `ort_config` without `tune`, or `fresh` with `no_cache`.
    """
    if not isinstance(fix or {}, Mapping):
        raise ValueError(f"fix must map names of inputs and dimensions to values, but fix is {fix!r}")
    if stop is not None and not hasattr(stop, "is_set"):
        raise ValueError(f"stop must be an event such as threading.Event, not {stop!r}")
    if fresh and no_cache:
        raise ValueError("fresh=True cannot be used with no_cache=True, because nothing is stored without a cache")
    stages = optimization_stages(tune=tune, predicted=device_profile is not None)
    phases = PhaseTimer(progress or ignore_progress, stages)
    stored = Path(cache) if cache is not None else default_path()
    times = replacing_entries(stored, keep=fresh) if fresh or no_cache else nullcontext(stored)
    with allow_early_stop(stop), temporary_scratch() as scratch, reuse_child(), times as file:
        options = Options(
            provider=provider,
            budget=budget,
            seed=seed,
            threads=threads,
            cuda_graph=cuda_graph,
            shapes=shapes,
            cache=file,
            tune=tune,
            ort_config=ort_config,
            tolerance=tolerance,
            growth=growth,
            moves=moves,
            fp=fp,
            rules=rules,
            device_profile=device_profile,
            allow_contrib=allow_contrib,
            kernels=kernels,
            opset=opset,
        )
        settings = settings_of(options)
        with phases("load"):
            request = read_request(model, settings, inputs, fix or {}, scratch)
            loaded, original, sizings, given = request.loaded, request.original, request.sizings, request.given
            predicted = settings.prices is not None
            unimproved = (
                None if tune or predicted else UnimprovedModelCache(settings.cache, settings.key(sizings, given), original)
            )
            known = None if unimproved is None else unimproved.before()
        if known is not None:
            note = f"{known.reason} (found by a search on {known.searched}; --fresh searches again)"
            report = replace(known, model=loaded.label, reason=note, seconds=dict(phases.seconds))
            at = [sizing.numbers for sizing in sizings if sizing.numbers]
            evidence = Evidence(loaded.model, rewritten=False, sizes=at, opset=opset, arithmetic=report.arithmetic)
            return result(model, loaded, loaded.model, report, evidence, given, embed=False)
        prepared = prepare(request, settings, phases, scratch)
        outcomes: list[ModelOutcome] = []
        with limit_memory_growth(OPTIMIZATION.memory_factor * weight_bytes(loaded.model) + OPTIMIZATION.memory_bytes):
            for candidate in search_for_candidates(prepared, outcomes):
                outcomes.append(accept_or_reject_candidate(candidate, prepared, outcomes))
                if outcomes[-1].accepted:
                    break
            library = add_kernels(prepared, outcomes) if settings.kernels else None
        report = report_of(prepared, outcomes, library)
        noisy = report.timing is not None and report.timing.noise > OPTIMIZATION.max_remembered_noise
        if unimproved is not None and report.stopped == WHOLE and not (report.accepted or noisy):
            unimproved.remember(report)
    last = outcomes[-1].candidate
    passes, rewritten = (last.passes, last.model) if report.accepted else ((), None)
    at = [sizing.numbers for sizing in prepared.sizings if sizing.numbers]
    evidence = Evidence(
        loaded.model,
        report.accepted,
        passes,
        prepared.rules,
        at,
        opset,
        report.arithmetic,
        prepared.assumptions,
        prepared.specialization,
    )
    changed = rewritten or loaded.model
    return result(
        model, loaded, changed, report, evidence, prepared.source, embed=ort_config, metadata=metadata, library=library
    )


def optimization_stages(*, tune: bool, predicted: bool) -> tuple[str, ...]:
    """Return the names of the stages of `superopt.optimize` in order.

    Args:
        tune: Whether session settings are tuned.
        predicted: Whether times are predicted from a device profile instead of measured.
    """
    return ("load", *(["tune"] if tune else []), "prepare", "search", "predict" if predicted else "measure", "check", "explain")


def search_for_candidates(prepared: PreparedModel, outcomes: Sequence[ModelOutcome]) -> Iterator[ModelCandidate]:
    """Search the prepared model, and yield candidate models for `superopt.optimize` to judge, best first.

    The caller adds the outcome of each candidate to `outcomes`, and stops the iteration when a candidate is accepted. A
    candidate without any rewrites means that no improvement was found.

    A search fails if one of its candidates fails the numerical check or cannot be run. After a failed search, up to two more
    searches follow, each with a third of the budget. If the failed search used algorithms whose error may exceed the tolerance,
    the next search does not use these algorithms. Some steps may make more elements of the outputs NaN or infinite than in the
    original. If a failed search used such steps, the last search uses neither these steps nor the algorithms.
    """
    searched = SearchedModel(ImprovedModel(prepared.start), failed=prepared.failed)
    if prepared.first.refused or prepared.failed:
        yield ModelCandidate(searched)
        return
    rules, tolerance = prepared.rules, prepared.settings.tolerance
    tried, accurate = (admit_by_growth(rules, factor * tolerance) for factor in (OPTIMIZATION.algorithm_error_factor, 1.0))
    doubtful = {rule.name for rule in tried} - {rule.name for rule in accurate}
    try:
        searched = search_prepared_model(prepared, tried, prepared.budget, searched)
        yield from candidates_to_judge(prepared, searched, outcomes, doubtful)
        for strict in (False, True):
            if is_stop_requested() or not has_failed_outcome(searched, outcomes):
                return
            if spreads_special(prepared, searched.orders) if strict else has_steps_of(doubtful, *searched.orders):
                searched = search_prepared_model(prepared, accurate, prepared.budget / 3, searched, strict=strict)
                yield from candidates_to_judge(prepared, searched, outcomes)
    except (CheckFailedError, InvalidModelError, ShapeError) as error:
        yield ModelCandidate(replace(searched, failed=f"the model cannot be searched: {error}"))


def has_failed_outcome(searched: SearchedModel, outcomes: Iterable[ModelOutcome]) -> bool:
    """Return whether a candidate of the search `searched` failed the numerical check or could not be run."""
    return any(outcome.candidate.searched is searched and outcome.failed is not None for outcome in outcomes)


def spreads_special(prepared: PreparedModel, orders: Sequence[Passes]) -> bool:
    """Return whether a search in relaxed mode found steps that may make more elements NaN or infinite than in the original.

    Such steps matter only if an input contains a NaN or an infinity. `orders` contains the steps that the search found. In
    other modes, the result is False.
    """
    names = {step.rule for passes in orders for taken in passes for gain in taken for step in gain.found.steps}
    partly = any(name.startswith(PARTLY) for name in names)
    exposing = any(absorption(rule).exposed for rule in prepared.rules if rule.name in names and rule.flags & SPECIAL)
    return prepared.settings.mode is FpMode.RELAXED and (partly or exposing)


def search_prepared_model(
    prepared: PreparedModel, rules: list[Rule], budget: float, before: SearchedModel, *, strict: bool = False
) -> SearchedModel:
    """Search for rewrites of the model with the given rules, for at most `budget` seconds, and return the result.

    `before` is the result of the previous search. The search usually assumes that inputs have ordinary magnitudes, and thus
    concludes that values are finite. If `strict` is True, the search does not make this assumption.
    """
    settings, phases, charts, start = prepared.settings, prepared.phases, prepared.charts, prepared.start
    share = 0.0 if settings.allow_contrib else OPTIMIZATION.contrib_budget_share
    with closing(Cache(settings.cache)) as times:
        resident, together = weight_bytes(start), prepared.first.short
        clock = prepared.forecaster or Clock(prepared.device.one_thread, times, resident=resident, together=together)
        with phases("prepare"):
            relowered = before.relowered
            if relowered is None:
                relowered = relower_prepared_islands(prepared, rules, clock)
            begun = ImprovedModel(splice_passes(start, (relowered,)), (relowered,)) if relowered else ImprovedModel(start)
        with phases("search"):
            log = SearchLog(phases.listener, prepared.first.seconds, budget)
            contrib, mode = settings.allow_contrib, settings.mode
            segment_search = SegmentSearch(
                rules,
                clock,
                opset_of(start),
                prepared.sizings,
                budget,
                allow_contrib=contrib,
                mode=mode,
                strict=strict,
                log=log,
            )
            passes = PassRunner(
                segment_search,
                charts,
                prepared.weight_budget,
                prepared.runs,
                log,
                ratio_in_context(prepared),
                prepared.first.seconds,
            )
            best, *others = improvements(begun, passes, settings.moves, (1 - share) * budget)
            seconds = log.seconds
            stopped = (
                STOPPED
                if is_stop_requested()
                else OUT_OF_MEMORY
                if is_memory_short()
                else "the budget is spent"
                if best.unfinished and log.seconds >= OPTIMIZATION.spent_budget_share * (1 - share) * budget
                else "a part of the search reached its time limit"
                if best.unfinished
                else before.stopped
            )
        with phases("search"):
            islands = whole_islands(charts.of(best.model), prepared.runs)
            potential = segment_search.contrib_potential_seconds(islands, share * budget)
    return SearchedModel(best, [other.passes for other in others], stopped, relowered, potential, log=log, seconds=seconds)


def ratio_in_context(prepared: PreparedModel) -> Callable[[Model, Model], tuple[float, float]] | None:
    """Return a function with which the search of `superopt.optimize` times two whole models alternately, or None.

    The function returns the confidence interval of a ratio: the first model's time divided by the second model's time. The
    first seconds of this timing do not count as search time, so that a search finds the same results with and without the
    timing.

    The result is None if times are predicted, or if the model is large, runs long or takes long to open.
    """
    first, judge = prepared.first, prepared.candidate_judge
    large = 2 * weight_bytes(prepared.start) > COMPARISON.max_resident_bytes
    slow = first.seconds > OPTIMIZATION.max_context_run_seconds or first.opening >= OPTIMIZATION.slow_opening_seconds
    if large or slow or prepared.forecaster is not None:
        return None
    spent = 0.0

    def quick_ratio(before: Model, after: Model) -> tuple[float, float]:
        nonlocal spent
        start = time.monotonic()
        with waiting() if spent < OPTIMIZATION.uncounted_context_seconds else nullcontext():
            interval = judge.quick_ratio(loadable(before, prepared.scratch), loadable(after, prepared.scratch))
        spent += time.monotonic() - start
        return interval

    return quick_ratio


def relower_prepared_islands(prepared: PreparedModel, rules: list[Rule], clock: Clock) -> tuple[Gain, ...]:
    """Write the nodes of all islands anew, without applying rules, and return the result if a benchmark suggests a gain.

    Islands are the regions that a search can rewrite. ONNX Runtime may fuse the new nodes better than the exporter's nodes. The
    result is empty if the new nodes are not promising, if the model is too large to be in memory twice, or if its sessions take
    long to open.
    """
    start, settings = prepared.start, prepared.settings
    small = (
        2 * weight_bytes(start) <= COMPARISON.max_resident_bytes and prepared.first.opening < OPTIMIZATION.slow_opening_seconds
    )
    if not (small and settings.moves and prepared.forecaster is None):
        return ()
    try:
        gains = relower(whole_islands(prepared.charts.of(start), prepared.runs), rules, settings.mode)
        if gains and prepared.candidate_judge.is_promising(loadable(splice_passes(start, (gains,)), prepared.scratch), clock):
            return gains
    except Exception as error:  # noqa: BLE001
        failure(error)
    return ()


def candidates_to_judge(
    prepared: PreparedModel,
    searched: SearchedModel,
    outcomes: Sequence[ModelOutcome],
    doubtful: AbstractSet[str] = frozenset(),
) -> Iterator[ModelCandidate]:
    """Yield the candidate models of a search: first the model with all improvements, then models with fewer improvements.

    If the model was specialized (to fixed inputs, or to branches that are always taken), the last model is the specialized
    model without rewrites. If all improvements together are too small to compare, or if the search found no improvement, only a
    candidate without rewrites is yielded.

    Rules named in `doubtful` may have rounding errors that are too large. If the search used one of these rules, the iteration
    ends when a candidate fails the numerical check, because the remaining candidates would use the doubtful rules too. The
    iteration also ends if checking and timing the candidates has taken too long.
    """
    check_first = has_steps_of(doubtful, *searched.orders)
    choices = () if negligible_share(prepared, searched) else prepared_gain_choices(prepared, searched, outcomes)
    number = -1
    for number, passes in enumerate(choices):
        failed = has_failed_outcome(searched, outcomes)
        if number and (
            is_stop_requested()
            or (failed and check_first)
            or outcomes[-1].spent.total > (OPTIMIZATION.failed_retry_seconds if failed else OPTIMIZATION.retry_seconds)
        ):
            return
        model = None if number else searched.best.model
        yield ModelCandidate(searched, passes, model, check_first=check_first or failed, fallback=number > 0)
    if prepared.specialization:
        yield ModelCandidate(searched, model=prepared.start, fallback=number >= 0)
    elif number < 0:
        yield ModelCandidate(searched)


def prepared_gain_choices(
    prepared: PreparedModel, searched: SearchedModel, outcomes: Sequence[ModelOutcome]
) -> Iterator[Passes]:
    """Yield sets of improvements. Each set is tried as one candidate model.

    The set of all improvements comes first, then at most `OPTIMIZATION.max_retries` other sets. If none of these candidate
    models could be compared with the original, parts of the largest improvement are tried: half of its rewrite steps, then a
    quarter, and so on.
    """
    every = fallback_choices(searched.best.passes, searched.relowered or (), searched.others)
    fitting_choices = (c for c in every if sum(gain.bytes for taken in c for gain in taken) <= prepared.weight_budget)
    passes: Passes = ()
    for passes in islice(fitting_choices, 1 + OPTIMIZATION.max_retries):
        yield passes
    best = max(passes[0] if passes else (), key=lambda gain: gain.seconds, default=None)
    while best is not None and all(outcome.compared is None for outcome in outcomes):
        best = best.halved()
        if best is not None:
            yield ((best,),)


def negligible_share(prepared: PreparedModel, searched: SearchedModel) -> float:
    """Return the share of the run time that all improvements save together, if this share is too small to measure.

    If this share is large enough to measure, return 0. The cost model predicts the saved time. If the result is not 0,
    `superopt.optimize` measures no candidate.
    """
    first, saved = prepared.first, sum(gain.seconds for taken in searched.best.passes for gain in taken)
    hopeless = (
        not (searched.relowered or first.short or prepared.forecaster or prepared.specialization)
        and 0 < saved < OPTIMIZATION.min_saved_time_share * first.seconds
    )
    return saved / first.seconds if hopeless else 0.0


def accept_or_reject_candidate(
    candidate: ModelCandidate, prepared: PreparedModel, outcomes: Sequence[ModelOutcome]
) -> ModelOutcome:
    """Write the model of a candidate for `superopt.optimize`, let the judge examine the model, and return the judge's outcome.

    The judge checks the model, and compares its speed with the original's speed. `outcomes` contains the outcomes of earlier
    candidates.
    """
    spent = outcomes[-1].spent if outcomes else JudgingSeconds()
    if not candidate.passes and candidate.model is None:
        return ModelOutcome(candidate, spent)
    seconds = (
        OPTIMIZATION.hurried_comparison_seconds
        if is_stop_requested()
        else OPTIMIZATION.full_comparison_seconds / 2
        if candidate.fallback
        else OPTIMIZATION.full_comparison_seconds
    )
    try:
        model = splice_passes(prepared.start, candidate.passes) if candidate.model is None else candidate.model
        model = in_valid_form(model, prepared.start)
        rewritten = loadable(model, prepared.scratch)
    except Exception as error:  # noqa: BLE001
        return ModelOutcome(candidate, spent, failed=failure(error))
    outcome = prepared.candidate_judge.judge(candidate, rewritten, seconds, spent)
    return replace(outcome, candidate=replace(candidate, model=model)) if outcome.accepted else outcome


def report_of(prepared: PreparedModel, outcomes: Sequence[ModelOutcome], library: KernelLibrary | None = None) -> Report:
    """Return the report of an optimization.

    The report describes the last search, and one candidate: the accepted candidate, or the first candidate that was compared.
    """
    last, settings, loaded = outcomes[-1], prepared.settings, prepared.loaded
    searched, failed = last.candidate.searched, last.candidate.searched.failed
    compared = [] if failed else [outcome for outcome in outcomes if outcome.compared is not None]
    best = last if last.accepted or not compared else compared[0]
    if not compared:
        failed = failed or next((o.failed for o in outcomes if o.candidate.searched is searched and o.failed), "")
    taken = best.candidate.passes if compared else ()
    measured = best.compared if isinstance(best.compared, SizeComparisons) else None
    alone = best.compared_alone
    apart = prepared.tuning is not None and bool(prepared.tuning.choices)
    facts = RunFacts(
        budget=prepared.budget,
        accepted=best.accepted,
        cut_short=bool(searched.best.unfinished),
        seconds=searched.seconds,
        improvements=searched.log.improvements,
        measured=searched.log.measured,
        refused=refused_improvements(outcomes, searched),
        noise=measured.least.noise if measured else 0.0,
        contrib_seconds=searched.contrib_potential_seconds,
        run_seconds=prepared.first.seconds,
        lacks_kernels=settings.kernels and library is None,
        unused=unused_options(settings),
    )
    explanation = explain(prepared, facts)
    said = reason_details(
        apart=apart,
        found=sum(map(len, searched.best.passes)),
        taken=sum(map(len, taken)),
        too_large=searched.best.too_large,
        small=negligible_share(prepared, searched),
    )
    return Report(
        model=loaded.label,
        accepted=best.accepted,
        reason=prepared.first.refused or verdict_reason(best, said, failed, prepared.device.threads),
        nodes=count(loaded.model),
        nodes_in_islands=prepared.islands[1],
        islands=prepared.islands[0],
        nodes_after=count(best.candidate.model if best.accepted and best.candidate.model else loaded.model),
        rules=rules_applied_by_gains([gain for gains in taken for gain in gains], prepared.rules),
        segments=searched_segment_entries(searched.best.searched),
        timing=timing(measured.least) if measured else None,
        one_thread=timing(alone.least) if alone else None,
        shapes={str(sizing): timing(c) for sizing, c in measured.at if sizing.numbers} if measured else {},
        prediction=prediction(prepared.forecaster, best.compared),
        rounding=rounding_report(best.checked, settings.tolerance),
        failed=failed,
        tuning=session_tuning(prepared.tuning),
        seconds=dict(prepared.phases.seconds),
        environment=run_environment(prepared.device),
        budget=prepared.budget,
        seed=settings.seed,
        stopped=searched.stopped or WHOLE,
        forgone=searched.contrib_potential_seconds,
        windows_left=unsearched_segment_counts(searched.best.searched),
        arithmetic=arithmetic_of_passes(taken, prepared.rules, settings.mode),
        assumptions=prepared.assumptions,
        uncovered=explanation.uncovered,
        hints=explanation.hints,
        why=explanation.why,
        operators=explanation.operators,
        refused=facts.refused,
        rewrites_tried=searched.log.tried,
        candidates_measured=searched.log.measured,
        progress=tuple(searched.log.improvements),
        operator_counts=changed_operator_counts(loaded.model, best.candidate.model if best.accepted else None),
        fixed=prepared.specialization.described(),
        kernels=None if library is None else library.use,
        inlined=sum(condition is not None for taken in prepared.specialization.branches for condition in taken),
    )


@dataclass(frozen=True)
class RunExplanation:
    """The explanation of a run in its report. The class `Report` describes the fields."""

    why: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    operators: tuple[OperatorShare, ...] = ()
    uncovered: tuple[UncoveredNodes, ...] = ()


def explain(prepared: PreparedModel, facts: RunFacts) -> RunExplanation:
    """Return an explanation: reasons for the result, hints for the user, times by operator, nodes that cannot be rewritten.

    The nodes of the model are timed briefly. The nodes are not timed after a request to stop. The nodes are also not timed if a
    faster model was found and sessions take long to open.
    """
    if prepared.first.refused or prepared.failed:
        hint = "--input FILE runs the model on your own inputs" if prepared.first.refused else ""
        return RunExplanation(hints=(hint,) if hint else ())
    if is_stop_requested():
        return RunExplanation(reasons((), (), facts), hints((), (), opset_of(prepared.start), (), facts))
    slow = prepared.first.opening > REPORT.max_explained_opening_seconds or prepared.forecaster is not None
    with prepared.phases("explain"):
        start, chart, sizes = prepared.start, prepared.charts.of(prepared.start), prepared.sizings[0].numbers
        timed = not (facts.accepted and slow)
        seconds = node_seconds(start, prepared.device.one_thread, sizes, prepared.source, prepared.scratch) if timed else {}
        operators, uncovered = operator_shares(chart, seconds), uncovered_nodes(chart, seconds)
        islands = () if facts.accepted else whole_islands(chart, prepared.runs)
        found = hints(uncovered, islands, opset_of(start), [*dynamic_dimension_names(start)], facts)
    return RunExplanation(reasons(operators, uncovered, facts), found, operators, uncovered)


def unused_options(settings: OptimizationSettings) -> dict[str, str]:
    """Return a mapping from command line options to their effects.

    The mapping contains only options that may lead to a gain and that this run did not use.
    """
    unused = {}
    if settings.prices is None:
        if not settings.tune:
            unused["--tune"] = "finds faster settings of the session"
        if settings.mode is not FpMode.PRECISE and not settings.kernels and settings.device.provider == "cpu":
            unused["--kernels"] = "compiles parts of the model with a C compiler"
    if settings.mode is not FpMode.FAST:
        unused["--fp fast"] = "also allows rewrites that are right only over the real numbers"
    return unused
