"""Compile without a guard for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Whether nothing that is compiled is guarded now.
paused = ContextVar("theanoguard_paused", default=False)


@contextmanager
def unguarded() -> Iterator[None]:
    """Compile without a guard inside the block, as code that takes functions apart needs it."""
    token = paused.set(True)
    try:
        yield
    finally:
        paused.reset(token)
