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
    """A wrapper around a `Timed` model that fills the processor's caches with other data before each timed run."""

    def __init__(self, timed: Timed) -> None:
        self._timed = timed
        self._other = np.ones(3 * last_level_cache() // 2, np.uint8)

    def alone(self) -> AbstractContextManager[None]:
        """Return the `alone` context of the model."""
        return self._timed.alone()

    def run(self) -> None:
        """Run the model once. The caches are not filled with other data."""
        self._timed.run()

    def seconds(self, runs: int) -> float:
        """Return the mean time of `runs` runs in seconds."""
        return statistics.mean(self._once() for _ in range(runs))

    def _once(self) -> float:
        self._other.max()
        return self._timed.seconds(1)
