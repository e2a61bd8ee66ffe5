"""Child processes in which models are loaded and run on trial.

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
from collections.abc import Iterator, Mapping
from pathlib import Path

from onnx import ModelProto

from superopt.errors import InvalidModelError, RuntimeDiedError, first_line
from superopt.policy import COMPARISON, PROCESS
from superopt.protobuf.stored import Loadable, StoredModel, stored_bytes
from superopt.runtime.device import LOAD_CONFIG, Device
from superopt.runtime.ort_values import BFLOAT16
from superopt.runtime.session import Array, Port, port_of

PROGRAM = Path(__file__).with_name("child_main.py")


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

    def load(self, model: Loadable, device: Device, *, optimized: bool = True) -> ChildSession:
        """Load the model on the CPU, with the threads of `device` and without the optimizers in `device.without`.

        If `optimized` is False, ONNX Runtime does not optimize the graph at all.

        Raises:
            InvalidModelError: ONNX Runtime refuses the model.
            RuntimeDiedError: The child process dies while ONNX Runtime loads the model.
            TimeoutError: Loading takes too long.
        """
        source, folder = _source(model)
        patience = PROCESS.child_patience_seconds + PROCESS.child_patience_seconds_per_byte * stored_bytes(model)
        ports = self.ask("load", source, folder, device.threads, ";".join(device.without), optimized, patience=patience)
        assert isinstance(ports, list)
        return ChildSession(self, tuple(port_of(*port) for port in ports), patience)

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
    """A model loaded in a child process. `inputs` lists the model's inputs.

    Runs return no outputs, because the outputs stay in the child process.
    """

    def __init__(self, child: Child, inputs: tuple[Port, ...], patience: float) -> None:
        self._child, self.inputs, self._patience = child, inputs, patience

    def run(self, feeds: Mapping[str, Array]) -> None:
        """Run the model once.

        Raises:
            InvalidModelError, RuntimeDiedError, TimeoutError: As `Child.load`.
        """
        self._child.ask("run", dict(feeds), patience=self._patience)


class _Shared(threading.local):
    """The child process that all uses of `child` in a thread share, and its program, or None outside of `reuse_child`."""

    program: Path | None = None
    child: Child | None = None


_shared = _Shared()


@contextlib.contextmanager
def reuse_child(program: Path = PROGRAM) -> Iterator[None]:
    """Share one child process among all uses of `child` in this thread inside the context.

    The child process runs the Python file `program`, and starts with its first use. If it dies, a new child process replaces
    it. Inside another such context, nothing changes.
    """
    if _shared.program is not None:
        yield
        return
    _shared.program = program
    try:
        yield
    finally:
        if _shared.child is not None:
            _shared.child.close()
        _shared.program = _shared.child = None


@contextlib.contextmanager
def child() -> Iterator[Child]:
    """Provide a child process in which a model can be loaded.

    Inside a `reuse_child` context, the child process is shared. Outside, a new child process is started, and ends with the
    context.

    Raises:
        OSError: No process can be started.
    """
    if _shared.program is not None:
        if _shared.child is None or not _shared.child.is_alive:
            _shared.child = Child(_shared.program)
        yield _shared.child
        return
    made = Child()
    try:
        yield made
    finally:
        made.close()


class TrialRuns:
    """Runs of a model in a child process, on inputs on which ONNX Runtime may crash, such as inputs without elements.

    Nothing is run if this process cannot make the runs safe: for a GPU, for a large model, for inputs that cannot be sent, and
    if no child process can be started. Other models must not be loaded in a shared child process in between. If `optimized` is
    False, ONNX Runtime runs the graph as it is, without its own graph optimizations.
    """

    def __init__(self, model: Loadable, device: Device, *, optimized: bool = True) -> None:
        self._model, self._device, self._optimized = model, device, optimized
        self._session: ChildSession | None = None
        self._possible = device.provider == "cpu" and 2 * stored_bytes(model) <= COMPARISON.max_resident_bytes

    def require_runs(self, feeds: Mapping[str, Array]) -> None:
        """Run the model once in a child process.

        Raises:
            InvalidModelError: ONNX Runtime raises an error, dies, or does not end in time.
        """
        if not self._possible:
            return
        try:
            if self._session is None:
                with child() as process:
                    self._session = process.load(self._model, self._device, optimized=self._optimized)
                self._possible = all(port.kind == "" and port.dtype != BFLOAT16 for port in self._session.inputs)
            if self._possible:
                self._session.run(feeds)
        except (RuntimeDiedError, TimeoutError) as error:
            self._session = None
            raise InvalidModelError(str(error)) from error
        except OSError:
            self._possible = False


def require_loads(model: Loadable, device: Device) -> None:
    """Load the model on the CPU in a child process, so that this process does not crash if ONNX Runtime crashes on the model.

    Nothing is done for a GPU, for a large model, or if no child process can be started.

    Raises:
        InvalidModelError: ONNX Runtime refuses the model, dies, or does not load the model in time.
    """
    if device.provider != "cpu" or 2 * stored_bytes(model) > COMPARISON.max_resident_bytes:
        return
    try:
        with child() as process:
            process.load(model, device)
            process.ask("drop", patience=PROCESS.child_patience_seconds)
    except (RuntimeDiedError, TimeoutError) as error:
        raise InvalidModelError(str(error)) from error
    except OSError:
        return


def _source(model: Loadable) -> tuple[str | bytes, str]:
    """Return the path or the bytes of a model, and the folder of the model's external data.

    The folder is an empty text unless the model is a `StoredModel`.
    """
    if isinstance(model, StoredModel):
        return model.content, str(model.folder)
    if isinstance(model, bytes):
        return model, ""
    return (model.SerializeToString(), "") if isinstance(model, ModelProto) else (os.fspath(model), "")
