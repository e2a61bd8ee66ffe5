"""The progress of a long run as a value. The command line decides how the progress is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Progress:
    """The state of a run: its phase, the number of finished parts, their total (0 if unknown), and the latest event."""

    phase: str
    done: int = 0
    total: int = 0
    detail: str = ""

    def __str__(self) -> str:
        count = f" {self.done}/{self.total}" if self.total else f" {self.done}" if self.done else ""
        return f"{self.phase}{count}{': ' + self.detail if self.detail else ''}"


Listener: TypeAlias = Callable[[Progress], None]


def ignore_progress(progress: Progress) -> None:
    """Do nothing. This is the listener of a caller that does not want progress reports."""
