"""The argument of ``--seconds``, which pytest has as well; without PyTensor."""

import argparse
from contextlib import suppress


def seconds_argument(text: str) -> float:
    """The argument of ``--seconds``: positive, since a command that does not search is blind."""
    with suppress(ValueError):
        if (seconds := float(text)) > 0:
            return seconds
    raise argparse.ArgumentTypeError(f"the time of a search must be positive, not {text}")
