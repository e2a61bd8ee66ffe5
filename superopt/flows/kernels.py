"""Kernels in an optimization: choose the nodes that become compiled kernels, and measure the model with them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from superopt.budget import is_stop_requested
from superopt.errors import failure
from superopt.flows.optimized import KernelLibrary
from superopt.flows.prepare import PreparedModel
from superopt.kernels.emit import functions_of
from superopt.kernels.groups import Group, kernel_groups
from superopt.kernels.install import with_kernels
from superopt.kernels.library import build, digest_of, native_target
from superopt.model.islands import Chart
from superopt.model.load import OVERRIDABLE_SINCE, Model
from superopt.model.save import loadable
from superopt.policy import KERNELS, OPTIMIZATION
from superopt.protobuf.kernels import is_kernel_domain
from superopt.report.optimization import KernelUse
from superopt.runtime.multi_shape import SizeComparisons
from superopt.search.judging import CandidateJudge, ModelCandidate, ModelOutcome


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A model with kernels.

    Attributes:
        groups: The groups of nodes that became kernels.
        model: The model.
        source: The C source of the library.
        file: The compiled library.
        compile_seconds: The time that the compiler took.
        low: The lower bound of the speedup over the model without kernels.
        high: The upper bound of this speedup.
        rewritten: Whether the groups are parts of the rewritten model, and not of the original.
    """

    groups: tuple[Group, ...]
    model: Model
    source: str
    file: Path
    compile_seconds: float
    low: float
    high: float
    rewritten: bool

    @property
    def use(self) -> KernelUse:
        """The entry of the report. Its `without` is 1, as for a model that is not rewritten."""
        nodes = sum(len(group.island.nodes) for group in self.groups)
        return KernelUse(len(self.groups), nodes, self.compile_seconds, self.low, self.high, 1.0)


def add_kernels(prepared: PreparedModel, outcomes: list[ModelOutcome]) -> KernelLibrary | None:
    """Judge the fastest model with kernels. If the model is accepted, add its outcome to `outcomes` and return its library.

    Return None if there is no model with kernels, if its gain is too small, or if it is rejected. Kernels are tried in the
    rewritten model and in the original. A rewrite that saves calls of ONNX Runtime's kernels may add arithmetic, and within a
    compiled kernel there are no calls to save. Models before IR version 4 get no kernels: functions need a newer IR version,
    and in such a version the weights of these models would become optional inputs.

    Raises:
        CompilerError: There is no C compiler.
    """
    last = outcomes[-1]
    if prepared.start.ir_version < OVERRIDABLE_SINCE:
        return None
    with prepared.phases("kernels"):
        best = _best_candidate(prepared, last)
    if best is None or best.low <= 1 + KERNELS.min_kernel_gain_share:
        return None
    passes = last.candidate.passes if best.rewritten else ()
    candidate = ModelCandidate(last.candidate.searched, passes, best.model, check_first=True)
    rewritten = loadable(best.model, prepared.scratch)
    outcome = _judge(prepared, best.file).judge(candidate, rewritten, OPTIMIZATION.full_comparison_seconds, last.spent)
    if not outcome.accepted:
        return None
    compared = last.compared if best.rewritten else None
    outcomes.append(outcome)
    without = compared.least.ratio if isinstance(compared, SizeComparisons) else 1.0
    return KernelLibrary(best.source, best.file.read_bytes(), replace(best.use, without=without))


def _best_candidate(prepared: PreparedModel, last: ModelOutcome) -> _Candidate | None:
    """Return the model with kernels that measures fastest, or None if there is none.

    Sets of groups are tried with all nodes that the generator takes, and then without larger nodes, for which ONNX Runtime's
    own kernels are hard to beat.
    """
    target = native_target()
    fast = last.candidate.model if last.accepted else None
    base = prepared.start if fast is None else fast
    best: _Candidate | None = None
    for model in dict.fromkeys((base, prepared.start)):
        chart, seen = Chart(model), set[tuple[int, ...]]()
        for most in KERNELS.max_node_iterations:
            groups = tuple(kernel_groups(chart, target, most))
            counts = tuple(len(group.island.nodes) for group in groups)
            if groups and counts not in seen and not is_stop_requested():
                seen.add(counts)
                best = _faster(best, _measured(prepared, base, model, groups, rewritten=model is fast))
    return best if best is None or is_stop_requested() else _without_losing_kinds(prepared, base, best)


def _without_losing_kinds(prepared: PreparedModel, base: Model, best: _Candidate) -> _Candidate:
    """Try each kind of group alone, and then all kinds together that are faster alone. Return the fastest candidate.

    Groups are of one kind if their C functions are equal. A candidate with one kind or too many kinds is returned unchanged.
    """
    kinds: dict[str, list[Group]] = {}
    for group in best.groups:
        kinds.setdefault(functions_of(group.program, "", native_target()), []).append(group)
    if not 1 < len(kinds) <= KERNELS.max_group_kinds_count:
        return best
    model = base if best.rewritten else prepared.start
    alone = [_measured(prepared, base, model, tuple(groups), rewritten=best.rewritten) for groups in kinds.values()]
    gaining = [found for found in alone if found is not None and found.low > 1]
    together = tuple(group for group in best.groups if any(group in found.groups for found in gaining))
    if len(gaining) > 1 and len(together) < len(best.groups):
        gaining += filter(None, [_measured(prepared, base, model, together, rewritten=best.rewritten)])
    return max([best, *gaining], key=lambda found: found.low)


def _faster(best: _Candidate | None, found: _Candidate | None) -> _Candidate | None:
    return found if best is None or (found is not None and found.low > best.low) else best


def _judge(prepared: PreparedModel, library: Path) -> CandidateJudge:
    """Return the judge with the library in its sessions. Calls of kernels that the original has already are inlined."""
    judge = replace(prepared.candidate_judge, device=replace(prepared.device, libraries=(str(library),)))
    called = any(is_kernel_domain(domain) for domain, _, _ in prepared.loaded.model.functions)
    return replace(judge, original=loadable(prepared.start, prepared.scratch)) if called else judge


def _measured(
    prepared: PreparedModel, base: Model, model: Model, groups: tuple[Group, ...], *, rewritten: bool
) -> _Candidate | None:
    """Return `model` with kernels for the groups, with its gain over `base`, or None if it cannot be compiled or run."""
    try:
        replaced = with_kernels(model, groups, native_target())
        file = prepared.scratch.folder / f"{digest_of(replaced.source)}.so"
        start = time.monotonic()
        build(replaced.source, file, native_target())
        seconds = time.monotonic() - start
        before, after = (loadable(one, prepared.scratch) for one in (base, replaced.model))
        low, high = _judge(prepared, file).quick_ratio(before, after)
    except Exception as error:  # noqa: BLE001
        failure(error)
        return None
    return _Candidate(groups, replaced.model, replaced.source, file, seconds, low, high, rewritten)
