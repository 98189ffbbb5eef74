"""Whether the cause of divergences is recognized, with real samplers.

::

    python benchmarks/pymc_divergences.py [--samplers pymc,nutpie] [--seeds 1] [--draws 500]
                                          [--keep FILE] [--no-check] [MODEL ...]

Each model of ``tests/pymc_guard/diverging.py`` is sampled in a block of
``theanoguard.pymc.guarding()``, and the largest group of ``explain_divergences`` has to have one of
the causes that are right for the model.  With ``--keep`` a file has each run, and what is in it is
not run again.

The models of ``tests/pymc_guard/healthy.py`` can be named as well: they are sound, and a cause
other than "unknown" is a false one, but for ``HIERARCHICAL``.
"""

import argparse
import json
import logging
import sys
import time
import warnings
from pathlib import Path

import pymc as pm

import theanoguard.pymc
from theanoguard.pymc.geometry import FEW

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "pymc_guard"))
import diverging
import healthy

MODELS = {**healthy.MODELS, **diverging.MODELS}

HIERARCHICAL = {"hierarchical": ("funnel",)}
"""A centred prior of groups that hardly differ: 46 to 93 of 1000 draws diverge (six seeds), and 1
of 600 of the non-centred form."""

CAUSES = {**dict.fromkeys(healthy.MODELS, ("unknown",)), **HIERARCHICAL, **diverging.CAUSES}
NONE = "none"


def explained(name, sampler, seed, arguments):
    """Sample a model, and return the divergences of the trace, explained."""
    model = MODELS[name]()
    with model, theanoguard.pymc.guarding():
        trace = pm.sample(
            draws=arguments.draws,
            tune=arguments.draws,
            chains=2,
            cores=1,
            random_seed=seed,
            nuts_sampler=sampler,
            progressbar=False,
            compute_convergence_checks=False,
            quiet=True,
        )
    return theanoguard.pymc.explain_divergences(trace, model, check=not arguments.no_check)


def run(name, sampler, seed, arguments):
    """Return what is kept of a run."""
    start = time.process_time()
    found = explained(name, sampler, seed, arguments)
    return {
        "divergent": found.n_divergent,
        "draws": found.n_draws,
        "cause": found.groups[0].cause if found.groups else NONE,
        "text": str(found),
        "seconds": round(time.process_time() - start),
    }


def is_right(name, run):
    """Whether a cause is right; one of too few divergences may be unknown."""
    few = ("unknown",) if run["divergent"] < FEW else ()
    return run["cause"] in (*CAUSES[name], NONE, *few)


def told(name, runs):
    """Return what the runs of a model with a sampler have shown, for a cell of the table."""
    counts = " ".join(str(run["divergent"]) for run in runs)
    causes = dict.fromkeys(run["cause"] for run in runs)
    wrong = {run["cause"] for run in runs if not is_right(name, run)}
    return f"{counts}: {', '.join(c + ' (WRONG)' * (c in wrong) for c in causes)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], metavar="MODEL")
    parser.add_argument("--samplers", default="pymc,nutpie")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--keep", metavar="FILE")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--show", action="store_true", help="print the explanations")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    samplers, names = arguments.samplers.split(","), arguments.models or list(diverging.MODELS)
    path = Path(arguments.keep) if arguments.keep else None
    lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
    kept = {tuple(row["key"]): row for row in map(json.loads, lines)}
    rows, right, diverged = [], dict.fromkeys(samplers, 0), dict.fromkeys(samplers, 0)
    for name in names:
        cells = []
        for sampler in samplers:
            runs = []
            for seed in range(arguments.seeds):
                key = name, sampler, seed, arguments.draws, not arguments.no_check
                if key not in kept:
                    kept[key] = {"key": key, **run(name, sampler, seed, arguments)}
                    if path is not None:
                        with path.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(kept[key]) + "\n")
                runs.append(kept[key])
                counts = kept[key]["divergent"] >= FEW
                diverged[sampler] += counts
                right[sampler] += counts and is_right(name, kept[key])
                print(f"{name}, {sampler}, seed {seed}: {told(name, runs[-1:])}", flush=True)
                if arguments.show or not is_right(name, kept[key]):
                    print(kept[key]["text"], flush=True)
            cells.append(told(name, runs))
        rows.append((name, " or ".join(CAUSES[name]), *cells))
    print()
    for row in (("model", "right", *samplers), *rows):
        print(f"{row[0]:<24} {row[1]:<32} " + " ".join(f"{cell:<30}" for cell in row[2:]))
    for sampler in samplers:
        counts = f"{right[sampler]} of {diverged[sampler]}"
        print(f"{sampler}: {counts} runs with {FEW} divergences or more are right")


if __name__ == "__main__":
    main()
