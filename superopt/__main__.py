"""`python -m superopt`: the command line."""

import sys

from superopt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
