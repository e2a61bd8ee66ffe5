"""SIGINT and SIGTERM: a command ends at once and writes nothing, or a search ends early and its best result is used."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from superopt import files
from superopt.policy import PROCESS

STOPPING = b"superopt: stopping: the best so far is checked first (10 s at most); a second signal stops at once\n"


class Interrupted(BaseException):
    """A signal ends the command. As with KeyboardInterrupt, handlers of `Exception` do not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Signals:
    """The effect of termination signals on the running command.

    A signal raises `Interrupted`. While a search defers signals, the first signal sets `stop` instead. If the command is not
    saving after `PROCESS.grace_seconds`, `Interrupted` is raised. Signals are ignored once the result is being written to its
    place.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.number = 0
        self._deferring = False
        self._published: int | None = None
        """The number of files that the process had written to their places when saving began."""

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals inside the context, except signals that the process was started to ignore."""
        self.stop.clear()
        self.number, self._deferring, self._published = 0, False, None
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN or number == signal.SIGALRM:
                signal.signal(number, self._arrived)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def defer(self) -> None:
        """Make the next signal ask the search to stop, instead of ending the command."""
        self._deferring = True

    def saving(self) -> None:
        """Cancel the time limit, because the result is about to be saved.

        Raises:
            Interrupted: The time limit has just passed.
        """
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        self._published = files.published

    def _arrived(self, number: int, _: FrameType | None) -> None:
        if self._published is not None and files.published > self._published:
            return
        if self.number or not self._deferring:
            raise Interrupted(self.number or number)
        self.number = number
        self.stop.set()
        if self._published is None:
            signal.setitimer(signal.ITIMER_REAL, PROCESS.grace_seconds)
            with suppress(OSError):
                os.write(2, STOPPING)
