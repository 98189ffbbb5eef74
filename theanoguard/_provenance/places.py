"""How a place in the user's code is written: file, line and column, the text, and carets."""

import os
import shutil
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path

from theanoguard._context import setting
from theanoguard._provenance.source import SourceLine
from theanoguard._shown import printable

MIN_WIDTH, MAX_WIDTH, USUAL_WIDTH = 60, 120, 96

_indentation: ContextVar[int] = ContextVar("indentation", default=0)


def indented(columns: int) -> AbstractContextManager:
    """Make :func:`text_width` smaller for a text that is indented afterwards."""
    return setting(_indentation, _indentation.get() + columns)


def text_width() -> int:
    """Return how many columns a text may take: the terminal's width, at least 60, at most 120.

    Without a terminal it is 96.  The environment variable ``COLUMNS`` overrides both.
    """
    columns = shutil.get_terminal_size((USUAL_WIDTH, 24)).columns
    return min(max(columns, MIN_WIDTH), MAX_WIDTH) - _indentation.get()


def fitted(line: str) -> list[str]:
    """Return a line of text as lines of at most :func:`text_width` columns, the rest indented."""
    return textwrap.wrap(
        line,
        text_width(),
        subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def cut(text: object, most: int = 600) -> str:
    """Return text in one line, without control characters, at most `most` characters long.

    Examples
    --------
    >>> cut("a line\\nof text", 8)
    'a line …'
    """
    text = " ".join(str(text).split())
    text = text if text.isprintable() else printable(text)
    return text if len(text) <= most else text[: most - 1] + "…"


_PLAIN = str.maketrans("└├│─", "`||-")


def encodable(text: str, stream: object) -> str:
    """Return text as a stream can write it, such as a terminal that is not in UTF-8.

    The lines of a tree become ASCII characters.  Other characters that the stream cannot encode
    become Python escapes.

    Examples
    --------
    >>> import io
    >>> encodable("└─ größe", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    '`- größe'
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def short_file(file: str) -> str:
    """Return a file's path, relative to the working directory if it lies there.

    Examples
    --------
    >>> import os
    >>> short_file(os.path.join(os.getcwd(), "models", "net.py")).replace(os.sep, "/")
    'models/net.py'
    """
    try:
        relative = os.path.relpath(file)
    except (ValueError, OSError):  # on another drive, or the working directory was deleted
        return file
    return file if relative.startswith("..") or not os.path.isabs(file) else relative


def place_text(source: SourceLine, column: bool = True) -> str:
    """Return the place of a line of source, ``net.py:15:12 in model``.

    `column`: whether to include the column.

    Examples
    --------
    >>> from theanoguard._provenance import SourceLine
    >>> place_text(SourceLine("net.py", 15, "model", "return pt.log(p)", column=12))
    'net.py:15:12 in model'
    """
    if source.cell is not None:
        place = f"cell {source.cell}, line {source.line}"
    else:
        place = f"{printable(short_file(source.file))}:{source.line}"
        if column and source.column is not None:
            place += f":{source.column}"
    if source.function != "<module>":
        place += f" in {printable(source.function)}"
    return place


def brief_place(source: SourceLine) -> str:
    """Return the place of a line of source without its folder and function, ``net.py:15``."""
    if source.cell is not None:
        return f"cell {source.cell}, line {source.line}"
    return f"{printable(os.path.basename(source.file))}:{source.line}"


def source_text(source: SourceLine) -> str:
    """Return a line of source on one line, ``net.py:15 in model:  return pt.log(p)``."""
    place = place_text(source, column=False)
    return f"{place}:  {printable(source.text)}" if source.text else place


def source_lines(
    source: SourceLine,
    width: int = USUAL_WIDTH,
    link: Callable[[str, str], str] = lambda place, file: place,
) -> list[str]:
    """Return a place as lines: file and line, the text, carets below it, and the callers.

    `link`: ``link(place, file)`` returns the text of the place, for example as a terminal link.

    Examples
    --------
    >>> from theanoguard._provenance import SourceLine
    >>> line = SourceLine("net.py", 5, "model", "return a - pt.log(p)", column=16, marked=(11, 20))
    >>> print("\\n".join(source_lines(line)))
    net.py:5:16 in model
      return a - pt.log(p)
                 ^^^^^^^^^
    """
    place = place_text(source)
    where = link(place, source.file) if source.cell is None else place
    if source.loop is not None:
        done, passes, line = source.loop
        where += f", pass {done} of {passes} of the loop on line {line}"
    lines = [where]
    if source.text and source.marked is None:
        text = f":  {printable(source.text)}"
        fits = len(place + text) <= width
        lines = [where + text] if fits else [where, f"  {_cut(source.text, width)}"]
    elif source.text and source.marked is not None:
        shown = printable(source.text).replace("\t", " ")  # (the carets stand below it)
        text, start, end = cut_around(shown, *source.marked, width=width - 4)
        lines += [f"  {text}", "  " + " " * start + "^" * max(end - start, 1)]
    if source.callers:
        lines.append(_cut("called from " + ", ".join(map(_caller, source.callers)), width))
    return lines


def _caller(source: SourceLine) -> str:
    return place_text(source, column=False)


def _cut(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width - 2 else text[: width - 5] + "..."


def cut_around(text: str, start: int, end: int, width: int) -> tuple[str, int, int]:
    """Return as much of a text as fits, with its marked part, and where that part now is."""
    if len(text) <= width:
        return text, start, end
    if end <= width - 3:
        return text[: width - 3] + "...", start, end
    left = max(min(start - 10, len(text) - width + 3), 0)
    shown = "..." + text[left + 3 :]
    start, end = start - left, end - left
    return (
        (shown, start, end)
        if len(shown) <= width
        else (
            shown[: width - 3] + "...",
            start,
            min(end, width - 3),
        )
    )


def link_to(place: str, file: str) -> str:
    """Return a place as a link to its file (OSC 8), for a terminal."""
    path = Path(file)
    if not path.is_absolute() or not path.exists():
        return place
    return f"\x1b]8;;{path.as_uri()}\x1b\\{place}\x1b]8;;\x1b\\"
