"""Child processes in which ONNX Runtime tries to load and run models.

If ONNX Runtime crashes on a model, only the child process ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt
from onnx import ModelProto

from superopt.child.program import release_memory
from superopt.errors import InvalidModelError, RuntimeDiedError, first_line
from superopt.files import scratch_folder
from superopt.policy import PROCESS
from superopt.protobuf.stored import Loadable, StoredModel, stored_bytes

Array: TypeAlias = npt.NDArray[Any]

LOAD_CONFIG = "ORT_LOAD_CONFIG_FROM_MODEL"
"""The name of an environment variable of ONNX Runtime.

If the variable is 1, sessions ignore the caller's options and use the options that are stored in the model.
"""
PROGRAM = Path(__file__).with_name("program.py")


class Child:
    """A child process in which ONNX Runtime loads and runs models, one at a time.

    Raises:
        OSError: No process can be started.
    """

    def __init__(self, program: Path = PROGRAM) -> None:
        self.program = program
        self._connection, other = multiprocessing.Pipe()
        environment = {name: value for name, value in os.environ.items() if name != LOAD_CONFIG}
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", os.fspath(program), str(other.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env=environment,
                start_new_session=True,
            )
        self._owner = os.getpid()

    def load(
        self,
        model: Loadable,
        *,
        threads: int = 1,
        without: Sequence[str] = (),
        libraries: Sequence[str] = (),
        optimized: bool = True,
    ) -> ChildSession:
        """Load the model on the CPU, with this number of threads and without the optimizers in `without`.

        The session registers the libraries of generated kernels at the paths `libraries`. If `optimized` is False, ONNX Runtime
        does not optimize the graph at all, and each value has its own memory.

        Raises:
            InvalidModelError: ONNX Runtime rejects the model.
            RuntimeDiedError: The child process dies while ONNX Runtime loads the model.
            TimeoutError: Loading takes too long.
        """
        patience = PROCESS.child_patience_seconds + PROCESS.child_patience_seconds_per_byte * stored_bytes(model)
        with _sent(model) as (source, folder):
            ports = self.ask("load", source, folder, threads, ";".join(without), libraries, optimized, patience=patience)
        assert isinstance(ports, list)
        return ChildSession(self, tuple(ports), patience)

    def drop(self) -> None:
        """Unload the model, if there is one, to free the memory of the child process. Errors are ignored."""
        with contextlib.suppress(InvalidModelError, RuntimeDiedError, TimeoutError):
            self.ask("drop", patience=PROCESS.child_patience_seconds)

    def ask(self, request: str, *arguments: object, patience: float) -> object:
        """Send a request with arguments to the child process, and return the answer.

        Raises:
            InvalidModelError: ONNX Runtime raises an error.
            RuntimeDiedError: The child process dies.
            TimeoutError: No answer arrives within `patience` seconds.
        """
        try:
            self._connection.send((request, *arguments))
            in_time = self._connection.poll(patience)
            state, answer = self._connection.recv() if in_time else ("late", None)
        except (EOFError, OSError):
            self.close()
            raise RuntimeDiedError(self._obituary(request)) from None
        if state == "late":
            self._process.kill()
            self.close()
            raise TimeoutError(f"ONNX Runtime did not {request} the model within {patience:.0f} s")
        if state == "failed":
            raise InvalidModelError(f"ONNX Runtime cannot {request} the model: {first_line(ValueError(answer))}")
        return answer

    def _obituary(self, request: str) -> str:
        code = self._process.returncode
        name = signal.Signals(-code).name if code < 0 and -code in set(signal.Signals) else f"exit {code}"
        doing = "loading" if request == "load" else "running"
        why = "; the process was killed, probably for lack of memory" if code == -signal.SIGKILL else ""
        return f"ONNX Runtime dies while {doing} the model ({name}){why}: report the model to the developers of ONNX Runtime"

    @property
    def is_alive(self) -> bool:
        """Return whether the process is running and is a child of the current process."""
        return self._owner == os.getpid() and self._process.poll() is None

    def close(self) -> None:
        """Close the connection, and end the child process."""
        self._connection.close()
        if self._owner == os.getpid():
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class ChildSession:
    """A model loaded in a child process. `inputs` lists the name, the type and the shape of each input.

    Runs return no outputs, because the outputs stay in the child process.
    """

    def __init__(self, child: Child, inputs: tuple[tuple[str, str, list[int | str | None]], ...], patience: float) -> None:
        self._child, self.inputs, self._patience = child, inputs, patience

    def run(self, feeds: Mapping[str, Array]) -> int:
        """Run the model once, and return the largest growth of the child's resident memory in bytes.

        The result is 0 if the growth is not known.

        Raises:
            InvalidModelError, RuntimeDiedError, TimeoutError: See `Child.load`.
        """
        grown = self._child.ask("run", dict(feeds), patience=self._patience)
        return grown if isinstance(grown, int) else 0

    def is_repeatable(self, feeds: Mapping[str, Array]) -> bool:
        """Run the model twice, and return False if the outputs depend on uninitialized memory.

        Raises:
            InvalidModelError, RuntimeDiedError, TimeoutError: See `Child.load`.
        """
        return self._child.ask("repeat", dict(feeds), patience=self._patience) is not False


@dataclass
class _Shared:
    """The program of a shared child process, and the process itself. The process is None before its first use."""

    program: Path
    child: Child | None = None


class _Contexts(threading.local):
    """The `reuse_child` contexts of a thread, from the outermost to the innermost."""

    def __init__(self) -> None:
        self.shared: list[_Shared] = []


_contexts = _Contexts()


@contextlib.contextmanager
def reuse_child(program: Path | None = None) -> Iterator[None]:
    """Inside this context, share one child process among all uses of `child` in this thread.

    The child process runs the Python file `program`, by default `PROGRAM`, and starts when it is first used. If the child
    process dies, a new child process replaces it. If the thread is already inside such a context, a further context without
    `program` has no effect.
    """
    if _contexts.shared and program is None:
        yield
        return
    shared = _Shared(program or PROGRAM)
    _contexts.shared.append(shared)
    try:
        yield
    finally:
        _contexts.shared.pop()
        if shared.child is not None:
            shared.child.close()


@contextlib.contextmanager
def child() -> Iterator[Child]:
    """Provide a child process in which a model can be loaded.

    Inside a `reuse_child` context, the child process is shared. Outside such a context, a new child process is started. The new
    process ends when the context of `child` ends.

    Raises:
        OSError: No process can be started.
    """
    if _contexts.shared:
        shared = _contexts.shared[-1]
        if shared.child is None or not shared.child.is_alive:
            shared.child = Child(shared.program)
        yield shared.child
        return
    made = Child()
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def _sent(model: Loadable) -> Iterator[tuple[str | bytes, str]]:
    """Yield the path or the bytes of a model, and the folder of the model's external data.

    The folder is an empty text unless the model is a `StoredModel`. A large model without external data is written to a
    temporary file, because sending its bytes would need memory for several copies of the model. Free memory is returned to the
    system, so that the child process can use it.
    """
    if not isinstance(model, bytes | ModelProto):
        yield (model.content, str(model.folder)) if isinstance(model, StoredModel) else (os.fspath(model), "")
    elif stored_bytes(model) <= PROCESS.max_sent_bytes:
        yield model if isinstance(model, bytes) else model.SerializeToString(), ""
    else:
        with scratch_folder() as folder:
            path = folder / "model.onnx"
            path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
            release_memory()
            yield os.fspath(path), ""
