"""Decide whether to use the terminal's colours."""

import os
import threading
import traceback
from types import FrameType
from typing import IO

from theanoguard._pytensor import excepthook_file
from theanoguard.explain.text import tracebacks

BOLD, BOLD_RED, DIM, RESET = "\x1b[1m", "\x1b[1;31m", "\x1b[2m", "\x1b[0m"
# On white and on black, their contrast is at least 4.3: 1.  Cyan and green of 16 colours have 2: 1
# on white.
BLUE, GREEN = "\x1b[38;5;30m", "\x1b[38;5;28m"
CODES = (BOLD, BOLD_RED, DIM, RESET, BLUE, GREEN)

# (environment variable, its value or None for any value, whether to use colours).  The first row
# that matches decides, as in Python's own tracebacks since 3.13.
_WISHES = [
    ("PYTHON_COLORS", "0", False),
    ("PYTHON_COLORS", "1", True),
    ("NO_COLOR", None, False),
    ("FORCE_COLOR", None, True),
    ("TERM", "dumb", False),
]


def wants_color(stream: IO[str] | None) -> bool:
    """Whether to colour the text for a stream.

    Returns: whether the stream is a terminal.  The environment variables ``PYTHON_COLORS``,
    ``NO_COLOR`` (https://no-color.org), ``FORCE_COLOR`` and ``TERM`` override this.

    Examples
    --------
    >>> import io
    >>> wants_color(io.StringIO())
    False
    """
    for name, value, answer in _WISHES:
        found = os.environ.get(name)
        if found and value in (None, found):
            return answer
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):  # no file, or a closed one
        return False


_PRINTING = {traceback.__file__, threading.__file__, excepthook_file, tracebacks.__file__}


def is_uncaught(frame: FrameType | None) -> bool:
    """Whether the interpreter asks for the text of an error, to print it as an uncaught one.

    `frame` is the caller of the error's ``__str__``, or None.  In this case only these are on the
    stack from there on: the ``sys.excepthook`` functions of
    PyTensor and of this package, and the code of the standard library that prints exceptions
    (since Python 3.13) and starts threads.
    """
    while frame is not None and frame.f_code.co_filename in _PRINTING:
        frame = frame.f_back
    return frame is None
