"""How the guard's cost grows: with nodes, elements, steps of a scan, dtypes and threads.

Guarded and unguarded functions are called alternately, in random order within each round; what is
reported is the median of the paired ratios and that of the paired differences ("extra"), per call
and per unit, by CPU time; for threads by wall time, in a process for each number of threads.
"Again" is a second unguarded function: what the machine can resolve.

nodes     a chain of operations on 10 elements, which are not fused
elements  cumsum, whose result has to be read, and exp(x) + y, which the guard runs in blocks;
          beside them what copying as many elements takes, called in the same rounds
steps     a scan of tanh(dot(h, w)) with 16 rows of 32 elements
dtype     the operations of "elements" on 100,000 elements
threads   a training step of an MLP, and exp(x) + y on a million elements, with OpenMP

    OMP_NUM_THREADS=1 python benchmarks/scaling.py [--curve nodes ...] [--backend numba]
        [--json FILE] [--plot FILE]
"""

import argparse
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytensor
import pytensor.tensor as pt
from overhead import LINKERS
from pytensor.compile.mode import Mode
from reporting import write_json
from timing import Variant, extra, interleaved, ratio
from workloads import WORKLOADS

import theanoguard

NODES = [1, 10, 30, 100, 300, 1000, 3000, 10_000]
ELEMENTS = [10**k for k in range(8)]
STEPS = [1, 10, 100, 1000]
DTYPES = ["float16", "float32", "float64", "complex64", "complex128"]
THREADS = [1, 2]
THREADED = ["mlp step", "exp(x) + y, 1M"]
# What a backend cannot do, or not in a reasonable time: Numba compiles all nodes as one function.
MOST_NODES = {"c": 10_000, "numba": 1000}
NO_DTYPE = {"c": [], "numba": ["float16"]}


# ---------------------------------------------------------------- graphs


def values_of(dtype, n):
    """Values of which no operation below makes a NaN or a big value."""
    values = np.random.default_rng(1).uniform(0.5, 1, n)
    return (values * (1 + 0.5j) if dtype.startswith("complex") else values).astype(dtype)


def chain(n):
    x = pt.vector("x", dtype="float32")
    y = x
    for i in range(n):
        y = pt.reciprocal(y) if i % 2 else pt.exp(y)
    return [x], [y], [values_of("float32", 10)]


def cumsum(dtype, n):
    x = pt.vector("x", dtype=dtype)
    return [x], [pt.cumsum(x)], [values_of(dtype, n) / np.asarray(n).astype(dtype)]


def exp_plus(dtype, n):
    x, y = pt.vector("x", dtype=dtype), pt.vector("y", dtype=dtype)
    return [x, y], [pt.exp(x) + y], [values_of(dtype, n), values_of(dtype, n)]


def loop(steps):
    h, w = pt.matrix("h", dtype="float32"), pt.matrix("w", dtype="float32")
    out = pytensor.scan(
        lambda h, w: pt.tanh(pt.dot(h, w)),
        outputs_info=[h],
        non_sequences=[w],
        n_steps=steps,
        return_updates=False,
    )
    return [h, w], [out], [np.ones((16, 32), "float32"), np.full((32, 32), 0.01, "float32")]


OPERATIONS = {"cumsum(x)": cumsum, "exp(x) + y": exp_plus}


# ---------------------------------------------------------------- measuring


def variants_of(graph, values, backend, optimizer="fast_run", updates=()):
    """Compile a graph unguarded, unguarded again, and guarded."""
    linker = LINKERS[backend]
    modes = {
        "plain": Mode(linker, optimizer),
        "again": Mode(linker, optimizer),
        "guard": theanoguard.GuardMode(True, True, True, optimizer=optimizer, backend=backend),
    }
    result = {}
    for name, mode in modes.items():
        fn = pytensor.function(*graph, mode=mode, updates=updates)
        fn.trust_input = True
        start = [(p, p.get_value()) for p, _ in updates]
        result[name] = Variant(
            partial(fn, *values), lambda start=start: [p.set_value(v) for p, v in start]
        )
    return result


def row_of(what, x, times, units=None):
    """Describe one point of a curve.

    Parameters
    ----------
    what : str
    x : int or str
        Where the point stands on the axis of the curve.
    times : dict
        What ``interleaved`` returned.
    units : int or None
        Over how many nodes, elements or steps the cost is spread, if it is.
    """
    row = {
        "what": what,
        "x": x,
        "plain_us": statistics.median(times["plain"]) * 1e6,
        "again": ratio(times, "again"),
        "guard": ratio(times, "guard"),
        "extra_us": extra(times, "guard") * 1e6,
    }
    if units:
        row["extra_ns_per_unit"] = row["extra_us"] * 1e3 / units
    if "copy" in times:
        row["copy_ns_per_unit"] = statistics.median(times["copy"]) * 1e9 / units
    return row


def by_nodes(backend, points, measure):
    for n in points or NODES:
        if n <= MOST_NODES[backend]:
            inputs, outputs, values = chain(n)
            variants = variants_of((inputs, outputs), values, backend, optimizer=None)
            yield row_of("chain", n, measure(variants), n)


def by_elements(backend, points, measure):
    for what, operation in OPERATIONS.items():
        for n in points or ELEMENTS:
            inputs, outputs, values = operation("float32", n)
            variants = variants_of((inputs, outputs), values, backend)
            variants["copy"] = Variant(partial(np.copyto, np.empty_like(values[0]), values[0]))
            yield row_of(what, n, measure(variants), n)


