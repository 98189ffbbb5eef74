"""Whether a guard raises on sound PyMC models, at healthy points and far out.

::

    python benchmarks/pymc_models.py [--backend c] [--points 12] [MODEL ...]
    python benchmarks/pymc_models.py --explain [MODEL ...]

Each model of ``tests/pymc_guard/healthy.py`` is compiled, log-density and gradient, and called at
two kinds of points.  ``near`` are its initial point and points around it.  ``far`` are points with
one value variable at -800 to 800 or all of them scattered widely: there parameters underflow to 0,
leave their domain or overflow, and most log-densities are -inf.

The unguarded function says which points are bad: where its log-density is NaN or +inf, or finite
with a gradient that is not.  An error of the guard at any other point is a *false alarm*, and a bad
point without an error is *missed*.  ``GuardMode()`` reports more than that by design; its errors
are counted to compare.

``--explain`` takes the processor time, the C compiler's included, of ``theanoguard.pymc.explain``
and of ``Model.debug()`` at the bad point of models of ``tests/pymc_guard/faulty.py``, or at the
initial point of sound ones.  Each runs in a process of its own with an empty cache of C code.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
from pytensor.compile.mode import Mode

import theanoguard
import theanoguard.pymc

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "pymc_guard"))
import faulty
import healthy

SETTINGS = {
    "pymc.mode()": theanoguard.pymc.mode,
    "big_is_error=False": lambda **kwargs: theanoguard.GuardMode(big_is_error=False, **kwargs),
    "GuardMode()": theanoguard.GuardMode,
}
LINKERS = {"c": "cvm", "numba": "numba", "jax": "jax"}
FAR = (-800.0, -300.0, -40.0, 40.0, 300.0, 800.0)
# So many bad points of a model are asked: to explain one takes seconds.
MOST_BAD = 3


def moved(point, changes):
    """Return a point with something added to its continuous variables."""
    return {
        name: np.asarray(value) + changes(name, np.asarray(value))
        if np.asarray(value).dtype.kind == "f"
        else value
        for name, value in point.items()
    }


def near(point, n_points):
    """Return a point, and others at a distance of about 0.3 in each coordinate."""
    rng = np.random.default_rng(0)
    moves = [0.0] + [0.3] * (n_points - 1)
    return [moved(point, lambda _, v, m=m: m * rng.normal(size=v.shape)) for m in moves]


def far(point, n_points):
    """Return points with one variable far out, and points with all of them scattered."""
    rng = np.random.default_rng(1)
    alone = [
        moved(point, lambda name, v, one=one, at=at: at * (name == one) * np.ones(v.shape))
        for one, value in point.items()
        if np.asarray(value).dtype.kind == "f"
        for at in FAR
    ]
    scales = np.geomspace(3, 1000, n_points)
    return alone + [moved(point, lambda _, v, s=s: s * rng.normal(size=v.shape)) for s in scales]


def raises(function, point):
    """Return the first line of the guard's error at a point, or None."""
    try:
        function(point)
    except theanoguard.GuardError as error:
        return str(error).partition("\n")[0]
    return None


def compare(name, backend, n_points, settings):
    """Yield, of one model, the setting, the kind of points, how many, bad, false and missed."""
    model = healthy.MODELS[name]()
    outputs = [model.logp(), model.dlogp()]

    def compiled(mode):
        with theanoguard.pymc.model_lines():
            return model.compile_fn(outputs, mode=mode, point_fn=True, on_unused_input="ignore")

    plain = compiled(Mode(LINKERS[backend], "fast_run"))
    start = model.initial_point()
    points = {"near": near(start, n_points), "far": far(start, n_points)}
    bad = {}
    for kind, some in points.items():
        judged = [(point, theanoguard.pymc.spoils_sampling(plain(point))) for point in some]
        asked = [pair for pair in judged if not pair[1]]
        asked += [pair for pair in judged if pair[1]][:MOST_BAD]
        points[kind], bad[kind] = zip(*asked, strict=True)
    for setting in settings:
        guarded = compiled(SETTINGS[setting](backend=backend))
        for kind, some in points.items():
            false = missed = 0
            for point, is_bad in zip(some, bad[kind], strict=True):
                told = raises(guarded, point)
                if told is not None and not is_bad:
                    false += 1
                    if setting == "pymc.mode()":
                        print(f"  false alarm: {name}, {kind}: {told}\n    at {point}", flush=True)
                elif told is None and is_bad:
                    missed += 1
                    if setting == "pymc.mode()":
                        print(f"  missed: {name}, {kind}, at {point}", flush=True)
            yield setting, kind, len(some), sum(bad[kind]), false, missed


