"""Replay a certificate: apply the rewrites of an optimization to another model with the same graph, without a search.

The other model usually has the same nodes and different weights, because the other model was trained further. A rewrite is
applied to nodes that compute the recorded terms, if the floating-point mode permits each step for the weights of the other
model (`superopt.search.replay`). The weights of the result are computed from the weights of the other model. The numerical
check of `superopt.optimize` compares the result with the other model.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Generic, TypeAlias, Unpack, overload

from superopt.algebra.terms import subterms
from superopt.budget import limit_memory_growth
from superopt.child.process import reuse_child
from superopt.errors import CheckFailedError, failure
from superopt.flows.certificate import Evidence, certificate_node_names
from superopt.flows.optimized import InMemory, M_co, model_in_given_form
from superopt.flows.options import Options, ReplayOptions
from superopt.flows.prepare import PhaseTimer, PreparedModel, prepare, read_request
from superopt.flows.report_fields import arithmetic_of_passes, rounding_report, timing
from superopt.flows.settings import settings_of
from superopt.model.examples import Given
from superopt.model.external_data import temporary_scratch
from superopt.model.islands import Chart
from superopt.model.load import ExportedProgram, Model, ModelProto, Source, as_model, count, weight_bytes
from superopt.model.save import copy, loadable, save
from superopt.model.splice import MADE_NAME, in_valid_form
from superopt.policy import CHECK, COMPARISON, OPTIMIZATION
from superopt.report.progress import Listener, Progress, ignore_progress
from superopt.report.replaying import ReplayReport
from superopt.runtime.multi_shape import ComparisonSettings, cached_check, compare_at_all_sizes
from superopt.search.apply import State, Step
from superopt.search.backtracking import SearchResult
from superopt.search.replay import StepReplay
from superopt.search.segments import (
    Gain,
    Passes,
    Runs,
    Segment,
    gate_of,
    parallel_islands,
    searchable_islands,
    segments,
    whole_islands,
)
from superopt.search.selection import splice_fitting, splice_passes
from superopt.verification.certificates import (
    Certificate,
    Pass,
    Rewrite,
    RewrittenNodes,
    parse_certificate,
    read_certificate_text,
)
from superopt.worker_pool import defer_garbage_collection


@dataclass(frozen=True, eq=False)
class Replayed(Generic[M_co]):
    """The result of a replay: a model and a report.

    The model is the given model if no recorded rewrite could be applied, and otherwise the rewritten model.

    Attributes:
        model: The model.
        report: The report of the replay.
        evidence: The facts that go into the certificate of the result.
        source: A file that contains exactly this model, if there is such a file.
        external: Whether the given model had tensors in external data files.
    """

    model: M_co
    report: ReplayReport
    evidence: Evidence
    source: Path | None = None
    external: bool = False

    def __repr__(self) -> str:
        """Describe the result in one line, without the model."""
        return f"<Replayed {self.report.model}: {self.report.reason}>"

    @functools.cached_property
    def certificate(self) -> str:
        """The applied rewrite steps as a JSON object, with which `superopt verify` checks the result against the given model.

        The certificate describes the model at the time of the first access to this property.
        """
        return self.evidence.certificate(as_model(self.model))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to `path`, as `superopt.flows.optimized.Optimized.save` does.

        Raises:
            TargetError: The model cannot be written. Existing files are not changed.
        """
        if self.source is not None:
            copy(self.source, path)
        else:
            save(as_model(self.model), path, external=self.external)


@overload
def replay(certificate: str | os.PathLike[str], model: InMemory, **options: Unpack[ReplayOptions]) -> Replayed[InMemory]: ...


@overload
def replay(
    certificate: str | os.PathLike[str],
    model: str | os.PathLike[str] | BinaryIO | Model,
    **options: Unpack[ReplayOptions],
) -> Replayed[Model]: ...


