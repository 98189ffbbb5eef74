"""Whether the guard for PyMC raises where it must, and nowhere else, while models are sampled.

::

    python benchmarks/pymc_sampling.py [--sampler pymc] [--backend c] [--tasks sample] [MODEL ...]
    python benchmarks/pymc_sampling.py --cost [--sampler pymc] [--backend c] [MODEL ...]
    python benchmarks/pymc_sampling.py --same FILE [--seeds 10] [--sampler pymc] [MODEL ...]

The models of ``tests/pymc_guard/healthy.py`` and ``public.py`` are sound: a guard error there is a
false alarm, unless the task ends in an error without the guard as well.  Those tasks are counted
apart: on JAX they are the ones that PyTensor cannot compile.  The models of
``tests/pymc_guard/planted.py`` have a mistake that a sampler meets: each has to end in a guard
error, or with a warning about the points.  The tasks are ``sample``
(``pm.sample``, 160 iterations), ``fit`` (ADVI, 200 steps), ``map`` (``pm.find_MAP``) and
``predict`` (draws from the prior and posterior predictive distributions), each in a block of
``theanoguard.pymc.guarding()``.

With ``--same`` each sound model is sampled with several seeds, without a guard and with one.  A
guarded run has to end whenever the unguarded one does, and on C with the same draws.  FILE keeps
each run: what is in it is not run again.

With ``--cost`` the processor time of a sampler is measured for each gradient that it computes,
without a guard and with one, by turns.  On C both have to draw the same bits.
"""

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pymc as pm
import xarray

import theanoguard
import theanoguard.pymc

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "pymc_guard"))
import healthy
import planted
import public

SOUND = {**healthy.MODELS, **public.MODELS}
MODES = {"c": "CVM", "numba": "NUMBA", "jax": "JAX"}
QUIET = {"progressbar": False, "random_seed": 5}


def sample(mode, sampler, draws=80, **more):
    """Sample one chain, as many draws as tuning steps."""
    return pm.sample(
        draws=draws,
        tune=draws,
        chains=1,
        cores=1,
        nuts_sampler=sampler if exclusive() else "pymc",
        compile_kwargs={"mode": mode},
        compute_convergence_checks=False,
        quiet=True,
        **QUIET,
        **more,
    )


def exclusive():
    """Whether NUTS alone can sample the model that stands around."""
    return not pm.modelcontext(None).discrete_value_vars


def fit(mode, _sampler):
    """Fit by ADVI."""
    if exclusive():
        pm.fit(200, compile_kwargs={"mode": mode}, **QUIET)


def find_map(mode, _sampler):
    """Find the mode of the posterior."""
    pm.find_MAP(progressbar=False, compile_kwargs={"mode": mode})


def predict(mode, _sampler):
    """Draw from the prior and the posterior predictive distributions."""
    kwargs = {"compile_kwargs": {"mode": mode}, "random_seed": 5}
    prior = pm.sample_prior_predictive(20, **kwargs)
    trace = xarray.DataTree.from_dict({"posterior": prior["prior"].dataset})
    pm.sample_posterior_predictive(trace, progressbar=False, **kwargs)


TASKS = {"sample": sample, "fit": fit, "map": find_map, "predict": predict}


@contextmanager
def rejections():
    """Collect the guard's warnings about rejected points, and show no others."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    told = (str(w.message) for w in caught)
    texts += [text for text in told if " ended where " in text or "theanoguard" in text]


def outcome(make, task, mode, sampler, guarded=True):
    """Return "" if a task ends well, or the first line of its error, with the error."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        guard = theanoguard.pymc.guarding(log=log)
        try:
            with make():
                if guarded:
                    guard.start()
                try:
                    TASKS[task](mode, sampler)
                finally:
                    guard.stop()
        except Exception as error:  # whatever PyMC raises is counted
            return str(error).partition("\n")[0], error
        # find_MAP logs an error and returns where it has come to.  (The log of a sampler that
        # compiles no function through PyTensor stays empty.)
        has_events = log.exists() and log.stat().st_size
        for event in theanoguard.log.read_log(log).events if has_events else ():
            return f"{event} was logged", theanoguard.GuardError(event)
    return "", None


