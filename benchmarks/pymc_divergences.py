"""Whether the cause of divergences is recognized, with real samplers.

::

    python benchmarks/pymc_divergences.py [--sampler pymc] [--seeds 1] [--no-check] [MODEL ...]

Each model of ``tests/pymc_guard/diverging.py`` is sampled in a block of
``theanoguard.pymc.guarding()``, and the largest group of ``explain_divergences`` has to have one of
the causes that are right for the model.  The models of ``tests/pymc_guard/healthy.py`` can be named
as well: they are sound, and a cause other than "unknown" is a false one.
"""

import argparse
import logging
import sys
import time
import warnings
from pathlib import Path

import pymc as pm

import theanoguard.pymc

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "pymc_guard"))
import diverging
import healthy

MODELS = {**healthy.MODELS, **diverging.MODELS}


def explained(name, seed, arguments):
    """Sample a model, and return the divergences of the trace, explained."""
    model = MODELS[name]()
    with model, theanoguard.pymc.guarding():
        trace = pm.sample(
            draws=arguments.draws,
            tune=arguments.draws,
            chains=2,
            cores=1,
            random_seed=seed,
            nuts_sampler=arguments.sampler,
            progressbar=False,
            compute_convergence_checks=False,
            quiet=True,
        )
    return theanoguard.pymc.explain_divergences(trace, model, check=not arguments.no_check)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], metavar="MODEL")
    parser.add_argument("--sampler", default="pymc")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--show", action="store_true", help="print the explanations")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    right = wrong = without = 0
    for name in arguments.models or diverging.MODELS:
        for seed in range(arguments.seeds):
            start = time.perf_counter()
            found = explained(name, seed, arguments)
            seconds = time.perf_counter() - start
            cause = found.groups[0].cause if found.groups else "no divergence"
            is_right = cause in diverging.CAUSES.get(name, ("unknown",))
            right += bool(found.groups) and is_right
            wrong += bool(found.groups) and not is_right
            without += not found.groups
            told = "" if is_right or not found.groups else "  WRONG"
            counts = f"{found.n_divergent} of {found.n_draws}"
            print(f"{name}, seed {seed}, {seconds:.0f} s: {counts}, {cause}{told}", flush=True)
            if arguments.show or told:
                print(found, flush=True)
    print(f"\n{arguments.sampler}: {right} right, {wrong} wrong, {without} without divergences")


if __name__ == "__main__":
    main()
