"""Runs of models in a child process, on inputs on which ONNX Runtime may crash."""

from __future__ import annotations

from collections.abc import Mapping

from superopt.child.process import Child, child
from superopt.errors import InvalidModelError, RuntimeDiedError
from superopt.policy import COMPARISON
from superopt.protobuf.stored import Loadable, stored_bytes
from superopt.runtime.device import Device
from superopt.runtime.ort_values import BFLOAT16
from superopt.runtime.session import Array, Port, port_of


class TrialSession:
    """A model that ONNX Runtime has loaded in a child process.

    `inputs` lists the model's inputs. `peak_bytes` is the largest memory in bytes that a run has needed so far, in addition to
    the loaded model.
    """

    def __init__(self, process: Child, model: Loadable, device: Device, *, optimized: bool = True) -> None:
        """Load the model on the CPU, with the threads of `device` and without the optimizers in `device.without`.

        If `optimized` is False, ONNX Runtime does not optimize the graph at all.

        Raises:
            InvalidModelError, RuntimeDiedError, TimeoutError: See `Child.load`.
        """
        self._process = process
        self._session = process.load(
            model, threads=device.threads, without=device.without, libraries=device.libraries, optimized=optimized
        )
        self.inputs: tuple[Port, ...] = tuple(port_of(*port) for port in self._session.inputs)
        self.peak_bytes = 0

    def run(self, feeds: Mapping[str, Array]) -> int:
        """Run the model once, and return the memory in bytes that the run has needed. If this memory is not known, return 0.

        Raises:
            InvalidModelError, RuntimeDiedError, TimeoutError: See `Child.load`.
        """
        needed = self._session.run(feeds)
        self.peak_bytes = max(self.peak_bytes, needed)
        return needed

    def is_repeatable(self, feeds: Mapping[str, Array]) -> bool:
        """Run the model twice, and return False if the outputs depend on uninitialized memory.

        Raises:
            InvalidModelError, RuntimeDiedError, TimeoutError: See `Child.load`.
        """
        return self._session.is_repeatable(feeds)

    def close(self) -> None:
        """Unload the model."""
        self._process.drop()


class TrialRuns:
    """Runs of a model in a child process, on inputs on which ONNX Runtime may crash, such as inputs without elements.

    A run in a child process is not possible for a GPU, for a large model, for inputs that cannot be sent, or if no child
    process can be started. In these cases, the model is not run. Between the runs, no other model may be loaded in the same
    child process. If `optimized` is False, ONNX Runtime runs the graph without its own graph optimizations.
    """

    def __init__(self, model: Loadable, device: Device, *, optimized: bool = True) -> None:
        self._model, self._device, self._optimized = model, device, optimized
        self._session: TrialSession | None = None
        self._possible = device.provider == "cpu" and 2 * stored_bytes(model) <= COMPARISON.max_resident_bytes

    def require_runs(self, feeds: Mapping[str, Array]) -> int:
        """Run the model once in a child process, and return the memory in bytes that the run has needed.

        If this memory is not known, return 0.

        Raises:
            InvalidModelError: ONNX Runtime raises an error, crashes, or does not end in time.
        """
        if not self._possible:
            return 0
        try:
            if self._session is None:
                with child() as process:
                    self._session = TrialSession(process, self._model, self._device, optimized=self._optimized)
                self._possible = all(port.kind == "" and port.dtype != BFLOAT16 for port in self._session.inputs)
            if self._possible:
                return self._session.run(feeds)
        except (RuntimeDiedError, TimeoutError) as error:
            self._session = None
            raise InvalidModelError(str(error)) from error
        except OSError:
            self._possible = False
        return 0

    def is_repeatable(self, feeds: Mapping[str, Array]) -> bool:
        """Return False if the outputs on `feeds` depend on uninitialized memory.

        ONNX Runtime 1.32.0 concatenates tensors of different extents if one tensor has no elements, and leaves a part of the
        result unwritten. The model must have run on `feeds` in `require_runs`. If the model cannot be run in a child process,
        the result is True.
        """
        try:
            return not self._possible or self._session is None or self._session.is_repeatable(feeds)
        except (InvalidModelError, RuntimeDiedError, TimeoutError):
            return False

    def close(self) -> None:
        """Unload the model, to free the memory of the child process."""
        if self._session is not None:
            self._session.close()
            self._session = None


def require_loads(model: Loadable, device: Device) -> None:
    """Load the model on the CPU in a child process, so that this process does not crash if ONNX Runtime crashes on the model.

    Nothing is done for a GPU, for a large model, or if no child process can be started.

    Raises:
        InvalidModelError: ONNX Runtime rejects the model, crashes, or does not load the model in time.
    """
    if device.provider != "cpu" or 2 * stored_bytes(model) > COMPARISON.max_resident_bytes:
        return
    try:
        with child() as process:
            TrialSession(process, model, device)
            process.drop()
    except (RuntimeDiedError, TimeoutError) as error:
        raise InvalidModelError(str(error)) from error
    except OSError:
        return
