"""The names of a machine's processors, the number of their cores, and the sizes of their caches."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import subprocess
from pathlib import Path

from superopt.policy import COST

_VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX"}
"""The names of vector extensions, by processor flag, the widest first. ONNX Runtime chooses kernels by vector extension."""

IGNORE_LOAD = "SUPEROPT_IGNORE_LOAD"
"""The environment variable that allows times to be stored on a busy machine."""
CPU_PRESSURE = Path("/proc/pressure/cpu")
"""The file in which Linux reports how long threads wait for a processor."""


@functools.cache
def cpu_name() -> str:
    """Return the processor's name from the operating system, with its family, model and widest vector extension.

    Virtual machines may give different processors the same name. The family, the model and the vector extension distinguish
    these processors.
    """
    with contextlib.suppress(OSError):
        return parse_cpuinfo(Path("/proc/cpuinfo").read_text(encoding="utf-8")) or _otherwise()
    return _otherwise()


def parse_cpuinfo(cpuinfo: str) -> str:
    """Return the name of the first processor in `cpuinfo`, the text of `/proc/cpuinfo`.

    The result is empty if the text contains no processor name.
    """
    first, _, _ = cpuinfo.partition("\n\n")
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    vectors = next((name for flag, name in _VECTORS.items() if flag in facts.get("flags", "").split()), "")
    numbers = [f"{kind} {facts[key]}" for kind, key in (("family", "cpu family"), ("model", "model")) if key in facts]
    more = ", ".join(filter(None, [*numbers, vectors]))
    name = facts.get("model name", "")
    return f"{name} ({more})" if name and more else name


def _otherwise() -> str:
    return platform.processor() or platform.machine()


@functools.cache
def gpu_name() -> str:
    """Return the name and driver version of the first GPU, from `nvidia-smi`. If `nvidia-smi` fails, return `cuda`."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, IndexError):
        return subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()[0].strip()
    return "cuda"


@functools.cache
def core_count() -> int:
    """Return the number of processor cores that this process may use. A core with several hardware threads counts once.

    By default, a session of ONNX Runtime uses this many threads.
    """
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores: set[str] = set()
    for number in usable:
        siblings = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text(encoding="ascii"))
        except OSError:
            cores.add(str(number))
    return len(cores)


def is_busy(pressure: Path = CPU_PRESSURE) -> bool:
    """Return whether threads often wait for a processor, because more threads want to run than the machine has processors.

    The file `pressure` contains the share of the last ten seconds in which a thread waited (Linux's pressure stall
    information). Without this file, the load average of the last minute decides. The result is False if the operating system
    provides neither the file nor the load average, or if `SUPEROPT_IGNORE_LOAD` is set in the environment.
    """
    if os.environ.get(IGNORE_LOAD):
        return False
    with contextlib.suppress(OSError):
        waiting = re.match(r"some avg10=([\d.]+)", pressure.read_text(encoding="ascii"))
        if waiting is not None:
            return float(waiting[1]) > COST.max_waiting_percent
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1) + COST.max_surplus_load


@functools.cache
def cache_sizes() -> tuple[int, ...]:
    """Return the size in bytes of each data cache of the first processor, the fastest first.

    The result is empty if the operating system does not report the sizes.
    """
    units = {"K": 10, "M": 20, "G": 30}
    sizes: list[int] = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = (index / "size").read_text(encoding="ascii").strip()
            if (index / "type").read_text(encoding="ascii").strip() != "Instruction":
                sizes.append(int(text[:-1]) << units[text[-1]])
    return tuple(sizes)
