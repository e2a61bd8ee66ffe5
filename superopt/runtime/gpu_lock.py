"""A lock on a GPU for all processes of superopt, so that only one process at a time runs models on the GPU."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from superopt.budget import waiting
from superopt.runtime.cache import default_path
from superopt.runtime.device import Device


class GpuLock:
    """A reentrant lock on a GPU. At any time, at most one thread of one process on this machine holds the lock.

    The file at `path` is locked. If the file cannot be written, or if the operating system has no file locks, other processes
    are not excluded.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = threading.RLock()
        self._depth = 0

    def __enter__(self) -> None:
        self._thread.acquire()
        self._depth += 1
        if self._depth == 1:
            with waiting():
                self._asked("LOCK_EX")

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._asked("LOCK_UN")
        self._thread.release()

    def _asked(self, what: str) -> None:
        with contextlib.suppress(OSError, ImportError):
            locks: Any = importlib.import_module("fcntl")
            locks.flock(self._file, getattr(locks, what))

    @functools.cached_property
    def _file(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)


@contextlib.contextmanager
def hold_gpu(device: Device) -> Iterator[None]:
    """Hold the lock of the device's GPU, so that no other run of superopt uses the GPU. A CPU is not locked."""
    if device.provider == "cpu":
        yield
        return
    with _turn(os.environ.get("CUDA_VISIBLE_DEVICES", "")):
        yield


@functools.cache
def _turn(visible: str) -> GpuLock:
    """Return the lock of the first GPU in `visible`, the value of CUDA_VISIBLE_DEVICES."""
    first = re.sub(r"[^A-Za-z0-9-]", "", visible.partition(",")[0]) or "0"
    return GpuLock(default_path().with_name(f"gpu-{first}.lock"))
