"""Time models in OpenVINO on one CPU thread, as another process requests: `python -m benchmarks.peers.infer INPUTS MODEL...`.

INPUTS is an .npz file with a value for each input. The first line on the standard output is a JSON object with the version of
OpenVINO, or with the reason of a failure as `failed`. Then each line `WHICH RUNS` on the standard input requests RUNS runs of
model number WHICH. The answer is a line with the mean seconds of these runs.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.peers.optimize import reason

SETTINGS = {
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
    "PERFORMANCE_HINT": "LATENCY",
    "INFERENCE_PRECISION_HINT": "f32",
}
"""OpenVINO's settings: one thread, and float32 even if the processor supports smaller types."""


def main() -> int:
    inputs, *models = sys.argv[1:]
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        openvino = importlib.import_module("openvino")
        with np.load(inputs) as values:
            requests = loaded(openvino, dict(values), models)
        started = {"version": openvino.__version__.partition("-")[0]}
    except Exception as error:  # noqa: BLE001
        print(json.dumps({"failed": reason(error)}), file=said, flush=True)
        return 1
    print(json.dumps(started), file=said, flush=True)
    for line in sys.stdin:
        which, runs = map(int, line.split())
        print(seconds(requests[which], runs), file=said, flush=True)
    return 0


def loaded(openvino: Any, values: Mapping[str, np.ndarray[Any, Any]], models: Sequence[str]) -> list[Any]:
    """Compile each model, set its inputs, run the model once, and return the requests."""
    core = openvino.Core()
    requests = []
    for path in models:
        model = core.compile_model(core.read_model(path), "CPU", SETTINGS)
        request = model.create_infer_request()
        for port in model.inputs:
            name = next((name for name in port.names if name in values), None)
            if name is None:
                raise LookupError(f"no value is there for the input {', '.join(sorted(port.names))}")
            request.set_tensor(port, openvino.Tensor(np.array(values[name], order="C")))
        request.infer()
        requests.append(request)
    return requests


def seconds(request: Any, runs: int) -> float:
    """Return the mean processor time of `runs` runs, in seconds. Processor time excludes the time of other processes."""
    start = time.process_time()
    for _ in range(runs):
        request.infer()
    return max(time.process_time() - start, 1e-9) / runs


if __name__ == "__main__":
    sys.exit(main())
