"""Lines of the user's code, found in the stack traces that PyTensor leaves on variables."""

import ast
import linecache
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pytensor.graph.basic import Variable

from theanoguard._provenance.expressions import Entry, expression_at
from theanoguard._pytensor.files import is_own_file, is_user_file
from theanoguard._pytensor.labelled import is_labelled
from theanoguard._shown import brief


@brief
@dataclass(frozen=True)
class SourceLine:
    """A line of the user's code.

    Parameters
    ----------
    file : str
        File name as Python knows it.
    line : int
        Line number, from 1.
    function : str
        Name of the function that was running; ``"<module>"`` at top level.
    text : str
        The source text of the line, stripped; empty if it cannot be found.
    cell : int or None
        In a notebook, the number of the cell.
    column : int or None
        Column of the expression, from 1; None if only the line is known.
    marked : tuple of int or None
        Where the expression begins and ends in `text`.
    callers : tuple of SourceLine
        The user's lines that called this one, innermost first.
    loop : tuple of int or None
        For an expression in a Python loop: the iteration that evaluated it (from 1), how many
        iterations are in the graph, and the line of the loop.
    end : tuple of int or None
        Of an expression over several lines: the line and the column where it ends.

    Examples
    --------
    >>> from theanoguard.records import SourceLine
    >>> print(SourceLine("train.py", 7, "loss", "return pt.log(p)"))
    train.py:7 in loss: return pt.log(p)
    >>> print(SourceLine("<ipython-input-3-a1b2>", 2, "<module>", "y = pt.log(x)", cell=3))
    cell 3, line 2: y = pt.log(x)
    """

    file: str
    line: int
    function: str
    text: str
    cell: int | None = None
    column: int | None = field(default=None, compare=False)
    marked: tuple[int, int] | None = None
    callers: tuple["SourceLine", ...] = field(default=(), compare=False, repr=False)
    loop: tuple[int, int, int] | None = field(default=None, compare=False, repr=False)
    end: tuple[int, int] | None = field(
        default=None, compare=False, repr=False, metadata={"json": False}
    )

    def __str__(self) -> str:
        where = (
            f"{self.file}:{self.line}"
            if self.cell is None
            else f"cell {self.cell}, line {self.line}"
        )
        if self.function != "<module>":
            where += f" in {self.function}"
        return f"{where}: {self.text}" if self.text else where


_OLD_CELL = re.compile(r"<ipython-input-(\d+)-")


def notebook_cell(file: str) -> int | None:
    """Number of the notebook cell that `file` stands for, None for an ordinary file."""
    old = _OLD_CELL.match(file)
    if old:
        return int(old.group(1))
    if "ipykernel_" not in file:
        return None
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return numbers.get(file)


def stack_traces(variable: Variable) -> list[list[Entry]]:
    """The stack traces that PyTensor left on a variable, each outermost frame first.

    The list is empty if PyTensor left none.  It has several traces if a rewrite joined them.
    """
    trace = getattr(variable.tag, "trace", None) or []
    return [trace] if trace and isinstance(trace[0], tuple) else [t for t in trace if t]


_LABELLED_MODULE = re.compile(r"[/\\]pytensor[/\\]xtensor[/\\]")


def module_of(variable: Variable) -> str:
    """The usual name of the module whose functions the user computed a variable with.

    It is ``"pt"`` for a tensor.
    """
    # (what a rewrite has made has the trace of the labelled array, but not its tag)
    files = (file for trace in stack_traces(variable) for file, *_ in trace)
    if not (is_labelled(variable) or any(map(_LABELLED_MODULE.search, files))):
        return "pt"
    return "pmd.math" if "pymc.dims" in sys.modules else "px.math"


def forward_of(variable: Variable) -> Any:
    """The record of the forward node that a variable made by ``grad`` differentiates.

    Return None if nothing was recorded, or if the variable only sums up gradients.
    """
    found = differentiated(stack_traces(variable))
    return None if found is None or found.is_summed else found


def differentiated(traces: Iterable[Any]) -> Any:
    """The record of the forward variable in stack traces of its gradient, or None."""
    return next((f for t in traces if (f := getattr(t, "forward", None))), None)


def user_entries(variable: Variable) -> list[Entry]:
    """The user's entries of the stack traces of a variable.

    The innermost comes first.  The list is empty if there is no stack trace, or if no frame is the
    user's.
    """
    for trace in stack_traces(variable):
        # (a user-defined op is built in its `make_node`; the line that applies it is wanted)
        found = [
            entry
            for entry in reversed([*getattr(trace, "callers", ()), *trace])
            if is_user_file(entry[0]) and entry[2] != "make_node"
        ]
        own = [entry for entry in found if is_own_file(entry[0])]
        if found:
            return own or found
    return []


def direct_entries(variable: Variable) -> list[Entry]:
    """The user's entries of a variable, up to the first that did not call the one before directly.

    The innermost comes first.
    """
    found = user_entries(variable)
    for trace in stack_traces(variable):
        frames = [entry for entry in reversed(trace) if entry[2] != "make_node"]
        if not found or not any(entry is found[0] for entry in frames):
            continue
        start = next(i for i, entry in enumerate(frames) if entry is found[0])
        direct = []
        for entry, frame in zip(found, frames[start:], strict=False):
            if entry is not frame:
                break
            direct.append(entry)
        return direct
    return found[:1]


MAX_FRAMES = 3  # how many of the user's frames are shown for one place


def source_line(variable: Variable) -> SourceLine | None:
    """The innermost line of the user's code in the stack traces of a variable.

    Returns: the line without its column, which :func:`source_place` adds.  None if there is no
    stack trace, or if no frame is the user's.
    """
    found = user_entries(variable)
    return _line(found[0]) if found else None


def source_place(variable: Variable) -> SourceLine | None:
    """The innermost line of the user's code, with the expression marked and with its callers.

    It is None where :func:`source_line` is.
    """
    found = [marked_line(entry) for entry in user_entries(variable)[:MAX_FRAMES]]
    return replace(found[0], callers=tuple(found[1:])) if found else None


def is_built_at(variable: Variable, place: SourceLine | None) -> bool:
    """Return whether :func:`source_place` gives a place, without working out other places."""
    entries = user_entries(variable)
    if place is None or not entries:
        return place is None and not entries
    return tuple(entries[0][:2]) == (place.file, place.line) and source_place(variable) == place


def _line(entry: Entry) -> SourceLine:
    file, line, function, text = entry
    text = text or linecache.getline(file, line)
    return SourceLine(file, line, function, text.strip(), notebook_cell(file))


def marked_line(entry: Entry) -> SourceLine:
    """The line of an entry of a stack trace, with its expression marked if that is known."""
    line, found = _line(entry), expression_at(entry)
    if found is None:
        return line
    whole = linecache.getline(line.file, line.line)
    indent = len(whole) - len(whole.lstrip())
    start, end = found.column - indent, found.end_column - indent
    marked = max(start, 0), max(end, 0)
    return replace(line, column=found.column + 1, marked=marked, end=found.end)


def expression_of(text: str) -> ast.expr | None:
    """Return the tree of an expression; None if a text is no Python code.

    Examples
    --------
    >>> expression_of("a[0] + b") is None, expression_of("an unnamed input") is None
    (False, True)
    """
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