def by_steps(backend, points, measure):
    for n in points or STEPS:
        inputs, outputs, values = loop(n)
        yield row_of("scan", n, measure(variants_of((inputs, outputs), values, backend)), n)


def by_dtype(backend, points, measure):
    for what, operation in OPERATIONS.items():
        for dtype in points or DTYPES:
            if dtype not in NO_DTYPE[backend]:
                inputs, outputs, values = operation(dtype, 100_000)
                variants = variants_of((inputs, outputs), values, backend)
                yield row_of(what, dtype, measure(variants), 100_000)


def with_threads(backend, threads, measure):
    """Measure in a process that was started with so many threads."""
    rows = []
    with pytensor.config.change_flags(openmp=threads > 1, floatX="float32"):
        for what in THREADED:
            inputs, outputs, updates, values = WORKLOADS[what]("float32", np.random.default_rng(1))
            variants = variants_of((inputs, outputs), values, backend, updates=updates)
            rows.append(row_of(what, threads, measure(variants, clock=time.perf_counter)))
    return rows


def by_threads(backend, points, measure):
    for threads in points or THREADS:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        before = {name: os.environ.get(name) for name in names}
        os.environ.update(dict.fromkeys(names, str(threads)))
        try:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                yield from pool.submit(with_threads, backend, threads, measure).result()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


# By name: how it is measured, and the unit over which the cost is spread.
CURVES = {
    "nodes": (by_nodes, "node"),
    "elements": (by_elements, "element"),
    "steps": (by_steps, "step"),
    "dtype": (by_dtype, "element"),
    "threads": (by_threads, None),
}


def fixed_cost(rows):
    """Return nanoseconds per call and per node: the line through "nodes" up to 1000.

    With more nodes the time per node grows: the functions' data leave the fast caches.
    """
    rows = [row for row in rows if row["x"] <= 1000]
    x = np.array([row["x"] for row in rows])
    # Each point to the same relative accuracy, as it was measured, but for the first ones.
    per_node, per_call = np.polyfit(x, [row["extra_us"] for row in rows], 1, w=1 / (x + 10))
    return {"per_call_ns": float(per_call) * 1e3, "per_node_ns": float(per_node) * 1e3}


# ---------------------------------------------------------------- telling


def heading(curve):
    unit = CURVES[curve][1]
    line = f"{curve:<16}{'':>11}{'plain, us':>12}{'again':>8}{'guard':>8}{'extra, us':>12}"
    line += f"{'ns/' + unit:>12}" if unit else ""
    return line + (f"{'copy ns/element':>17}{'GB/s':>7}" if curve == "elements" else "")


def line_of(row):
    line = f"{row['what']:<16}{row['x']:>11}{row['plain_us']:>12.2f}{row['again']:>8.3f}"
    line += f"{row['guard']:>8.3f}{row['extra_us']:>12.2f}"
    if "extra_ns_per_unit" in row:
        line += f"{row['extra_ns_per_unit']:>12.3f}"
    if "copy_ns_per_unit" in row:
        copy = row["copy_ns_per_unit"]
        line += f"{copy:>17.3f}{8 / copy:>7.1f}"  # 4 bytes are read, and as many written
    return line


def plot(curves, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(1, len(curves), figsize=(4.5 * len(curves), 4), squeeze=False)
    for ax, (curve, rows) in zip(axes[0], curves.items(), strict=True):
        for what in dict.fromkeys(row["what"] for row in rows):
            points = [row for row in rows if row["what"] == what]
            x = [row["x"] for row in points]
            for name, style in (("guard", "o-"), ("again", "x:")):
                ax.plot(x, [row[name] for row in points], style, label=f"{what}, {name}")
        if curve in ("nodes", "elements", "steps"):
            ax.set_xscale("log")
        ax.axhline(1, color="gray", linewidth=0.5)
        ax.set(xlabel=curve, ylabel="time / unguarded time")
        ax.legend(fontsize="small")
    fig.tight_layout()
    fig.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curve", action="append", choices=list(CURVES))
    parser.add_argument("--backend", choices=list(MOST_NODES), default="c")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--budget", type=float, default=0.02, help="seconds per variant and round")
    parser.add_argument("--json")
    parser.add_argument("--plot", help="file for a figure, if matplotlib is there")
    args = parser.parse_args()
    measure = partial(interleaved, rounds=args.rounds, budget=args.budget)
    print(f"PyTensor {pytensor.__version__}, NumPy {np.__version__}, backend {args.backend}")
    curves, fixed = {}, None
    for curve in args.curve or list(CURVES):
        print("\n" + heading(curve))
        curves[curve] = []
        for row in CURVES[curve][0](args.backend, None, measure):
            curves[curve].append(row)
            print(line_of(row), flush=True)
        if curve == "nodes":
            fixed = fixed_cost(curves[curve])
            text = "{per_call_ns:.0f} ns per call, {per_node_ns:.1f} ns per node (up to 1000 nodes)"
            print(text.format(**fixed))
    if args.json:
        versions = {"pytensor": pytensor.__version__, "numpy": np.__version__}
        write_json(
            args.json, {**versions, "backend": args.backend, "curves": curves, "fixed cost": fixed}
        )
    if args.plot:
        try:
            plot(curves, args.plot)
        except ImportError as error:
            print(f"no figure: {error}")


if __name__ == "__main__":
    main()
