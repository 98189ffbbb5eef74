"""Where messages come from: backtraces begin and end in the user's files; compilers are quiet."""

import logging
import sys
from dataclasses import dataclass
from pathlib import Path

from pytensor.graph import utils

from . import Patch

_extract = utils.simple_extract_stack
PACKAGE = str(Path(__file__).parents[3])
# Who starts a program: what is below in the stack is not the user's.
LAUNCHERS = (str(Path(PACKAGE, "cli")), str(Path(PACKAGE, "__main__.py")), "<frozen runpy>")
INNER = (str(Path(PACKAGE, "shim")), str(Path(utils.__file__).parents[1]))


def extract_stack(f=None, limit=None, skips=None):
    """Return the stack, as PyTensor records it, without the launcher and the innermost library."""
    f = sys._getframe(1) if f is None else f
    # What is left out does not count.
    while f.f_back is not None and f.f_code.co_filename.startswith(INNER):
        f = f.f_back
    return [
        entry for entry in _extract(f, limit, skips) if not (entry[0] or "").startswith(LAUNCHERS)
    ]


@dataclass(frozen=True)
class Level:
    """The level of a logger while the shim is in place."""

    name: str
    level: int

    def apply(self):
        """Set the level and return a function that sets it back."""
        logger = logging.getLogger(self.name)
        before = logger.level
        logger.setLevel(self.level)
        return lambda: logger.setLevel(before)


PATCHES = [
    Patch(utils, "simple_extract_stack", extract_stack),
    # ``logging.basicConfig(level=logging.INFO)`` is for the user's own messages.
    Level("pytensor", logging.WARNING),
]
