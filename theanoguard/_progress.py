"""A line on the terminal that says that a search is still running."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TextIO

FIRST = 2.0
"""Seconds after which a search says so."""

_is_shown = False


@contextmanager
def searching(what: str) -> Iterator[None]:
    """Show on a terminal how long a block has been running, if it takes longer than `FIRST`.

    The line is on standard error, and is removed at the end.  It can decorate a function.  Inside
    of another such block, it does nothing.
    """
    global _is_shown
    stream = sys.stderr
    if _is_shown or stream is None or not stream.isatty():
        yield
        return
    ended = Event()
    thread = Thread(target=_show, args=(stream, what, ended), daemon=True)
    _is_shown = True
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _is_shown = False


def _show(stream: TextIO, what: str, ended: Event) -> None:
    started, text = time.monotonic(), ""
    while not ended.wait(1.0 if text else FIRST):
        text = f"theanoguard {what}: {time.monotonic() - started:.0f} s"
        stream.write(f"\r{text}")
        stream.flush()
    if text:
        stream.write(f"\r{' ' * len(text)}\r")
        stream.flush()
