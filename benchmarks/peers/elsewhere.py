"""A comparison of a model with its optimized file in OpenVINO, which shows whether a gain depends on ONNX Runtime."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from benchmarks.peers.contenders import ROOT, row
from superopt.runtime.compare import Comparison, compare_in_turns, loading
from superopt.runtime.session import Array
from superopt.runtime.timed import Timed


class ElsewhereError(Exception):
    """Raised when OpenVINO cannot be started, or cannot load or run a model."""


class Remote:
    """A model in a process that runs OpenVINO. The process times the runs of the model."""

    def __init__(self, process: subprocess.Popen[str], which: int) -> None:
        self._process, self._which = process, which

    def alone(self) -> AbstractContextManager[None]:
        """Return a context that waits for nothing, because the model runs on the CPU."""
        return contextlib.nullcontext()

    def run(self) -> None:
        """Run the model once."""
        self.seconds(1)

    def seconds(self, runs: int) -> float:
        """Return the mean processor time of `runs` runs, in seconds.

        Raises:
            ElsewhereError: The process has ended.
        """
        asked, answers = _pipes(self._process)
        try:
            print(self._which, runs, file=asked, flush=True)
            return float(answers.readline())
        except (OSError, ValueError) as error:
            raise ElsewhereError(row("", "", self._process.wait())["failed"]) from error


def compared(
    python: Path, original: Path, candidate: Path, feeds: Mapping[str, Array], *, seconds: float
) -> tuple[str, Comparison]:
    """Time two files in OpenVINO on one thread and on the same inputs. Return OpenVINO's version and the comparison.

    Raises:
        ElsewhereError: OpenVINO cannot be started, or cannot load or run a file.
    """
    versions: set[str] = set()

    @contextmanager
    def opened(load: int) -> Iterator[list[list[Timed]]]:
        order = loading(3, load)
        files = [str((original, candidate, original)[which].resolve()) for which in order]
        with _started(python, inputs, files) as (process, version):
            versions.add(version)
            yield [[Remote(process, order.index(which)) for which in range(3)]]

    with tempfile.TemporaryDirectory(prefix="superopt-bench-") as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **dict(feeds), allow_pickle=False)
        ((found,),) = compare_in_turns(opened, seconds=seconds)
    return versions.pop(), found


@contextmanager
def _started(python: Path, inputs: Path, files: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a process that loads the files in OpenVINO. Yield the process and OpenVINO's version, then kill the process."""
    command = [str(python), "-m", "benchmarks.peers.infer", str(inputs), *files]
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    except OSError as error:
        raise ElsewhereError(f"it could not be started: {error.strerror}") from error
    with process:
        try:
            said = _pipes(process)[1].readline()
            started = row(said, "", process.wait() if "version" not in said else 0)
            if "failed" in started:
                raise ElsewhereError(started["failed"])
            yield process, json.loads(said)["version"]
        finally:
            process.kill()


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout
