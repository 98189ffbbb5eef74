"""Builds and loads the C files of this folder through PyTensor's own C toolchain."""

import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import shutil
import sysconfig
import tempfile
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np

from theanoguard._pytensor import c_compiler, compile_lock, config, library_extension

logger = logging.getLogger("theanoguard")

MODULE = "theanoguard_kernel"
# Each file uses only what those before it define.
FILES = ("kernel.h", "flags.c", "scan.c", "undo.c", "blocks.c", "nodes.c", "kernel.c")


def source():
    """Return the C source of the kernel, its files one after another."""
    folder = resources.files("theanoguard.guard.c")
    return "\n".join(folder.joinpath(name).read_text("utf-8") for name in FILES)


def location():
    """Return where the built kernel belongs.

    The name of the folder is a digest of everything that the binary depends on, so
    a new source, interpreter, NumPy or set of compiler flags gets a folder of its own.
    """
    parts = [source(), sysconfig.get_config_var("SOABI") or "", np.__version__, config.cxx]
    digest = hashlib.sha256("\0".join([*parts, *_compiler_arguments()]).encode()).hexdigest()
    folder = Path(config.compiledir) / f"{MODULE}_{digest[:16]}"
    return folder / f"{MODULE}.{library_extension()}"


def _compiler_arguments():
    return [*c_compiler().compile_args(), "-O3"]


def build(library):
    """Compile into a folder of our own and move it into place in one step."""
    scratch = Path(tempfile.mkdtemp(prefix=f"{MODULE}_build_", dir=library.parent.parent))
    try:
        c_compiler().compile_str(
            MODULE, source(), location=str(scratch), preargs=_compiler_arguments(), py_module=False
        )
        shutil.rmtree(library.parent, ignore_errors=True)
        os.replace(scratch, library.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def import_library(library):
    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(library))
    spec = importlib.util.spec_from_loader(MODULE, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@lru_cache(maxsize=1)
def load():
    """Return the compiled kernel as a module, building it the first time.

    Returns
    -------
    module or None
        None when PyTensor has no C compiler (``config.cxx`` is empty); the checks then
        run in NumPy.  Said once through the ``theanoguard`` logger.

    Raises
    ------
    pytensor.link.c.exceptions.CompileError
        When there is a compiler and it rejects the kernel.
    """
    if not config.cxx:
        logger.warning(
            "theanoguard: PyTensor has no C compiler (config.cxx is empty); the checks run in "
            "NumPy, which is slower. Install g++ or clang++, or see `theanoguard doctor`."
        )
        return None
    library = location()
    if not library.exists():
        with compile_lock():
            if not library.exists():  # another process may have been faster
                build(library)
    return import_library(library)
