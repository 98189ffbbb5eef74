"""The processors that the benchmarks compile for: this one, and lower ones whose programs it runs.

PyTensor's C compiler and Numba read their settings when they are imported, so a program that is to
compile for another target starts itself again (:func:`enter`).  Libraries that choose their code
when they run (BLAS, NumPy, the C library) stay as they are.
"""

import os
import platform
import sys
from pathlib import Path

import numpy as np

try:
    from numpy._core._multiarray_umath import __cpu_features__ as FEATURES
except ImportError:  # NumPy 1
    from numpy.core._multiarray_umath import __cpu_features__ as FEATURES

NEEDS = {"x86-64": (), "x86-64-v3": ("AVX2", "FMA3"), "x86-64-v4": ("AVX512F", "AVX512BW")}
"""The features of the processor that the programs of a target use, by the name that gcc has."""


def runnable():
    """Return the targets whose programs this machine runs, the lowest first."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["native"]
    return [name for name, needed in NEEDS.items() if all(FEATURES.get(f) for f in needed)]


def processor():
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def instructions():
    """Return the name of the widest vector instructions of this machine."""
    known = {"AVX512F": "AVX-512", "AVX2": "AVX2", "SVE": "SVE", "ASIMD": "NEON"}
    return next((word for name, word in known.items() if FEATURES.get(name)), "SSE2")


def environment(target):
    """Return the variables of the environment with which everything is compiled for a target."""
    flags = f"gcc__cxxflags=-march={target}"
    numba = {} if target == "native" else {"NUMBA_CPU_NAME": target, "NUMBA_CPU_FEATURES": ""}
    inherited = os.environ.get("PYTENSOR_FLAGS")
    return {"PYTENSOR_FLAGS": ",".join(filter(None, [inherited, flags])), **numba}


def enter(target):
    """Start this program again, compiling for a target; the second time, do nothing."""
    if os.environ.get("BENCHMARK_TARGET") == target:
        return
    os.environ.update(environment(target), BENCHMARK_TARGET=target)
    os.execv(sys.executable, [sys.executable, *sys.argv])


def described():
    """Return one line on what is measured: the processor, the target, the versions."""
    target = os.environ.get("BENCHMARK_TARGET", "native")
    return f"{processor()}, compiled for {target}, NumPy {np.__version__}"
