"""The time that this process has to itself: what it waits for others in is left out, so that a search has no less for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_waited = 0.0


def active_time() -> float:
    """A monotonic time, in seconds, which stands still while the process is `waiting`."""
    return time.monotonic() - _waited


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """The active time stands still until this ends."""
    global _waited  # noqa: PLW0603
    start = time.monotonic()
    try:
        yield
    finally:
        _waited += time.monotonic() - start
