"""I sample on a cluster.  Which chain went bad, on which worker, and at which line?

Four chains of a random walk run under the guard on the workers of a Dask cluster.  They write one
log.  The error of a chain reaches the client with its explanation.  The report names the worker and
the task.  Install Dask first: ``pip install distributed``.
"""

import tempfile
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
from distributed import Client, LocalCluster

from theanoguard import GuardError, GuardMode
from theanoguard.cli.main import main as theanoguard_command


def sample(start, steps, log):
    """One chain of Metropolis' algorithm for a Gamma(2, 1) density; it forgets that x > 0."""
    x = pt.dscalar("x")
    logp = pt.log(x) - x
    density = pytensor.function([x], logp, mode=GuardMode(log=log), name="density")
    rng = np.random.default_rng(1)
    chain = [start]
    for _ in range(steps):
        proposal = chain[-1] + 0.2 * rng.normal()
        accept = np.log(rng.random()) < density(proposal) - density(chain[-1])
        chain.append(proposal if accept else chain[-1])
    return np.mean(chain)


def main():
    starts = {"chain-0": 5.0, "chain-1": 0.05, "chain-2": 4.0, "chain-3": 6.0}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        log = Path(folder) / "events.jsonl"
        chains = {
            name: client.submit(sample, start, 20, str(log), key=name)
            for name, start in starts.items()
        }
        for name, chain in chains.items():
            try:
                print(f"{name}: mean {chain.result():.2f}")
            except GuardError as error:
                print(f"{name} failed:\n{error}\n")
        print("$ theanoguard report events.jsonl --short")
        theanoguard_command(["report", str(log), "--short"])


if __name__ == "__main__":
    main()