FAULTY = {build.__name__: (build, point) for build, (point, *_) in faulty.MODELS.items()}
# PyMC 6.4's debug() fails where a model has a potential.
EXPLAINED = (
    *("logarithm_of_a_normal", "angle_of_a_correlation", "shares_of_nothing", "same_place_twice"),
    *("negative_binomial", "hurdle_poisson", "ordered_logistic"),
)


def explained(name, how):
    """Print the processor time of explaining a model at a point, or of debugging it."""
    build, changed = FAULTY.get(name, (healthy.MODELS.get(name), {}))
    with pm.Model() as faulty_model:
        built = build()
    model = built if name in healthy.MODELS else faulty_model
    point = {k: np.asarray(v, float) for k, v in {**model.initial_point(), **changed}.items()}
    usages = []
    for _ in range(2):
        both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        usages.append(sum(usage.ru_utime + usage.ru_stime for usage in both))
        if len(usages) == 1:
            print(
                theanoguard.pymc.explain(model, point) if how == "explain" else model.debug(point)
            )
    print(usages[1] - usages[0])


def compared_with_debug(names):
    """Print the processor time of explain() and of debug(), and the ratio."""
    ratios = []
    for name in names:
        seconds = []
        for how in ("explain", "debug"):
            with tempfile.TemporaryDirectory() as cache:
                environment = {**os.environ, "PYTENSOR_FLAGS": f"base_compiledir={cache}"}
                command = [sys.executable, __file__, "--explain", name, "--how", how]
                done = subprocess.run(command, env=environment, capture_output=True, check=True)
            seconds.append(float(done.stdout.split()[-1]))
        ratios.append(seconds[0] / seconds[1])
        print(f"{name:<28} {seconds[0]:6.2f} s {seconds[1]:6.2f} s {ratios[-1]:6.2f}", flush=True)
    print(f"{len(ratios)} models, median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "models", nargs="*", choices=[*healthy.MODELS, *FAULTY, []], metavar="MODEL"
    )
    parser.add_argument("--backend", default="c", choices=LINKERS)
    parser.add_argument("--points", type=int, default=12)
    parser.add_argument("--settings", default=",".join(SETTINGS), help="which ones, by commas")
    parser.add_argument("--explain", action="store_true", help="compare with Model.debug()")
    parser.add_argument(
        "--how", choices=("explain", "debug"), help="only this one, in this process"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    if arguments.how:
        explained(arguments.models[0], arguments.how)
        return
    if arguments.explain:
        compared_with_debug(arguments.models or EXPLAINED)
        return
    names = arguments.models or list(healthy.MODELS)
    settings = arguments.settings.split(",")
    table = {}
    for name in names:
        start, n_bad = time.perf_counter(), 0
        for row in compare(name, arguments.backend, arguments.points, settings):
            setting, kind, *counts = row
            entry = table.setdefault((setting, kind), np.zeros(5, int))
            entry += [*counts, counts[2] > 0]
            n_bad += counts[1]
        print(f"{name}, {time.perf_counter() - start:.0f} s, {n_bad} bad", flush=True)
    print(f"\n{arguments.backend}, {len(names)} sound models")
    columns = ("points", "bad", "false alarms", "missed", "models with one")
    print(f"{'setting':<20} {'where':<5}", *(f"{column:>15}" for column in columns))
    for (setting, kind), counts in table.items():
        print(f"{setting:<20} {kind:<5}", *(f"{count:>15}" for count in counts))


if __name__ == "__main__":
    main()
