"""Whether ``stabilize`` makes a value or a gradient worse.

    python -m benchmarks.stabilizing [--points 40] [-v]

The programs are the formulas of ``formulas.txt``, in float32 and float64, and formulas inside of
others, of which PyTensor's own rewriting replaces many as a whole.  The graph as written and
that of ``stabilize(...).apply()`` are compiled in the default mode.  Both are compared with exact
arithmetic at random points of the formula's range.  A program is *worse* if an error of the new
graph is more than 4 times as large as that of the old one (64 times where a formula is inside of
another, which amplifies its rounding), and above the rounding of its operands:
``64 * eps * (1 + max(abs(x)))``, relative to the largest part.  Such a point is looked at again:
the largest errors at it and at its neighbours, some ulp away, are compared, because a graph that
loses digits keeps them by chance at some points.
"""

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytensor
from pytensor.graph.basic import Variable

from benchmarks.formulas import (
    MODES,
    NAMES,
    Problem,
    by_element,
    exact_values,
    gradient_of,
    lines_of,
    problems_in,
    relative,
    variables_of,
)
from theanoguard import stabilize

NEIGHBOURS = 12
PARTS = [
    *("1 / (1 + exp(-x))", "exp(x) / (1 + exp(x))", "sigmoid(x)", "exp(x) / (exp(x) + exp(y))"),
    *("(exp(x) - exp(-x)) / (exp(x) + exp(-x))", "exp(-x) / (1 + exp(-x))"),
    *("exp(x) / (2 + exp(x))", "sqrt(exp(x))", "log(1 + exp(x))", "log(exp(x) + exp(y))"),
    *("log1p(-sigmoid(x))", "exp(x) / exp(y)", "(exp(v) / exp(v).sum())[0]", "sqrt((v**2).sum())"),
    *("log(exp(v).sum())", "exp(v[0]) / exp(v).sum()", "exp(v) / exp(v).sum()"),
    "log(exp(v).mean())",
]
WHOLES = [
    *("1 - ({})", "log({})", "log(1 - ({}))", "log1p(-({}))", "({}) / (1 - ({}))", "({})**2"),
    *("1 / ({})", "({}) * (1 - ({}))", "exp(-({}))", "sqrt({})", "log({}) - log(1 - ({}))"),
    *("1 - ({})**2", "log(1 + ({}))", "exp({}) - 1", "log(abs({}))"),
]
SETS = ("textbook", "reductions", "backward", "programs")


def programs(dtype: str) -> Iterator[Problem]:
    """Yield the formulas of a dtype, those that are accurate as well."""
    for name in SETS:
        yield from problems_in(name, dtype)
    yield from _of_all_sizes(lines_of("sound"), dtype)


def compositions(dtype: str) -> Iterator[Problem]:
    """Yield formulas with formulas inside, of which the default mode replaces many as a whole."""
    texts = (whole.format(part, part) for part in PARTS for whole in WHOLES)
    return _of_all_sizes(texts, dtype)


def _of_all_sizes(texts: Iterable[str], dtype: str) -> Iterator[Problem]:
    for text in texts:
        variables = variables_of(text, dtype)
        single = by_element(variables)
        sizes = {v: 3 for v in variables.values()}

        def draw(rng, count, sizes=sizes, single=single):  # type: ignore[no-untyped-def]
            for _ in range(1 if single else count):
                yield {v: _sizes(rng, count if single else n) for v, n in sizes.items()}

        formula = eval(text, {**NAMES, **variables})  # noqa: S307
        yield Problem(text, formula, {v: np.ones(3) for v in variables.values()}, draw)


def _sizes(rng: np.random.Generator, count: int) -> np.ndarray:
    return 10 ** rng.uniform(-20, 2, count) * rng.choice([-1, 1], count)


def outcome(problem: Problem, points: int, factor: float = 4.0) -> tuple[str, str]:
    """Return "worse", "better", "same" or "not changed", and what was replaced.

    `factor`: by how much an error must be larger than another one.
    """
    found = stabilize(problem.formula)
    if not found.replacements:
        return "not changed", ""
    (new,) = found.apply()
    drawn = []
    for values in problem.draw(np.random.default_rng(0), points):
        with np.errstate(all="ignore"):
            cast = {v: np.asarray(x, v.type.dtype) for v, x in values.items()}
        if all(np.isfinite(x).all() for x in cast.values()):
            drawn.append(cast)
    inputs, single = list(problem.given), len(drawn) == 1
    pairs = [(g, gradient_of(g, inputs, single)) for g in (problem.formula, new)]
    functions = [
        pytensor.function(inputs, [g, *s], mode=MODES["rewritten"], on_unused_input="ignore")
        for g, s in pairs
    ]
    calls = [lambda values, f=f: f(*(values[v] for v in inputs)) for f in functions]
    seen = Counter[str]()
    graphs = [problem.formula, *pairs[0][1]]
    for values in drawn:
        old, new, allowed = _errors(graphs, calls, values, single)
        if (new > np.maximum(factor * old, allowed)).any():
            around = [values, *_neighbours(values)]
            parts = zip(*(_errors(graphs, calls, near, single) for near in around), strict=True)
            old, new, allowed = (np.max(part, axis=0) for part in parts)
        seen["worse"] += int((new > np.maximum(factor * old, allowed)).sum())
        seen["better"] += int((old > np.maximum(factor * new, allowed)).sum())
    kind = "worse" if seen["worse"] else "better" if seen["better"] else "same"
    return kind, ", ".join(r.form for r in found.replacements)


def _errors(
    graphs: list[Variable], calls: list[Callable], values: dict, single: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the errors of the old and the new graph at a point, and what is allowed there."""
    limits = max(
        (np.finfo(x.dtype) for x in values.values() if x.dtype.kind == "f"), key=lambda f: f.eps
    )
    held = [
        np.where((abs(r) < limits.max / 4) & (abs(r) > 1e8 * limits.tiny), r, np.nan)
        for r in exact_values(graphs, values)
    ]
    by = "parts" if single else "all"
    old, new = (  # (an error above 1 is no worse than 1: no digit is right)
        np.concatenate([relative(f[:1], held[:1], "element"), relative(f[1:], held[1:], by)]).clip(
            0, 1
        )
        for f in ([np.asarray(o, float) for o in call(values)] for call in calls)
    )
    largest = max(float(np.abs(x).max(initial=0)) for x in values.values())
    return old, new, 64 * float(limits.eps) * (1 + largest)


def _neighbours(values: dict) -> Iterator[dict]:
    rng = np.random.default_rng(0)
    for _ in range(NEIGHBOURS):
        yield {
            v: (x * (1 + rng.integers(-4, 5, x.shape) * np.finfo(x.dtype).eps)).astype(x.dtype)
            if x.dtype.kind == "f"
            else x
            for v, x in values.items()
        }


def main() -> None:
    """Print the counts, and what has become worse."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    counts: Counter[str] = Counter()
    for dtype in ("float64", "float32"):
        problems = [*((p, 4.0) for p in programs(dtype)), *((p, 64.0) for p in compositions(dtype))]
        for problem, factor in problems:
            kind, forms = outcome(problem, arguments.points, factor)
            counts[kind] += 1
            if kind == "worse" or arguments.verbose:
                print(f"{kind:11s} {dtype} {problem.name}: {forms}", flush=True)
    print(f"{sum(counts.values())} programs: {dict(counts)}")


if __name__ == "__main__":
    main()
