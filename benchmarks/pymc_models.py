"""How often a guard raises on sound PyMC models.

::

    python benchmarks/pymc_models.py [--backend c] [--points 20] [MODEL ...]

Each model of ``tests/pymc_guard/healthy.py`` is compiled, log-density and gradient, under
``GuardMode()``, ``GuardMode(big_is_error=False)`` and ``theanoguard.pymc.mode()``, and called at
its initial point and at points around it.  Every error is a false alarm.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

import theanoguard
import theanoguard.pymc

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "pymc_guard"))
import healthy

SETTINGS = {
    "GuardMode()": theanoguard.GuardMode,
    "big_is_error=False": lambda **kwargs: theanoguard.GuardMode(big_is_error=False, **kwargs),
    "pymc.mode()": theanoguard.pymc.mode,
}


def alarm(model, mode, points):
    """Return the first line of the error that a guard raises on a model, or None."""
    function = model.compile_fn([model.logp(), model.dlogp()], mode=mode, point_fn=True)
    for point in points:
        try:
            function(point)
        except theanoguard.GuardError as error:
            return str(error).partition("\n")[0]
    return None


def around(point, n_points):
    """Return a point, and others at a distance of about 0.3 in each coordinate."""
    rng = np.random.default_rng(0)
    moves = [0.0] + [0.3] * (n_points - 1)
    return [
        {
            name: np.asarray(value) + move * rng.normal(size=np.shape(value))
            if np.asarray(value).dtype.kind == "f"
            else value
            for name, value in point.items()
        }
        for move in moves
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", choices=[*healthy.MODELS, []], metavar="MODEL")
    parser.add_argument("--backend", default="c")
    parser.add_argument("--points", type=int, default=20)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    names = arguments.models or list(healthy.MODELS)
    counts = dict.fromkeys(SETTINGS, 0)
    for name in names:
        model = healthy.MODELS[name]()
        points = around(model.initial_point(), arguments.points)
        for setting, make in SETTINGS.items():
            found = alarm(model, make(backend=arguments.backend), points)
            if found is not None:
                counts[setting] += 1
                print(f"{name}, {setting}: {found}", flush=True)
    print(f"\nerrors on {len(names)} sound models, {arguments.backend}, {arguments.points} points")
    for setting, count in counts.items():
        print(f"{setting:<20} {count:>3}")


if __name__ == "__main__":
    main()
