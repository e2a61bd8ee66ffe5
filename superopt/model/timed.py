"""What can be timed: a model that is loaded and has its inputs, its weights in the processor's caches or in none of them."""

from __future__ import annotations

import statistics
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from superopt.model.kernel import last_level_cache


class Timed(Protocol):
    """A model that is loaded and has its inputs: `run` runs it once, `seconds` gives the mean time of a number of runs.

    Until what `alone` gives ends, no other process of superopt runs anything on its GPU, if it runs on one.
    """

    def alone(self) -> AbstractContextManager[None]: ...

    def run(self) -> None: ...

    def seconds(self, runs: int) -> float: ...


class Cold:
    """A model before each of whose timed runs the processor's caches are filled with something else."""

    def __init__(self, timed: Timed) -> None:
        self._timed = timed
        self._other = np.ones(3 * last_level_cache() // 2, np.uint8)

    def alone(self) -> AbstractContextManager[None]:
        """As the model's own."""
        return self._timed.alone()

    def run(self) -> None:
        """One run, caches as they are."""
        self._timed.run()

    def seconds(self, runs: int) -> float:
        """The mean time of the runs."""
        return statistics.mean(self._once() for _ in range(runs))

    def _once(self) -> float:
        self._other.max()
        return self._timed.seconds(1)
