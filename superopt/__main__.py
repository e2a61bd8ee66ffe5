"""Run the command line of superopt, for `superopt` and `python -m superopt`."""

import os
import signal
import sys
from types import FrameType

MESSAGE = b"superopt: interrupted; nothing was written\n"


def run() -> int:
    """Run the command line, and return the exit code.

    After SIGINT, only one line is printed, even if modules are still being imported.

    If a signal handler raises an exception while modules are imported, the exception may be lost, because Python ignores
    exceptions in callbacks of weak references. During the imports, SIGINT therefore ends the process without an exception.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from superopt.cli.main import main

    try:
        signal.signal(signal.SIGINT, before)
        return main()
    except KeyboardInterrupt:
        sys.stderr.buffer.write(MESSAGE)
        return 128 + signal.SIGINT


def _end(number: int, _: FrameType | None) -> None:
    os.write(sys.stderr.fileno(), MESSAGE)
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(run())
