"""Which releases of PyTensor theanoguard works with, and what it does without one of their names.

Names that PyTensor does not document may move in any release.  Only ``theanoguard._pytensor``
imports them.  A name that everything depends on is imported inside :func:`required`.  A name that
one feature depends on is taken by :func:`probed`: without it, only that feature is off.
"""

import importlib
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

TESTED = ("3.0", "3.3")  # the first and the last release of PyTensor that the tests have passed on


@dataclass(frozen=True)
class Missing:
    """A name that the installed PyTensor, PyMC or sampler does not have, and what that means."""

    name: str
    feature: str  # what does not work, such as ``"test values"``
    package: str = "pytensor"

    def __str__(self) -> str:
        package = _NAMES.get(self.package, self.package)
        return f"{self.feature}: off, because {package} {_version(self.package)} has no {self.name}"


_NAMES = {"pytensor": "PyTensor", "pymc": "PyMC"}


MISSING: list[Missing] = []  # the features that are off


def version_of(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    from importlib import metadata  # takes longer to import than most of this package

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _version(package: str) -> str:
    """Return the version of a package, from the package itself where it is loaded."""
    loaded = getattr(sys.modules.get(package), "__version__", None)
    return loaded or version_of(package) or "(not installed)"


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _remedy() -> str:
    first, last = TESTED
    major, minor = _release(last)
    return (
        f'Install a release that it is tested with, `pip install "pytensor>={first},'
        f'<{major}.{minor + 1}"`, or a newer theanoguard.'
    )


def is_untested() -> bool:
    """Whether the installed PyTensor is newer than every tested release."""
    return _release(_version("pytensor")) > _release(TESTED[1])


def _both() -> str:
    return (
        f"theanoguard {_version('theanoguard')} is tested with PyTensor {TESTED[0]} to {TESTED[1]},"
        f" and PyTensor {_version('pytensor')} is installed"
    )


def warn_if_untested() -> None:
    """Warn of a PyTensor that is newer than every tested release."""
    if is_untested():
        warnings.warn(f"{_both()}.\n{_remedy()}", RuntimeWarning, stacklevel=2)


def explained(error: ImportError, what: str = "") -> ImportError:
    """Return an error that names both versions, for one that PyTensor's names have caused.

    It is `error` itself if another package has caused it.

    `what`: what does not work without the name; by default all of theanoguard.
    """
    module = error.name or ""
    if module.partition(".")[0] != "pytensor" or isinstance(error, UnsupportedPyTensor):
        return error
    # (Python 3.11 names what is missing only in the text.)
    own = re.match(r"cannot import name '(\w+)'", str(error))
    name = f"{module}.{own[1]}" if own else module
    return _unsupported(what, f"{name} is missing")


def _unsupported(what: str, why: str) -> "UnsupportedPyTensor":
    but = f"{what or 'it'} does not work"
    return UnsupportedPyTensor(f"{_both()}: {but}, because {why}.\n{_remedy()}")


class UnsupportedPyTensor(ImportError):
    """The installed PyTensor does not have a name that theanoguard needs."""


@contextmanager
def required(what: str = "") -> Iterator[None]:
    """Import names of PyTensor inside the block.

    Raises ``UnsupportedPyTensor``: if a name is missing.  It names both versions, and says what to
    do.
    """
    try:
        yield
    except ImportError as error:
        raise explained(error, what) from error


def has(owner: Any, name: str, feature: str) -> bool:
    """Whether an object of PyTensor or PyMC has a name; if not, that is noted for the user."""
    if hasattr(owner, name):
        return True
    module: str = getattr(owner, "__module__", None) or owner.__name__
    _note(Missing(f"{_shown(owner)}.{name}", feature, module.partition(".")[0]))
    return False


def _shown(owner: Any) -> str:
    """Return the name of a module or a class, or of the class of an object."""
    names = (getattr(owner, "__qualname__", None), getattr(owner, "__name__", None))
    return next((name for name in names if name), type(owner).__qualname__)


def needs(owner: Any, *names: str, what: str = "") -> None:
    """Raise an error that names both versions if an object of PyTensor lacks an attribute.

    - `what`: what does not work without them; by default all of theanoguard.
    - Raises ``UnsupportedPyTensor``.

    Examples
    --------
    >>> from theanoguard._releases import needs
    >>> needs("text", "lower", "upper")
    >>> needs("text", "lowest", what="the guard")
    Traceback (most recent call last):
    theanoguard._releases.UnsupportedPyTensor: ... does not work, because str.lowest is missing.
    Install a release ...
    """
    for name in names:
        if not hasattr(owner, name):
            raise _unsupported(what, f"{_shown(owner)}.{name} is missing")


def take_class(thing: Any, kind: type, what: str) -> None:
    """Make an object of PyTensor one of another class, such as of a subclass.

    PyTensor chooses the classes of its machines, functions and containers by itself, and takes none
    of ours.

    - `what`: what does not work where that is not possible.
    - Raises ``UnsupportedPyTensor``: if the layouts of the two classes differ.
    """
    try:
        thing.__class__ = kind
    except TypeError as error:
        raise _unsupported(what, f"a {type(thing).__name__} cannot change its class") from error


def has_local(function: Any, name: str, feature: str) -> bool:
    """Whether a function of PyTensor, or one inside it, has a local variable of a name.

    If not, that is noted for the user.

    Examples
    --------
    >>> from theanoguard._releases import has_local
    >>> has_local(version_of, "metadata", "versions")
    True
    """
    codes = [function.__code__]
    for code in codes:  # (it grows)
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    if any(name in (*code.co_varnames, *code.co_cellvars) for code in codes):
        return True
    _note(Missing(f"{function.__module__}.{function.__qualname__}.{name}", feature))
    return False


def _note(missing: Missing) -> None:
    if missing not in MISSING:
        MISSING.append(missing)


def probed(name: str, feature: str) -> Any:
    """Return what PyTensor or PyMC has under a name; if it has none, note that and return None.

    `name`: such as ``"pytensor.link.c.cmodule.try_blas_flag"``.
    `feature`: what is off without it.

    Examples
    --------
    >>> from theanoguard._releases import MISSING, probed
    >>> probed("pytensor.graph.basic.Apply", "everything").__name__
    'Apply'
    """
    parts = name.split(".")
    for n in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:n]))
            for part in parts[n:]:
                found = getattr(found, part)
            return found
        except (ImportError, AttributeError):
            continue
    _note(Missing(name, feature, parts[0]))
    return None
