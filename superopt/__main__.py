"""Run the command line of superopt for `python -m superopt`."""

import sys

from superopt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
