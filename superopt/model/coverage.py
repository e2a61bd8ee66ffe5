"""Coverage: the nodes outside a model's islands, the reasons why no island contains them, and their share of the run time.

An island is a region of nodes that the algebra can express. A search rewrites only islands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from superopt.algebra.extent import atoms
from superopt.algebra.integers import is_unknown
from superopt.budget import active_time
from superopt.errors import InvalidModelError
from superopt.files import scratch_folder
from superopt.model.bodies import CONTROL_FLOW, STANDARD
from superopt.model.external_data import Scratch
from superopt.model.islands import Chart
from superopt.model.lift import FLOATS, has_definition
from superopt.model.load import Model, all_nodes
from superopt.model.save import loadable
from superopt.model.views import Views
from superopt.policy import COST
from superopt.runtime.feasible import feasible_source
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Device, Session

CONTROL = "control flow: a branch or loop whose condition depends on sizes or inputs"
UNDEFINED = "superopt has no definition of the operator"
UNSIZED = "sizes depend on data, or are not known for all sizes of the inputs"
UNTYPED = "types of results are not known, for example after an operator without a definition in ONNX"
INTEGRAL = "results are integers or booleans, such as shapes or quantized numbers"
UNSUPPORTED = "attributes, types or shapes that superopt's definition of the operator does not cover"
_MARK, _EVENT = "superopt.node.", "_kernel_time"


@dataclass(frozen=True)
class UncoveredNodes:
    """A group of nodes that no search can rewrite. All nodes of the group have the same operator and the same reason.

    Attributes:
        operator: The name of the operator.
        nodes: The number of nodes.
        share: The share of these nodes in the run time of all nodes, measured without ONNX Runtime's graph optimizations.
        reason: The reason why no island contains the nodes.
    """

    operator: str
    nodes: int
    share: float
    reason: str


@dataclass(frozen=True)
class OperatorShare:
    """The number of an operator's nodes, and the share of these nodes in the run time of all nodes.

    The run time is measured without ONNX Runtime's graph optimizations.
    """

    operator: str
    nodes: int
    share: float


def operator_shares(chart: Chart, seconds: Mapping[int, float]) -> tuple[OperatorShare, ...]:
    """Return, for each operator, the number of its nodes and their share of the run time. Nodes inside and outside the islands
    are counted.

    The operator with the largest share comes first. `seconds` is the result of `node_seconds`. The result is empty if the model
    could not be timed.
    """
    whole = sum(seconds.values()) or 1.0
    found: dict[str, tuple[int, float]] = {}
    for number, node in enumerate(all_nodes(chart.model)):
        if number in seconds:
            count, spent = found.get(operator_title(node), (0, 0.0))
            found[operator_title(node)] = count + 1, spent + seconds[number]
    rows = [OperatorShare(name, count, spent / whole) for name, (count, spent) in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.share, -row.nodes, row.operator)))


def uncovered_nodes(chart: Chart, seconds: Mapping[int, float]) -> tuple[UncoveredNodes, ...]:
    """Return the nodes outside the islands, grouped by operator and by the reason why no island contains them. The group with
    the longest run time comes first.

    Nodes whose results do not depend on the inputs are left out, because ONNX Runtime computes these results only once. All
    shares are 0 if the model could not be timed.

    Args:
        chart: The model's `Chart`.
        seconds: The run time of each node in seconds, from `node_seconds`.
    """
    whole = sum(seconds.values()) or 1.0
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for number, node in enumerate(all_nodes(chart.model)):
        if not chart.covers(node):
            key = operator_title(node), _reason(node, chart.views)
            count, spent = found.get(key, (0, 0.0))
            found[key] = count + 1, spent + seconds.get(number, 0.0)
    rows = [UncoveredNodes(name, count, spent / whole, reason) for (name, reason), (count, spent) in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.share, -row.nodes, row.operator)))


def operator_title(node: ir.Node) -> str:
    """Return the name of the node's operator. If the operator is not a standard operator, the name includes the domain."""
    return node.op_type if node.domain in STANDARD else f"{node.domain}.{node.op_type}"


def _reason(node: ir.Node, views: Views) -> str:
    if node.op_type in CONTROL_FLOW and node.domain in STANDARD:
        return CONTROL
    untyped = all(v.dtype is None for v in node.outputs)
    if not (untyped or any(v.dtype in FLOATS for v in node.outputs)):
        return INTEGRAL
    if not has_definition(operator_title(node)):
        return UNDEFINED
    if untyped:
        return UNTYPED
    if any(v is not None and v.name and not _is_sized(v, views) for v in (*node.inputs, *node.outputs)):
        return UNSIZED
    return UNSUPPORTED


def _is_sized(value: ir.Value, views: Views) -> bool:
    """Return whether the shape of the value is known as expressions over the dynamic dimensions."""
    if not views.dynamic:
        return value.shape is not None and all(isinstance(n, int) for n in value.shape)
    shape = views.values.shape(value)
    return shape is not None and not any(is_unknown(atom) for extent in shape for atom in atoms(extent))


def node_seconds(
    model: Model, device: Device, sizes: Mapping[str, int], source: InputSource, scratch: Scratch
) -> dict[int, float]:
    """Measure the run time of each node, inside and outside the islands.

    The model runs a few times. Nodes are numbered in topological order. The result maps the number of a node to the total run
    time of the node in seconds. `source` supplies the inputs, and `sizes` contains the sizes of their dynamic dimensions.
    `scratch` is a temporary folder for large tensors. Control flow nodes are left out, because the nodes of their bodies are
    timed instead. ONNX Runtime copies a DequantizeLinear that has several readers, and adds a suffix such as `/duplicated` to
    the name of each copy. The run time of a copy is added to the run time of the original node. The result is empty if the
    model cannot be run.
    """
    marked = model.clone()
    marked.graph.sort()
    for number, node in enumerate(all_nodes(marked)):
        node.name = f"{_MARK}{number}"
    flow = {node.name for node in all_nodes(marked) if node.op_type in CONTROL_FLOW}
    found: dict[int, float] = {}
    with scratch_folder() as folder:
        try:
            session = Session(loadable(marked, scratch), device, optimize=False, traced=folder / "trace")
            feeds = feasible_source(session, sizes, source).values(session.inputs, sizes=sizes)
            until = active_time() + COST.traced_seconds
            for done in range(COST.traced_run_count):
                if not done or active_time() < until:
                    session.run(feeds)
        except InvalidModelError:
            return {}
        for event in json.loads(session.trace().read_text(encoding="utf-8")):
            match = re.fullmatch(rf"({_MARK}(\d+))(/.*)?{_EVENT}", str(event.get("name", "")))
            if match is not None and match[1] not in flow:
                found[int(match[2])] = found.get(int(match[2]), 0.0) + event["dur"] * 1e-6
    return found
