"""Run the command line of superopt, for `superopt` and `python -m superopt`."""

import sys


def run() -> int:
    """Run the command line, and return the exit code. SIGINT is one line even while modules are imported."""
    try:
        from superopt.cli.main import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("superopt: interrupted; nothing was written\n")
        return 130


if __name__ == "__main__":
    sys.exit(run())
