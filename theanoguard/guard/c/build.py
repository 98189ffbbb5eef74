"""Builds and loads the C files of this folder through PyTensor's own C toolchain."""

import hashlib
import importlib.machinery
import importlib.util
import logging
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from theanoguard._files import replace_file
from theanoguard._pytensor import c_compiler, compile_lock, config, library_extension
from theanoguard._pytensor.machines import CHANGING_ARITHMETIC, changes_arithmetic
from theanoguard.guard import spares

logger = logging.getLogger("theanoguard")

MODULE = "theanoguard_kernel"
# Each file uses only what those before it define.
FILES = (
    "kernel.h",
    "flags.c",
    "scan.c",
    "undo.c",
    "blocks.c",
    "nodes.c",
    "sample.c",
    "kernel.c",
)
ENDING_FILES = ("kernel.h", "undo.c", "ending.c")  # (a library of its own, which builds fast)


def source(files: Iterable[str] = FILES) -> str:
    """Return C files one after another; by default those of the kernel."""
    folder = resources.files("theanoguard.guard.c")
    return "\n".join(folder.joinpath(name).read_text("utf-8") for name in files)


def location(name: str = MODULE, text: str | None = None) -> Path:
    """Return where a built library belongs; by default the kernel.

    The name of the folder is a digest of everything that the binary depends on, so
    a new source, interpreter, NumPy or set of compiler flags gets a folder of its own.
    """
    text = source() if text is None else text
    parts = [text, sysconfig.get_config_var("SOABI") or "", np.__version__, config.cxx]
    digest = hashlib.sha256("\0".join([*parts, *_compiler_arguments()]).encode()).hexdigest()
    folder = Path(config.compiledir) / f"{name}_{digest[:16]}"
    return folder / f"{name}.{library_extension()}"


def _compiler_arguments() -> list[str]:
    # What the kernel finds must not depend on the user's flags.
    given = c_compiler().compile_args()
    return [*(flag for flag in given if not CHANGING_ARITHMETIC.fullmatch(flag)), "-O3"]


def build(library: Path, text: str | None = None, include_dirs: Iterable[str] = ()) -> None:
    """Compile into a folder of our own and move it into place in one step."""
    name = library.stem
    scratch = Path(tempfile.mkdtemp(prefix=f"{name}_build_", dir=library.parent.parent))
    try:
        c_compiler().compile_str(
            name,
            source() if text is None else text,
            location=str(scratch),
            include_dirs=list(include_dirs),
            preargs=_compiler_arguments(),
            py_module=False,
        )
        shutil.rmtree(library.parent, ignore_errors=True)
        try:
            replace_file(scratch, library.parent)
        except OSError:
            if not library.exists():  # else another process has built it, and may have it open
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def built(name: str = MODULE, text: str | None = None, include_dirs: Iterable[str] = ()) -> Path:
    """Return a library, building it the first time; by default the kernel."""
    library = location(name, text)
    if not library.exists():
        with compile_lock():
            if not library.exists():  # another process may have been faster
                build(library, text, include_dirs)
    return library


def import_library(library: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(library.stem, str(library))
    spec = importlib.machinery.ModuleSpec(library.stem, loader, origin=str(library))
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def guard_of_all(module: ModuleType) -> Any:
    """Return a guard of a kernel that looks for all bad values, and asks nobody."""
    return module.Guard(
        nan=True,
        inf=True,
        big=True,
        ints=False,
        limit=1e10,
        is_bad=None,
        save=None,
        verdict=None,
        enter=None,
        before_loss=None,
    )


def finds_bad_values(module: ModuleType) -> bool:
    """Whether a kernel finds a NaN and an Inf, and takes a subnormal number for a good one."""
    guard = guard_of_all(module)
    array: np.ndarray
    for dtype in ("float16", "float32", "float64", "complex64", "complex128"):
        subnormal = np.finfo(dtype).smallest_subnormal
        for value, is_bad in ((np.nan, True), (-np.inf, True), (subnormal, False)):
            for size in (1, 150):
                for array in (np.ones(size, dtype), np.ones((size, 2), dtype)[:, 0]):
                    array[size // 2] = value
                    if guard.scan(array) != is_bad:
                        return False
    return True


@lru_cache(maxsize=1)
def load() -> ModuleType | None:
    """Return the compiled kernel as a module, building it the first time.

    - Returns: None when PyTensor has no C compiler (``config.cxx`` is empty), or one whose code
      does not find a NaN; the checks then run in NumPy.  Said once through the ``theanoguard``
      logger.
    - Raises ``pytensor.link.c.exceptions.CompileError``: when there is a compiler and it rejects
      the kernel.
    """
    if c_compiler() is None:
        logger.warning(
            "theanoguard: PyTensor has no C compiler (config.cxx is empty); the checks run in "
            "NumPy, which is slower. Install g++ or clang++, or see `theanoguard doctor`."
        )
        return None
    module = import_library(built())
    if not finds_bad_values(module):
        logger.warning(
            "theanoguard: the checks that %s has compiled do not find a NaN or an Inf, so they run "
            "in NumPy, which is slower. See `theanoguard doctor`.",
            config.cxx,
        )
        return None
    if flags := changes_arithmetic():
        logger.warning("theanoguard: %s", told(flags))
    return module


@lru_cache(maxsize=1)
def ending() -> Callable:
    """Return the class ``Ending`` of ``ending.c``; without a compiler, that of ``spares.py``.

    The backends that compile a function as a whole need no compiler, so nothing is said.
    """
    if c_compiler() is None:
        return spares.Ending
    try:
        return import_library(built("theanoguard_ending", source(ENDING_FILES))).Ending
    except Exception:  # (a compiler that does not work is no fault where none is needed)
        logger.debug("theanoguard: calls end in Python", exc_info=True)
        return spares.Ending


def told(flags: Iterable[str]) -> str:
    """Return what the user should know of flags that change the arithmetic."""
    return (
        f"gcc__cxxflags has {' '.join(flags)}. A compiled operation may lose a NaN or an Inf, and "
        "no check or audit sees that. The guard reads every value between operations instead of "
        "the processor's exception flags."
    )


@lru_cache(maxsize=1)
def speed() -> tuple[float, float]:
    """Measure how long the compiled check takes, once in a process.

    Returns: seconds for one small array, and for each further byte of one that a cache holds.
    """
    module = load()
    assert module is not None  # it has counted
    guard = guard_of_all(module)
    small, large = np.ones(4), np.ones(32_768)
    per_check = min(guard.clock(small, 2000) for _ in range(5))
    per_array = min(guard.clock(large, 50) for _ in range(5))
    return per_check, max(per_array - per_check, 0.0) / large.nbytes
