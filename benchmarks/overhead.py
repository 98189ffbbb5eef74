"""What the guard costs: guarded against unguarded functions, same rewrites.

Both variants of a workload live in one process and are called alternately, in random
order within each round, on the same inputs; what is compared is CPU time, and what is
reported is the median of the paired ratios.  Guarded and unguarded start each round from
the same values of the shared variables.  An A/A line (two unguarded copies) says what the
machine can resolve.

    OMP_NUM_THREADS=1 python benchmarks/overhead.py [--backend numba] [--json overhead.json]
    OMP_NUM_THREADS=1 python benchmarks/overhead.py --target x86-64-v3
    OMP_NUM_THREADS=1 python benchmarks/overhead.py --in-place --only "Adam, 1000x1000"

With --target, PyTensor's code, Numba's and the guard's kernel are compiled for a lower processor
than this one, such as one without AVX-512.

JAX returns before it has computed: each call waits for its results.  It is told the shapes of the
inputs, without which it cannot compile the loop, and to run matrix products on one thread; what
other threads it uses is counted, as processor time.  PyTorch cannot compile the loop at all.
"""

import argparse
import gc
import os
import random
import statistics
import time

import numpy as np
import pytensor
import targets
from pytensor.compile.debug.nanguardmode import NanGuardMode
from pytensor.compile.mode import Mode
from reporting import geometric_mean, write_json
from timing import keep_memory
from workloads import WORKLOADS

import theanoguard

# ---------------------------------------------------------------- measuring


LINKERS = {"c": "cvm", "numba": "numba", "jax": "jax", "pytorch": "pytorch"}


def modes(backend, restore=True):
    """Return what is compared, by name: functions that make a mode."""
    linker = LINKERS[backend]

    def guard(*kinds):
        return theanoguard.GuardMode(*kinds, optimizer="fast_run", backend=backend, restore=restore)

    return {
        "plain": lambda: Mode(linker, "fast_run"),
        "plain again": lambda: Mode(linker, "fast_run"),
        "guard": lambda: guard(True, True, True),
        "guard nan+inf": lambda: guard(True, True, False),
        "NanGuardMode": lambda: NanGuardMode(True, True, True, optimizer="fast_run"),
    }


def build(workload, dtype, mode, backend="c"):
    """Compile one variant on shared variables of its own; return (call, values, reset)."""
    inputs, outputs, updates, values = workload(dtype, np.random.default_rng(1))
    givens = {}
    if backend == "jax":
        known = [v.type.clone(shape=x.shape)(v.name) for v, x in zip(inputs, values, strict=True)]
        inputs, givens = known, dict(zip(inputs, known, strict=True))
    with pytensor.config.change_flags(floatX=dtype):
        fn = pytensor.function(inputs, outputs, updates=updates, givens=givens, mode=mode)
    fn.trust_input = True
    start = [(p, p.get_value()) for p, _ in updates]

    def reset():
        for p, value in start:
            p.set_value(value)

    return waiting(fn) if backend == "jax" else fn, values, reset


def waiting(fn):
    """Return a function that waits for what JAX computes."""
    import jax

    return lambda *values: jax.block_until_ready(fn(*values))


def measure(variants, rounds, budget):
    """Return the CPU seconds per call of each variant, one number a round."""
    names = list(variants)
    counts = {}
    for name, (fn, values, _reset) in variants.items():
        fn(*values)
        start = time.process_time()
        fn(*values)
        one = max(time.process_time() - start, 1e-6)
        counts[name] = max(1, int(budget / one))
    calls = max(1, min(counts.values()) if len(names) < 3 else counts["plain"])
    times = {name: [] for name in names}
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        random.shuffle(names)
        for name in names:
            fn, values, reset = variants[name]
            n = 1 if name == "NanGuardMode" else calls
            reset()
            fn(*values)
            start = time.process_time()
            for _ in range(n):
                fn(*values)
            times[name].append((time.process_time() - start) / n)
    gc.enable()
    return times


def run(makers, selected, dtypes, rounds, budget, backend):
    rows = []
    for title in selected:
        for dtype in dtypes:
            workload = WORKLOADS[title]
            variants = {
                name: build(workload, dtype, make(), backend) for name, make in makers.items()
            }
            times = measure(variants, rounds, budget)
            row = {"workload": title, "dtype": dtype}
            row["seconds"] = statistics.median(times["plain"])
            for name in list(makers)[1:]:
                pairs = zip(times[name], times["plain"], strict=True)
                row[name] = statistics.median(a / b for a, b in pairs)
            rows.append(row)
            print(format_row(row, list(makers)[1:]), flush=True)
    return rows


def format_row(row, names):
    cells = "".join(f"{row[name]:>15.3f}" for name in names)
    return f"{row['workload']:<24}{row['dtype']:<9}{row['seconds'] * 1e3:>10.3f}{cells}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--budget", type=float, default=0.02, help="seconds per variant and round")
    parser.add_argument("--only", action="append", choices=list(WORKLOADS))
    parser.add_argument("--dtype", action="append", choices=["float32", "float64"])
    parser.add_argument("--backend", choices=list(LINKERS), default="c")
    parser.add_argument("--target", choices=[*targets.NEEDS])
    parser.add_argument("--in-place", action="store_true", help="guard with restore=False")
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.target:
        targets.enter(args.target)
    selected = args.only or list(WORKLOADS)
    dtypes = args.dtype or ["float32", "float64"]
    keep_memory()
    if args.backend == "jax":
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    makers = modes(args.backend, restore=not args.in_place)
    names = list(makers)[1:]
    print(f"{targets.described()}, PyTensor {pytensor.__version__}")
    print(f"{'workload':<24}{'dtype':<9}{'ms/call':>10}" + "".join(f"{n:>15}" for n in names))
    rows = run(makers, selected, dtypes, args.rounds, args.budget, args.backend)
    means = {name: geometric_mean(row[name] for row in rows) for name in names}
    print(f"{'geometric mean':<43}" + "".join(f"{means[name]:>15.3f}" for name in names))
    result = {
        "machine": targets.described(),
        "pytensor": pytensor.__version__,
        "numpy": np.__version__,
        "backend": args.backend,
        "blas": pytensor.config.blas__ldflags,
        "rows": rows,
        "geometric mean": means,
    }
    if args.json:
        write_json(args.json, result)


if __name__ == "__main__":
    main()
