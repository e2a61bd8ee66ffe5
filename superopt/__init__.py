"""superopt: a superoptimizer for ONNX models.

`superopt.optimize(model)` searches for an equivalent model that is faster in a measured comparison. The result contains the
model and a report of the optimization.
"""

from importlib.metadata import PackageNotFoundError, version

from superopt.errors import SuperoptError
from superopt.flows.optimize import optimize
from superopt.flows.optimized import Optimized
from superopt.report.optimization import Report

__all__ = ["Optimized", "Report", "SuperoptError", "__version__", "optimize"]

try:
    __version__ = version("superopt")
except PackageNotFoundError:
    __version__ = "0+unknown"
