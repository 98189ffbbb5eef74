"""Precompile the headers of PyTensor's C modules, which take most of the time of compiling one.

``python tests/precompile.py HEADER`` writes ``HEADER`` and beside it ``HEADER.gch``, which g++
reads instead where all flags are the same.  ``tox.ini`` has PyTensor include it.
"""

import subprocess
import sys
from pathlib import Path

TEXT = """\
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
#include <numpy/npy_math.h>
#include <vector>
#include <algorithm>
"""


def flags_of_a_module():
    """Return the compiler, and the flags that PyTensor gives it for an elementwise operation."""
    import pytensor
    import pytensor.tensor as pt
    from pytensor.graph.fg import FunctionGraph
    from pytensor.link.c.basic import CLinker
    from pytensor.link.c.cmodule import std_include_dirs

    x = pt.dvector("x")
    linker = CLinker().accept(FunctionGraph([x], [pt.exp(x)]))
    directories = [*linker.header_dirs(), *std_include_dirs()]
    includes = [f"-I{directory}" for directory in directories if directory]
    shared = ["-shared", "-g", "-fvisibility=hidden"]
    return pytensor.config.cxx, [*shared, *linker.compile_args(), *includes]


def precompile(header):
    """Write a header, and the same precompiled."""
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(TEXT, encoding="utf-8")  # before PyTensor tries its flags
    cxx, flags = flags_of_a_module()
    if "-include" in flags:  # the header does not include itself
        at = flags.index("-include")
        del flags[at : at + 2]
    compiled = header.with_name(f"{header.name}.gch")
    if cxx:
        subprocess.run([cxx, *flags, "-x", "c++-header", header, "-o", compiled], check=True)


if __name__ == "__main__":
    precompile(Path(sys.argv[1]))
