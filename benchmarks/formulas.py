"""How accurate formulas are as written, after PyTensor's rewriting, and after ``improve``.

    python -m benchmarks.formulas [SET ...] [--points 200] [--fpbench CHECKOUT] [-v]
    python -m benchmarks.formulas --fpbench CHECKOUT --write

The sets are named in ``SETS``; FPBench's cores are read from a checkout of
https://github.com/FPBench/FPBench.  ``--write`` writes ``docs/measurements/formulas.txt``.

Each problem is a formula, inputs at which it is inaccurate, and a range.  ``improve`` sees the
formula and the inputs.  Then value and gradient are compared with exact arithmetic at random points
of the range.  The error of a gradient is relative to its largest part, that of a sum of several
elements as well.  A formula is *right* if no error exceeds 1e-9.  Where a formula has no value, or
one outside of 1e-290 to 1e300, its error is not counted.
"""

import argparse
import importlib.util
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable

from benchmarks.fpbench import Left, expressions, parts_of, points_of, value_of
from theanoguard._exact.balls import to_floats
from theanoguard._exact.twin import evaluate
from theanoguard.stable import improve

RIGHT = 1e-9
LOST_BITS = 16.0
"""The cores of FPBench that lose more are counted."""
MODES = {"as written": Mode("py", None), "rewritten": Mode("py", "fast_run")}
FORMULAS = Path(__file__).with_suffix(".txt")
PAGE = Path(__file__).parents[1] / "docs" / "measurements" / "formulas.txt"
DATA = PAGE.with_suffix(".json")


DENSITIES = {
    "Normal": ((0.0, 1.0), [40.0, -300.0, 2.0], (-1e3, 1e3)),
    "HalfNormal": ((1.0,), [40.0, 1e-9], (0, 1e3)),
    "StudentT": ((3.0, 0.0, 1.0), [1e9, 1e-9], (-1e10, 1e10)),
    "Cauchy": ((0.0, 1.0), [1e200, 1.0], (-1e12, 1e12)),
    "HalfCauchy": ((1.0,), [1e200, 1.0], (0, 1e12)),
    "Laplace": ((0.0, 1.0), [1e3, 1e-9], (-1e4, 1e4)),
    "Logistic": ((0.0, 1.0), [800.0, -800.0], (-1e3, 1e3)),
    "Gumbel": ((0.0, 1.0), [50.0, -5.0], (-5, 100)),
    "Gamma": ((2.0, 1.0), [1e-200, 700.0], (0, 1e3)),
    "InverseGamma": ((2.0, 1.0), [1e-3, 1e10], (1e-3, 1e3)),
    "Exponential": ((2.0,), [1e-300, 300.0], (0, 1e3)),
    "Weibull": ((2.0, 1.0), [1e-100, 20.0], (0, 30)),
    "LogNormal": ((0.0, 1.0), [1e-200, 1e200], (0, 1e3)),
    "Beta": ((2.0, 3.0), [1e-200, 0.999], (0, 1)),
    "Kumaraswamy": ((2.0, 3.0), [1e-9, 0.5], (0, 1)),
    "Pareto": ((2.0, 1.0), [1e200, 2.0], (1, 1e9)),
    "AsymmetricLaplace": ((1.0, 2.0, 0.0), [1e3, -1e3], (-1e4, 1e4)),
    "ExGaussian": ((0.0, 1.0, 0.1), [-30.0, 50.0], (-40, 40)),
    "SkewNormal": ((0.0, 1.0, 4.0), [-20.0, 3.0], (-40, 40)),
    "VonMises": ((0.0, 4.0), [3.0, 1e-9], (-3, 3)),
    "Wald": ((1.0, 2.0), [1e-3, 100.0], (1e-3, 1e3)),
    "LogitNormal": ((0.0, 1.0), [1e-200, 0.5], (0, 1)),
    "Moyal": ((0.0, 1.0), [-5.0, 100.0], (-5, 100)),
    "Triangular": ((0.0, 1.0, 0.5), [1e-200, 0.7], (0, 1)),
}
"""Distributions of PyMC: parameters, values in the tails, and the range."""


@dataclass
class Problem:
    """A formula, inputs, and what draws points of its range.

    Parameters
    ----------
    name : str
    formula : Variable
    given : dict of Variable to ndarray
    draw : callable
        Takes a generator and the number of points.  Yields values of the variables; of a formula
        by element, all points at once.
    """

    name: str
    formula: Variable
    given: dict[Variable, np.ndarray]
    draw: Callable[[np.random.Generator, int], Iterator[dict[Variable, np.ndarray]]]


