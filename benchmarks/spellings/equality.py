"""The check that a spelling and its operator compute the same."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from benchmarks.spellings.corpus import SUFFIX, Spelling, checked, read
from superopt.runtime.bounds import index_bounds
from superopt.runtime.input_source import InputSource
from superopt.runtime.session import Array, Device, Session, is_floating

TOLERANCE = 1e-4
"""The largest accepted difference between two outputs. Numbers of more than 1 may differ by this share."""
FACTORS = (1.0, 3.0)
"""The standard deviations of the inputs that are floating-point numbers."""


def require_equal(spelling: Spelling) -> None:
    """Run the spelling and its operator in ONNX Runtime on the same random inputs, and compare the outputs.

    Raises:
        ValueError: The two models differ in their inputs or outputs, or in a number.
        onnx.checker.ValidationError, onnx.shape_inference.InferenceError: A model is not valid.
        InvalidModelError: ONNX Runtime cannot load or run a model.
    """
    device = Device("cpu", 1)
    model, operator = checked(spelling.model), checked(spelling.operator)
    if list(model.graph.input) != list(operator.graph.input) or list(model.graph.output) != list(operator.graph.output):
        raise ValueError("the inputs or outputs are not those of the operator")
    sessions = Session(model, device), Session(operator, device)
    for seed, factor in enumerate(FACTORS):
        drawn = source(spelling.path.parent).values(sessions[0].inputs, seed)
        feeds = {name: value * value.dtype.type(factor) if is_floating(value.dtype) else value for name, value in drawn.items()}
        for found, expected in zip(*(session.run(feeds) for session in sessions), strict=True):
            if (error := difference(found, expected)) > TOLERANCE:
                raise ValueError(f"an output differs by {error:.1e}")


@functools.cache
def source(folder: Path) -> InputSource:
    """Return the source of random inputs for the models of a function. Integers are in the range of all models."""
    bounds: dict[str, int] = {}
    for path in folder.glob(f"*{SUFFIX}"):
        bounds |= index_bounds(read(path))
    return InputSource(bounds)


def difference(found: Array, expected: Array) -> float:
    """Return the largest difference between two arrays, relative to the expected number if it is more than 1.

    The difference is infinite if the arrays have different shapes, or if a number is not finite.
    """
    if found.shape != expected.shape or not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return np.inf
    exact = expected.astype(np.float64)
    return float(np.max(np.abs(found - exact) / np.maximum(1.0, np.abs(exact)), initial=0.0))
