"""End the tracebacks of guard errors at the user's call.

The frames below that call belong to PyTensor and this package, and are the same for every error.
They are left out when Python, a thread, IPython or pytest shows a traceback.  Set
``THEANOGUARD_FULL_TRACEBACK=1`` in the environment to see them.
"""

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from theanoguard._errors import TheanoguardError
from theanoguard._pytensor.files import is_user_file


def users_part(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the inner frames below the user's last one.

    It is the same object if it ends in a user's frame, if it has none, or if
    ``THEANOGUARD_FULL_TRACEBACK`` is set.

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


def _trimmed(error: BaseException | None, traceback: TracebackType | None) -> TracebackType | None:
    if not isinstance(error, TheanoguardError):
        return traceback
    shown = users_part(traceback)
    error.__traceback__ = shown  # Python prints this one, not the argument of the hook
    return shown


def _hook(before: Callable[..., Any]) -> Callable[..., None]:
    def excepthook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        before(kind, error, _trimmed(error, traceback))

    return excepthook


def _thread_hook(before: Callable[..., Any]) -> Callable[..., None]:
    def excepthook(args: threading.ExceptHookArgs) -> None:
        shown = _trimmed(args.exc_value, args.exc_traceback)
        before(threading.ExceptHookArgs((args.exc_type, args.exc_value, shown, args.thread)))

    return excepthook


def install() -> None:
    """Install the hooks that print uncaught guard errors without the inner frames."""
    if _HOOKS:
        return
    _HOOKS.extend((_hook(sys.excepthook), _thread_hook(threading.excepthook)))
    sys.excepthook, threading.excepthook = _HOOKS


_HOOKS: list = []
