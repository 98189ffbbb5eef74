"""The environment of a computation: versions, compiler, BLAS, and configuration of PyTensor."""

import platform
import subprocess
from functools import lru_cache
from typing import Any

from theanoguard._backends import backends
from theanoguard._pytensor import c_compiler, config
from theanoguard._releases import version_of

SETTINGS = ("floatX", "mode", "linker", "optimizer", "optimizer_including", "optimizer_excluding")


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages that decide a result.

    The version of a package that is not installed is None.

    Examples
    --------
    >>> found = versions()
    >>> found["pytensor"].split(".")[0]
    '3'
    """
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    compilers = [backend.package for backend in backends().values() if backend.package]
    packages = ("theanoguard", "pytensor", "numpy", "scipy", *compilers)
    return {"python": python, **{package: version_of(package) for package in packages}}


@lru_cache
def compiler_version(cxx: str) -> str:
    """Return the first line of what a C++ compiler says of itself.

    Raises ``OSError``: if it does not run, or ends with an error.
    """
    try:
        found = subprocess.run(
            [cxx, "--version"], capture_output=True, text=True, errors="replace", timeout=60
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{cxx} --version does not end") from None
    if found.returncode:
        raise OSError(f"{cxx} --version ended with status {found.returncode}")
    return found.stdout.partition("\n")[0].strip()


@lru_cache
def _tool_chain(cxx: str) -> dict[str, str | None]:
    """The compiler of the C backend.  A fact that cannot be found out is None."""
    facts = {"cxx": cxx, "version": None, "flags": None, "blas": None}
    if cxx:
        try:
            facts["version"] = compiler_version(cxx)
            facts["flags"] = " ".join([*c_compiler().compile_args(), *config.gcc__cxxflags.split()])
            facts["blas"] = config.blas__ldflags
        except OSError:
            pass  # the compiler does not run: compiling will say so, and so does the doctor
    return facts


def environment() -> dict[str, Any]:
    """Return what has to be the same for a computation to be repeated.

    Returns: plain data: ``versions``, ``platform``, ``device``, ``compiler`` (``cxx``, ``version``,
    ``flags`` and ``blas``, the linker flags of the BLAS, empty where the C backend multiplies
    matrices through NumPy), and ``config`` (of PyTensor).

    Examples
    --------
    >>> sorted(environment())
    ['compiler', 'config', 'device', 'platform', 'versions']
    """
    return {
        "versions": versions(),
        "platform": platform.platform(),
        "device": "cpu",  # the only one of PyTensor's C backend and of Numba
        "compiler": _tool_chain(config.cxx),
        "config": {name: str(getattr(config, name)) for name in SETTINGS},
    }
