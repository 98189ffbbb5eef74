"""Sets context variables for the length of a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable a value inside a block.

    Examples
    --------
    >>> depth = ContextVar("depth", default=0)
    >>> with setting(depth, 1):
    ...     inside = depth.get()
    >>> inside, depth.get()
    (1, 0)
    """
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
