"""The time that each kind of operator takes in a model when ONNX Runtime runs the model with its graph optimizations."""

from __future__ import annotations

import bisect
import json
from collections import defaultdict
from collections.abc import Mapping

from superopt.budget import active_time
from superopt.errors import InvalidModelError
from superopt.files import scratch_folder
from superopt.policy import REPORT
from superopt.protobuf.stored import Loadable
from superopt.runtime.feasible import feasible_source
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Device, Session

_EVENT = "_kernel_time"


def operator_seconds(model: Loadable, device: Device, sizes: Mapping[str, int], source: InputSource) -> dict[str, float]:
    """Measure the seconds that each operator takes in one run of the model, with ONNX Runtime's profiler.

    The result maps each operator to its seconds. The run is the fastest of several runs that follow a first run. The names of
    operators are ONNX Runtime's names after its optimizations, such as `FusedConv`. Control flow operators are left out,
    because the nodes of their bodies are counted. The result is empty if ONNX Runtime's trace is not complete.

    Raises:
        InvalidModelError: ONNX Runtime cannot load or run the model.
    """
    with scratch_folder() as folder:
        session = Session(model, device, traced=folder / "trace")
        feeds = feasible_source(session, sizes, source).values(session.inputs, sizes=sizes)
        until = active_time() + REPORT.profiled_seconds
        runs = 0
        while runs <= REPORT.profiled_run_count and (runs < 2 or active_time() < until):
            session.run(feeds)
            runs += 1
        try:
            events = json.loads(session.trace().read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidModelError(
                f"ONNX Runtime's profile cannot be read, perhaps for lack of disk space ({error})"
            ) from error
    begun = sorted(event["ts"] for event in events if event.get("name") == "model_run")[-runs:]
    if len(begun) < runs:
        return {}
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(begun))
    for event in events:
        operator = str(event.get("args", {}).get("op_name", ""))
        run = bisect.bisect_right(begun, event.get("ts", 0)) - 1
        if str(event.get("name", "")).endswith(_EVENT) and operator and operator not in _FLOW and run > 0:
            spent[operator][run] += event["dur"] * 1e-6
    fastest = min(range(1, len(begun)), key=lambda run: sum(seconds[run] for seconds in spent.values()))
    return {operator: seconds[fastest] for operator, seconds in spent.items()}


_FLOW = frozenset({"If", "Loop", "Scan"})
"""Operators whose time is the time of the nodes in their bodies."""
