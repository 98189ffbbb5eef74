"""Steps of a report, each of which may fail without taking the others with it.

A report is made while an error is on its way to the user.  A fault in one step, or a name that
PyTensor has renamed, must not replace that error.
"""

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

logger = logging.getLogger("theanoguard")

T = TypeVar("T")

_failed: ContextVar[list[str] | None] = ContextVar("failed", default=None)


@contextmanager
def failures(before: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Collect what fails in :func:`attempt` inside the block, behind what has failed before.

    Yields
    ------
    list of str
        Such as ``"the advice (KeyError: 'x', hints.py:12)"``.

    Examples
    --------
    >>> with failures() as failed:
    ...     attempt("the advice", None, {}.__getitem__, "x")
    >>> failed
    ["the advice (KeyError: 'x')"]
    """
    found = list(before)
    token = _failed.set(found)
    try:
        yield found
    finally:
        _failed.reset(token)


def attempt(what: str, default: T, function: Callable[..., T], *args: Any) -> T:
    """Call a function; if it fails inside :func:`failures`, note that and return the default.

    Outside of such a block, the function's error is raised.  A :class:`ForeignError` is not noted.

    - `what`: what the function finds out, such as ``"the advice"``.
    - `default`: returned if the function fails.
    - `*args`: its arguments.
    """
    found = _failed.get()
    if found is None:
        return function(*args)
    try:
        return function(*args)
    except ForeignError as error:
        logger.debug("%s could not be computed: %r", what, error)
        return default
    except Exception as error:
        logger.debug("%s could not be computed", what, exc_info=True)
        inside = traceback.extract_tb(error.__traceback__)[1:]
        at = f", {Path(inside[-1].filename).name}:{inside[-1].lineno}" if inside else ""
        message = " ".join(str(error).split())[:MOST]
        found.append(f"{what} ({type(error).__name__}: {message}{at})")
        return default


class ForeignError(Exception):
    """The user's code or graph raised an error in a block of :func:`foreign`.  It is the cause."""


@contextmanager
def foreign() -> Iterator[None]:
    """Run the user's code, such as ``make_node`` or ``L_op`` of an operation, or the user's graph.

    Whatever it raises becomes a :class:`ForeignError`, which is no fault of this package.

    Examples
    --------
    >>> try:
    ...     with foreign():
    ...         1 / 0
    ... except ForeignError as error:
    ...     print(error.__cause__)
    division by zero
    """
    try:
        yield
    except ForeignError:
        raise
    except Exception as error:
        raise ForeignError(f"{type(error).__name__}: {error}") from error


@contextmanager
def as_raised() -> Iterator[None]:
    """Raise what the user's code raised in a block, in place of the :class:`ForeignError`."""
    try:
        yield
    except ForeignError as error:
        raise (error.__cause__ or error) from None


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message.

    Examples
    --------
    >>> first_line(ValueError("x is 0\\nUse 1.")), first_line(StopIteration())
    ('ValueError: x is 0', 'StopIteration')
    """
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")


MOST = 120  # characters of the message of an error that are kept
