"""What the guard costs in instructions: guarded against unguarded functions, same rewrites.

On a shared machine time cannot resolve one per cent; the number of instructions can.  It is not
time: nothing is known of caches, of memory or of how many instructions run at once.

Each variant runs in processes of its own, which compile the workload (from a warm cache), call it
a few times, and then N times while instructions are counted; then the same with 2 N calls.  The
difference is what N calls take.  The counting is done by ``perf stat`` (instructions:u) where the
machine has such a counter, else by ``valgrind --tool=callgrind``, which knows no AVX-512: there
everything is compiled for Haswell, with a compile cache of its own.

    python benchmarks/instructions.py [--budget 0.1] [--only "mlp step" ...] [--backend numba|jax]
        [--tool valgrind] [--json FILE]
"""

import argparse
import gc
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytensor
from overhead import LINKERS, build, modes
from reporting import geometric_mean, write_json
from workloads import WORKLOADS

VARIANTS = ["plain", "plain again", "guard", "guard nan+inf"]
WARM_UP = 3

# ---------------------------------------------------------------- the process that is counted


def busy(process):
    """Wait for a process while running: Valgrind listens to its control between instructions."""
    while process.poll() is None:
        time.sleep(0.05)  # seldom, as this is counted, too
    if process.returncode:
        raise RuntimeError(f"{process.args} failed with {process.returncode}")


def tell_valgrind(on):
    command = ["callgrind_control", "-i", "on" if on else "off", str(os.getpid())]
    quiet = subprocess.DEVNULL
    busy(subprocess.Popen(command, stdout=quiet, stderr=quiet))


def tell_perf(on):
    with open(os.environ["PERF_CONTROL"], "w") as control:
        control.write("enable\n" if on else "disable\n")
    with open(os.environ["PERF_ACK"]) as ack:
        ack.readline()


def child(tool, variant, title, dtype, backend, calls):
    """Compile and call one workload; have the calls counted."""
    fn, values, _reset = build(WORKLOADS[title], dtype, modes(backend)[variant](), backend)
    gc.collect()
    gc.disable()
    for _ in range(WARM_UP):
        fn(*values)
    tell = {"valgrind": tell_valgrind, "perf": tell_perf, "nothing": lambda on: None}[tool]
    tell(True)
    start = time.process_time()
    for _ in range(calls):
        fn(*values)
    seconds = (time.process_time() - start) / calls
    tell(False)
    print(seconds)


# ---------------------------------------------------------------- the tools


def counted(command, env):
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)


def under_valgrind(command, env, folder):
    out = folder / "callgrind.out"
    valgrind = ["-q", "--tool=callgrind", "--instr-atstart=no", "--vgdb-poll=200"]
    counted(["valgrind", *valgrind, f"--callgrind-out-file={out}", *command], env)
    # Not "summary", which is 0 when the counting is off at the end.
    return int(re.search(r"^totals: (\d+)", out.read_text(), re.MULTILINE)[1])


def under_perf(command, env, folder):
    control, ack, out = folder / "control", folder / "ack", folder / "perf.out"
    for fifo in (control, ack):
        os.mkfifo(fifo)
    perf = ["perf", "stat", "-x,", "-e", "instructions:u", "-D", "-1", "-o", str(out)]
    env = {**env, "PERF_CONTROL": str(control), "PERF_ACK": str(ack)}
    counted([*perf, f"--control=fifo:{control},{ack}", *command], env)
    return parse_perf(out.read_text())


def parse_perf(text):
    """Return the number in what ``perf stat -x,`` writes, or None without a counter."""
    found = re.search(r"^(\d+),[^,]*,instructions", text, re.MULTILINE)
    return int(found[1]) if found else None


def valgrind_is_missing():
    for name in ("valgrind", "callgrind_control"):
        if shutil.which(name) is None:
            return f"there is no {name} on the path"
    return None


