"""What the recording hooks cost while a graph is built: with them against without.

Each figure is the best of several constructions of a graph of some 60 layers and its gradient;
the two alternate.  A ratio below 1 means that a graph is built faster with the hooks.

    OMP_NUM_THREADS=1 python benchmarks/recording.py [--repeats 5]
"""

import argparse
import time

import pytensor
import pytensor.tensor as pt

from theanoguard._pytensor import recording


def build():
    """Build a network of 60 layers, each by two functions, and its gradient."""
    x, w, b = pt.matrix("x"), pt.matrix("w"), pt.vector("b")

    def logistic(z):
        return pt.exp(z) / (1 + pt.exp(z))

    h = x
    for _ in range(60):
        h = logistic(h @ w + b)
    pytensor.grad((h**2).sum(), [w, b])


def best_time(constructions=9):
    """Return the shortest time of several constructions, in seconds."""
    times = []
    for _ in range(constructions):
        start = time.perf_counter()
        build()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    """Print a line for each repetition."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    for _ in range(parser.parse_args().repeats):
        recording.remove()
        without = best_time()
        recording.install()
        with_hooks = best_time()
        print(f"without {without:.4f} s, with {with_hooks:.4f} s, ratio {with_hooks / without:.3f}")


if __name__ == "__main__":
    main()
