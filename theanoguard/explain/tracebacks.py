"""Tracebacks of guard errors end at the user's call.

What lies below that call, PyTensor's frames and those of this package, is the same for every error.
It is left out where Python, a thread, IPython or pytest shows a traceback; set
``THEANOGUARD_FULL_TRACEBACK=1`` in the environment to see it.
"""

import os
import sys
import threading
from types import TracebackType

from theanoguard._errors import TheanoguardError
from theanoguard._pytensor.files import is_user_file


def users_part(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without its inner frames that are not the user's.

    Parameters
    ----------
    traceback : traceback or None

    Returns
    -------
    traceback or None
        The same object, if it ends in a frame of the user's, has none, or if
        ``THEANOGUARD_FULL_TRACEBACK`` asks for everything.

    Examples
    --------
    >>> users_part(None) is None
    True
    """
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    users = [i for i, tb in enumerate(frames) if is_user_file(tb.tb_frame.f_code.co_filename)]
    full = os.environ.get("THEANOGUARD_FULL_TRACEBACK", "0") != "0"
    if full or not users or users[-1] == len(frames) - 1:
        return frames[0] if frames else None
    shown = None
    for tb in reversed(frames[: users[-1] + 1]):
        shown = TracebackType(shown, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    return shown


def _trimmed(error, traceback):
    if not isinstance(error, TheanoguardError):
        return traceback
    shown = users_part(traceback)
    error.__traceback__ = shown  # what Python prints, whatever a hook is given
    return shown


def _hook(before):
    def excepthook(kind, error, traceback):
        before(kind, error, _trimmed(error, traceback))

    return excepthook


def _thread_hook(before):
    def excepthook(args):
        shown = _trimmed(args.exc_value, args.exc_traceback)
        before(threading.ExceptHookArgs((args.exc_type, args.exc_value, shown, args.thread)))

    return excepthook


def install() -> None:
    """Let Python print the tracebacks of uncaught guard errors as far as they are the user's."""
    if _HOOKS:
        return
    _HOOKS.extend((_hook(sys.excepthook), _thread_hook(threading.excepthook)))
    sys.excepthook, threading.excepthook = _HOOKS


_HOOKS: list = []