@dataclass
class Row:
    """The largest errors of a formula: as written, rewritten, and improved."""

    problem: Problem
    values: dict[str, float]
    slopes: dict[str, float]
    seconds: float
    code: str | None
    is_large: bool = False

    def is_right(self, which: str, gradient: bool) -> bool:
        """Return whether a variant is right, and its gradient."""
        return self.values[which] <= RIGHT and (not gradient or self.slopes[which] <= RIGHT)


NAMES = {
    **{name: getattr(pt, name) for name in dir(pt) if not name.startswith("_")},
    **{"where": pt.switch, "softmax": pt.special.softmax},
}
KINDS = {"v": pt.vector, "w": pt.vector, "m": pt.matrix, "k": None}
"""The letters of arrays."""


def variables_of(text: str, dtype: str = "float64") -> dict[str, Variable]:
    """Return the variables of a formula; a letter that is no array has one element a point."""
    letters = sorted(set(re.findall(r"\b[a-z]\b", text)))
    return {
        n: pt.lvector(n) if n == "k" else KINDS.get(n, pt.vector)(n, dtype=dtype) for n in letters
    }


def by_element(variables: Mapping[str, Variable]) -> bool:
    """Return whether a formula has no arrays."""
    return not set(variables) & set(KINDS)


def lines_of(name: str) -> Iterator[str]:
    """Yield the lines of a set in ``formulas.txt``."""
    text = FORMULAS.read_text(encoding="utf-8")
    for line in text.partition(f"[{name}]\n")[2].partition("\n[")[0].splitlines():
        if line and not line.startswith("#"):
            yield line


def problems_in(name: str, dtype: str = "float64") -> Iterator[Problem]:
    """Yield the problems of a set."""
    for line in lines_of(name):
        text, inputs, ranges = map(str.strip, line.split("|"))
        variables = variables_of(text, dtype)
        formula = eval(text, {**NAMES, **variables})  # noqa: S307
        values = eval(f"dict({inputs})")  # noqa: S307
        given = {
            v: np.atleast_1d(np.asarray(values[n], v.type.dtype)) for n, v in variables.items()
        }
        bounds = dict(part.strip().split(" ", 1) for part in ranges.split(","))
        single = by_element(variables)
        if not single:  # (numbers beside arrays)
            assert not [n for n in variables if n not in KINDS], text
        sizes = {v: value.shape for v, value in given.items()}
        draw = _drawing({variables[n]: b.split() for n, b in bounds.items()}, sizes, single)
        yield Problem(text, formula, given, draw)


def _drawing(bounds: dict[Variable, list[str]], sizes: Mapping, single: bool) -> Callable:
    def one(kind: str, ends: list[float], rng: Any, shape: Any) -> np.ndarray:
        if kind == "of":
            return rng.integers(0, int(ends[0]), shape)
        if kind == "log":
            return np.exp(rng.uniform(*np.log(ends), shape))
        return rng.uniform(*ends, shape)

    def draw(rng: Any, count: int) -> Iterator[dict[Variable, np.ndarray]]:
        for _ in range(1 if single else count):
            yield {
                v: one(kind, [float(e) for e in ends], rng, count if single else sizes[v])
                for v, (kind, *ends) in bounds.items()
            }

    return draw


def sound_problems(count: int = 5) -> Iterator[Problem]:
    """Yield accurate formulas at random inputs."""
    rng = np.random.default_rng(1)
    for text in lines_of("sound"):
        variables = variables_of(text)
        formula = eval(text, {**NAMES, **variables})  # noqa: S307
        for _ in range(count):
            given = {v: rng.uniform(-3, 3, 4 if n in KINDS else 1) for n, v in variables.items()}
            yield Problem(text, formula, given, lambda rng, count: iter(()))


def density_problems() -> Iterator[Problem]:
    """Yield the log-densities of PyMC."""
    import pymc as pm

    for name, (parameters, tails, ends) in DENSITIES.items():
        x = pt.dvector("x")
        density = pm.logp(getattr(pm, name).dist(*parameters), x)
        bounds = {x: ["in", *map(str, ends)]}
        draw = _drawing(bounds, {x: (1,)}, single=True)
        yield Problem(name, density, {x: np.array(tails)}, draw)


