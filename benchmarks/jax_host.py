"""What the guard does on the host in a call of JAX: Python's part of it, in microseconds.

The program of a guarded function is replaced by its last results, so that nothing is computed and
nothing is sent to the device.  What is left is the processor time of PyTensor's and the guard's own
Python.

    OMP_NUM_THREADS=1 python benchmarks/jax_host.py [--weights 2 8]
"""

import argparse
import time

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import GuardMode


def build(n_weights, when):
    """Compile a training step with so many shared variables."""
    x = pt.tensor("x", dtype="float32", shape=(4,))
    weights = [pytensor.shared(np.full(4, 0.5, "float32")) for _ in range(n_weights)]
    h = x
    for w in weights:
        h = pt.tanh(h * w)
    loss = pt.sqr(h).sum()
    updates = {
        w: w - np.float32(1e-3) * g for w, g in zip(weights, pt.grad(loss, weights), strict=True)
    }
    mode = GuardMode(True, True, False, backend="jax", when=when)
    fn = pytensor.function([x], loss, updates=updates, mode=mode)
    fn.trust_input = True
    return fn


def freeze(fn, value):
    """Replace the program of a function by the results of its next call."""
    guard, kept = fn.vm.guard, []
    program = guard.run

    def first(*values):
        kept.append(program(*values))
        return kept[-1]

    guard.run = first
    fn(value)
    guard.run = lambda *values: kept[-1]


def microseconds(fn, value, calls=400, rounds=25):
    """Return the least processor time of a call, of several series."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            fn(value)
        times.append((time.process_time() - start) / calls)
    return 1e6 * min(times)


def main():
    import jax

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=int, nargs="*", default=[2, 8])
    args = parser.parse_args()
    value = np.full(4, 0.3, "float32")
    inputs = {"on the device": jax.device_put(value), "NumPy": value}
    print(f"{'weights':>7}  {'input':<14}{'now':>8}{'later':>8}")
    with pytensor.config.change_flags(floatX="float32"):
        for n in args.weights:
            for kind, given in inputs.items():
                row = []
                for when in ("now", "later"):
                    fn = build(n, when)
                    freeze(fn, given)
                    row.append(microseconds(fn, given))
                print(f"{n:>7}  {kind:<14}" + "".join(f"{t:>8.1f}" for t in row), flush=True)


if __name__ == "__main__":
    main()
