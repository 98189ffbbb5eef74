"""Time from a trip to its explanation, on graphs of 1,000 and 10,000 nodes.

Run it as ``python benchmarks/explain.py``; it prints a table and, with ``--json FILE``, writes
the figures: seconds of processor time for a guarded call that trips, the text of the error
included, and the same for a call that does not trip.  The reach: 0.3 seconds on 1,000 nodes, one on
10,000, with remedies tried on the failing call.
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

from theanoguard import GuardError, GuardMode

REACH = {1_000: 0.3, 10_000: 1.0}
# Merging and fusing 10,000 nodes takes minutes and is not what is measured.
MODE = GuardMode(True, True, True, optimizer=None, check_inputs=False)


def chain_of(x, n_nodes):
    """Return the end of a chain of about `n_nodes` nodes."""
    for i in range(n_nodes // 2):
        x = pt.cumsum(pt.tanh(x) if i % 2 else pt.sigmoid(x))
    return x


def forward(n_nodes):
    """Compile a chain with a logarithm at its end; it trips where the second argument is 0.

    Returns
    -------
    function, name of the operation that trips
    """
    x, scale = pt.dvector("x"), pt.dscalar("scale")
    return pytensor.function([x, scale], pt.log(chain_of(x, n_nodes) * scale), mode=MODE), "log"


def backward(n_nodes):
    """Compile the gradient of a root at the end of a chain; as :func:`forward`."""
    x, scale = pt.dvector("x"), pt.dscalar("scale")
    # (six to eight nodes of the gradient belong to each pair of the chain)
    loss = pt.sqrt((chain_of(x, n_nodes // 5) * scale).sum())
    return pytensor.function([x, scale], pytensor.grad(loss, x), mode=MODE), "division"


def measure(build, n_nodes, repeats):
    """Return the number of nodes, and seconds of calls that trip and of calls that do not."""
    function, culprit = build(n_nodes)
    x = np.linspace(0.1, 1.0, 10)
    tripping, sound = [], []
    for _ in range(repeats):
        start = time.process_time()
        function(x, 1.0)
        sound.append(time.process_time() - start)
        start = time.process_time()
        try:
            function(x, 0.0)
        except GuardError as error:
            text = str(error)
            tripping.append(time.process_time() - start)
        if error_op(text) != culprit:
            raise SystemExit(f"a wrong explanation:\n{text}")
    return len(function.maker.fgraph.apply_nodes), tripping, sound


def error_op(text):
    """Return the operation that the first line of a report names."""
    return text.split(" in ", 1)[1].split(":")[0].split()[0]


def main():
    """Measure, print, and write the figures."""
    sys.setrecursionlimit(200_000)  # PyTensor clones a graph by recursion
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    figures = []
    print(f"{'graph':<9} {'nodes':>6} {'first s':>8} {'median s':>9} {'sound s':>8} {'reach s':>8}")
    for n_nodes, reach in REACH.items():
        for build in (forward, backward):
            count, tripping, sound = measure(build, n_nodes, options.repeats)
            median, plain = statistics.median(tripping), statistics.median(sound)
            name, first = build.__name__, tripping[0]
            print(f"{name:<9} {count:>6} {first:>8.3f} {median:>9.3f} {plain:>8.3f} {reach:>8.1f}")
            record = {"graph": name, "nodes": count, "seconds": tripping, "sound": sound}
            figures.append({**record, "reach": reach})
    if options.json:
        record = {"pytensor": pytensor.__version__, "figures": figures}
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