def alarms(names, tasks, arguments):
    """Print what was raised, and a table; return the number of false alarms and misses."""
    rows, mode = [], MODES[arguments.backend]
    for task in tasks:
        wrong = other = 0
        sound = [n for n in names if n in SOUND]
        for name in sound:
            start = time.perf_counter()
            make = SOUND[name]
            line, error = outcome(make, task, mode, arguments.sampler)
            told = "well"
            if error is not None:
                plain, plain_error = outcome(make, task, mode, arguments.sampler, guarded=False)
                wrong += plain_error is None
                other += plain_error is not None
                told = f"{plain if plain_error is not None else 'FALSE ALARM'}: {line}"
            seconds = time.perf_counter() - start
            print(f"{task} {name}, {seconds:.0f} s: {told}", flush=True)
        rows.append((f"{task}, sound models", len(sound), wrong, other))
    faulty = [n for n in names if n in planted.MODELS]
    missed = other = 0
    for name in faulty if "sample" in tasks else ():
        with rejections() as told:
            line, error = outcome(planted.MODELS[name], "sample", mode, arguments.sampler)
        if told or isinstance(error, theanoguard.GuardError):
            print(f"found: {name}: {line or told[0]}", flush=True)
        elif error is not None:
            other += 1
            print(f"{name}: {type(error).__name__}: {line}", flush=True)
        else:
            missed += 1
            print(f"missed: {name}", flush=True)
    if faulty and "sample" in tasks:
        rows.append(("sample, planted faults", len(faulty), len(faulty) - missed - other, other))
    print(f"\n{arguments.sampler}, {arguments.backend}")
    print(f"{'task':<28} {'models':>6} {'guard errors':>13} {'other errors':>13}")
    for task, n, raised, others in rows:
        print(f"{task:<28} {n:>6} {raised:>13} {others:>13}")


def pymc_runs(backend):
    """Return functions that sample the model around with PyMC; they return the draws' trace."""
    modes = {"plain": MODES[backend], "guarded": theanoguard.pymc.mode(backend=backend)}
    steps = {key: pm.NUTS(compile_kwargs={"mode": mode}) for key, mode in modes.items()}

    def run(step):
        return pm.sample(
            draws=150,
            tune=150,
            chains=1,
            cores=1,
            step=step,
            nuts_sampler="pymc",
            discard_tuned_samples=False,
            compute_convergence_checks=False,
            quiet=True,
            **QUIET,
        )

    return {key: partial(run, step) for key, step in steps.items()}


def nutpie_runs(backend):
    """Return functions that sample the model around with nutpie."""
    import nutpie

    model = pm.modelcontext(None)
    compiled = {"plain": nutpie.compile_pymc_model(model, backend=backend)}
    guard = theanoguard.pymc.guarding().start()
    compiled["guarded"] = nutpie.compile_pymc_model(model, backend=backend)
    guard.stop()

    def run(key):
        with theanoguard.pymc.guarding() if key == "guarded" else nullcontext():
            return nutpie.sample(
                compiled[key], draws=500, tune=500, chains=1, cores=1, seed=5, progress_bar=False
            )

    return {key: partial(run, key) for key in compiled}


RUNS = {"pymc": pymc_runs, "nutpie": nutpie_runs}


def gradients(trace):
    """Return how often the log-density and its gradient were computed."""
    groups = ("warmup_sample_stats", "sample_stats")
    return sum(int(trace[group]["n_steps"].sum()) for group in groups if group in trace.children)


def cost(names, sampler, backend, rounds):
    """Print the processor time of a gradient in sampling, with a guard by that without.

    Numba rounds otherwise where checks are compiled in, so that chains part: hence per gradient.
    """
    ratios, same = [], 0
    for name in names:
        with SOUND[name]():
            if not exclusive():
                continue
            runs = RUNS[sampler](backend)
            seconds = {key: [] for key in runs}
            is_same = True
            for number in range(rounds + 1):
                drawn = {}
                for key in list(runs)[:: 1 if number % 2 else -1]:
                    start = time.process_time()
                    drawn[key] = runs[key]()
                    if number:
                        passed = time.process_time() - start
                        seconds[key].append(passed / gradients(drawn[key]))
                is_same &= drawn["plain"].posterior.identical(drawn["guarded"].posterior) or all(
                    np.array_equal(values, drawn["guarded"].posterior[variable])
                    for variable, values in drawn["plain"].posterior.data_vars.items()
                )
        if backend == "c" and not is_same:
            raise AssertionError(f"{name}: the guard has changed a draw")
        ratio = statistics.median(
            g / p for g, p in zip(seconds["guarded"], seconds["plain"], strict=True)
        )
        ratios.append(ratio)
        same += is_same
        plain = 1e6 * statistics.median(seconds["plain"])
        print(f"{name:<28} {plain:9.1f} us {ratio:6.3f}", flush=True)
    print(
        f"{sampler}, {backend}: geometric mean {statistics.geometric_mean(ratios):.3f} of "
        f"{len(ratios)} models, the same draws in {same}"
    )


