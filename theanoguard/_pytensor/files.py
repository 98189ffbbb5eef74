"""Which files are the user's, and which belong to PyTensor and what stands around it."""

import sysconfig
from functools import lru_cache
from pathlib import Path

import pytensor


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


def is_between(file):
    """Whether `file` belongs to a library whose functions build graphs for the lines of a model."""
    return any(package in file.replace("\\", "/") for package in _BETWEEN)


@lru_cache(4096)  # (asked for each frame of each variable)
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
    if is_between(file):
        return False
    for prefix in _STDLIB:
        if file.startswith(prefix):
            return file[len(prefix) :].startswith(_SITE)
    return True


@lru_cache(4096)
def is_own_file(file):
    """Whether `file` is the user's own: no library that somebody has installed.

    Parameters
    ----------
    file : str
        File name of a frame.

    Returns
    -------
    bool
    """
    return is_user_file(file) and not any(site in file.replace("\\", "/") for site in _SITE)
