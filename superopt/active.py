"""The time that a search has: the clock of this process without its waits for others, and requests to stop early."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

_waited = 0.0
_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


def active_time() -> float:
    """A monotonic time, in seconds, which stands still while the process is `waiting`."""
    return time.monotonic() - _waited


def expired(deadline: float) -> bool:
    """Return whether a search has to end: its deadline, an active time, has passed, or it was asked to stop."""
    return active_time() >= deadline or stopping()


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


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """The active time stands still until this ends."""
    global _waited  # noqa: PLW0603
    start = time.monotonic()
    try:
        yield
    finally:
        _waited += time.monotonic() - start
