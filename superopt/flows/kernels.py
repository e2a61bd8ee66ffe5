"""Kernels in an optimization: choose the nodes that become compiled kernels, and measure the model with these kernels."""

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
from superopt.kernels.install import Replaced, with_kernels
from superopt.kernels.library import build, digest_of, native_target
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
        model: The model that contains these nodes, without kernels.
        replaced: The model with kernels, and the C source of the library.
        file: The compiled library.
        compile_seconds: The time that the compiler took.
        low: The lower bound of the speedup over the model without kernels.
        high: The upper bound of this speedup.
        rewritten: Whether the groups are parts of the rewritten model, and not of the original.
    """

    groups: tuple[Group, ...]
    model: Model
    replaced: Replaced
    file: Path
    compile_seconds: float
    low: float
    high: float
    rewritten: bool

    def use(self, without: float) -> KernelUse:
        """Return the report's entry about kernels. `without` is the speedup of the model without kernels over the original."""
        nodes = sum(len(group.island.nodes) for group in self.groups)
        return KernelUse(len(self.groups), nodes, self.compile_seconds, self.low, self.high, without)


def add_kernels(prepared: PreparedModel, outcomes: list[ModelOutcome]) -> KernelLibrary | None:
    """Judge the fastest model with kernels. If the model is accepted, add its outcome to `outcomes` and return its library.

    Return None if there is no model with kernels, if its gain is too small, or if the model is rejected. Kernels are tried in
    the rewritten model and in the original, because some rewrites do not help compiled kernels. Such a rewrite adds arithmetic
    to save calls of ONNX Runtime's kernels, but a compiled kernel contains no such calls. Models of an IR version before 4 get
    no kernels. Kernels need functions, and functions need a newer IR version, in which the weights of these models would become
    optional inputs.

    Raises:
        CompilerError: There is no C compiler.
    """
    last = outcomes[-1]
    if prepared.start.ir_version < OVERRIDABLE_SINCE:
        return None
    fast = last.candidate.model if last.accepted else None
    until = time.monotonic() + KERNELS.max_trial_time_share * sum(prepared.phases.seconds.values())
    with prepared.phases("kernels"):
        best = _Trials(prepared, prepared.start if fast is None else fast, fast, until).best()
    if best is None or best.low <= 1 + KERNELS.min_kernel_gain_share:
        return None
    passes = last.candidate.passes if best.rewritten else ()
    candidate = ModelCandidate(last.candidate.searched, passes, best.replaced.model, check_first=True)
    rewritten = loadable(best.replaced.model, prepared.scratch)
    outcome = _judge(prepared, best.file).judge(candidate, rewritten, OPTIMIZATION.full_comparison_seconds, last.spent)
    if not outcome.accepted:
        return None
    compared = last.compared if best.rewritten else None
    outcomes.append(outcome)
    without = compared.least.ratio if isinstance(compared, SizeComparisons) else 1.0
    return KernelLibrary(best.replaced.source, best.file.read_bytes(), best.use(without))


@dataclass(frozen=True, eq=False)
class _Trials:
    """The candidates of one run.

    Attributes:
        prepared: The original model.
        base: The fastest model without kernels.
        fast: The rewritten model, or None if the original was kept.
        until: The time of `time.monotonic` after which no further candidate is measured.
    """

    prepared: PreparedModel
    base: Model
    fast: Model | None
    until: float

    @property
    def is_over(self) -> bool:
        """Whether no further candidate may be measured."""
        return is_stop_requested() or time.monotonic() > self.until

    def best(self) -> _Candidate | None:
        """Return the fastest measured model with kernels, or None if there is none.

        In the first candidate, the groups contain all nodes for which the generator writes kernels. In later candidates, nodes
        with many iterations are left out, because ONNX Runtime's kernels for large nodes are hard to improve.
        """
        target = native_target()
        best: _Candidate | None = None
        for model in dict.fromkeys((self.base, self.prepared.start)):
            chart, seen = self.prepared.charts.of(model), set[tuple[int, ...]]()
            for most in KERNELS.max_node_iterations:
                groups = () if self.is_over else tuple(kernel_groups(chart, target, most))
                counts = tuple(len(group.island.nodes) for group in groups)
                if groups and counts not in seen:
                    seen.add(counts)
                    best = _faster(best, self.measured(model, groups))
        return best if best is None else self._without_losing_kinds(best)

    def _without_losing_kinds(self, best: _Candidate) -> _Candidate:
        """Measure each kind of group alone, with the candidate's library.

        Then measure one model with all kinds that did not slow the model down. Return the faster of this model and the given
        candidate. Two groups are of one kind if their C functions are equal. If the candidate has only one kind of group, or
        too many kinds, the candidate is returned unchanged. If time is too short to measure a kind, this kind counts as not
        slower.
        """
        kinds: dict[str, list[Group]] = {}
        for group in best.groups:
            kinds.setdefault(functions_of(group.program, "", native_target()), []).append(group)
        if not 1 < len(kinds) <= KERNELS.max_group_kinds_count:
            return best
        losing: set[Group] = set()
        for groups in kinds.values():
            alone = None if self.is_over else self.measured(best.model, tuple(groups), within=best)
            if alone is not None and alone.low * alone.high <= 1:
                losing |= {*groups}
        gaining = tuple(group for group in best.groups if group not in losing)
        return _faster(best, self.measured(best.model, gaining)) or best if losing and gaining else best

    def measured(self, model: Model, groups: tuple[Group, ...], within: _Candidate | None = None) -> _Candidate | None:
        """Return the model with kernels for the groups, and its gain over `base`.

        Return None if the model cannot be compiled or run. If `within` is given, the library of `within` is used. This library
        must contain kernels for the groups.
        """
        scratch = self.prepared.scratch
        try:
            replaced = with_kernels(model, groups, native_target(), within.replaced if within is not None else None)
            file = scratch.folder / f"{digest_of(replaced.source)}.so"
            start = time.monotonic()
            if within is None:
                build(replaced.source, file, native_target())
            seconds = time.monotonic() - start
            before, after = (loadable(one, scratch) for one in (self.base, replaced.model))
            low, high = _judge(self.prepared, file).quick_ratio(before, after)
        except Exception as error:  # noqa: BLE001
            failure(error)
            return None
        return _Candidate(groups, model, replaced, file, seconds, low, high, model is self.fast)


def _faster(best: _Candidate | None, found: _Candidate | None) -> _Candidate | None:
    return found if best is None or (found is not None and found.low > best.low) else best


def _judge(prepared: PreparedModel, library: Path) -> CandidateJudge:
    """Return a judge whose sessions use the library. If the original already calls kernels, these calls are inlined."""
    judge = replace(prepared.candidate_judge, device=replace(prepared.device, libraries=(str(library),)))
    called = any(is_kernel_domain(domain) for domain, _, _ in prepared.loaded.model.functions)
    return replace(judge, original=loadable(prepared.start, prepared.scratch)) if called else judge
