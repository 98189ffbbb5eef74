"""What the recording hooks cost while a graph is built: with them against without.

Each graph is built many times in turn with and without the hooks, which are installed and removed
in between.  A pair of constructions gives a ratio of processor times; the median over the pairs and
its quartiles are printed.  A ratio below 1 means that a graph is built faster with the hooks.

    OMP_NUM_THREADS=1 python benchmarks/recording.py [--pairs 100]
"""

import argparse
import gc
import statistics
import time

import pytensor
import pytensor.tensor as pt

from theanoguard._pytensor import recording


def layers():
    """Build a network of 60 layers, each by two functions, and its gradient."""
    x, w, b = pt.matrix("x"), pt.matrix("w"), pt.vector("b")

    def logistic(z):
        return pt.exp(z) / (1 + pt.exp(z))

    h = x
    for _ in range(60):
        h = logistic(h @ w + b)
    pytensor.grad((h**2).sum(), [w, b])


def loop():
    """Build a loop with a dozen operations in its body, and its gradient."""
    x, w = pt.tensor3("x"), pt.matrix("w")

    def step(x_t, h):
        for _ in range(4):
            h = pt.tanh(h @ w + x_t)
        return h

    states = pytensor.scan(step, [x], [pt.zeros((4, 4))], return_updates=False)
    pytensor.grad(states[-1].sum(), w)


def time_of(build):
    """Return the processor time of one construction, in seconds."""
    gc.collect()
    gc.disable()
    start = time.process_time()
    build()
    elapsed = time.process_time() - start
    gc.enable()
    return elapsed


def ratios(build, pairs):
    """Return the time with the hooks over that without, for each pair, and the times without."""
    found, without = [], []
    for i in range(pairs):
        times = {}
        for hooked in (i % 2 == 0, i % 2 == 1):  # (each comes first in half of the pairs)
            (recording.install if hooked else recording.remove)()
            times[hooked] = time_of(build)
        found.append(times[True] / times[False])
        without.append(times[False])
    recording.install()
    return found, without


def main():
    """Print a line for each graph."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=100)
    pairs = parser.parse_args().pairs
    print(f"{'graph':<8} {'without ms':>10} {'median ratio':>12} {'quartiles':>16}")
    for build in (layers, loop):
        build()
        found, without = ratios(build, pairs)
        low, middle, high = statistics.quantiles(found, n=4)
        base = 1e3 * statistics.median(without)
        print(f"{build.__name__:<8} {base:>10.1f} {middle:>12.3f} {low:>8.3f} {high:.3f}")


if __name__ == "__main__":
    main()
