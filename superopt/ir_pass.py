"""superopt as a pass of `onnx_ir.passes`, for export pipelines that are sequences of passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, Unpack

import onnx_ir as ir

from superopt.flows.optimize import optimize
from superopt.flows.optimized import Optimized
from superopt.flows.options import Options

Listener: TypeAlias = Callable[[Optimized[ir.Model]], None]


class Superopt(ir.passes.FunctionalPass):
    """A pass that replaces a model by an equivalent model that is faster in a measured comparison.

    The given model is not changed. If no faster model is found, the result is a model equal to the given model, and `modified`
    is False.

    Example:
        >>> from onnx_ir import passes
        >>> pipeline = passes.Sequential(common.RemoveUnusedNodesPass(), Superopt(budget="60s"))  # doctest: +SKIP
        >>> faster = pipeline(model).model  # doctest: +SKIP
    """

    def __init__(self, on_result: Listener | None = None, **options: Unpack[Options]) -> None:
        """Make a pass.

        Args:
            on_result: A function that is called with the result of each optimization. The result contains the report and the
                certificate.
            **options: The keyword arguments of `superopt.optimize`.
        """
        super().__init__()
        self._on_result, self._options = on_result, options

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Optimize the model.

        Raises:
            SuperoptError: See `superopt.optimize`.
        """
        optimized = optimize(model, **self._options)
        if self._on_result is not None:
            self._on_result(optimized)
        found = model.clone() if optimized.model is model else optimized.model
        return ir.passes.PassResult(found, modified=optimized.report.accepted)
