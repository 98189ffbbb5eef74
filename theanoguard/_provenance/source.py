"""Lines of the user's code, found in the stack traces that PyTensor leaves on variables."""

import linecache
import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytensor


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
        The source text of the line, stripped; empty where it cannot be found.
    cell : int or None
        In a notebook, the number of the cell.

    Examples
    --------
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

    def __str__(self):
        where = (
            f"{self.file}:{self.line}"
            if self.cell is None
            else f"cell {self.cell}, line {self.line}"
        )
        if self.function != "<module>":
            where += f" in {self.function}"
        return f"{where}: {self.text}" if self.text else where


def _library_prefixes():
    """Directories whose frames are never the user's line."""
    packages = [Path(pytensor.__file__).parent, Path(__file__).parent.parent]
    prefixes = {str(form) + "/" for p in packages for form in (p, p.resolve())}
    return tuple(prefix.replace("\\", "/") for prefix in prefixes)


_LIBRARY = _library_prefixes()
# functools' dispatch and contextlib stand between PyTensor's own frames.
_STDLIB = tuple({sysconfig.get_path(k).replace("\\", "/") + "/" for k in ("stdlib", "platstdlib")})
_SITE = ("site-packages/", "dist-packages/")
# Libraries whose functions stand between PyTensor and the lines of a model, as installed.
_BETWEEN = tuple(site + package for site in _SITE for package in ("pymc/",))


def is_user_file(file):
    """Whether `file` is neither PyTensor's, PyMC's, theanoguard's nor the standard library's.

    Parameters
    ----------
    file : str
        File name of a frame.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_user_file("/home/me/theanoguard/model.py"), is_user_file(pytensor.__file__)
    (True, False)
    """
    file = file.replace("\\", "/")
    if file.startswith(_LIBRARY) or file.startswith("<frozen "):
        return False
    if any(package in file for package in _BETWEEN):
        return False
    for prefix in _STDLIB:
        if file.startswith(prefix):
            return file[len(prefix) :].startswith(_SITE)
    return True


_OLD_CELL = re.compile(r"<ipython-input-(\d+)-")


def _notebook_cell(file):
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


def stack_traces(variable):
    """The stack traces that PyTensor left on a variable, each outermost frame first.

    Parameters
    ----------
    variable : Variable

    Returns
    -------
    list of list of (file, line, function, text)
        Empty where PyTensor left none; more than one where a rewrite joined several.
    """
    trace = getattr(variable.tag, "trace", None) or []
    return [trace] if trace and isinstance(trace[0], tuple) else [t for t in trace if t]


def source_line(variable):
    """The innermost line of the user's code in the stack traces of a variable.

    Parameters
    ----------
    variable : Variable

    Returns
    -------
    SourceLine or None
        None where no stack trace is left, or none of its frames is the user's.
    """
    for trace in stack_traces(variable):
        for file, line, function, text in reversed(trace):
            # (an op of the user's own is built in its `make_node`, for the line that asks for it)
            if is_user_file(file) and function != "make_node":
                text = text or linecache.getline(file, line)
                return SourceLine(file, line, function, text.strip(), _notebook_cell(file))
    return None
