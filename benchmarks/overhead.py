"""What the guard costs: guarded against unguarded functions, same rewrites.

Both variants of a workload live in one process and are called alternately, in random
order within each round, on the same inputs; what is compared is CPU time, and what is
reported is the median of the paired ratios.  Guarded and unguarded start each round from
the same values of the shared variables.  An A/A line (two unguarded copies) says what the
machine can resolve.

    OMP_NUM_THREADS=1 python benchmarks/overhead.py [--rounds 60] [--json overhead.json]
"""

import argparse
import gc
import json
import os
import platform
import random
import statistics
import tempfile
import time

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.debug.nanguardmode import NanGuardMode
from pytensor.compile.mode import Mode

import theanoguard

# ---------------------------------------------------------------- workloads
# each returns (inputs, outputs, updates, values of the inputs)


def shared(value, name):
    return pytensor.shared(value, name=name)


def mlp(dtype, rng):
    """Training step of a 784-512-512-10 network, batch of 128, softmax cross-entropy, SGD."""
    sizes = [784, 512, 512, 10]
    x, y = pt.matrix("x", dtype=dtype), pt.ivector("y")
    params, h = [], x
    for i, (m, n) in enumerate(zip(sizes, sizes[1:], strict=False)):
        w = shared((rng.normal(size=(m, n)) / np.sqrt(m)).astype(dtype), f"w{i}")
        b = shared(np.zeros(n, dtype=dtype), f"b{i}")
        params += [w, b]
        h = pt.dot(h, w) + b
        if n != 10:
            h = pt.maximum(h, np.asarray(0, dtype))
    logits = h - h.max(axis=1, keepdims=True)
    logp = logits - pt.log(pt.exp(logits).sum(axis=1, keepdims=True))
    cost = -logp[pt.arange(y.shape[0]), y].mean()
    step = np.asarray(0.01, dtype)
    updates = [(p, p - step * g) for p, g in zip(params, pytensor.grad(cost, params), strict=True)]
    values = rng.random((128, 784)).astype(dtype), rng.integers(0, 10, 128).astype("int32")
    return [x, y], cost, updates, values


def rnn(dtype, rng):
    """Training step of a recurrent network: scan over 64 steps, hidden 128, batch 32."""
    x, t = pt.tensor3("x", dtype=dtype), pt.matrix("t", dtype=dtype)
    w_in = shared((rng.normal(size=(32, 128)) / 6).astype(dtype), "w_in")
    w = shared((rng.normal(size=(128, 128)) / 12).astype(dtype), "w")
    w_out = shared((rng.normal(size=(128, 8)) / 12).astype(dtype), "w_out")
    h0 = pt.zeros((32, 128), dtype=dtype)
    h = pytensor.scan(
        lambda x_t, h, w_in, w: pt.tanh(pt.dot(x_t, w_in) + pt.dot(h, w)),
        sequences=[x],
        outputs_info=[h0],
        non_sequences=[w_in, w],
        return_updates=False,
    )
    cost = ((pt.dot(h[-1], w_out) - t) ** 2).mean()
    params = [w_in, w, w_out]
    step = np.asarray(0.01, dtype)
    updates = [(p, p - step * g) for p, g in zip(params, pytensor.grad(cost, params), strict=True)]
    values = rng.normal(size=(64, 32, 32)).astype(dtype), rng.normal(size=(32, 8)).astype(dtype)
    return [x, t], cost, updates, values


def logp(dtype, rng):
    """Log-density of 100,000 observations under a linear model, with its gradient."""
    obs = shared(rng.normal(size=100_000).astype(dtype), "obs")
    covariate = shared(rng.normal(size=100_000).astype(dtype), "covariate")
    theta = pt.vector("theta", dtype=dtype)
    mu, sigma = theta[0] + theta[1] * covariate, pt.exp(theta[2])
    z = (obs - mu) / sigma
    density = (-0.5 * z**2 - pt.log(sigma) - 0.9189385332046727).sum()
    return [theta], [density, pytensor.grad(density, theta)], [], [np.zeros(3, dtype)]


