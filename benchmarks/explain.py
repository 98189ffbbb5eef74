"""Time from a trip to its explanation, on chains of 1,000 and 10,000 nodes.

Run it as ``python benchmarks/explain.py``; it prints a table and, with ``--json FILE``, writes
the figures.  The reach: below one second on 1,000 nodes, below five on 10,000.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

from theanoguard.explain import explain, render_text
from theanoguard.explain.event import GuardEvent, Trip

REACH = {1_000: 1.0, 10_000: 5.0}


def chain(n_nodes):
    """Compile a chain of about `n_nodes` nodes that do not fuse, with a logarithm at its end.

    Returns
    -------
    fgraph : FunctionGraph
    variable : Variable
        The output of the logarithm.
    """
    x = pt.dvector("x")
    y = x
    for i in range(n_nodes // 2):
        y = pt.cumsum(pt.tanh(y) if i % 2 else pt.sigmoid(y))
    result = pt.log(y - y[0])
    # Merging and fusing 10,000 nodes takes minutes and is not what is measured.
    mode = Mode("cvm", None)
    fn = pytensor.function([x], result, mode=mode)
    return fn.maker.fgraph, fn.maker.fgraph.outputs[0]


def trip_at(fgraph, variable):
    """Return the trip of the logarithm of 0 at the first element."""
    while variable.owner.op != pt.log:  # a copy may stand behind it
        variable = variable.owner.inputs[0]
    value = np.array([-np.inf] + [0.0] * 9)
    event = GuardEvent(
        "inf", "node", str(variable.owner), str(variable.owner.op), None, 0, "float64", (10,), 10,
        0, 0, 1, 0, (0,), -np.inf,
    )  # fmt: skip
    inputs = {v: np.linspace(0.1, 1.0, 10) for v in fgraph.inputs}
    return Trip(event, fgraph, inputs, variable, value, lambda a: ~np.isfinite(a))


def measure(n_nodes, repeats):
    """Return the seconds that each explanation took, the text included."""
    fgraph, variable = chain(n_nodes)
    seconds = []
    for _ in range(repeats):
        trip = trip_at(fgraph, variable)
        start = time.perf_counter()
        explanation = explain(trip)
        text = render_text(trip.event, explanation)
        seconds.append(time.perf_counter() - start)
        if explanation.cause.op != "log" or "log(0.0)" not in text:
            raise SystemExit(f"a wrong explanation:\n{text}")
    return len(fgraph.apply_nodes), seconds


def main():
    """Measure, print, and write the figures."""
    sys.setrecursionlimit(200_000)  # PyTensor clones a graph by recursion
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    figures = []
    print(f"{'nodes':>7}  {'median s':>9}  {'worst s':>9}  {'reach s':>8}")
    for n_nodes, reach in REACH.items():
        count, seconds = measure(n_nodes, options.repeats)
        median, worst = statistics.median(seconds), max(seconds)
        print(f"{count:>7}  {median:>9.3f}  {worst:>9.3f}  {reach:>8.1f}")
        figures.append({"nodes": count, "seconds": seconds, "reach": reach})
    if options.json:
        record = {"pytensor": pytensor.__version__, "figures": figures}
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
