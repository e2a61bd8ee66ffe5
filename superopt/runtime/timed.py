"""Interfaces to time a loaded model: with weights in the processor's caches (`Timed`), or in no cache (`ColdTimedModel`)."""

from __future__ import annotations

import statistics
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from superopt.runtime.kernel import last_level_cache


class Timed(Protocol):
    """A loaded model with its inputs. `run` runs the model once, and `seconds` returns the mean time of several runs.

    While the context of `alone` is open, no other process of superopt uses the model's GPU.
    """

    def alone(self) -> AbstractContextManager[None]: ...

    def run(self) -> None: ...

    def seconds(self, runs: int) -> float: ...


class ColdTimedModel:
    """A wrapper around a loaded model that fills the processor's caches with other data before each timed run."""

    def __init__(self, timed: Timed) -> None:
        self._timed = timed
        self._other = np.ones(3 * last_level_cache() // 2, np.uint8)

    def alone(self) -> AbstractContextManager[None]:
        """Return a context in which no other process of superopt uses the model's GPU."""
        return self._timed.alone()

    def run(self) -> None:
        """Run the model once. The processor's caches are not filled with other data before the run."""
        self._timed.run()

    def seconds(self, runs: int) -> float:
        """Return the mean time in seconds of `runs` runs. The caches are filled with other data before each run."""
        return statistics.mean(self._once() for _ in range(runs))

    def _once(self) -> float:
        self._other.max()
        return self._timed.seconds(1)
