"""What a long run says while it works, as a value; how it is shown is the command line's business."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Progress:
    """Where a run stands: its phase, how many of its parts are done (`total` is 0 where unknown), what came last."""

    phase: str
    done: int = 0
    total: int = 0
    detail: str = ""

    def __str__(self) -> str:
        count = f" {self.done}/{self.total}" if self.total else f" {self.done}" if self.done else ""
        return f"{self.phase}{count}{': ' + self.detail if self.detail else ''}"


Listener: TypeAlias = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """The listener that does nothing."""
