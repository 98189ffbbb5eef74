"""``python -m theanoguard``."""

import sys

from theanoguard.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
