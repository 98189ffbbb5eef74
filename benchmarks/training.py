"""What it costs to train safely: a training step with and without, by CPU time.

The step is that of the 784-512-512-10 network of ``workloads.py``, batch of 128, SGD; both
variants are called alternately in one process, and the median of the paired ratios is
reported.

    OMP_NUM_THREADS=1 python benchmarks/training.py [--rounds 41] [--json training.json]
"""

import argparse
import statistics

import numpy as np
import pytensor
from overhead import measure
from pytensor.compile.mode import Mode
from reporting import write_json
from workloads import WORKLOADS

from theanoguard import clip_grad_norm, guarded_updates


def plain(cost, params, grads):
    return [(p, p - np.asarray(0.01, p.dtype) * g) for p, g in zip(params, grads, strict=True)]


def guarded(cost, params, grads):
    return guarded_updates(plain(cost, params, grads), watch=[cost])


def clipped(cost, params, grads):
    grads, _norm = clip_grad_norm(grads, 1e6)
    return plain(cost, params, grads)


VARIANTS = {
    "plain": plain,
    "plain again": plain,
    "guarded_updates": guarded,
    "clip_grad_norm": clipped,
}


def build(make_updates, dtype):
    """Compile one variant of the step on parameters of its own."""
    inputs, cost, updates, values = WORKLOADS["mlp step"](dtype, np.random.default_rng(1))
    params = [p for p, _ in updates]
    start = [p.get_value() for p in params]
    with pytensor.config.change_flags(floatX=dtype):
        updates = make_updates(cost, params, pytensor.grad(cost, params))
        fn = pytensor.function(inputs, cost, updates=updates, mode=Mode("cvm", "fast_run"))
    fn.trust_input = True

    def reset():
        for p, value in zip(params, start, strict=True):
            p.set_value(value)

    return fn, values, reset


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--budget", type=float, default=0.05, help="seconds per variant and round")
    parser.add_argument("--json")
    args = parser.parse_args()
    rows = []
    print(f"{'dtype':<9}{'ms/step':>9}" + "".join(f"{n:>17}" for n in list(VARIANTS)[1:]))
    for dtype in ("float32", "float64"):
        variants = {name: build(make, dtype) for name, make in VARIANTS.items()}
        times = measure(variants, args.rounds, args.budget)
        ratios = {
            name: statistics.median(a / b for a, b in zip(times[name], times["plain"], strict=True))
            for name in list(VARIANTS)[1:]
        }
        seconds = statistics.median(times["plain"])
        rows.append({"dtype": dtype, "seconds": seconds, **ratios})
        print(f"{dtype:<9}{seconds * 1e3:>9.3f}" + "".join(f"{r:>17.3f}" for r in ratios.values()))
    if args.json:
        write_json(args.json, {"pytensor": pytensor.__version__, "rows": rows})


if __name__ == "__main__":
    main()
