"""Compile without a guard for a while."""

from contextlib import AbstractContextManager
from contextvars import ContextVar

from theanoguard._context import setting

#: Whether nothing that is compiled is guarded now.
paused = ContextVar("theanoguard_paused", default=False)


def unguarded() -> AbstractContextManager[None]:
    """Compile without a guard inside the block, as code that takes functions apart needs it."""
    return setting(paused, True)
