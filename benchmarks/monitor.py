"""What MonitorMode costs, against PyTensor's own and against no monitoring at all.

Interleaved runs, processor time, the median of the paired ratios and their quartiles::

    OMP_NUM_THREADS=1 python benchmarks/monitor.py
"""

import argparse
import time
import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile import get_mode
from pytensor.compile.debug.monitormode import MonitorMode as PyTensorsMonitorMode

from theanoguard.monitor import MonitorMode


def chain(n_nodes):
    """A chain of element-wise nodes on ten elements; compiled without fusion."""
    x = pt.dvector("x")
    y = x
    for _ in range(n_nodes):
        y = pt.tanh(y)
    return [x], y, [], [np.linspace(-1, 1, 10)]


def mlp_step(n_in=784, n_hidden=256, n_out=10, batch=128):
    """One step of gradient descent of a perceptron with one hidden layer."""
    rng = np.random.default_rng(0)
    x, t = pt.dmatrix("x"), pt.lvector("t")
    w = pytensor.shared(rng.normal(size=(n_in, n_hidden)) * 0.05, "w")
    v = pytensor.shared(rng.normal(size=(n_hidden, n_out)) * 0.05, "v")
    p = pt.special.softmax(pt.dot(pt.tanh(pt.dot(x, w)), v), axis=-1)
    loss = -pt.log(p[pt.arange(batch), t]).mean()
    updates = [(q, q - 0.01 * pt.grad(loss, q)) for q in (w, v)]
    values = [rng.normal(size=(batch, n_in)), rng.integers(0, n_out, size=batch)]
    return [x, t], loss, updates, values


def post_func(fgraph, i, node, fn):
    """Do nothing: what is measured is the way here."""


MODES = {
    "unmonitored": lambda: get_mode("CVM"),
    "theanoguard": lambda: MonitorMode(post_func=post_func),
    "pytensor": lambda: PyTensorsMonitorMode(post_func=post_func),
}


def measure(workload, repeats, calls):
    """Return processor seconds of `calls` calls, by mode, one for each repeat."""
    inputs, output, updates, values = workload
    functions = {
        name: pytensor.function(inputs, output, updates=updates, mode=mode().excluding("fusion"))
        for name, mode in MODES.items()
    }
    times = {name: [] for name in functions}
    for f in functions.values():
        f(*values)
    for _ in range(repeats):
        for name, f in functions.items():
            start = time.process_time()
            for _ in range(calls):
                f(*values)
            times[name].append(time.process_time() - start)
    n_nodes = len(functions["theanoguard"].maker.fgraph.apply_nodes)
    return n_nodes, {name: np.array(t) for name, t in times.items()}


def main():
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=24)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"PyTensor {pytensor.__version__}, median [quartiles] of {args.repeats} paired ratios")
    print(f"{'workload':24}{'nodes':>6}  {'theanoguard':>22}  {'pytensor':>22}")
    for name, workload, calls in (
        ("chain of small nodes", chain(200), 200),
        ("MLP step", mlp_step(), 5),
    ):
        n_nodes, times = measure(workload, args.repeats, calls)
        cells = []
        for mode in ("theanoguard", "pytensor"):
            low, mid, high = np.quantile(times[mode] / times["unmonitored"], [0.25, 0.5, 0.75])
            cells.append(f"{mid:.2f} [{low:.2f}, {high:.2f}]")
        print(f"{name:24}{n_nodes:6}  {cells[0]:>22}  {cells[1]:>22}")


if __name__ == "__main__":
    main()
