"""Text as a terminal shows it: lines of its width, numbers and indices."""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from theanoguard._context import setting

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


def printable(text: str) -> str:
    """Return text without control characters, which could play tricks on a terminal."""
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


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


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, on as many lines as it had."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def cut_apart(texts: Sequence[str], most: int) -> list[str]:
    """Return texts as lines of at most `most` characters, different where the texts are.

    A long text keeps its beginning and its end, or what is around the first character in which it
    differs from those that would look the same.

    Examples
    --------
    >>> cut_apart(["h @ W1 + b", "h @ W1 + c", "log(h)"], 8)
    ['h @ …+ b', 'h @ …+ c', 'log(h)']
    >>> cut_apart(["(a + b + c) * (d + e)", "(a + b + x) * (d + e)"], 10)
    ['…+ c) * (…', '…+ x) * (…']
    """
    whole = [cut(text, sys.maxsize) for text in texts]
    half = (most - 1) // 2
    shown = [
        text if len(text) <= most else f"{text[: most - 1 - half]}…{text[-half:]}" for text in whole
    ]
    alike: dict[str, set[str]] = {}
    for text, short in zip(whole, shown, strict=True):
        alike.setdefault(short, set()).add(text)
    for i, text in enumerate(whole):
        if len(alike[shown[i]]) > 1:
            start = max(len(os.path.commonprefix([*alike[shown[i]]])) - half, 0)
            shown[i] = f"…{cut(text[start + 1 :], most - 1)}"
    return shown


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


def cut_around(text: str, start: int, end: int, width: int) -> tuple[str, int, int]:
    """Return as much of a text as fits, with its marked part, and where that part now is."""
    if len(text) <= width:
        return text, start, end
    if end <= width - 3:
        return shortened(text, width), start, end
    left = max(min(start - 10, len(text) - width + 3), 0)
    shown = "..." + text[left + 3 :]
    start, end = start - left, end - left
    return shortened(shown, width), start, end if len(shown) <= width else min(end, width - 3)


def link_to(place: str, file: str) -> str:
    """Return a place as a link to its file (OSC 8), for a terminal."""
    path = Path(file)
    if not path.is_absolute() or not path.exists():
        return place
    return f"\x1b]8;;{path.as_uri()}\x1b\\{place}\x1b]8;;\x1b\\"


def number_text(value: Any) -> str:
    """Return a number in five digits, or exactly if five digits would mislead.

    Examples
    --------
    >>> [number_text(v) for v in (-0.31278, 0.0, 1e200, -1.0000000001, 14697.68872, 3)]
    ['-0.31278', '0.0', '1e+200', '-1.0000000001', '14697.7', '3']
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, complex):
        return str(value)
    text = f"{value:.5g}"
    shown = float(text)
    if shown.is_integer() and 0 < abs(shown - value) < 1e-4 * abs(value) < 10:
        texts = (f"{value:.{digits}g}" for digits in range(6, 17))
        return next((text for text in texts if not float(text).is_integer()), repr(value))
    return text + ".0" if text.lstrip("-").isdigit() else text


def number_texts(values: Sequence[Any]) -> list[str]:
    """Return several numbers as text, with enough digits to distinguish them.

    Examples
    --------
    >>> number_texts([9007503.0, 9007502.0]), number_texts([0.5, 0.5])
    (['9007503.0', '9007502.0'], ['0.5', '0.5'])
    """
    texts = [number_text(v) for v in values]
    exact = [repr(v.item() if isinstance(v, np.generic) else v) for v in values]
    clash = len(set(texts)) < len(set(exact))
    return exact if clash else texts


def index_text(index: tuple[Any, ...] | None) -> str:
    """Return an index as Python writes it.

    Examples
    --------
    >>> index_text((2, slice(None))), index_text((...,)), index_text(())
    ('[2, :]', '', '')
    """
    if (
        not index
        or index == (...,)
        or all(isinstance(i, slice) and i == slice(None) for i in index)
    ):
        return ""
    return "[" + ", ".join(map(_one_index_text, index)) + "]"


def _one_index_text(i: Any) -> str:
    if isinstance(i, slice):
        return f"{'' if i.start is None else i.start}:{'' if i.stop is None else i.stop}"
    return "..." if i is ... or isinstance(i, np.ndarray) else str(i)
