"""How much a representation shows, at most."""

import html
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

from theanoguard._text import printable

MOST = 20_000
"""Largest size of a ``repr`` in bytes of UTF-8: a notebook and a log store it."""

T = TypeVar("T", bound=type)

_TEXTS: dict[type, Callable[[Any], str]] = {}

_TOLD = 300  # bytes of the sentence at the end


def bounded(text: str, rest: str, of: str | None = None) -> str:
    """Return a text of at most `MOST` bytes, which says what it leaves out.

    `rest`: how to see the rest, as a sentence.
    `of`: if `text` is only the beginning of a longer one, what all of it shows.

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


def html_text(text: str) -> str:
    """Return HTML that shows a text as it is, with its lines."""
    lines = "\n".join(html.escape(printable(line)) for line in text.split("\n"))
    return f'<pre style="white-space: pre; overflow-x: auto">{lines}</pre>'


def html_table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], rest: str
) -> str:
    """Return a table as HTML of at most `MOST` bytes.

    `rows`: each cell is shown as its text.
    `rest`: how to see the rows that are left out, as a sentence.

    Examples
    --------
    >>> html_table("2 events", ["kind"], [["<nan>"]], "")[-35:]
    '&lt;nan&gt;</td></tr></table></div>'
    """
    left = ' style="text-align: left"'
    size, left_out, parts = 0, 0, []
    for row in rows:
        cells = "".join(f"<td{left}>{html.escape(printable(str(cell)))}</td>" for cell in row)
        size += len(cells.encode()) + len("<tr></tr>")
        if size > MOST - 2 * _TOLD:
            left_out += 1
        else:
            parts.append(f"<tr>{cells}</tr>")
    head = "".join(f"<th{left}>{html.escape(name)}</th>" for name in heads)
    below = f"<p>{left_out} more left out: {html.escape(rest)}</p>" if left_out else ""
    shown = f"<table><tr>{head}</tr>{''.join(parts)}</table>" if parts else ""
    return f'<div style="overflow-x: auto">{html_text(title)}{shown}{below}</div>'


def shown_by(kind: type, text: Callable[[Any], str]) -> None:
    """Show a :func:`displayed` class by a text that a higher layer writes."""
    _TEXTS[kind] = text


def displayed(kind: T) -> T:
    """Show a result as its ``str``, in part where it is long, also in a notebook."""

    own: Any = kind.__repr__

    def __repr__(self: Any) -> str:
        written = type(self).__str__ is not object.__str__
        text = str(self) if written else _TEXTS.get(kind, own)(self)
        return bounded(text, f"the fields of the {type(self).__name__} have all of it.")

    def _repr_html_(self: Any) -> str:
        return html_text(repr(self))

    kind.__repr__ = __repr__  # type: ignore[assignment, method-assign]
    if not hasattr(kind, "_repr_html_"):
        kind._repr_html_ = _repr_html_  # type: ignore[attr-defined]
    return kind


def brief(kind: T) -> T:
    """Bound the ``repr`` of a class; its ``str``, its fields and its methods are as they were."""
    own: Any = kind.__repr__

    @wraps(own)
    def __repr__(self: Any) -> str:
        return bounded(own(self), f"the fields of the {type(self).__name__} have all of it.")

    kind.__repr__ = __repr__  # type: ignore[assignment, method-assign]
    return kind
