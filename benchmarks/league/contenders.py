"""The contenders of the league: those that write an ONNX file, and those that run the network themselves."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.peers.case import Case, superoptimized
from benchmarks.peers.contenders import SUPEROPT, Row, optimized
from superopt.errors import SuperoptError

CONTRIB = "superopt, contrib operators"
TRANSFORMERS = "ONNX Runtime's transformer optimizer"
TENSORRT = "TensorRT"
COMPILED: Mapping[str, str | None] = {"torch.compile": None, "torch.compile, max-autotune": "max-autotune"}
"""The modes of `torch.compile`. On a GPU, the mode `max-autotune` replays runs as CUDA graphs."""
FILES = (SUPEROPT, CONTRIB, TRANSFORMERS, "onnxsim")
"""The contenders that write an ONNX file, which ONNX Runtime runs."""
CONTENDERS = (*FILES, *COMPILED, TENSORRT)


@dataclass(frozen=True)
class Written:
    """What a contender made of the original: the path of its file, or the reason why there is no file.

    Attributes:
        path: The file. The file does not exist if the contender failed.
        seconds: The time that the contender took.
        failed: The reason why there is no file, or an empty text.
    """

    path: Path
    seconds: float = 0.0
    failed: str = ""


def written(name: str, case: Case, folder: Path, peers: Path | None) -> Written:
    """Let the contender `name` optimize the model of the case, and return its result.

    Args:
        name: One of `FILES`.
        case: The model, the device, and the budget of superopt.
        folder: An empty folder for the result.
        peers: The interpreter in which onnxsim is installed. None means the current interpreter.
    """
    target = folder / case.path.name
    if name in (SUPEROPT, CONTRIB):
        chosen = replace(case.settings, allow_contrib=name == CONTRIB)
        try:
            ours, _ = superoptimized(replace(case, settings=chosen), target)
        except SuperoptError as error:
            return Written(target, failed=str(error))
        return Written(target, ours["seconds"])
    optimizer, python = ("transformers", sys.executable) if name == TRANSFORMERS else (name, peers or sys.executable)
    row: Row = optimized(python, optimizer, case.path, target, timeout=case.settings.timeout)
    return Written(target, row.get("seconds", 0.0), row.get("failed", ""))
