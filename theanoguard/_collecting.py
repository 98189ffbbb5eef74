"""Runs Python's garbage collector less often during work whose objects are all kept."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# So many collections of younger objects come before one that visits all that the program holds.
NEVER = 1_000_000_000


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Let Python's garbage collector run seldom, and only over new objects.

    A full collection goes through everything that the program holds.  What is already garbage is
    collected afterwards.

    Examples
    --------
    >>> with seldom_collecting():
    ...     gc.get_threshold()[0] >= 10_000
    True
    """
    thresholds = gc.get_threshold()
    # Threshold 0 means that the program has switched the collector off.
    if thresholds[0]:
        gc.set_threshold(max(thresholds[0], 10_000), thresholds[1], NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
