"""Inspect a model: report which parts superopt can rewrite. Nothing is searched, and the model is run only on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from superopt.child.process import reuse_child
from superopt.errors import failure
from superopt.model.coverage import node_seconds, operator_title, uncovered_nodes
from superopt.model.dimensions import representative_sizings
from superopt.model.external_data import temporary_scratch
from superopt.model.inline_functions import inline_functions
from superopt.model.islands import Chart, Charts, Island
from superopt.model.lift import FLOATS, STANDARD
from superopt.model.load import Loaded, Model, Source, all_nodes, count, load, model_tensors, opset_of
from superopt.model.provenance import KEYS
from superopt.model.save import loadable
from superopt.protobuf.stored import parse_model
from superopt.report.inspection import Inspection, IslandContent
from superopt.rules.fp_flags import FpMode
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Device
from superopt.verification.contents import content_digest


def inspect_model(source: Source, *, shapes: Sequence[Mapping[str, int]] = (), time: bool = False) -> Inspection:
    """Return a report of the parts of a model that superopt can rewrite (islands), and of the remaining nodes.

    Args:
        source: The model, in any form that `superopt.optimize` accepts.
        shapes: Sizes of the dynamic dimensions by name. The other dimensions have the default sizes of `superopt.optimize`.
        time: Whether to time the nodes on one CPU thread. The report then contains the share of the run time outside the
            islands.

    Raises:
        ModelNotFoundError, InvalidModelError: The model cannot be loaded.
        DimensionError: A name in `shapes` is not the name of a dynamic dimension of the model.
        RuntimeMissingError: ONNX Runtime is not installed.
    """
    loaded = load(source)
    sizes = representative_sizings(loaded.model, [*filter(None, shapes)])[0].numbers
    try:
        charts = Charts(FpMode.RELAXED)
        start = charts.begun(inline_functions(loaded.model))
        chart = charts.of(start)
        islands = chart.islands()
    except Exception as error:  # noqa: BLE001
        return _described(loaded, sizes, problem=failure(error))
    seconds = _seconds(start, loaded, sizes) if time else None
    return _described(loaded, sizes, chart, islands, seconds)


def _seconds(start: Model, loaded: Loaded, sizes: Mapping[str, int]) -> Mapping[int, float]:
    with temporary_scratch() as scratch, reuse_child():
        given = InputSource().bounded(parse_model(loadable(loaded.model, scratch, loaded.path), external=False))
        return node_seconds(start, Device("cpu", 1), sizes, given, scratch)


def _described(
    loaded: Loaded,
    sizes: Mapping[str, int],
    chart: Chart | None = None,
    islands: Sequence[Island] = (),
    seconds: Mapping[int, float] | None = None,
    problem: str = "",
) -> Inspection:
    model, weights = loaded.model, Counter[str]()
    for tensor in model_tensors(model):
        weights[tensor.dtype.name.lower()] += tensor.nbytes
    typed = model if chart is None else chart.model
    types = Counter(v.dtype.name.lower() for node in all_nodes(typed) for v in node.outputs if v.dtype in FLOATS)
    uncovered = () if chart is None else uncovered_nodes(chart, seconds or {})
    analyzed = 0 if chart is None else count(chart.model)
    inside = sum(len(island.nodes) for island in islands)
    return Inspection(
        model=loaded.label,
        digest=content_digest(model),
        opset=opset_of(model),
        domains={domain: version for domain, version in sorted(model.opset_imports.items()) if domain not in STANDARD},
        nodes=count(model),
        operators=dict(sorted(Counter(map(operator_title, all_nodes(model))).items())),
        analyzed=analyzed,
        helpers=analyzed - inside - sum(row.nodes for row in uncovered),
        islands=tuple(map(_content, islands)),
        uncovered=uncovered,
        sizes=dict(sizes),
        assumptions=() if chart is None else tuple(chart.views.assumptions),
        weights=dict(sorted(weights.items())),
        types=dict(sorted(types.items())),
        provenance={key: model.metadata_props[key] for key in KEYS if key in model.metadata_props},
        seconds=None if seconds is None else sum(seconds.values()),
        problem=problem,
    )


def _content(island: Island) -> IslandContent:
    operators = Counter(map(operator_title, island.nodes))
    graph = "/".join(f"{node}.{attribute}" for node, attribute in island.scope)
    return IslandContent(
        len(island.nodes), island.dtype.name.lower(), dict(sorted(operators.items())), graph, tuple(island.outputs)
    )