@defer_garbage_collection()
def replay(
    certificate: str | os.PathLike[str],
    model: Source,
    *,
    provider: str = "cpu",
    threads: int | None = None,
    cuda_graph: bool = False,
    inputs: Sequence[Given] = (),
    tolerance: float = CHECK.max_error_factor,
    compare: bool = False,
    seed: int = 0,
    rules: Sequence[str | os.PathLike[str]] = (),
    cache: str | os.PathLike[str] | None = None,
    progress: Listener | None = None,
) -> Replayed[Model | ModelProto | bytes | ExportedProgram]:
    """Apply the rewrites that a certificate records to another model, usually with the same graph and different weights.

    There is no search, and the models are timed only if `compare` is set. A recorded rewrite is applied to each segment (a part
    of the model) that computes the recorded terms. A rewrite is left out if a segment computes different terms, for example
    because a number in the model changed. A rewrite is also left out if the floating-point mode does not permit one of its
    steps for the weights of the given model. If no rewrite can be applied, the result is the given model. The report gives the
    reasons.

    The certificate determines the fixed inputs, the fixed sizes, the opset and the floating-point mode. The result has the type
    of the given model. For a path or an open file, the result is an `onnx_ir.Model`.

    Args:
        certificate: The text of the certificate, or the path of its file as a `pathlib.Path`.
        model: The other model, in any form that `superopt.optimize` accepts.
        provider: "cpu", "cuda" or "tensorrt".
        threads: The number of CPU threads of a session in the comparison. By default, a session uses all cores.
        cuda_graph: Run the model by replaying a CUDA graph.
        inputs: Examples of the model's inputs. The result is checked on these examples too, as for `superopt.optimize`.
        tolerance: The largest rounding error of the result, as a multiple of the model's rounding error.
        compare: Compare the speed of the model and of the result.
        seed: The seed of the random inputs.
        rules: Files and folders with rules of your own, if the certificate names such rules (see `superopt.optimize`).
        cache: The file for results of checks. By default, the file is in the user's cache folder.
        progress: Receives progress reports.

    Raises:
        CertificateError: The certificate cannot be read.
        CheckFailedError: The outputs of the result differ from the outputs of the given model.
        DimensionError, FixedInputError: The model lacks an input or a dimension that the certificate names.
        OpsetError: The model cannot be converted to the opset of the certificate.
        ModelNotFoundError, InvalidModelError, ExampleError, ProviderError, RuntimeMissingError, StoreError, ValueError: See
            `superopt.optimize`.
    """
    recorded = parse_certificate(certificate if isinstance(certificate, str) else read_certificate_text(Path(certificate)))
    phases = PhaseTimer(progress or ignore_progress)
    with temporary_scratch() as scratch, reuse_child():
        options = Options(
            provider=provider,
            budget=0.0,
            seed=seed,
            threads=threads,
            cuda_graph=cuda_graph,
            shapes=recorded.sizes,
            cache=cache,
            tolerance=tolerance,
            fp=recorded.mode,
            rules=rules,
            allow_contrib=True,
            opset=recorded.opset,
        )
        settings = settings_of(options)
        with phases("load"):
            special = recorded.specialization
            request = read_request(model, settings, inputs, {**special.values, **special.sizes}, scratch)
            loaded = request.loaded
        prepared = prepare(request, settings, phases, scratch)
        with limit_memory_growth(OPTIMIZATION.memory_factor * weight_bytes(loaded.model) + OPTIMIZATION.memory_bytes):
            replaying = _Replaying(prepared, recorded)
            passes, rewritten = replaying.rewritten()
            rewritten = None if rewritten is None else in_valid_form(rewritten, prepared.start)
            report = ReplayReport(
                model=loaded.label,
                recorded=sum(len(rewrite.places) for one in recorded.passes for rewrite in one.rewrites),
                applied=sum(len(gain.copies) for taken in passes for gain in taken),
                steps=sum(len(gain.copies) * len(gain.found.steps) for taken in passes for gain in taken),
                left={why: tuple(outputs) for why, outputs in replaying.left.items()},
                nodes=count(loaded.model),
                nodes_after=count(loaded.model if rewritten is None else rewritten),
            )
            if rewritten is not None:
                report = _checked(report, rewritten, prepared, compare=compare)
    report = replace(report, seconds=dict(phases.seconds))
    at = [sizing.numbers for sizing in prepared.sizings if sizing.numbers]
    evidence = Evidence(
        loaded.model,
        rewritten is not None,
        passes,
        prepared.rules,
        at,
        recorded.opset,
        arithmetic_of_passes(passes, prepared.rules, settings.mode),
        prepared.assumptions,
        prepared.specialization,
    )
    result, unchanged = model_in_given_form(model, loaded, loaded.model if rewritten is None else rewritten)
    return Replayed(result, report, evidence, unchanged, loaded.external)