def fpbench_problems(checkout: Path, points: int) -> Iterator[Problem]:
    """Yield the cores of FPBench that lose digits at a point of their precondition."""
    for path in sorted((checkout / "benchmarks").glob("*.fpcore")):
        for core in expressions(path.read_text(encoding="utf-8")):
            names, properties, body = parts_of(core)
            variables = {n: pt.dvector(n) for n in names}
            try:
                formula = pt.as_tensor(value_of(body, dict(variables), on_balls=False))
                drawn = list(points_of(names, properties.get(":pre"), points, seed=0))
            except Left:
                continue
            title = properties.get(":name", '"?"').strip('"')
            values = {variables[n]: np.array([p[n] for p in drawn]) for n in names}
            if not names or not drawn or formula.type.ndim != 1 or formula.type.dtype != "float64":
                continue
            yield Problem(title, formula, values, lambda rng, count, v=values: iter([v]))


def errors(
    outputs: list[Variable], mode: Mode, inputs: list[Variable], pairs: list[tuple], scale: str
) -> float:
    """Return the largest error at some points, of which `pairs` has the exact values."""
    function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    worst = 0.0
    for values, right in pairs:
        found = [np.asarray(o, float) for o in function(*(values[v] for v in inputs))]
        worst = max(worst, float(np.max(relative(found, right, scale), initial=0.0)))
    return worst


def relative(found: list[np.ndarray], right: list[np.ndarray], scale: str) -> np.ndarray:
    """Return relative errors; Inf where a value is not finite, 0 where nothing is known.

    `scale`: "element" for errors relative to each element, "parts" to the largest of the parts at
    the same place, "all" to the largest of all elements.
    """
    parts = np.broadcast_arrays(*right) if scale == "parts" else right
    if scale == "parts":
        sizes = [np.nanmax(np.abs(np.stack(parts)), axis=0, initial=0.0)] * len(right)
    elif scale == "all":
        largest = max(float(np.nanmax(np.abs(r), initial=0.0)) for r in right)
        sizes = [np.full(r.shape, largest) for r in right]
    else:
        sizes = [np.abs(r) for r in right]
    worst = [np.zeros(1)]
    for f, r, size in zip(found, right, sizes, strict=True):
        with np.errstate(all="ignore"):
            error = np.abs(f - r) / size
            known = np.isfinite(r) & (size < 1e300) & (size > 1e-290)
        worst.append(np.where(known, np.where(np.isfinite(error), error, np.inf), 0.0).ravel())
    return np.concatenate(worst)


def gradient_of(formula: Variable, inputs: list[Variable], single: bool) -> list[Variable]:
    """Return the gradient of the elements, each with another weight if several go into one."""
    real = [v for v in inputs if v.type.dtype.startswith("float")]
    if not single and formula.type.ndim:
        formula = formula * (pt.arange(formula.size) + 1.0).reshape(formula.shape)
    return pytensor.grad(formula.sum(), real, disconnected_inputs="ignore")


def exact_values(outputs: list[Variable], values: dict) -> list[np.ndarray]:
    """Return exact values, rounded."""
    found = evaluate(outputs, values, masked_gradients=True, decides=True, seconds=60)
    return [np.asarray(to_floats(np.asarray(e.value, object)), float) for e in found]


def measured(problem: Problem, points: int, gradient: bool = True) -> Row:
    """Improve a formula, and measure it."""
    inputs, formula = list(problem.given), problem.formula
    start = time.thread_time()
    found = improve(formula, problem.given)
    seconds = time.thread_time() - start
    drawn = list(problem.draw(np.random.default_rng(0), points))
    single = len(drawn) == 1
    variants = {"as written": formula, "rewritten": formula}
    variants["improved"] = formula if found is None else found.expression
    slope = gradient_of(formula, inputs, single) if gradient else []
    right = [(values, exact_values([formula], values)) for values in drawn]
    right_slopes = [(values, exact_values(slope, values)) for values in drawn if slope]
    values, slopes = {}, {}
    for name, variant in variants.items():
        mode, by = MODES.get(name, MODES["as written"]), "parts" if single else "all"
        values[name] = errors([variant], mode, inputs, right, "element")
        slopes[name] = 0.0
        if slope:
            own = gradient_of(variant, inputs, single)
            slopes[name] = errors(own, mode, inputs, right_slopes, by)
    return Row(problem, values, slopes, seconds, None if found is None else found.code)


SETS: dict[str, str] = {
    "textbook": "Textbook formulas",
    "reductions": "Formulas with reductions",
    "backward": "Gradients, and steps of loops",
    "densities": "Log-densities of PyMC in their tails",
    "fpbench": "FPBench, cores that lose more than 16 bits",
    "sound": "Accurate formulas",
}


