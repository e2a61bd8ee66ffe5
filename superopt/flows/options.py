"""The options of `superopt.optimize`, which are also the options of the command line."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TypedDict

from superopt.report.progress import Listener


class Options(TypedDict, total=False):
    """The arguments of `optimize`, except the model; see `optimize`."""

    provider: str
    budget: float | None
    seed: int
    threads: int
    cuda_graph: bool
    shapes: Sequence[Mapping[str, int]]
    cache: str | os.PathLike[str] | None
    tune: bool
    ort_config: bool
    tolerance: float
    growth: float | None
    moves: Sequence[str]
    fp: str
    device_profile: str | os.PathLike[str] | None
    allow_contrib: bool
    opset: int | None
    stop: threading.Event | None
    progress: Listener | None
