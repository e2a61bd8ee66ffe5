"""SIGINT and SIGTERM: a command ends at once and writes nothing, or a search ends early with the best so far."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from superopt import files

GRACE = 10.0
"""Seconds from a signal until a search has to have ended, and what it found has to have been checked and compared."""
STOPPING = b"superopt: stopping: the best so far is checked first (10 s at most); a second signal stops at once\n"


class Interrupted(BaseException):
    """A signal ends the command; as with KeyboardInterrupt, handlers of errors let it pass."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Signals:
    """What the signals that ask a process to end do to the command that it runs.

    A signal raises `Interrupted`. While a search is deferring them, the first one sets `stop` instead, and `Interrupted` is
    raised if the command is still not saving after `GRACE`. Once a result is being put in place, signals come too late.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.number = 0
        self._deferring = False
        self._published: int | None = None
        """How many files the process had put in place when saving began."""

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals until this ends, those apart that the process was started to ignore."""
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
        """From here on, the first signal asks a search to stop."""
        self._deferring = True

    def saving(self) -> None:
        """The result is about to be saved: no time runs out any more.

        Raises:
            Interrupted: time ran out just now.
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
            signal.setitimer(signal.ITIMER_REAL, GRACE)
            with suppress(OSError):
                os.write(2, STOPPING)
