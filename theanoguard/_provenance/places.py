"""How a place in the user's code is written: file, line and column, the text, and carets."""

import os
from collections.abc import Callable

from theanoguard._provenance.source import SourceLine
from theanoguard._text import USUAL_WIDTH, cut_around, printable, shortened


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
        lines = (
            [where + text] if fits else [where, f"  {shortened(printable(source.text), width - 2)}"]
        )
    elif source.text and source.marked is not None:
        shown = printable(source.text).replace("\t", " ")  # (the carets stand below it)
        text, start, end = cut_around(shown, *source.marked, width=width - 4)
        lines += [f"  {text}", "  " + " " * start + "^" * max(end - start, 1)]
    if source.callers:
        callers = ", ".join(place_text(caller, column=False) for caller in source.callers)
        lines.append(shortened(printable(f"called from {callers}"), width - 2))
    return lines
