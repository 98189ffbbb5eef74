"""What the guard costs on the device that JAX computes on, a GPU above all.

Six workloads in float32, looked at for NaN and Inf.  All variants of a workload live in one
process and are called alternately, in random order within each round; what is compared is wall
time, and what is reported the median of the paired ratios to the unguarded function.  It is done
twice: "waiting" for the results of each call (``block_until_ready``), and in a "stream" of calls of
which only the last is waited for.  Each series ends when the device has finished and, under the
guard, when all flags have been read.  Inputs and shared variables lie on the device.

Then each guarded variant is given a NaN: the table says how many calls later the error came, and
whether the weights are those of before the bad call.  ``--memory`` measures the peak of the
device's memory instead, with a process for each variant.

    python benchmarks/gpu.py [--rounds 20] [--only "mlp 512"] [--memory] [--json gpu.json]
"""

import argparse
import contextlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytensor
from pytensor.compile.mode import Mode
from reporting import geometric_mean, write_json
from timing import ratio
from workloads import logp, mlp, rnn, small_nodes

from theanoguard import GuardError, GuardMode, sync

WORKLOADS = {
    "mlp 3x2048, batch 4096": partial(mlp, sizes=(784, 2048, 2048, 2048, 10), batch=4096),
    "mlp 512, batch 128": mlp,
    "log-density 10M": partial(logp, rows=10_000_000),
    "log-density 100k": logp,
    "scan rnn, 64 steps": rnn,
    "chain, 300 small nodes": small_nodes(300),
}
PLAIN = ("plain", "plain again", "debug_nans", "checkify")
GUARDED = {
    "later": {"when": "later"},
    "now": {"when": "now"},
    "later, big": {"when": "later", "big_is_error": True},
    "now, big": {"when": "now", "big_is_error": True},
}


def build(title, mode):
    """Compile a workload on shared variables of its own; return it, its inputs, and its weights."""
    import jax

    inputs, outputs, updates, values = WORKLOADS[title]("float32", np.random.default_rng(1))
    # JAX cannot compile a loop without the shapes of what goes in.
    known = [v.type.clone(shape=x.shape)(v.name) for v, x in zip(inputs, values, strict=True)]
    givens = dict(zip(inputs, known, strict=True))
    fn = pytensor.function(known, outputs, updates=updates, givens=givens, mode=mode)
    fn.trust_input = True
    for variable in fn.get_shared():
        cell = variable.container.storage
        cell[0] = jax.device_put(cell[0])
    return fn, [jax.device_put(v) for v in values], [w for w, _ in updates]


def guard_mode(when, big_is_error=False):
    return GuardMode(True, True, big_is_error, optimizer="fast_run", backend="jax", when=when)


def finished(weights, results):
    """Wait until the device has computed everything."""
    import jax

    jax.block_until_ready((results, [w.container.storage[0] for w in weights]))
    sync()


def checked(fn, weights):
    """Return a function that runs the same program under ``checkify``."""
    import jax
    from jax.experimental import checkify

    program = jax.jit(checkify.checkify(fn.vm.jit_fn, checkify.float_checks))
    cells = [container.storage for container in fn.input_storage]
    at = {id(cell): i for i, cell in enumerate(cells)}
    updated = [at[id(w.container.storage)] for w in weights]

    def call(*values):
        given = [*values, *(cell[0] for cell in cells[len(values) :])]
        error, results = program(*given)
        error.throw()
        for i, value in zip(updated, results[len(results) - len(updated) :], strict=True):
            cells[i][0] = value
        return results

    return call


@dataclass
class Measured:
    """One variant of a workload.

    Parameters
    ----------
    fn : Function
    run : callable
        Starts a call.
    values : list
        Of the inputs, on the device.
    weights : list of SharedVariable
        That `fn` updates.
    on : callable
        Returns the context in which the calls are made.
    """

    fn: object
    run: Callable
    values: list
    weights: list
    on: Callable = contextlib.nullcontext

    def seconds(self, calls, waiting=False):
        """Return the wall time of a call, over a series of them."""
        import jax

        with self.on():
            start = time.perf_counter()
            for _ in range(calls):
                results = self.run(*self.values)
                if waiting:
                    jax.block_until_ready(results)
            finished(self.weights, results)
            return (time.perf_counter() - start) / calls


def variant(title, name):
    import jax

    mode = guard_mode(**GUARDED[name]) if name in GUARDED else Mode("jax", "fast_run")
    fn, values, weights = build(title, mode)
    found = Measured(fn, fn, values, weights)
    if name == "checkify":
        found.run = checked(fn, weights)
    if name == "debug_nans":
        found.on = partial(jax.debug_nans, True)
    return found


