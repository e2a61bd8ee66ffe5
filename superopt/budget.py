"""Limits on the time and the memory of a search, and requests to stop a search."""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from superopt.policy import PROCESS

_waited = 0.0
_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def duration_seconds(duration: str | float) -> float:
    """Convert a duration to seconds. For example, `2m` gives 120.

    The duration is a number of seconds, or a text such as `90` or `60s`. The units are ms, s, m, min and h.

    Raises:
        ValueError: The text is not a duration, or the duration is longer than a year.
    """
    if not isinstance(duration, str):
        return duration
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([a-z]*)", duration.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{duration!r} is not a duration such as 90, 60s or 2m")
    found = float(match[1]) * _UNITS[match[2]]
    if found > PROCESS.max_time_seconds:
        raise ValueError(f"{duration!r} is more than a year")
    return found


def active_time() -> float:
    """Return the time in seconds on a monotonic clock that stops inside the context manager `waiting`."""
    return time.monotonic() - _waited


def expired(deadline: float) -> bool:
    """Return whether a search must end.

    A search must end in three cases: `active_time()` has reached `deadline`, a stop was requested (see `allow_early_stop`), or
    the process has exceeded its memory limit (see `limit_memory_growth`).
    """
    return active_time() >= deadline or is_stop_requested() or is_memory_short()


def is_stop_requested() -> bool:
    """Return whether a stop was requested: whether the event of the enclosing `allow_early_stop` is set."""
    stop = _stop.get()
    return stop is not None and stop.is_set()


@contextlib.contextmanager
def allow_early_stop(stop: threading.Event | None) -> Iterator[None]:
    """Let searches inside the context end early once the event `stop` is set. A search then returns its best result so far."""
    before = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(before)


@dataclass
class _Allowance:
    """A limit on the resident memory of the process.

    `most` is the limit in bytes. `looked` is the time at which the memory was last measured. `spent` is True once a measurement
    has exceeded the limit.
    """

    most: float
    looked: float = -math.inf
    spent: bool = False


_allowance: ContextVar[_Allowance | None] = ContextVar("allowance", default=None)


def is_memory_short() -> bool:
    """Return whether the process has exceeded the limit that `limit_memory_growth` set.

    The resident memory is measured at most 10 times a second. Once a measurement exceeds the limit, the result stays True.
    """
    allowance = _allowance.get()
    if allowance is None or allowance.spent:
        return allowance is not None
    if time.monotonic() - allowance.looked > PROCESS.memory_reading_seconds:
        allowance.looked = time.monotonic()
        allowance.spent = resident_bytes() > allowance.most
    return allowance.spent


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, or 0 if the operating system does not report this number."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def limit_memory_growth(more: float) -> Iterator[None]:
    """Let searches inside the context end early once the resident memory of the process has grown by `more` bytes."""
    before = _allowance.set(_Allowance(resident_bytes() + more))
    try:
        yield
    finally:
        _allowance.reset(before)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Exclude the time spent inside the context from `active_time`. Contexts may be nested."""
    global _waited  # noqa: PLW0603
    start, before = time.monotonic(), _waited
    try:
        yield
    finally:
        _waited = before + time.monotonic() - start
