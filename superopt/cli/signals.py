"""Handle SIGINT and SIGTERM.

A search ends early with its best result. A command that is not searching ends at once and writes nothing.
"""

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
    """Raised when a signal ends the command. Like KeyboardInterrupt, the exception is not caught by handlers of `Exception`."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Signals:
    """A handler of termination signals for the running command.

    At first, a signal raises `Interrupted`. After a call of `defer`, the first signal sets the event `stop` instead, so that
    the search ends with its best result. Afterwards, `Interrupted` is raised if another signal arrives, or if the command has
    not begun to save within `PROCESS.grace_seconds`. As soon as the command begins to replace the output file with the result,
    signals are ignored.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.number = 0
        self._deferring = False
        self._is_shown_elsewhere = False
        self._published: int | None = None
        """The value of `files.published` when saving began, or None if saving has not begun."""

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM inside the context. A signal that the process ignored from the start stays ignored."""
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

    @contextmanager
    def shown_elsewhere(self) -> Iterator[None]:
        """Print no line for a deferred signal that arrives inside the context, because the caller shows the signal itself."""
        self._is_shown_elsewhere = True
        try:
            yield
        finally:
            self._is_shown_elsewhere = False

    def defer(self) -> None:
        """Make the next signal set the event `stop` instead of ending the command, so that the search ends early."""
        self._deferring = True

    def saving(self) -> None:
        """Record that the result is about to be saved, and cancel the time limit that began with the first signal.

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
            if self._is_shown_elsewhere:
                return
            with suppress(OSError):
                os.write(2, STOPPING)
