"""What holds for the length of a block."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Block(ContextDecorator, AbstractContextManager[T]):
    """A context manager that is shown by its name."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self._name, self._make = name, make
        self._inner: AbstractContextManager[T] = make()

    def _recreate_cm(self) -> "_Block[T]":
        return _Block(self._name, self._make)

    def __enter__(self) -> T:
        return self._inner.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._inner.__exit__(*error)

    def __repr__(self) -> str:
        return f"<{self._name}(...), for a with statement>"


def block(function: Callable[P, Iterator[T]]) -> Callable[P, _Block[T]]:
    """Decorate a public generator as :func:`contextlib.contextmanager` does.

    Examples
    --------
    >>> @block
    ... def quiet():
    ...     yield
    >>> quiet()
    <quiet(...), for a with statement>
    """
    make = contextmanager(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> _Block[T]:
        return _Block(function.__name__, lambda: make(*args, **kwargs))

    return call


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