def rows_of(name: str, points: int, checkout: Path | None) -> Iterator[Row]:
    """Yield the rows of a set."""
    if name in ("textbook", "reductions", "backward"):
        for problem in problems_in(name):
            yield measured(problem, points)
    elif name == "densities":
        for problem in density_problems():
            yield measured(problem, points)
    elif name == "fpbench" and checkout is not None:
        for problem in fpbench_problems(checkout, min(points, 40)):
            row = measured(problem, points, gradient=False)
            if row.values["as written"] > 2.0 ** (LOST_BITS - 53):
                yield row


def shown(row: Row) -> str:
    """Return a row as text."""
    cells = [f"{row.values[n]:8.1e} {row.slopes[n]:8.1e}" for n in row.values]
    return f"{' | '.join(cells)} | {row.seconds:5.2f} s | {row.problem.name}\n    {row.code}"


def summary_of(name: str, rows: list[Row]) -> list[str]:
    """Return the cells of a set in the table."""
    gradient = name != "fpbench"
    counts = [sum(r.is_right(w, gradient) for r in rows) for w in rows[0].values]
    times = [r.seconds for r in rows]
    worse = sum(r.values["improved"] > 2 * r.values["as written"] + 1e-12 for r in rows)
    return [
        SETS[name],
        *(f"{n} of {len(rows)}" for n in counts),
        f"{worse}",
        f"{np.median(times):.2f}",
        f"{max(times):.2f}",
    ]


HEAD = ["set", "as written", "rewritten", "improved", "worse", "median s", "largest s"]


def written_page(summaries: list[list[str]], details: dict[str, list[Row]]) -> None:
    """Write the tables of the page; sets that were not measured stay."""
    kept = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    for cells in summaries:
        kept.setdefault("sets", {})[cells[0]] = cells
    for name, rows in details.items():
        if name in ("textbook", "reductions", "backward"):
            kept.setdefault("formulas", {})[name] = [
                [
                    f"``{r.problem.name}``",
                    *(f"{r.values[n]:.0e}" for n in r.values),
                    f"{r.slopes['improved']:.0e}",
                    f"``{r.code}``" if r.code else "",
                ]
                for r in rows
            ]
    DATA.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    order = [kept["sets"][title] for title in SETS.values() if title in kept["sets"]]
    parts = ["", *_list_table(HEAD, order), ""]
    head = ["formula", "as written", "rewritten", "improved", "its gradient", "found"]
    for name, cells in kept["formulas"].items():
        parts += [f"{SETS[name]}, with their largest errors:", "", *_list_table(head, cells), ""]
    PAGE.write_text("\n".join(parts).strip("\n") + "\n", encoding="utf-8")


def _list_table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield ".. list-table::"
    yield "   :header-rows: 1"
    yield ""
    for row in [head, *rows]:
        for i, cell in enumerate(row):
            yield f"   {'*' if i == 0 else ' '} - {cell}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--fpbench", type=Path, metavar="CHECKOUT")
    parser.add_argument("--write", action="store_true", help="write the tables of docs")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    if unknown := set(arguments.sets) - set(SETS):
        sys.exit(f"no set {', '.join(sorted(unknown))}; the sets are {', '.join(SETS)}")
    wanted = arguments.sets or list(SETS)
    summaries: list[list[str]] = []
    details: dict[str, list[Row]] = {}
    for name in wanted:
        if name == "densities" and importlib.util.find_spec("pymc") is None:
            print("densities: PyMC is not installed", file=sys.stderr)
            continue
        if name == "sound":
            summaries.append(_of_sound())
        else:
            rows = []
            for row in rows_of(name, arguments.points, arguments.fpbench):
                rows.append(row)
                if arguments.verbose or not row.is_right("improved", name != "fpbench"):
                    print(shown(row), flush=True)
            if rows:
                details[name] = rows
                summaries.append(summary_of(name, rows))
    for line in [HEAD, *summaries]:
        print(" | ".join(f"{cell:>12s}" for cell in line))
    if arguments.write:
        written_page(summaries, details)


def _of_sound() -> list[str]:
    times, changed, count = [], 0, 0
    for problem in sound_problems():
        start = time.thread_time()
        found = improve(problem.formula, problem.given)
        times.append(time.thread_time() - start)
        count += 1
        if found is not None:
            changed += 1
            print(f"changed: {problem.name} at {list(problem.given.values())}: {found.code}")
    return [
        SETS["sound"],
        f"{count} of {count}",
        "",
        f"{count - changed} of {count} unchanged",
        f"{changed}",
        f"{np.median(times):.2f}",
        f"{max(times):.2f}",
    ]


if __name__ == "__main__":
    main()
