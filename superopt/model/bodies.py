"""Bodies: the graphs inside a model's control flow, their locations, and how often each body runs.

A body reads values of the surrounding graphs by name. In `onnx_ir`, such a value is the same object inside and outside the
body. So facts about the value, such as its shape, are known in the body too.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import onnx_ir as ir
from onnx import AttributeProto, GraphProto, ModelProto

from superopt.budget import active_time
from superopt.errors import InvalidModelError
from superopt.files import scratch_folder
from superopt.model.load import Model
from superopt.policy import MODEL
from superopt.protobuf.stored import Loadable, StoredModel, folder_of, parse_model
from superopt.runtime.check import ordinary_inputs
from superopt.runtime.feasible import feasible_source
from superopt.runtime.input_source import DRAWN, InputSource
from superopt.runtime.session import Device, Session

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
STANDARD = ("", "ai.onnx")
Scope: TypeAlias = "tuple[tuple[str, str], ...]"
"""The location of a body, as the path of control flow nodes from the top graph to the body.

Each node of the path is given by the name of its first output and the name of the attribute that contains the next graph. The
path of the top graph is empty.
"""
TOP: Scope = ()
_MARK = "superopt.runs."
_EVENT = "_kernel_time"


def control_flow_graphs(model: Model) -> dict[Scope, ir.Graph]:
    """Return a mapping from locations (see `Scope`) to graphs: the top graph and the bodies of standard control flow nodes.

    In the mapping, a body comes after the graph that contains the body.
    """
    return dict(_graphs(model.graph, TOP))


def bodies_in(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the bodies of a control flow node, such as the branches of an If: the graphs in the node's attributes."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _graphs(graph: ir.Graph, scope: Scope) -> Iterator[tuple[Scope, ir.Graph]]:
    yield scope, graph
    for node in graph:
        if node.op_type in CONTROL_FLOW and node.domain in STANDARD:
            title = next((v.name for v in node.outputs if v.name), "")
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                    yield from _graphs(attribute.as_graph(), (*scope, (title, attribute.name)))


def count_body_runs(
    model: Loadable,
    device: Device,
    *,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    source: InputSource = DRAWN,
    seconds: float = MODEL.body_run_seconds,
) -> dict[Scope, float]:
    """Return a mapping from the location of each control flow body to the number of the body's runs in one run of the model.

    The model is run on inputs from `source`, and the executed nodes are counted in ONNX Runtime's trace. Each count is the mean
    over these inputs. The model is run at least once, and no further run starts after `seconds` seconds. Inputs on which the
    model fails are ignored. Bodies without nodes are left out. A body that never runs has the count 0.

    Raises:
        InvalidModelError: ONNX Runtime cannot load the model.
    """
    marked = ModelProto()
    marked.CopyFrom(parse_model(model, external=False))
    marks: dict[str, Scope] = {}
    _mark(marked.graph, TOP, marks)
    if not marks:
        return {}
    deadline = active_time() + seconds
    done = 0
    with scratch_folder() as folder:
        stored = StoredModel(marked.SerializeToString(), folder_of(model).resolve())
        session = Session(stored, device, optimize=False, traced=folder / "trace")
        ready = feasible_source(session, sizes, source.bounded(marked))
        for _, make in ordinary_inputs(session.inputs, seed, sizes, ready):
            if not done or active_time() < deadline:
                with contextlib.suppress(InvalidModelError):
                    session.run(make())
                    done += 1
        event = re.compile(rf'"name"\s*:\s*"({_MARK}\d+){_EVENT}"')
        with session.trace().open(encoding="utf-8") as lines:
            counted = Counter(found[1] for line in lines for found in event.finditer(line))
    return {scope: counted[mark] / max(done, 1) for mark, scope in marks.items()}


def _mark(graph: GraphProto, scope: Scope, marks: dict[str, Scope]) -> None:
    """Give the first node of each body a unique name, and record the name in `marks`."""
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
