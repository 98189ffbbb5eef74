"""How fast the guard reads arrays: GB/s of each scan, beside a read and a copy of the memory.

    python benchmarks/kernel.py [--target x86-64-v3] [--json kernel.json]

Without a target, it measures each one that this machine runs, in a process of its own.  "read"
takes the bitwise or of all words, in a loop that is compiled for the same target; "memcpy" is the C
library's, and counts the bytes once.  "C" is the kernel of the C backend, "Numba" the code that
Numba compiles.  Each figure is the best of several times, since others use the machine as well.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import targets
from reporting import write_json

LIMIT = 100.0  # (above the limit of 1e10 there are no integers of 8 bits, and nothing is read)
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)

READ = r"""
#include <stdint.h>
#include <string.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
uint64_t seen;
double clock_read(const char *p, long bytes, int times) {
  const double before = now();
  for (int t = 0; t < times; t++) {
    uint64_t any = 0, x;
    for (long i = 0; i + 8 <= bytes; i += 8) {
      memcpy(&x, p + i, 8);
      any |= x;
    }
    seen = any;
    __asm__ volatile("" : : : "memory");
  }
  return (now() - before) / times;
}
double clock_copy(const char *p, char *to, long bytes, int times) {
  const double before = now();
  for (int t = 0; t < times; t++) {
    memcpy(to, p, bytes);
    __asm__ volatile("" : : : "memory");
  }
  return (now() - before) / times;
}
"""


def memory_clocks(target):
    """Return functions ``clock(array, times)``: seconds that a read and a copy of it take."""
    from pytensor import config

    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "read.c", Path(folder) / "read.so"
        source.write_text(READ)
        flags = ["-O3", f"-march={target}", "-funroll-loops", "-shared", "-fPIC"]
        subprocess.run([config.cxx, "-x", "c", *flags, str(source), "-o", str(library)], check=True)
        found = ctypes.CDLL(str(library))
    found.clock_read.restype = found.clock_copy.restype = ctypes.c_double
    found.clock_read.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_int]
    found.clock_copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_int]

    def copy(array, times):
        to = array.copy()
        return found.clock_copy(array.ctypes.data, to.ctypes.data, array.nbytes, times)

    return {
        "read": lambda array, times: found.clock_read(array.ctypes.data, array.nbytes, times),
        "memcpy": copy,
    }


def c_clock():
    from theanoguard.guard.c import build

    guard = build.load().Guard(
        nan=True,
        inf=True,
        big=True,
        ints=True,
        limit=LIMIT,
        is_bad=None,
        save=None,
        verdict=None,
        enter=None,
        before_loss=None,
    )
    return guard.clock


def numba_clock():
    import time

    import numpy as np
    import pytensor.tensor as pt
    from pytensor.link.numba.dispatch.basic import numba_njit

    from theanoguard.guard.numba import code
    from theanoguard.guard.numba.ops import Watch

    loops = {}

    def clock(array, times):
        name = str(array.dtype)
        if name not in loops:
            watch, _ = code.signalling(Watch(True, True, True, LIMIT), pt.vector(dtype=name).type)

            @numba_njit(final_function=True)
            def loop(array, signals, times):
                for _ in range(times):
                    watch(array, signals)

            loops[name] = loop
            loop(array, np.zeros(8, "int64"), 1)
        start = time.perf_counter()
        loops[name](array, np.zeros(8, "int64"), times)
        return (time.perf_counter() - start) / times

    return clock


def measure(target, sizes, volume=20_000_000, repeats=7):
    """Return a row of GB/s for each scan of each dtype; each time is of `volume` bytes."""
    import numpy as np

    memory, in_c, in_numba = memory_clocks(target), c_clock(), numba_clock()
    cases = [
        ("read", "float64", memory["read"], 1),
        ("memcpy", "float64", memory["memcpy"], 1),
        *(("C", dtype, in_c, 1) for dtype in ("float64", "float32", "float16", "complex64")),
        ("C, every 2nd", "float64", in_c, 2),
        *(("C", dtype, in_c, 1) for dtype in ("int64", "int32", "int8")),
        *(("Numba", dtype, in_numba, 1) for dtype in ("float64", "float32", "complex64")),
        ("Numba, every 2nd", "float64", in_numba, 2),
    ]
    rows = []
    for what, dtype, clock, step in cases:
        speeds = []
        for size in sizes:
            # The same bytes for each dtype; `size` counts numbers of four.
            n = 4 * size // np.dtype(dtype).itemsize
            array = np.ones(n * step, dtype)[::step]
            times = max(1, volume // (4 * size))
            seconds = min(clock(array, times) for _ in range(repeats))
            speeds.append(array.nbytes / seconds / 1e9)
        rows.append({"what": what, "dtype": dtype, "GB/s": dict(zip(sizes, speeds, strict=True))})
    return rows


def render(described, rows, sizes):
    lines = [described, f"{'GB/s':<28}" + "".join(f"{4 * n / 1000:>10,.0f} kB" for n in sizes)]
    for row in rows:
        cells = "".join(f"{row['GB/s'][n]:>13.1f}" for n in sizes)
        lines.append(f"{row['what']:<18}{row['dtype']:<10}{cells}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=[*targets.NEEDS, "native"])
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.target is None:
        found = {}
        for target in targets.runnable():
            with tempfile.NamedTemporaryFile(suffix=".json") as file:
                command = [sys.executable, __file__, "--target", target, "--json", file.name]
                subprocess.run(command, check=True)
                found[target] = json.loads(Path(file.name).read_text())
            print(flush=True)
    else:
        targets.enter(args.target)
        found = measure(args.target, SIZES)
        print(render(targets.described(), found, SIZES), flush=True)
    if args.json:
        write_json(args.json, found)


if __name__ == "__main__":
    main()