def small_nodes(n):
    def build(dtype, rng):
        x = pt.vector("x", dtype=dtype)
        m = pt.as_tensor((np.eye(10) * 0.5).astype(dtype))
        y = x
        for i in range(n // 2):
            y = pt.exp(-(y**2)) if i % 2 else pt.tanh(y) + x
            y = pt.cumsum(y)[::-1] if i % 3 else pt.dot(m, y)
        return [x], y.sum(), [], [rng.normal(size=10).astype(dtype) * 0.1]

    return build


def elementwise(dtype, rng):
    """exp(x) + y on a million elements."""
    x, y = pt.vector("x", dtype=dtype), pt.vector("y", dtype=dtype)
    values = [rng.normal(size=1_000_000).astype(dtype) for _ in range(2)]
    return [x, y], pt.exp(x) + y, [], values


WORKLOADS = {
    "mlp step": mlp,
    "scan rnn step": rnn,
    "log-density 100k": logp,
    "chain, 300 small nodes": small_nodes(300),
    "exp(x) + y, 1M": elementwise,
    "5,000 small nodes": small_nodes(5000),
}


# ---------------------------------------------------------------- measuring


def modes():
    return {
        "plain": lambda: Mode("cvm", "fast_run"),
        "plain again": lambda: Mode("cvm", "fast_run"),
        "guard": lambda: theanoguard.GuardMode(True, True, True, optimizer="fast_run"),
        "guard nan+inf": lambda: theanoguard.GuardMode(True, True, False, optimizer="fast_run"),
        "NanGuardMode": lambda: NanGuardMode(True, True, True, optimizer="fast_run"),
    }


def build(workload, dtype, mode):
    """Compile one variant on shared variables of its own; return (call, reset)."""
    inputs, outputs, updates, values = workload(dtype, np.random.default_rng(1))
    with pytensor.config.change_flags(floatX=dtype):
        fn = pytensor.function(inputs, outputs, updates=updates, mode=mode)
    fn.trust_input = True
    start = [(p, p.get_value()) for p, _ in updates]

    def reset():
        for p, value in start:
            p.set_value(value)

    return fn, values, reset


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


def run(selected, dtypes, rounds, budget):
    rows = []
    for title in selected:
        for dtype in dtypes:
            workload = WORKLOADS[title]
            variants = {name: build(workload, dtype, make()) for name, make in modes().items()}
            times = measure(variants, rounds, budget)
            row = {"workload": title, "dtype": dtype}
            row["seconds"] = statistics.median(times["plain"])
            for name in list(modes())[1:]:
                pairs = zip(times[name], times["plain"], strict=True)
                row[name] = statistics.median(a / b for a, b in pairs)
            rows.append(row)
            print(format_row(row), flush=True)
    return rows


def format_row(row):
    cells = "".join(f"{row[name]:>15.3f}" for name in list(modes())[1:])
    return f"{row['workload']:<24}{row['dtype']:<9}{row['seconds'] * 1e3:>10.3f}{cells}"


def geometric_mean(values):
    return float(np.exp(np.mean(np.log(list(values)))))


def compile_times(selected, repeats):
    """Guarded against unguarded time of ``pytensor.function``, compile cache warm."""
    ratios = {}
    for title in selected:
        pairs = []
        for _ in range(repeats):
            seconds = {}
            for name in random.sample(["plain", "guard"], 2):
                start = time.process_time()
                build(WORKLOADS[title], "float32", modes()[name]())
                seconds[name] = time.process_time() - start
            pairs.append(seconds["guard"] / seconds["plain"])
        ratios[title] = statistics.median(pairs)
    return ratios


def write_json(path, data):
    """Write atomically, so that a reader never sees half a file."""
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, suffix=".json") as file:
        json.dump(data, file, indent=1)
    os.replace(file.name, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--budget", type=float, default=0.02, help="seconds per variant and round")
    parser.add_argument("--only", action="append", choices=list(WORKLOADS))
    parser.add_argument("--dtype", action="append", choices=["float32", "float64"])
    parser.add_argument("--compile", type=int, default=0, metavar="N", help="repeats")
    parser.add_argument("--json")
    args = parser.parse_args()
    selected = args.only or list(WORKLOADS)
    dtypes = args.dtype or ["float32", "float64"]
    names = list(modes())[1:]
    print(f"PyTensor {pytensor.__version__}, NumPy {np.__version__}, {platform.machine()}")
    print(f"{'workload':<24}{'dtype':<9}{'ms/call':>10}" + "".join(f"{n:>15}" for n in names))
    rows = run(selected, dtypes, args.rounds, args.budget)
    means = {name: geometric_mean(row[name] for row in rows) for name in names}
    print(f"{'geometric mean':<43}" + "".join(f"{means[name]:>15.3f}" for name in names))
    result = {
        "pytensor": pytensor.__version__,
        "numpy": np.__version__,
        "blas": pytensor.config.blas__ldflags,
        "rows": rows,
        "geometric mean": means,
    }
    if args.compile:
        result["compile"] = compile_times(selected, args.compile)
        for title, ratio in result["compile"].items():
            print(f"compile time, {title}: {ratio:.3f}")
    if args.json:
        write_json(args.json, result)


if __name__ == "__main__":
    main()
