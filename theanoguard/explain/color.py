"""When the terminal's colours are used."""

import os
import sys
import threading
import traceback

from theanoguard._pytensor import excepthook_file
from theanoguard.explain import tracebacks

# (variable, what it must be or None for anything, whether colours are then used); the first
# that fits decides, as in Python's own tracebacks from 3.13 on.
_WISHES = [
    ("PYTHON_COLORS", "0", False),
    ("PYTHON_COLORS", "1", True),
    ("NO_COLOR", None, False),
    ("FORCE_COLOR", None, True),
    ("TERM", "dumb", False),
]


def wants_color(stream):
    """Whether text for a stream is to be coloured.

    Parameters
    ----------
    stream : file or None

    Returns
    -------
    bool
        Whether it is a terminal, unless the environment variables ``PYTHON_COLORS``,
        ``NO_COLOR`` (https://no-color.org), ``FORCE_COLOR`` or ``TERM`` say otherwise.

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


def is_uncaught():
    """Whether the caller was called by the interpreter, to print an uncaught exception.

    There is then no code above the caller, but for ``sys.excepthook``, PyTensor's and that of this
    package, and that of the standard library which prints exceptions (from Python 3.13 on) and
    starts threads.
    """
    frame = sys._getframe(1).f_back
    while frame is not None and frame.f_code.co_filename in _PRINTING:
        frame = frame.f_back
    return frame is None
