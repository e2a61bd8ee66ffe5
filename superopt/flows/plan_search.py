"""Plan the search of a model: which parts would be searched, at which sizes, for how long. Nothing is searched or written."""

from __future__ import annotations

from collections import Counter
from typing import Unpack

from superopt.child.process import reuse_child
from superopt.flows.options import Options
from superopt.flows.prepare import PhaseTimer, PreparedModel, prepare, read_request
from superopt.flows.report_fields import run_environment
from superopt.flows.settings import settings_of
from superopt.model.coverage import node_seconds, operator_shares, uncovered_nodes
from superopt.model.external_data import temporary_scratch
from superopt.model.load import Source, count
from superopt.report.progress import ignore_progress
from superopt.report.search_plan import PlannedIsland, SearchPlan
from superopt.search.segments import searchable_islands
from superopt.worker_pool import defer_garbage_collection

STAGES = ("load", "explain")


@defer_garbage_collection()
def plan_search(model: Source, **options: Unpack[Options]) -> SearchPlan:
    """Return the plan of the search that `superopt.optimize` would make with the same arguments.

    The model is run, and its nodes are timed briefly. Session settings are not tuned.

    Raises:
        SuperoptError, ValueError: See `superopt.optimize`.
    """
    phases = PhaseTimer(options.get("progress") or ignore_progress, STAGES)
    with temporary_scratch() as scratch, reuse_child():
        settings = settings_of({**options, "tune": False, "ort_config": False})
        with phases("load"):
            request = read_request(model, settings, options.get("inputs", ()), options.get("fix") or {}, scratch)
        prepared = prepare(request, settings, phases, scratch)
        with phases("explain"):
            return planned(prepared)


def planned(prepared: PreparedModel) -> SearchPlan:
    """Return the plan of the search of a prepared model."""
    failed = prepared.first.refused or prepared.failed
    chart, sizes = prepared.charts.of(prepared.start), prepared.sizings[0].numbers
    searchable = [] if failed else searchable_islands(chart, prepared.runs)
    device = prepared.device.one_thread
    seconds = {} if failed else node_seconds(prepared.start, device, sizes, prepared.source, prepared.scratch)
    islands = [
        PlannedIsland(
            nodes=len(island.nodes),
            operators=dict(Counter(node.op_type for node in island.nodes).most_common()),
            outputs=tuple(island.outputs),
        )
        for island in searchable
    ]
    return SearchPlan(
        model=prepared.loaded.label,
        nodes=count(prepared.loaded.model),
        islands=tuple(sorted(islands, key=lambda island: -island.nodes)),
        sizes=tuple(str(sizing) for sizing in prepared.sizings if sizing.numbers),
        budget=prepared.budget,
        seed=prepared.settings.seed,
        mode=str(prepared.settings.mode),
        environment=run_environment(prepared.device),
        run_seconds=prepared.first.seconds,
        assumptions=prepared.assumptions,
        fixed=prepared.specialization.described(),
        operators=operator_shares(chart, seconds),
        uncovered=uncovered_nodes(chart, seconds),
        failed=failed,
    )
