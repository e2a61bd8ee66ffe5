"""The keyword arguments of `superopt.optimize` and of `superopt.replay`.

The module imports nothing heavy, so that the command line can read its options fast.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypedDict

if TYPE_CHECKING:
    from superopt.model.examples import Given
    from superopt.model.specialize import Fixable
    from superopt.report.progress import Listener

Shapes: TypeAlias = "Mapping[str, int | Sequence[int]] | Sequence[Mapping[str, int]]"
"""Sizes of dynamic dimensions: a mapping from each name to one or several sizes, or a list of mappings from names to sizes."""
MOVES = ("rules", "mutants")
"""The kinds of rewrites. "rules" applies rewrite rules.

"mutants" replaces an operator by a term that equals the operator at some output positions, and corrects the other positions.
"""


class Options(TypedDict, total=False):
    """The keyword arguments of `superopt.optimize`. The docstring of `superopt.optimize` describes the arguments."""

    provider: str
    budget: float | str | None
    seed: int
    threads: int | None
    cuda_graph: bool
    shapes: Shapes
    inputs: Sequence[Given]
    fix: Mapping[str, Fixable] | None
    cache: str | os.PathLike[str] | None
    fresh: bool
    no_cache: bool
    tune: bool
    ort_config: bool
    tolerance: float
    growth: float | None
    moves: Sequence[str]
    fp: str
    rules: Sequence[str | os.PathLike[str]]
    device_profile: str | os.PathLike[str] | None
    allow_contrib: bool
    kernels: bool
    opset: int | None
    metadata: bool
    stop: threading.Event | None
    progress: Listener | None


class ReplayOptions(TypedDict, total=False):
    """The keyword arguments of `superopt.replay`. The docstring of `superopt.replay` describes the arguments."""

    provider: str
    threads: int | None
    cuda_graph: bool
    inputs: Sequence[Given]
    tolerance: float
    compare: bool
    seed: int
    rules: Sequence[str | os.PathLike[str]]
    cache: str | os.PathLike[str] | None
    progress: Listener | None
