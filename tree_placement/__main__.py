"""`python -m tree_placement`: see `--help`."""

import sys

from tree_placement.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
