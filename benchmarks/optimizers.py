"""What the guard costs a training step that updates large arrays: CPU time, and the largest memory.

One step of an optimizer on a square matrix, batch of 32.  The unguarded and the guarded function
live in one process and are called alternately; what is reported is the median of the paired ratios
of CPU time.  The memory is that of a process of its own for each variant.  Unlike the other
benchmarks, this one leaves the system's malloc as it is: whether large arrays are taken from the
system in each call is a part of what is measured.

    OMP_NUM_THREADS=1 python benchmarks/optimizers.py [--backend numba] [--json optimizers.json]
"""

import argparse
import gc
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from reporting import write_json

from theanoguard import GuardMode

LINKERS = {"c": "cvm", "numba": "numba"}
SIZES = (100, 1000, 2000)


def sgd(w, g, state):
    return [(w, w - 0.01 * g)]


def momentum(w, g, state):
    v = state()
    new = 0.9 * v - 0.01 * g
    return [(v, new), (w, w + new)]


def rmsprop(w, g, state):
    s = state()
    new = 0.9 * s + 0.1 * pt.sqr(g)
    return [(s, new), (w, w - 1e-3 * g / (pt.sqrt(new) + 1e-8))]


def adam(w, g, state):
    m, v = state(), state()
    new_m, new_v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * pt.sqr(g)
    return [(m, new_m), (v, new_v), (w, w - 1e-3 * new_m / (pt.sqrt(new_v) + 1e-8))]


OPTIMIZERS = {"Adam": adam, "RMSProp": rmsprop, "momentum": momentum, "SGD": sgd}


def modes(backend):
    """Return what is compared, by name: functions that make a mode."""
    linker = LINKERS[backend]
    options = {"optimizer": "fast_run", "backend": backend}
    return {
        "plain": lambda: Mode(linker, "fast_run"),
        "again": lambda: Mode(linker, "fast_run"),
        "nan+inf": lambda: GuardMode(True, True, False, **options),
        "all": lambda: GuardMode(True, True, True, **options),
        "nan+inf, in place": lambda: GuardMode(True, True, False, restore=False, **options),
        "all, in place": lambda: GuardMode(True, True, True, restore=False, **options),
    }


def build(optimizer, size, mode, dtype="float32"):
    """Compile one step on shared variables of its own; return the function and its arguments."""
    rng = np.random.default_rng(1)
    x, target = pt.matrix("x", dtype=dtype), pt.matrix("target", dtype=dtype)
    w = pytensor.shared((rng.normal(size=(size, size)) / size**0.5).astype(dtype), name="w")
    with pytensor.config.change_flags(floatX=dtype, cast_policy="numpy+floatX"):
        cost = ((pt.tanh(pt.dot(x, w)) - target) ** 2).mean()
        updates = OPTIMIZERS[optimizer](
            w, pytensor.grad(cost, w), lambda: pytensor.shared(np.zeros((size, size), dtype))
        )
        fn = pytensor.function([x, target], cost, updates=updates, mode=mode)
    fn.trust_input = True
    return fn, [rng.normal(size=(32, size)).astype(dtype) for _ in range(2)]


def measure(variants, rounds, budget):
    """Return the CPU seconds per call of each variant, one number a round."""

    def seconds(name, n):
        fn, values = variants[name]
        start = time.process_time()
        for _ in range(n):
            fn(*values)
        return (time.process_time() - start) / n

    for name in variants:
        seconds(name, 3)
    calls = max(2, int(budget / max(seconds("plain", 2), 1e-6)))
    times = {name: [] for name in variants}
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name in random.sample(list(variants), len(variants)):
            seconds(name, 1)  # (its arrays are in the cache as far as they fit)
            times[name].append(seconds(name, calls))
    gc.enable()
    return times


def peak(optimizer, size, backend, name):
    """Return the largest memory of a process that makes ten steps, in MB."""
    call = [sys.executable, __file__, "--backend", backend, "--size", str(size)]
    call += ["--optimizer", optimizer, "--peak", name]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    return int(done.stdout)


def print_peak(optimizer, size, backend, name):
    fn, values = build(optimizer, size, modes(backend)[name]())
    for _ in range(10):
        fn(*values)
    # (What `resource` says begins with the largest memory of the parent.)
    [line] = [s for s in Path("/proc/self/status").read_text().splitlines() if s[:5] == "VmHWM"]
    print(int(line.split()[1]) // 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--budget", type=float, default=0.05, help="seconds per variant and round")
    parser.add_argument("--backend", choices=list(LINKERS), default="c")
    parser.add_argument("--size", action="append", type=int)
    parser.add_argument("--optimizer", action="append", choices=list(OPTIMIZERS))
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--no-memory", action="store_true", help="measure only time")
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.peak:
        return print_peak(args.optimizer[0], args.size[0], args.backend, args.peak)
    makers = modes(args.backend)
    names = list(makers)
    rows = []
    print(f"{'':<16}{'ms/step':>9}" + "".join(f"{n:>19}" for n in names[1:]), end="")
    print("" if args.no_memory else "    largest memory in MB: " + ", ".join(names))
    for optimizer in args.optimizer or OPTIMIZERS:
        for size in args.size or SIZES:
            variants = {name: build(optimizer, size, make()) for name, make in makers.items()}
            times = measure(variants, args.rounds, args.budget)
            del variants
            row = {"optimizer": optimizer, "size": size}
            row["seconds"] = statistics.median(times["plain"])
            for name in names[1:]:
                pairs = zip(times[name], times["plain"], strict=True)
                row[name] = statistics.median(a / b for a, b in pairs)
            text = f"{optimizer:<10}{size:<6}{row['seconds'] * 1e3:>9.3f}"
            text += "".join(f"{row[name]:>19.3f}" for name in names[1:])
            if not args.no_memory:
                row["MB"] = {
                    n: peak(optimizer, size, args.backend, n) for n in names if n != "again"
                }
                text += "    " + ", ".join(map(str, row["MB"].values()))
            rows.append(row)
            print(text, flush=True)
    if args.json:
        write_json(args.json, {"pytensor": pytensor.__version__, "rows": rows})


if __name__ == "__main__":
    main()