@lru_cache(maxsize=2)
def compiled_by_nutpie(name, guarded, backend):
    """Return a model as nutpie has compiled it, which takes longer than its runs, or None."""
    import nutpie

    with SOUND[name]() as model:
        return nutpie.compile_pymc_model(model, backend=backend) if exclusive() else None


def drawn(name, seed, guarded, arguments):
    """Return the draws of a run, or the error that ended it."""
    sizes = {key: getattr(arguments, key) for key in ("draws", "tune", "chains")}
    sizes["cores"] = 1
    try:
        with theanoguard.pymc.guarding() if guarded else nullcontext():
            if arguments.sampler == "nutpie":
                compiled = compiled_by_nutpie(name, guarded, arguments.backend)
                if compiled is not None:
                    sample = sys.modules["nutpie"].sample
                    return sample(compiled, seed=seed, progress_bar=False, **sizes).posterior
            with SOUND[name]():
                return pm.sample(
                    nuts_sampler=arguments.sampler if exclusive() else "pymc",
                    compile_kwargs={"mode": MODES[arguments.backend]},
                    compute_convergence_checks=False,
                    quiet=True,
                    **{**QUIET, "random_seed": seed},
                    **sizes,
                ).posterior
    except Exception as error:  # whatever PyMC raises is counted
        return error


def compared(name, seed, arguments):
    """Return how a model ends without a guard and with one, and whether the draws are equal."""
    plain = drawn(name, seed, False, arguments)
    with rejections() as warned:
        guarded = drawn(name, seed, True, arguments)
    errors = [
        str(f).partition("\n")[0] if isinstance(f, Exception) else "" for f in (plain, guarded)
    ]
    is_same = not any(errors) and all(
        np.array_equal(values, guarded[key]) for key, values in plain.data_vars.items()
    )
    return {"plain": errors[0], "guarded": errors[1], "same": is_same, "warned": warned}


def same(names, arguments):
    """Compare the runs that the file does not have, and print the table of all."""
    path = Path(arguments.same)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    runs = {tuple(row["key"]): row for row in map(json.loads, lines)}
    settings = "sampler", "backend", "chains", "tune", "draws"
    keys = [
        (name, seed, *(getattr(arguments, key) for key in settings))
        for name in names
        for seed in range(arguments.first, arguments.first + arguments.seeds)
    ]
    for key in keys:
        if key not in runs:
            runs[key] = {"key": key, **compared(*key[:2], arguments)}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(runs[key]) + "\n")
            print(json.dumps(runs[key]), flush=True)
    made = [runs[key] for key in keys]
    end = [run for run in made if not run["plain"]]
    for run in end:
        if run["guarded"]:
            print(f"stopped: {run['key'][0]}, seed {run['key'][1]}: {run['guarded']}")
    print(f"\n{arguments.sampler}, {arguments.backend}, {len(names)} models")
    counts = {
        "runs": len(made),
        "end": len(end),
        "guarded end": sum(not run["guarded"] for run in end),
        "same draws": sum(run["same"] for run in end),
        "warned": sum(bool(run["warned"]) for run in end),
    }
    print(" ".join(f"{column:>14}" for column in counts))
    print(" ".join(f"{count:>14}" for count in counts.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = [*SOUND, *planted.MODELS]
    parser.add_argument("models", nargs="*", choices=[*known, []], metavar="MODEL")
    parser.add_argument("--backend", default="c", choices=MODES)
    parser.add_argument("--sampler", default="pymc")
    parser.add_argument("--tasks", default="sample")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--same", metavar="FILE")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed of --same")
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--tune", type=int, default=100)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    names = arguments.models or known
    sound = [n for n in names if n in SOUND]
    if arguments.same:
        same(sound, arguments)
    elif arguments.cost:
        cost(sound, arguments.sampler, arguments.backend, arguments.rounds)
    else:
        alarms(names, arguments.tasks.split(","), arguments)


if __name__ == "__main__":
    main()
