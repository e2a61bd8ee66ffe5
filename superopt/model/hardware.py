"""What a machine's processors are called, and their caches."""

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


@functools.cache
def cache_sizes() -> tuple[int, ...]:
    """Bytes of the caches for data of the first processor, the fastest first; none where the system does not say."""
    units = {"K": 10, "M": 20, "G": 30}
    sizes: list[int] = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = (index / "size").read_text(encoding="ascii").strip()
            if (index / "type").read_text(encoding="ascii").strip() != "Instruction":
                sizes.append(int(text[:-1]) << units[text[-1]])
    return tuple(sizes)
