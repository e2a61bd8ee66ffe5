"""Loaded models with inputs that can be timed, with weights in the processor's caches or in no cache."""

from __future__ import annotations

import statistics
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from superopt.runtime.kernel import last_level_cache


class Timed(Protocol):
    """A loaded model with its inputs. `run` runs it once, and `seconds` gives the mean time of a number of runs.

    If the model runs on a GPU, no other process of superopt runs anything there while the context of `alone` is open.
    """

    def alone(self) -> AbstractContextManager[None]: ...

    def run(self) -> None: ...

    def seconds(self, runs: int) -> float: ...


class Cold:
    """A timed model, with the processor's caches filled with other data before each timed run."""

    def __init__(self, timed: Timed) -> None:
        self._timed = timed
        self._other = np.ones(3 * last_level_cache() // 2, np.uint8)

    def alone(self) -> AbstractContextManager[None]:
        """Return the model's own context."""
        return self._timed.alone()

    def run(self) -> None:
        """Run the model once, with the caches as they are."""
        self._timed.run()

    def seconds(self, runs: int) -> float:
        """Return the mean time of `runs` runs in seconds."""
        return statistics.mean(self._once() for _ in range(runs))

    def _once(self) -> float:
        self._other.max()
        return self._timed.seconds(1)
