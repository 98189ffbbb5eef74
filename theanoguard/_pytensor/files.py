"""Which files are the user's, and which belong to PyTensor and what stands around it."""

import ast
import linecache
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePath
from types import CodeType

import pytensor


def _prefixes(package: Path) -> tuple[str, ...]:
    """How the paths of the files of a package begin."""
    forms = {str(form) + "/" for form in (package, package.resolve())}
    return tuple(form.replace("\\", "/") for form in forms)


_PYTENSOR = _prefixes(Path(pytensor.__file__).parent)
# Directories whose frames are never the user's line.
_LIBRARY = _PYTENSOR + _prefixes(Path(__file__).parent.parent)
# functools' dispatch and contextlib stand between PyTensor's own frames.
_STDLIB = tuple({sysconfig.get_path(k).replace("\\", "/") + "/" for k in ("stdlib", "platstdlib")})
_SITE = ("site-packages/", "dist-packages/")
# Where the launchers of commands such as `pytest` are installed.
_LAUNCHERS = {PurePath(sysconfig.get_path("scripts", s)) for s in sysconfig.get_scheme_names()}
_LAUNCHERS |= {PurePath(prefix, "bin") for prefix in (sys.prefix, sys.base_prefix)}
# Libraries whose functions stand between PyTensor and the lines of a model, as installed.
_BETWEEN = tuple(site + package for site in _SITE for package in ("pymc/",))


def in_pytensor(file: str) -> str | None:
    """Return the path of a file of PyTensor's, from the package's name on; None for others.

    Examples
    --------
    >>> in_pytensor(pytensor.__file__), in_pytensor("/home/me/ab_tests/pytensor/tensor/model.py")
    ('pytensor/__init__.py', None)
    """
    file = file.replace("\\", "/")
    for prefix in _PYTENSOR:
        if file.startswith(prefix):
            return f"pytensor/{file[len(prefix) :]}"
    return None


@lru_cache(4096)
def is_untraced(file: str, parts: tuple[str, ...]) -> bool:
    """Whether PyTensor's stack traces are meant to leave out a file at their inner end.

    PyTensor compares parts of paths and leaves out no file with "tests" in its whole path.  For
    everybody who installs it below such a folder, its own lines would stand in all traces.

    `parts`: what the paths of these files contain, such as ``"pytensor/tensor/"``.
    """
    own = in_pytensor(file)
    return own is not None and "tests" not in own and any(part in own for part in parts)


def is_between(file: str) -> bool:
    """Whether `file` belongs to a library whose functions build graphs for the lines of a model."""
    return any(package in file.replace("\\", "/") for package in _BETWEEN)


@lru_cache(4096)  # (asked for each frame of each variable)
def is_user_file(file: str) -> bool:
    """Whether `file` is neither PyTensor's, PyMC's, theanoguard's nor the standard library's.

    `file`: file name of a frame.

    Examples
    --------
    >>> is_user_file("/home/me/theanoguard/model.py"), is_user_file(pytensor.__file__)
    (True, False)
    """
    file = file.replace("\\", "/")
    if file.startswith(_LIBRARY) or file.startswith("<frozen "):
        return False
    if is_between(file):
        return False
    for prefix in _STDLIB:
        if file.startswith(prefix):
            return file[len(prefix) :].startswith(_SITE)
    return True


@lru_cache(4096)
def is_own_file(file: str) -> bool:
    """Whether `file` is the user's own: no library or command that somebody has installed.

    `file`: file name of a frame.

    Examples
    --------
    >>> launcher = Path(sysconfig.get_path("scripts"), "pytest")
    >>> is_own_file("/home/me/bin/train"), is_own_file(str(launcher))
    (True, False)
    """
    if PurePath(file).parent in _LAUNCHERS and not file.endswith(".py"):
        return False
    return is_user_file(file) and not any(site in file.replace("\\", "/") for site in _SITE)


def keep_source(code: CodeType) -> bool:
    """Give `linecache` the text of code that has no file: of ``python -c``, or a ``%%time`` cell.

    Return whether the text is known.

    Other code, such as that of a dataclass, has the same file names.  So the text is compiled, and
    the code must be a part of the result.
    """
    file = code.co_filename
    text = _UNREAD[file]() if file in _UNREAD else None
    if not text or all(code != part for part in _codes_of(text, file)):
        return False
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return True


def _command() -> str | None:
    arguments = sys.orig_argv
    return arguments[arguments.index("-c") + 1] if "-c" in arguments[:-1] else None


def _timed_cell() -> str | None:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        return None
    magic, _, cell = shell.history_manager.input_hist_raw[-1].partition("\n")
    return str(shell.transform_cell(cell)) if magic.startswith("%%") else None


_UNREAD = {"<string>": _command, "<timed exec>": _timed_cell}


def _codes_of(text: str, file: str) -> Iterator[CodeType]:
    """Yield the code of a text, with and without its last statement, and all code in it."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return
    codes = [
        compile(ast.Module(part, []), file, "exec", dont_inherit=True) for part in (body, body[:-1])
    ]  # (``%%time`` evaluates an expression at the end of its cell by itself)
    while codes:
        yield (code := codes.pop())
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]


def user_stacklevel() -> int:
    """Return the `stacklevel` with which a caller's warning points at the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and not is_user_file(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level
