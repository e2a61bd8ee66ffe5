"""Kernels in an optimization: choose the nodes that become compiled kernels, and measure the model with them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from superopt.budget import is_stop_requested
from superopt.errors import failure
from superopt.flows.optimized import KernelLibrary
from superopt.flows.prepare import PreparedModel
from superopt.kernels.emit import Target
from superopt.kernels.groups import Group, kernel_groups
from superopt.kernels.install import with_kernels
from superopt.kernels.library import build, digest_of, native_target
from superopt.model.islands import Chart
from superopt.model.load import Model
from superopt.model.save import loadable
from superopt.policy import KERNELS, OPTIMIZATION
from superopt.report.optimization import KernelUse
from superopt.runtime.multi_shape import SizeComparisons
from superopt.search.judging import CandidateJudge, ModelCandidate, ModelOutcome


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A model with kernels, the file of their library, and its source.

    Attributes:
        use: The number of kernels, the compile time, and the interval of the speedup over the model without kernels.
    """

    model: Model
    source: str
    file: Path
    use: KernelUse


def add_kernels(prepared: PreparedModel, outcomes: list[ModelOutcome]) -> KernelLibrary | None:
    """Judge the fastest model with kernels. If it is accepted, add its outcome to `outcomes` and return its library.

    Raises:
        CompilerError: There is no C compiler.
    """
    last, target = outcomes[-1], native_target()
    base = last.candidate.model if last.accepted and last.candidate.model is not None else prepared.start
    without = last.compared.least.ratio if last.accepted and isinstance(last.compared, SizeComparisons) else 1.0
    best: _Candidate | None = None
    with prepared.phases("kernels"):
        for groups in _choices(base, target):
            found = _measured(base, groups, prepared, target)
            if found is not None and (best is None or found.use.low > best.use.low):
                best = found
            if is_stop_requested():
                break
    if best is None or best.use.low <= 1 + KERNELS.min_kernel_gain_share:
        return None
    passes = last.candidate.passes if last.accepted else ()
    candidate = ModelCandidate(last.candidate.searched, passes, best.model, check_first=True)
    rewritten = loadable(best.model, prepared.scratch)
    outcome = _judge(prepared, best.file).judge(candidate, rewritten, OPTIMIZATION.full_comparison_seconds, last.spent)
    if not outcome.accepted:
        return None
    outcomes.append(outcome)
    return KernelLibrary(best.source, best.file.read_bytes(), replace(best.use, without=without))


def _judge(prepared: PreparedModel, library: Path) -> CandidateJudge:
    return replace(prepared.candidate_judge, device=replace(prepared.device, libraries=(str(library),)))


def _choices(base: Model, target: Target) -> Iterator[list[Group]]:
    """Yield sets of groups to try: with all nodes that the generator takes, and with smaller nodes only.

    ONNX Runtime's own kernels are hard to beat for large nodes.
    """
    seen = set[tuple[int, ...]]()
    for most in KERNELS.max_node_iterations:
        groups = list(kernel_groups(Chart(base), target, most))
        counts = tuple(len(group.island.nodes) for group in groups)
        if groups and counts not in seen:
            seen.add(counts)
            yield groups


def _measured(base: Model, groups: Sequence[Group], prepared: PreparedModel, target: Target) -> _Candidate | None:
    """Return the model with these kernels and its measured gain, or None if it cannot be compiled or run."""
    try:
        replaced = with_kernels(base, groups, target)
        file = prepared.scratch.folder / f"{digest_of(replaced.source)}.so"
        start = time.monotonic()
        build(replaced.source, file)
        seconds = time.monotonic() - start
        low, high = _judge(prepared, file).quick_ratio(
            loadable(base, prepared.scratch), loadable(replaced.model, prepared.scratch)
        )
    except Exception as error:  # noqa: BLE001
        failure(error)
        return None
    nodes = sum(len(group.island.nodes) for group in groups)
    return _Candidate(replaced.model, replaced.source, file, KernelUse(len(groups), nodes, seconds, low, high, 1.0))