def perf_is_missing():
    if shutil.which("perf") is None:
        return "there is no perf on the path"
    trial = subprocess.run(
        ["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True
    )
    if parse_perf(trial.stderr) is None:
        return f"it cannot count instructions here: {' '.join(trial.stderr.split())[:80]}"
    return None


TOOLS = {"perf": (perf_is_missing, under_perf), "valgrind": (valgrind_is_missing, under_valgrind)}


def choose(wanted=None):
    """Return the first tool that works, or None; say why the others do not."""
    for name in [wanted] if wanted else TOOLS:
        reason = TOOLS[name][0]()
        if reason is None:
            return name
        print(f"{name}: skipped, {reason}", flush=True)
    return None


# ---------------------------------------------------------------- measuring


def environment(tool, cache):
    """Return the environment of the processes: one thread, no chance, their own compile cache."""
    flags = [os.environ.get("PYTENSOR_FLAGS", ""), f"base_compiledir={cache}"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    if tool == "valgrind" and platform.machine() == "x86_64":
        flags.append("gcc__cxxflags=-march=haswell")
        env |= {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}
        env["XLA_FLAGS"] = "--xla_cpu_max_isa=AVX2 --xla_cpu_multi_thread_eigen=false"
    return {**env, "PYTENSOR_FLAGS": ",".join(filter(None, flags))}


def command_of(*arguments):
    return [sys.executable, "-W", "ignore", __file__, "--child", *map(str, arguments)]


def seconds_per_call(env, *arguments):
    """Return what a call takes without anything that counts; this fills the compile cache."""
    command = command_of("nothing", *arguments, 3)
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.splitlines()[-1])


def per_call(tool, env, calls, *arguments):
    """Return the instructions of one call."""
    counts = []
    for n in (calls, 2 * calls):
        with tempfile.TemporaryDirectory() as folder:
            counts.append(TOOLS[tool][1](command_of(tool, *arguments, n), env, Path(folder)))
    return (counts[1] - counts[0]) / calls


def run(tool, titles, dtypes, backend, budget, cache):
    """Print and return a row for each workload and dtype."""
    rows = []
    env = environment(tool, cache)
    for title in titles:
        for dtype in dtypes:
            taken = [seconds_per_call(env, v, title, dtype, backend) for v in VARIANTS]
            calls = max(3, math.ceil(budget / taken[0]))
            row = {"workload": title, "dtype": dtype, "calls": calls}
            for variant in VARIANTS:
                row[variant] = per_call(tool, env, calls, variant, title, dtype, backend)
            rows.append(row)
            ratios = "".join(f"{row[v] / row['plain']:>15.4f}" for v in VARIANTS[1:])
            print(f"{title:<24}{dtype:<9}{row['plain']:>15,.0f}{ratios}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=0.1, help="seconds that N calls may take")
    parser.add_argument("--only", action="append", choices=list(WORKLOADS))
    parser.add_argument("--dtype", action="append", choices=["float32", "float64"])
    parser.add_argument("--backend", choices=list(LINKERS), default="c")
    parser.add_argument("--tool", choices=list(TOOLS), help="else the first that works")
    parser.add_argument("--json")
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child[:5], int(args.child[5]))
        return
    tool = choose(args.tool)
    if tool is None:
        return
    cache = Path(pytensor.config.base_compiledir) / "instructions"
    print(f"PyTensor {pytensor.__version__}, NumPy {np.__version__}, {tool}")
    print(
        f"{'workload':<24}{'dtype':<9}{'per call':>15}" + "".join(f"{v:>15}" for v in VARIANTS[1:])
    )
    titles, dtypes = args.only or list(WORKLOADS), args.dtype or ["float32", "float64"]
    rows = run(tool, titles, dtypes, args.backend, args.budget, cache)
    means = {v: geometric_mean(row[v] / row["plain"] for row in rows) for v in VARIANTS[1:]}
    print(f"{'geometric mean':<48}" + "".join(f"{value:>15.4f}" for value in means.values()))
    if args.json:
        data = {"pytensor": pytensor.__version__, "tool": tool, "backend": args.backend}
        write_json(args.json, {**data, "rows": rows, "geometric mean": means})


if __name__ == "__main__":
    main()
