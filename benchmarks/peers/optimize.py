"""Run one optimizer on one model: `python -m benchmarks.peers.optimize NAME IN OUT OPTIONS`.

The last line on the standard output is a JSON object with the optimizer's version. If the optimizer succeeds, the object also
has the seconds for reading IN, optimizing and writing OUT, the peak memory of the process, and the numbers of nodes before and
after. If the optimizer fails, the object has the reason as `failed`. OPTIONS is a JSON object with arguments for superopt. All
other optimizers run with their default settings.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Optimizer: TypeAlias = Callable[[str, str], None]
"""A function that reads the model at the first path, and writes the optimized model to the second path."""
Options: TypeAlias = Mapping[str, Any]


class FailedError(Exception):
    """Raised when an optimizer reports that it failed."""


def onnxsim(_: Options) -> Optimizer:
    onnx, package = map(importlib.import_module, ("onnx", "onnxsim"))

    def run(source: str, target: str) -> None:
        model, checked = package.simplify(source)
        if not checked:
            raise FailedError("it could not validate the simplified model")
        onnx.save(model, target)

    return run


def onnxslim(_: Options) -> Optimizer:
    package = importlib.import_module("onnxslim")

    def run(source: str, target: str) -> None:
        package.slim(source, target)

    return run


def onnxoptimizer(_: Options) -> Optimizer:
    onnx, package = map(importlib.import_module, ("onnx", "onnxoptimizer"))

    def run(source: str, target: str) -> None:
        onnx.save(package.optimize(onnx.load(source)), target)

    return run


def onnxscript(_: Options) -> Optimizer:
    onnx, package = map(importlib.import_module, ("onnx", "onnxscript.optimizer"))

    def run(source: str, target: str) -> None:
        onnx.save(package.optimize(onnx.load(source)), target)

    return run


def transformers(_: Options) -> Optimizer:
    """Return ONNX Runtime's transformer optimizer, with its fusions for BERT."""
    package = importlib.import_module("onnxruntime.transformers.optimizer")

    def run(source: str, target: str) -> None:
        package.optimize_model(source, model_type="bert", opt_level=0).save_model_to_file(target)

    return run


def superopt(options: Options) -> Optimizer:
    """Return superopt as an optimizer. It also writes a JSON report to the target path with the suffix .json."""
    package, cli = map(importlib.import_module, ("superopt", "superopt.cli.main"))

    def run(source: str, target: str) -> None:
        with cli.progress_listener() as progress:
            optimized = package.optimize(source, **options, progress=progress)
        optimized.save(target)
        Path(target).with_suffix(".json").write_text(optimized.report.json(), encoding="utf-8")

    return run


OPTIMIZERS: Mapping[str, Callable[[Options], Optimizer]] = {
    made.__name__: made for made in (superopt, onnxsim, onnxslim, onnxoptimizer, onnxscript, transformers)
}

PACKAGES: Mapping[str, str] = {"transformers": "onnxruntime"}
"""The package of each optimizer whose name is not the package's name."""


def main() -> int:
    name, source, target, options = sys.argv[1:]
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        found = optimized(name, source, target, json.loads(options))
    except Exception as error:  # noqa: BLE001
        found = {"failed": reason(error)}
    print(json.dumps({"version": version(PACKAGES.get(name, name)), **found}), file=said, flush=True)
    return int("failed" in found)


def optimized(name: str, source: str, target: str, options: Options) -> dict[str, Any]:
    """Run the optimizer, and return the figures of the run. The seconds do not include the import of the optimizer."""
    run = OPTIMIZERS[name](options)
    start = time.monotonic()
    run(source, target)
    spent = time.monotonic() - start
    return {"seconds": round(spent, 3), "peak_mib": round(peak() / 2**20, 1), "nodes": [nodes(source), nodes(target)]}


def reason(error: Exception) -> str:
    """Return one line that describes the error."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return text if isinstance(error, FailedError) else f"{type(error).__name__}: {text}"


def peak() -> int:
    """Return the peak memory in bytes of this process or of one of its child processes, whichever is larger.

    On Linux, the peak of getrusage includes memory of the parent process. So the peak of this process is read from /proc.
    """
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    return 1024 * max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def nodes(path: str) -> int:
    return len(importlib.import_module("onnx").load(path, load_external_data=False).graph.node)


def version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
