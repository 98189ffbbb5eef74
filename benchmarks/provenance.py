"""What tracking provenance costs while a function is compiled.

Treats each graph in turn with and without the tracker, and prints the median, over neighbouring
runs, of the ratio of their processor time: of rewriting alone, and of the whole compilation with
every C module already in the cache.
Run it with ``OMP_NUM_THREADS=1 python benchmarks/provenance.py [repeats]``.
"""

import gc
import statistics
import sys
import time

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.aliasing import add_supervisor_to_fgraph
from pytensor.compile.io import In
from pytensor.graph.fg import FunctionGraph

from theanoguard._provenance import TRACK_PROVENANCE, provenance, tracker_of


def mlp():
    """Training step of a network with two hidden layers."""
    rng = np.random.default_rng(0)
    x, y = pt.matrix("x"), pt.ivector("y")
    h = x
    weights = []
    for n, m in [(784, 256), (256, 256), (256, 10)]:
        w = pytensor.shared(rng.normal(size=(n, m)) * 0.05, name=f"w{len(weights)}")
        b = pytensor.shared(np.zeros(m), name=f"b{len(weights)}")
        weights += [w, b]
        h = pt.tanh(pt.dot(h, w) + b) if m != 10 else pt.special.softmax(pt.dot(h, w) + b, axis=1)
    loss = -pt.log(h)[pt.arange(y.shape[0]), y].mean()
    updates = [(w, w - 0.1 * g) for w, g in zip(weights, pt.grad(loss, weights), strict=True)]
    return [x, y], loss, updates


def chain(nodes=1000):
    """A chain of `nodes` operations that is neither constant nor one fused node."""
    x = pt.matrix("x")
    h = x
    for _ in range(nodes // 4):
        h = pt.tanh(h * 0.5) + h.sum(axis=0)
    return [x], h.sum(), []


def rewriting(graph, mode):
    """Seconds of processor time for rewriting a fresh copy of the graph."""
    inputs, output, updates = graph
    outputs = [output, *(new for _, new in updates)]
    shared = [old for old, _ in updates]
    fgraph = FunctionGraph([*inputs, *shared], outputs, clone=True)
    add_supervisor_to_fgraph(fgraph, [In(v) for v in fgraph.inputs], accept_inplace=False)
    rewriter = mode.optimizer
    # Compilation keeps no stack traces either.
    with pytensor.config.change_flags(traceback__limit=0):
        start = time.process_time()
        rewriter.rewrite(fgraph)
        return time.process_time() - start, fgraph


def compilation(graph, mode):
    """Seconds of processor time for the whole compilation, C modules being in the cache."""
    inputs, output, updates = graph
    start = time.process_time()
    f = pytensor.function(inputs, output, updates=updates, mode=mode)
    return time.process_time() - start, f.maker.fgraph


def main(repeats):
    plain = pytensor.compile.mode.get_mode("CVM")
    modes = {"plain": plain, "tracked": plain.register(TRACK_PROVENANCE)}
    print(f"pytensor {pytensor.__version__}, median of {repeats} interleaved runs")
    for name, build in [("MLP step", mlp), ("chain of 1,000 nodes", chain)]:
        graph = build()
        for what in (rewriting, compilation):
            times = {"plain": [], "tracked": []}
            for repeat in range(repeats + 1):
                # Turn the order round, lest one of them always finds the warmer cache.
                for key in sorted(modes, reverse=repeat % 2 == 1):
                    gc.collect()
                    spent, fgraph = what(graph, modes[key])
                    if repeat:  # the first fills the cache of C modules
                        times[key].append(spent)
                    if key == "tracked":
                        tracked = fgraph
            medians = {key: statistics.median(t) for key, t in times.items()}
            pairs = zip(times["tracked"], times["plain"], strict=True)
            print(
                f"{name:22} {what.__name__:12} plain {medians['plain']:7.3f} s  "
                f"tracked {medians['tracked']:7.3f} s  median ratio of neighbouring runs "
                f"{statistics.median(tracked_s / plain_s for tracked_s, plain_s in pairs):.3f}"
            )
        tracker = tracker_of(tracked)
        handlers = tracked.execute_callbacks_times[tracker]
        print(f"{name:22} the tracker's handlers took {1000 * handlers:.1f} ms")
        start = time.perf_counter()
        found = provenance(tracked)
        nodes = tracked.toposort()
        for node in nodes:
            found[node]
        spent = time.perf_counter() - start
        print(f"{name:22} all {len(nodes)} nodes looked up in {spent:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
