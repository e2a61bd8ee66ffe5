"""What a search may take: time, by the clock of this process without its waits for others, memory, and requests to stop."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

LOOKING_SECONDS = 0.1
"""Seconds between two looks at the resident memory."""
_waited = 0.0
_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


def active_time() -> float:
    """A monotonic time, in seconds, which stands still while the process is `waiting`."""
    return time.monotonic() - _waited


def expired(deadline: float) -> bool:
    """Return whether a search has to end: its deadline, an active time, is over, it was asked to stop, or memory is short."""
    return active_time() >= deadline or stopping() or short_of_memory()


def stopping() -> bool:
    """Return whether what runs here was asked to stop; see `stoppable`."""
    stop = _stop.get()
    return stop is not None and stop.is_set()


@contextlib.contextmanager
def stoppable(stop: threading.Event | None) -> Iterator[None]:
    """Let searches end early, with the best so far, once `stop` is set."""
    before = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(before)


@dataclass
class _Allowance:
    """The resident bytes that the process may have, when that was last looked at, and whether it has had more."""

    most: float
    looked: float = -math.inf
    spent: bool = False


_allowance: ContextVar[_Allowance | None] = ContextVar("allowance", default=None)


def short_of_memory() -> bool:
    """Return whether this process has had more resident memory than `limited_memory` allows it; asked for 10 times a second."""
    allowance = _allowance.get()
    if allowance is None or allowance.spent:
        return allowance is not None
    if time.monotonic() - allowance.looked > LOOKING_SECONDS:
        allowance.looked = time.monotonic()
        allowance.spent = resident_bytes() > allowance.most
    return allowance.spent


def resident_bytes() -> int:
    """The memory of this process that is resident; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def limited_memory(more: float) -> Iterator[None]:
    """Let searches end early once the process has so many bytes more of resident memory than now."""
    before = _allowance.set(_Allowance(resident_bytes() + more))
    try:
        yield
    finally:
        _allowance.reset(before)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """The active time stands still until this ends."""
    global _waited  # noqa: PLW0603
    start = time.monotonic()
    try:
        yield
    finally:
        _waited += time.monotonic() - start
