"""Bodies: the graphs inside the control flow of a model, where they are, and how often each of them runs.

A body reads values of the graphs around it by their names; `onnx_ir` holds those as the values themselves, so what is known of
one, its shape or that it is a weight, is known in the body too.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import onnx_ir as ir
from onnx import AttributeProto, GraphProto, ModelProto

from superopt.active import active_time
from superopt.errors import InvalidModelError
from superopt.files import scratch_folder
from superopt.model.bounds import index_bounds
from superopt.model.check import LEAST_INPUTS, cases
from superopt.model.feasible import feasible_bounds
from superopt.model.load import Model
from superopt.model.session import Device, Session
from superopt.model.stored import Loadable, Placed, folder_of, parsed

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
STANDARD = ("", "ai.onnx")
Scope: TypeAlias = "tuple[tuple[str, str], ...]"
"""Where a graph is: from the top graph inwards, a node by its first output and the attribute that holds the next graph."""
TOP: Scope = ()
_MARK = "superopt.runs."
_EVENT = "_kernel_time"


def graphs(model: Model) -> dict[Scope, ir.Graph]:
    """The top graph and the bodies of the standard control flow in it, each after the one it is in."""
    return dict(_graphs(model.graph, TOP))


def _graphs(graph: ir.Graph, scope: Scope) -> Iterator[tuple[Scope, ir.Graph]]:
    yield scope, graph
    for node in graph:
        if node.op_type in CONTROL_FLOW and node.domain in STANDARD:
            title = next((v.name for v in node.outputs if v.name), "")
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                    yield from _graphs(attribute.as_graph(), (*scope, (title, attribute.name)))


def runs(
    model: Loadable, device: Device, *, seed: int = 0, sizes: Mapping[str, int] | None = None, seconds: float = 5.0
) -> dict[Scope, float]:
    """How often each body runs when the model runs once: the mean over inputs of a check, by ONNX Runtime's count of nodes.

    After `seconds` no further input is begun, but at least two are run; those with which the model fails do not count. A body
    without nodes is not listed; one that no input reaches has 0.

    Raises:
        InvalidModelError: ONNX Runtime cannot load the model.
    """
    marked = ModelProto()
    marked.CopyFrom(parsed(model, external=False))
    marks: dict[str, Scope] = {}
    _mark(marked.graph, TOP, marks)
    if not marks:
        return {}
    deadline = active_time() + seconds
    done = 0
    with scratch_folder() as folder:
        source = Placed(marked.SerializeToString(), folder_of(model).resolve())
        session = Session(source, device, optimize=False, traced=folder / "trace")
        high = feasible_bounds(session, sizes, index_bounds(marked))
        for _, make in cases(session.inputs, seed, sizes, high):
            if done < LEAST_INPUTS or active_time() < deadline:
                with contextlib.suppress(InvalidModelError):
                    session.run(make())
                    done += 1
        events = json.loads(session.trace().read_text(encoding="utf-8"))
    counted = Counter(event["name"].removesuffix(_EVENT) for event in events if event["name"].endswith(_EVENT))
    return {scope: counted[mark] / max(done, 1) for mark, scope in marks.items()}


def _mark(graph: GraphProto, scope: Scope, marks: dict[str, Scope]) -> None:
    """Gives the first node of each body a name of its own, which `marks` has."""
    for node in graph.node:
        if node.op_type in CONTROL_FLOW and node.domain in STANDARD:
            title = next((name for name in node.output if name), "")
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    inner = (*scope, (title, attribute.name))
                    _mark(attribute.g, inner, marks)
                    if attribute.g.node:
                        mark = f"{_MARK}{len(marks)}"
                        attribute.g.node[0].name = mark
                        marks[mark] = inner
