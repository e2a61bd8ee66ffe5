"""The program of a child process: load models in ONNX Runtime and run them, so that a crash ends only the child process.

The program imports nothing from superopt, because importing superopt takes longer than loading most models. The only argument
of the program is the file descriptor of a connection to the parent process. Requests and answers are pickled tuples. The
possible answers to a request follow an arrow:

    ("load", source, folder, threads, without, libraries, optimized)
                       ->  ("done", [(name, type, shape), ...]) or ("failed", message)
    ("run", feeds)     ->  ("done", bytes) or ("failed", message)
    ("repeat", feeds)  ->  ("done", same) or ("failed", message)
    ("drop",)          ->  ("done", None), after the model is unloaded

The answer to `run` is the largest growth of the resident memory during the run, or 0 if the system does not report the memory.
For `repeat`, the model runs twice, and new memory is filled with a different byte for each run if the C library supports this.
The answer is False if the outputs of the two runs differ, which means that the model reads uninitialized memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

QUIET = 4
FILL = -6
"""The number of the option of `mallopt` that fills new memory with a byte (`M_PERTURB` of the GNU C library)."""
FILLINGS = (0xFF, 0x80)
"""Values of the option `FILL`. The C library fills new memory with the complement of the byte: zeros or large numbers."""


def session_of(
    ort: Any, source: str | bytes, folder: str, threads: int, without: str, libraries: Sequence[str], optimized: bool
) -> Any:
    """Load a model in the child process with ONNX Runtime on the CPU, and return the session.

    Args:
        ort: the onnxruntime module.
        source: the path or the bytes of the model.
        folder: the folder of the external data if `source` contains the bytes of the model, or an empty text.
        threads: the number of intra-op threads.
        without: the names of the optimizers to switch off, separated by semicolons.
        libraries: the paths of libraries of generated kernels.
        optimized: whether ONNX Runtime optimizes the graph, and lets values share memory.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.log_severity_level = QUIET
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_mem_reuse = False
    if folder:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    if without:
        options.add_session_config_entry("optimization.disable_specified_optimizers", without)
    for library in libraries:
        options.register_custom_ops_library(library)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def resident_bytes(field: str) -> int:
    """Return the resident memory of this process (`VmRSS`) or its peak (`VmHWM`) in bytes.

    The result is 0 if the system does not report the memory.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) << 10
    return 0


def reset_peak() -> None:
    """Start a new measurement of the peak of the child process's resident memory, if the system supports this."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def release_memory() -> None:
    """Return free memory of this process (a child process or its parent) to the system, if the C library supports this."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def fill_new_memory(filling: int) -> None:
    """From now on, fill newly allocated memory with one byte value, the complement of `filling`.

    If `filling` is 0, memory is not filled any more. Nothing happens if the C library does not support this.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(FILL, filling)


def is_repeatable(session: Any, feeds: Any) -> bool:
    """Run the model twice on `feeds`, and return False if the outputs depend on uninitialized memory."""
    runs = []
    for filling in FILLINGS:
        fill_new_memory(filling)
        try:
            runs.append(session.run(None, feeds))
        finally:
            fill_new_memory(0)
    return all(map(is_same, *runs))


def is_same(first: Any, second: Any) -> bool:
    """Return whether two outputs of a model have the same bits. Outputs that are not arrays of numbers count as equal."""
    numbers = all(hasattr(value, "dtype") and value.dtype != object for value in (first, second))
    return not numbers or (first.shape == second.shape and first.tobytes() == second.tobytes())


def serve(connection: Connection) -> None:
    """Answer the parent process's requests to load and run models, until the parent process closes the connection."""
    import onnxruntime as ort

    session: Any = None
    answer: object
    while True:
        try:
            request, *arguments = connection.recv()
        except EOFError:
            return
        try:
            if request == "load":
                session = None
                session = session_of(ort, *arguments)
                answer = [(port.name, port.type, list(port.shape)) for port in session.get_inputs()]
            elif request == "drop":
                session, answer = None, None
                release_memory()
            elif request == "repeat":
                answer = is_repeatable(session, *arguments)
            else:
                reset_peak()
                before = resident_bytes("VmRSS")
                session.run(None, *arguments)
                answer = max(resident_bytes("VmHWM") - before, 0)
        except Exception as error:  # noqa: BLE001
            connection.send(("failed", str(error)))
        else:
            connection.send(("done", answer))
        arguments.clear()


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    serve(Connection(int(sys.argv[1])))