def _checked(report: ReplayReport, rewritten: Model, prepared: PreparedModel, *, compare: bool) -> ReplayReport:
    """Check the outputs of the rewritten model, compare its speed if requested, and return the report with the results.

    Raises:
        CheckFailedError: The outputs differ too much from the outputs of the given model.
        InvalidModelError: ONNX Runtime cannot run the rewritten model.
    """
    settings, sizings, source = prepared.settings, prepared.sizings, prepared.source
    with prepared.phases("check"):
        candidate = loadable(rewritten, prepared.scratch)
        checked, _ = cached_check(
            prepared.original, candidate, prepared.device.one_thread, sizings, settings.check, settings.cache, source
        )
        if isinstance(checked, CheckFailedError):
            raise checked
    report = replace(report, rounding=rounding_report(checked, settings.tolerance))
    if not compare:
        return report
    with prepared.phases("measure"):
        run_bytes = prepared.first.run_bytes
        timed = ComparisonSettings(OPTIMIZATION.full_comparison_seconds, settings.seed, COMPARISON.max_loads, run_bytes)
        compared, _ = compare_at_all_sizes(prepared.original, candidate, prepared.device, sizings, timed, source=source)
    return replace(report, timing=timing(compared.least))


APART = "its nodes are not together in a part of the model that superopt rewrites"
MADE_ELSEWHERE = "a rewrite that was not applied makes some of its nodes"
"""Reasons why a recorded segment is not found in the model."""

_Located: TypeAlias = "tuple[RewrittenNodes, Segment]"
"""A pair: a segment of the certificate, and the equal segment of the model."""


@dataclass(eq=False)
class _Replaying:
    """Applies the rewrites of a certificate to a prepared model, pass by pass.

    Attributes:
        prepared: The model.
        recorded: The certificate.
        left: A mapping from each reason to the recorded segments (parts of the model) that were not rewritten for this reason.
            A segment is given by the names of its outputs.
    """

    prepared: PreparedModel
    recorded: Certificate
    left: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    def rewritten(self) -> tuple[Passes, Model | None]:
        """Return the applied rewrites of each pass, and the rewritten model. The model is None if nothing is rewritten."""
        prepared, passes = self.prepared, list[tuple[Gain, ...]]()
        if why := prepared.first.refused or prepared.failed:
            for one in self.recorded.passes:
                self._leave(why, [place for rewrite in one.rewrites for place in rewrite.places])
            return (), None
        here, steps = prepared.start, StepReplay(prepared.rules)
        for number, one in enumerate(self.recorded.passes, 1):
            with prepared.phases(f"replay, pass {number}"):
                taken = self._fitting(here, [*self._gains(here, one, steps, number)])
                if taken:
                    passes.append(taken)
                    here = splice_passes(here, (taken,))
        nothing = not passes and (any(one.rewrites for one in self.recorded.passes) or not prepared.specialization)
        return tuple(passes), None if nothing else here

    def _fitting(self, here: Model, gains: Sequence[Gain]) -> tuple[Gain, ...]:
        """Return the gains (rewrites of equal segments) whose new nodes can all be in the model at once."""
        _, taken, dropped = splice_fitting(here, gains) if gains else (here, [], [])
        for gain in dropped:
            self.left.setdefault(gain.left, []).extend(tuple(segment.island.outputs) for segment in gain.copies)
        return tuple(taken)

    def _leave(self, why: str, places: Sequence[RewrittenNodes]) -> None:
        if places:
            self.left.setdefault(why, []).extend(place.outputs for place in places)

    def _gains(self, here: Model, one: Pass, steps: StepReplay, number: int) -> Iterator[Gain]:
        """Yield the rewrites of a pass that can be applied to the model."""
        parts = _Parts(self.prepared.charts.of(here), self.prepared.runs)
        named = [[parts.named(place) for place in rewrite.places] for rewrite in one.rewrites]
        own = [
            [segment is not None and segment.state == rewrite.before and parts.take(segment) for segment in some]
            for rewrite, some in zip(one.rewrites, named, strict=True)
        ]
        for done, rewrite in enumerate(one.rewrites):
            self.prepared.phases.listener(Progress(f"replay, pass {number}", done, len(one.rewrites)))
            equal: list[_Located] = []
            for place, segment, is_own in zip(rewrite.places, named[done], own[done], strict=True):
                if is_own and segment is not None:
                    equal.append((place, segment))
                elif (segment is None or any(map(MADE_NAME.match, place.nodes))) and (other := parts.equal_to(rewrite.before)):
                    equal.append((place, other))
                elif segment is None:
                    self._leave(MADE_ELSEWHERE if any(map(MADE_NAME.match, place.nodes)) else APART, [place])
                elif segment.state == rewrite.before:
                    self._leave("another rewrite replaces its nodes", [place])
                else:
                    self._leave(_difference(rewrite.before, segment.state), [place])
            yield from self._permitted(rewrite, equal, steps)

    def _permitted(self, rewrite: Rewrite, equal: list[_Located], steps: StepReplay) -> Iterator[Gain]:
        """Yield the rewrite once for each group of segments in which the floating-point mode permits every step of the rewrite.

        The list `equal` contains recorded segments of the rewrite, each with the equal segment of the model. Whether a step is
        permitted depends on the model's weights. First, all segments are tried as one group, as in a search. Only facts about
        values that hold in every segment are used. If a step is not permitted in this group, each segment is tried by itself.
        """
        taken = tuple(Step(step.rule, step.roots, step.replacements) for step in rewrite.steps)
        found = SearchResult(rewrite.after, taken, 0.0, 0.0, 0, "")
        groups = [equal] if equal else []
        while groups:
            group = groups.pop()
            copies = tuple(segment for _, segment in group)
            try:
                gate = gate_of(copies, self.prepared.settings.mode, strict=False)
                why = steps.refusal(rewrite.before, taken, rewrite.after, gate)
            except Exception as error:  # noqa: BLE001
                why = failure(error)
            if not why:
                yield Gain(copies, found, (0.0,) * len(taken))
            elif len(group) > 1:
                groups += [[one] for one in group]
            else:
                self._leave(why, [place for place, _ in group])


