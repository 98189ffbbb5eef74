"""What the guard costs before the first call, and in memory: guarded against unguarded.

Each figure is taken in a process of its own, which compiles one workload and calls it.
Guarded and unguarded alternate, and what is reported is the median of the paired ratios:

cold    CPU time of ``pytensor.function`` with an empty compile cache, compilers included.
        (The guard's own C code, which is compiled once per machine, is built before.)
warm    the same with the cache filled.
memory  the largest resident size of the process, from start to end: importing, compiling,
        20 calls.  The unguarded process does not import theanoguard.

    OMP_NUM_THREADS=1 python benchmarks/compiling.py [--backend c] [--repeats 5]

A backend other than C compiles in the first call, which is counted.  JAX and PyTorch keep no cache
on disk, so that "cold" and "warm" differ only by chance.
"""

import argparse
import gc
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from reporting import geometric_mean, write_json
from workloads import WORKLOADS

VARIANTS = ["plain", "guard"]
LINKERS = {"c": "cvm", "numba": "numba", "jax": "jax", "pytorch": "pytorch"}


def cpu_seconds():
    """CPU time of this process and of the compilers it has waited for."""
    own, others = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def guard_mode(backend):
    import theanoguard  # the other variant must not pay for it

    return theanoguard.GuardMode(True, True, True, optimizer="fast_run", backend=backend)


def child(variant, title, dtype, backend):
    """Compile and call one workload; print what it took."""

    def mode():
        return guard_mode(backend) if variant == "guard" else Mode(LINKERS[backend], "fast_run")

    if variant == "guard":
        from theanoguard.guard.c import build as kernel

        kernel.load() if backend == "c" else kernel.ending()
    x = pt.scalar("x")  # what the first compilation of a process has to load, is not counted
    pytensor.function([x], x + 1, mode=Mode("cvm", "fast_run") if backend == "c" else mode())(1.0)
    inputs, outputs, updates, values = WORKLOADS[title](dtype, np.random.default_rng(1))
    givens = {}
    if backend == "jax":  # it cannot compile a loop of unknown length
        known = [v.type.clone(shape=x.shape)(v.name) for v, x in zip(inputs, values, strict=True)]
        inputs, givens = known, dict(zip(inputs, known, strict=True))
    gc.collect()
    gc.disable()  # a full collection takes a tenth of all this, and falls in or out by chance
    start = cpu_seconds()
    with pytensor.config.change_flags(floatX=dtype):
        fn = pytensor.function(inputs, outputs, updates=updates, givens=givens, mode=mode())
    if backend != "c":
        fn(*values)
    seconds = cpu_seconds() - start
    gc.enable()
    for _ in range(20):
        fn(*values)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "memory": memory}))


def run_child(variant, title, dtype, backend, cache):
    flags = [os.environ.get("PYTENSOR_FLAGS", ""), f"base_compiledir={cache}"]
    command = [sys.executable, "-W", "ignore", __file__, "--child", variant, title, dtype, backend]
    result = subprocess.run(
        command,
        env={**os.environ, "PYTENSOR_FLAGS": ",".join(filter(None, flags))},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(result.stdout.splitlines()[-1])


def measure(title, dtype, backend, repeats, cold):
    """Return the median paired ratios of one workload."""
    pairs = {"cold": [], "warm": [], "memory": []}
    with tempfile.TemporaryDirectory() as kept:
        for variant in VARIANTS:
            run_child(variant, title, dtype, backend, kept)  # fills the cache
        for _ in range(cold):
            taken = {}
            for variant in random.sample(VARIANTS, 2):
                with tempfile.TemporaryDirectory() as empty:
                    taken[variant] = run_child(variant, title, dtype, backend, empty)["seconds"]
            pairs["cold"].append(taken["guard"] / taken["plain"])
        for _ in range(repeats):
            taken = {
                v: run_child(v, title, dtype, backend, kept) for v in random.sample(VARIANTS, 2)
            }
            for name, key in (("warm", "seconds"), ("memory", "memory")):
                pairs[name].append(taken["guard"][key] / taken["plain"][key])
    return {name: statistics.median(ratios) for name, ratios in pairs.items() if ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cold", type=int, default=1, help="repeats with an empty cache")
    parser.add_argument("--only", action="append", choices=list(WORKLOADS))
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--backend", choices=list(LINKERS), default="c")
    parser.add_argument("--json")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    start = time.time()
    rows = []
    print(f"{'workload':<26}{'cold':>8}{'warm':>8}{'memory':>8}")
    for title in args.only or list(WORKLOADS):
        row = {
            "workload": title,
            **measure(title, args.dtype, args.backend, args.repeats, args.cold),
        }
        rows.append(row)
        cells = "".join(
            f"{row.get(name, float('nan')):>8.3f}" for name in ("cold", "warm", "memory")
        )
        print(f"{title:<26}{cells}", flush=True)
    means = {key: geometric_mean(row[key] for row in rows) for key in rows[0] if key != "workload"}
    print(f"{'geometric mean':<26}" + "".join(f"{value:>8.3f}" for value in means.values()))
    print(f"{time.time() - start:.0f} s in all")
    if args.json:
        write_json(args.json, {"pytensor": pytensor.__version__, "rows": rows, "mean": means})


if __name__ == "__main__":
    main()
