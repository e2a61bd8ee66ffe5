"""superopt: a superoptimizer for ONNX models.

`superopt.optimize(model)` searches for an equivalent model that is faster in a measured comparison. The result contains the
model and a report of the optimization. `superopt.replay(certificate, model)` repeats an optimization for a model with different
weights. `superopt.compare(first, second)` compares two models. To read the code, start with `flows/optimize`. The docstring of
each package describes the package's modules.

The packages are listed from the top layer to the bottom layer. A package imports only from layers below its own.

    `cli/`: the command line: commands, options, signals, progress display and exit codes. Only this package prints.
    `pack/`: packed models (one model with the outputs of several models), plans for serving, and a dispatcher of requests.
    `flows/`: the stages of optimize, replay, compare, generate, verify, profile and rules export. Certificates are made here.
    `search/`: the search for a cheaper equivalent of a model: rewriting, sweeps, windows, passes, choice of a candidate model.
    `kernels/`: generation of C code for parts of a model from the definitions of operators, compilation, registration.
    `discovery/`: the discovery of rewrite rules: enumeration of terms, fingerprints, generalisation, pruning, minimal core.
    `verification/`: the independent checker of `superopt verify` (translation validation by certificates).
    `partial/`: partial equivalence: mutants (terms that equal an operator at some output positions) and their corrections.
    `proof/`: provers for rules over the reals: index prover, e-graph with axioms, derivation, the check of the ledger.
    `floating_point/`: the fast-math flags that a rule needs in IEEE arithmetic, and stored inputs that show the need.
    `report/`: reports of runs as frozen values, terminal tables, JSON and SVG.
    `cost/`: the measured cost model, rooflines, device profiles and predicted times.
    `model/`: ONNX models: load, save, shape inference, islands, lifting to terms, lowering to nodes, constant folding.
    `runtime/`: ONNX Runtime: sessions, devices, timing, comparison, the numerical check, the caches on disk, session tuning.
    `child/`: child processes for trial runs of models in ONNX Runtime. A crash of ONNX Runtime ends only the child process.
    `protobuf/`: ONNX files as protobuf messages: validation, external data, digests of models, node values.
    `rules/`: the rewrite rule, pattern matching, the rule store with its ledger, verdicts, floating-point flags, fusions.
    `speclib/`: code that several operator files of specs/ share.
    `notation/`: the text form of rules: parser and printer.
    `algebra/`: extents, terms, operators, index notation, evaluation, exact fields, value analysis, digests of definitions.

    `ir_pass`: superopt as a pass of `onnx_ir.passes`.
    `olive_pass`: superopt as a pass of Olive.

Modules below all packages. Every package may import these modules:

    `budget`: the limits on the active time (time without waiting) and the memory of a search, and requests to stop.
    `worker_pool`: long jobs on a process pool or a Dask cluster, with retries, and with results on disk for resuming a job.
    `files`: atomic file writes, output paths, names of data files, removal of leftover temporary folders, the cache folder.
    `errors`: every exception that superopt raises on purpose, each with its exit code, and the text of a failure as one line.
    `policy`: every budget, threshold, margin and limit as a field of a frozen dataclass, with unit and reason.

    `__main__`: runs the command line for `python -m superopt`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from superopt.errors import SuperoptError

if TYPE_CHECKING:
    from superopt.flows.compare import compare
    from superopt.flows.optimize import optimize
    from superopt.flows.optimized import Optimized
    from superopt.flows.replay import Replayed, replay
    from superopt.pack.plan import ServePlan, serve_plan
    from superopt.report.comparison import ModelComparison
    from superopt.report.optimization import Report

    __version__: str

__all__ = [
    "ModelComparison",
    "Optimized",
    "Replayed",
    "Report",
    "ServePlan",
    "SuperoptError",
    "__version__",
    "compare",
    "optimize",
    "replay",
    "serve_plan",
]

_MODULES = {
    "compare": "superopt.flows.compare",
    "optimize": "superopt.flows.optimize",
    "replay": "superopt.flows.replay",
    "ModelComparison": "superopt.report.comparison",
    "Optimized": "superopt.flows.optimized",
    "Replayed": "superopt.flows.replay",
    "Report": "superopt.report.optimization",
    "ServePlan": "superopt.pack.plan",
    "serve_plan": "superopt.pack.plan",
}
"""The module that defines each public name.

A module is imported when one of its names is first used, so that `import superopt` is fast.
"""


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("superopt")
    except PackageNotFoundError:
        return "0+unknown"


def __getattr__(name: str) -> object:
    """Return the public object `name`.

    The module that defines the object is imported first. `__version__` is the version of the installed package. Python calls
    this function for missing attributes (PEP 562).
    """
    if name == "__version__":
        return _version()
    if name not in _MODULES:
        raise AttributeError(f"module 'superopt' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, for completion in interactive sessions."""
    return sorted({*globals(), *_MODULES, "__version__"})
