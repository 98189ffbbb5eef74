"""What it costs to train safely: a training step with and without, by CPU time.

The step is that of the 784-512-512-10 network of ``workloads.py``, batch of 128, by SGD and by
Adam; all variants are called alternately in one process, and the median of the paired ratios is
reported.  The plain SGD step never holds a gradient: PyTensor lets one BLAS call compute it and
add it to the weights.  What needs the gradients undoes that; "gradients" is the plain step with
gradients held and nothing done with them, and "guard/gradients" the guard's step over that one.

    OMP_NUM_THREADS=1 python benchmarks/training.py [--rounds 41] [--json training.json]
"""

import argparse
import operator
import statistics

import numpy as np
import pytensor
import pytensor.tensor as pt
from overhead import measure
from pytensor.compile.mode import Mode
from reporting import write_json
from workloads import WORKLOADS

from theanoguard.training import GradientGuard, Watch, clip_grad_norm, guarded_updates
from theanoguard.training.ops import scale_each

WATCH_EVERY = 10


def sgd(params, grads):
    return [(p, p - np.asarray(0.01, p.dtype) * g) for p, g in zip(params, grads, strict=True)]


def adam(params, grads):
    updates = []
    for p, g in zip(params, grads, strict=True):
        m, v = (pytensor.shared(np.zeros_like(p.get_value())) for _ in range(2))
        new_m, new_v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * pt.sqr(g)
        updates += [(m, new_m), (v, new_v), (p, p - 1e-4 * new_m / (pt.sqrt(new_v) + 1e-8))]
    return updates


OPTIMIZERS = {"SGD": sgd, "Adam": adam}


def plain(optimizer, cost, params, grads):
    return optimizer(params, grads), None


def held(optimizer, cost, params, grads):
    return optimizer(params, scale_each(pt.ones(1), grads)), None


def guarded(optimizer, cost, params, grads):
    return guarded_updates(optimizer(params, grads), watch=[cost]), None


def clipped(optimizer, cost, params, grads):
    grads, _norm = clip_grad_norm(grads, 1e6)
    return optimizer(params, grads), None


def gradient_guard(optimizer, cost, params, grads):
    return optimizer(params, GradientGuard(max_norm=1e6, factor=1e3)(grads, params)), None


def watch_weights(optimizer, cost, params, grads):
    return optimizer(params, grads), Watch(params, every=WATCH_EVERY)


def watch_all(optimizer, cost, params, grads):
    watch = Watch(params, every=WATCH_EVERY)
    return optimizer(params, watch.gradients(grads)), watch


# Each returns the updates, and what to do the step in.
VARIANTS = {
    "plain": plain,
    "again": plain,
    "gradients": held,
    "GradientGuard": gradient_guard,
    "clip_grad_norm": clipped,
    "guarded_updates": guarded,
    f"Watch/{WATCH_EVERY}": watch_weights,
    f"Watch/{WATCH_EVERY} +grads": watch_all,
}


def build(variant, optimizer, dtype):
    """Compile one variant of the step on parameters of its own."""
    inputs, cost, updates, values = WORKLOADS["mlp step"](dtype, np.random.default_rng(1))
    params = [p for p, _ in updates]
    with pytensor.config.change_flags(floatX=dtype):
        updates, watch = variant(optimizer, cost, params, pytensor.grad(cost, params))
        fn = pytensor.function(inputs, cost, updates=updates, mode=Mode("cvm", "fast_run"))
    fn.trust_input = True
    start = [(v, v.get_value()) for v in dict(updates)]

    def reset():
        for v, value in start:
            v.set_value(value)

    def step(*values):
        with watch.step():
            fn(*values)

    return fn if watch is None else step, values, reset


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds per variant and round")
    parser.add_argument("--optimizer", action="append", choices=list(OPTIMIZERS))
    parser.add_argument("--only", action="append", choices=list(VARIANTS)[1:])
    parser.add_argument("--json")
    args = parser.parse_args()
    selected = args.only or list(VARIANTS)[1:]
    rows = []
    columns = {name: (name, "plain") for name in selected}
    if {"GradientGuard", "gradients"} <= columns.keys():
        columns["guard/gradients"] = ("GradientGuard", "gradients")
    print(f"{'':<15}{'ms/step':>9}" + "".join(f"{name:>17}" for name in columns))
    for optimizer in args.optimizer or OPTIMIZERS:
        for dtype in ("float32", "float64"):
            variants = {
                name: build(VARIANTS[name], OPTIMIZERS[optimizer], dtype)
                for name in ("plain", *selected)
            }
            times = measure(variants, args.rounds, args.budget)
            ratios = {
                name: statistics.median(map(operator.truediv, times[over], times[base]))
                for name, (over, base) in columns.items()
            }
            seconds = statistics.median(times["plain"])
            rows.append({"optimizer": optimizer, "dtype": dtype, "seconds": seconds, **ratios})
            cells = "".join(f"{ratio:>17.3f}" for ratio in ratios.values())
            print(f"{optimizer:<6}{dtype:<9}{seconds * 1e3:>9.3f}{cells}", flush=True)
    if args.json:
        write_json(args.json, {"pytensor": pytensor.__version__, "rows": rows})


if __name__ == "__main__":
    main()
