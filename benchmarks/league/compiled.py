"""Networks of PyTorch, compiled by `torch.compile`, with their inputs and ready for timing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from benchmarks.zoo.export import module_of
from benchmarks.zoo.recipes import Exported
from superopt.runtime.session import Array, Device

WARM_UP_RUNS = 3
"""Runs before the timing. With CUDA graphs, PyTorch records the graph in the second or third run."""


class CompiledNetwork:
    """A network that `torch.compile` has compiled in the given mode. Its inputs are on the device.

    On a GPU, products and convolutions of float32 numbers may use TF32, as in ONNX Runtime's default settings.
    """

    def __init__(self, recipe: Exported, seed: int, arguments: Sequence[Array], device: Device, mode: str | None) -> None:
        torch.set_num_threads(device.threads)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        self._cuda = device.provider != "cpu"
        place = "cuda" if self._cuda else "cpu"
        self._network: Any = torch.compile(module_of(recipe, seed).to(place), mode=mode)
        self._arguments = [torch.from_numpy(np.ascontiguousarray(array)).to(place) for array in arguments]
        for _ in range(WARM_UP_RUNS):
            self.run()

    def alone(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: the league is the only process that uses the device."""
        return nullcontext()

    def run(self) -> None:
        """Run the network once, and wait until the device has finished."""
        self._run_once()

    def _run_once(self) -> Any:
        with torch.inference_mode():
            results = self._network(*self._arguments)
        if self._cuda:
            torch.cuda.synchronize()
        return results

    def outputs(self) -> list[Array]:
        """Run the network once, and return its outputs as arrays."""
        results = self._run_once()
        return [each.cpu().numpy() for each in (results if isinstance(results, tuple | list) else (results,))]

    def seconds(self, runs: int) -> float:
        """Return the mean wall-clock time of `runs` runs in seconds. Each run is finished before the next run begins."""
        start = time.perf_counter()
        for _ in range(runs):
            self._run_once()
        return max(time.perf_counter() - start, 1e-9) / runs
