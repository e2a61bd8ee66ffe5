"""The progress of a long run as a value. The command line decides how the progress is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class SearchProgress:
    """The state of the search of a model.

    Attributes:
        seconds: The seconds of the budget that the search has used.
        budget: The seconds that the search may take.
        speedup: The predicted speedup of the best result so far, or 0 if no speedup can be predicted.
        tried: The number of tried rewrites. A rewrite of a part of the model counts as tried if the run time of the rewritten
            part is estimated.
        measured: The number of measured candidates. A candidate is a rewritten part of the model.
    """

    seconds: float
    budget: float
    speedup: float
    tried: int
    measured: int


@dataclass(frozen=True)
class Progress:
    """The state of a run.

    Attributes:
        phase: The name of the current phase.
        done: The number of finished parts of the phase.
        total: The number of parts, or 0 if this number is unknown.
        detail: The latest event.
        stage: The name of the run's stage that contains the phase.
        place: The number of the stage `stage`, counted from 1. The number is 0 if the run has no stages.
        stages: The number of all stages.
        search: The state of the search, if the run is searching.
    """

    phase: str
    done: int = 0
    total: int = 0
    detail: str = ""
    stage: str = ""
    place: int = 0
    stages: int = 0
    search: SearchProgress | None = None

    def __str__(self) -> str:
        count = f" {self.done}/{self.total}" if self.total else f" {self.done}" if self.done else ""
        return f"{self.phase}{count}{': ' + self.detail if self.detail else ''}"


Listener: TypeAlias = Callable[[Progress], None]


def ignore_progress(progress: Progress) -> None:
    """Do nothing. This is the listener of a caller that does not want progress reports."""
