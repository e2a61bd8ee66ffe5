"""What a machine's processors are called."""

from __future__ import annotations

import contextlib
import functools
import platform
import subprocess
from pathlib import Path


@functools.cache
def cpu_name() -> str:
    """The processor's name, as the operating system gives it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@functools.cache
def gpu_name() -> str:
    """The first GPU's name and driver, as the driver's own tool gives them; `cuda` where it cannot be asked."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, IndexError):
        return subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()[0].strip()
    return "cuda"