def find_a_nan(measured):
    """Return after how many further calls a NaN is reported, and whether the weights are right."""
    import jax

    fn, values, weights = measured.fn, measured.values, measured.weights
    fn(*values)
    sync()
    before = [np.asarray(w.get_value()) for w in weights]
    bad = np.array(values[0])
    bad.flat[0] = np.nan
    number = fn.vm.guard.calls + 1
    given = [jax.device_put(bad), *values[1:]]
    for calls_later in range(40):
        try:
            fn(*given)
        except GuardError as error:
            right = error.event.call == number and all(
                np.array_equal(old, w.get_value()) for old, w in zip(before, weights, strict=True)
            )
            return calls_later, right
        given = values
    return None, False


def measure(title, rounds, budget):
    """Return a row of the table."""
    variants, calls = {}, {}
    for name in (*PLAIN, *GUARDED):
        start = time.perf_counter()
        try:
            variants[name] = variant(title, name)
            variants[name].seconds(1)
        except Exception as error:  # another tool's limit is no reason to measure nothing
            if name not in ("checkify", "debug_nans"):
                raise
            print(f"  {name} cannot run this: {type(error).__name__}", file=sys.stderr)
            variants.pop(name, None)
            continue
        compiled = time.perf_counter() - start
        calls[name] = max(3, min(200, int(budget / variants[name].seconds(5))))
        print(f"  {name}: compiled in {compiled:.1f} s", file=sys.stderr, flush=True)
    row = {"workload": title}
    for how in ("waiting", "stream"):
        times = {name: [] for name in variants}
        for _ in range(rounds):
            for name in random.sample(list(variants), len(variants)):
                times[name].append(variants[name].seconds(calls[name], how == "waiting"))
        row[how] = {"ms": 1e3 * statistics.median(times["plain"])}
        row[how].update((name, ratio(times, name)) for name in variants if name != "plain")
    row["held MB"] = variants["later"].fn.vm.guard.held / 1e6
    row["read"] = variants["later"].fn.vm.guard.n_read
    for name in ("later", "now"):
        row[f"{name}: calls until found"], row[f"{name}: weights"] = find_a_nan(variants[name])
    return row


# ---------------------------------------------------------------- memory


def peak(title, name):
    """Return the peak of the device's memory in MB, in this process."""
    measured = variant(title, name)
    measured.seconds(40)
    stats = measured.values[0].devices().pop().memory_stats() or {}
    return stats.get("peak_bytes_in_use", 0) / 1e6


def peaks(titles):
    """Return the peaks of every workload, each variant in a process of its own."""
    rows = []
    for title in titles:
        row = {"workload": title}
        for name in ("plain", "later", "now"):
            command = [sys.executable, __file__, "--peak", title, name]
            row[name] = float(subprocess.run(command, capture_output=True, check=True).stdout)
        rows.append(row)
        print(row, flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds per variant and round")
    parser.add_argument("--only", action="append", choices=list(WORKLOADS))
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--peak", nargs=2, metavar=("WORKLOAD", "VARIANT"))
    parser.add_argument("--json")
    args = parser.parse_args()
    with pytensor.config.change_flags(floatX="float32"):
        if args.peak:
            print(peak(*args.peak))
            return
        titles = args.only or list(WORKLOADS)
        if args.memory:
            result = {"peak MB": peaks(titles)}
        else:
            result = table(titles, args.rounds, args.budget)
    if args.json:
        write_json(args.json, result)


def table(titles, rounds, budget):
    import jax

    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, PyTensor {pytensor.__version__}")
    rows = []
    for title in titles:
        rows.append(measure(title, rounds, budget))
        print(title, flush=True)
        for name, value in rows[-1].items():
            print(f"  {name}: {format_cell(value)}", flush=True)
    means = {}
    for how in ("waiting", "stream"):
        names = [n for n in (*PLAIN[1:], *GUARDED) if all(n in row[how] for row in rows)]
        means[how] = {n: geometric_mean(row[how][n] for row in rows) for n in names}
        print(f"geometric mean, {how}: {format_cell(means[how])}")
    return {"rows": rows, "geometric mean": means, "device": jax.devices()[0].device_kind}


def format_cell(value):
    if isinstance(value, dict):
        return "  ".join(f"{name} {format_cell(cell)}" for name, cell in value.items())
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