class _Parts:
    """The segments (parts) of a model, found by the names of their nodes or by their terms. Each node is taken at most once."""

    def __init__(self, chart: Chart, runs: Runs) -> None:
        self._chart, self._runs = chart, runs
        self._parallel = [segment.island for segment in parallel_islands(chart, runs)]
        self._nodes = {
            (island.scope, name): (number, order, node)
            for number, island in enumerate((*searchable_islands(chart, runs), *self._parallel))
            for order, (name, node) in enumerate(zip(certificate_node_names(island), island.nodes, strict=True))
        }
        self._taken = set[object]()

    def named(self, place: RewrittenNodes) -> Segment | None:
        """Return the segment that consists of the nodes in `place`. Return None if the nodes are neither in one island nor in
        equal islands.
        """
        found = [self._nodes.get((place.scope, name)) for name in place.nodes]
        known = [one for one in found if one is not None]
        if not known or len(known) < len(found) or len({number for number, _, _ in known}) > 1:
            return None
        nodes = [node for _, _, node in sorted(known, key=lambda one: one[1])]
        return Segment.of(self._chart.island(nodes), self._runs)

    def equal_to(self, state: State) -> Segment | None:
        """Find a segment that computes the terms in `state`, mark its nodes as taken, and return the segment.

        Segments with nodes that are already taken are skipped. Returns None if no segment remains. The segments are cut from
        the model as in a search.
        """
        return next((segment for segment in self._every if segment.state == state and self.take(segment)), None)

    def take(self, segment: Segment) -> bool:
        """If no node of the segment is taken, mark the nodes as taken and return True. Otherwise, return False."""
        if not self._taken.isdisjoint(segment.island.nodes):
            return False
        self._taken.update(segment.island.nodes)
        return True

    @functools.cached_property
    def _every(self) -> list[Segment]:
        cut = (segments(self._chart, self._runs, between=between) for between in (False, True))
        parallel = (Segment.of(island, self._runs) for island in self._parallel)
        return [*parallel, *whole_islands(self._chart, self._runs), *(segment for some in cut for segment in some)]


def _difference(before: State, now: State) -> str:
    """Describe the difference between the recorded terms of a segment and its present terms."""
    if len(before) != len(now):
        return f"other nodes use {len(now)} of its values, and {len(before)} when it was recorded"
    own, other = (
        Counter((term.op, term.attributes) for term in subterms(*state) if not term.is_variable) for state in (before, now)
    )
    missing, added = ([op for op, _ in some] for some in (own - other, other - own))
    for op in missing:
        return f"a number or an attribute of its {op} differs" if op in added else f"it has no such {op}"
    return f"it has one more {added[0]}" if added else "it computes other terms with the same operators"
