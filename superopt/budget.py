"""The limits of a search: active time, memory and requests to stop."""

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

from superopt.policy import PROCESS

_waited = 0.0
_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


def active_time() -> float:
    """Return a monotonic clock, in seconds, that excludes time spent `waiting`."""
    return time.monotonic() - _waited


def expired(deadline: float) -> bool:
    """Return whether a search must end: its deadline, an active time, is over, it was asked to stop, or memory is short."""
    return active_time() >= deadline or is_stop_requested() or is_memory_short()


def is_stop_requested() -> bool:
    """Return whether the current search was asked to stop; see `allow_early_stop`."""
    stop = _stop.get()
    return stop is not None and stop.is_set()


@contextlib.contextmanager
def allow_early_stop(stop: threading.Event | None) -> Iterator[None]:
    """Let searches end early, with the best result so far, once `stop` is set."""
    before = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(before)


@dataclass
class _Allowance:
    """The resident bytes that the process may have, the time of the last reading, and whether the limit was exceeded."""

    most: float
    looked: float = -math.inf
    spent: bool = False


_allowance: ContextVar[_Allowance | None] = ContextVar("allowance", default=None)


def is_memory_short() -> bool:
    """Return whether the process has exceeded the memory that `limit_memory_growth` allows; read at most 10 times a second."""
    allowance = _allowance.get()
    if allowance is None or allowance.spent:
        return allowance is not None
    if time.monotonic() - allowance.looked > PROCESS.memory_reading_seconds:
        allowance.looked = time.monotonic()
        allowance.spent = resident_bytes() > allowance.most
    return allowance.spent


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def limit_memory_growth(more: float) -> Iterator[None]:
    """Let searches end early once the resident memory has grown by `more` bytes."""
    before = _allowance.set(_Allowance(resident_bytes() + more))
    try:
        yield
    finally:
        _allowance.reset(before)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Exclude the time that is spent in the context from the active time."""
    global _waited  # noqa: PLW0603
    start = time.monotonic()
    try:
        yield
    finally:
        _waited += time.monotonic() - start
