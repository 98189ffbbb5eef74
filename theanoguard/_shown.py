"""How much a representation shows, at most."""

from functools import wraps
from typing import Any, TypeVar

MOST = 20_000
"""Largest size of a ``repr`` in bytes of UTF-8: a notebook and a log store it."""

T = TypeVar("T", bound=type)

_TOLD = 300  # bytes of the sentence at the end


def bounded(text: str, rest: str, of: str | None = None) -> str:
    """Return a text of at most `MOST` bytes, which says what it leaves out.

    Parameters
    ----------
    text : str
    rest : str
        How to see the rest, as a sentence.
    of : str, optional
        If `text` is only the beginning of a longer one, what all of it shows.

    Examples
    --------
    >>> bounded("a line\\n" * 5000, "log.entries has all of them.").splitlines()[-1]
    '... 2186 lines left out: log.entries has all of them.'
    """
    whole = text.encode(errors="backslashreplace")
    if len(whole) <= MOST:
        return text
    kept = whole[: MOST - _TOLD].decode(errors="ignore")
    # (whole lines, unless a line is longer than what is shown)
    head, end, _ = kept.rpartition("\n")
    kept = head if end else kept
    n_lines = len(text.splitlines()) - len(kept.splitlines())
    missing = f"{n_lines} lines" if end else f"{len(whole) - len(kept.encode()):,} bytes"
    return f"{kept}\n... {missing if of is None else f'the rest of {of}'} left out: {rest}"


def brief(kind: T) -> T:
    """Bound the ``repr`` of a class; its ``str``, its fields and its methods are as they were."""
    own: Any = kind.__repr__

    @wraps(own)
    def __repr__(self: Any) -> str:
        return bounded(own(self), f"the fields of the {type(self).__name__} have all of it.")

    kind.__repr__ = __repr__  # type: ignore[assignment, method-assign]
    return kind
