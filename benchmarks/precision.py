"""How many lost digits ``theanoguard.precision`` finds and names, and what it costs.

    python -m benchmarks.precision [--pymc]

Cores are formulas of the public benchmarks for numerical analysis, at inputs at which they lose
digits: Hamming's problems as in Herbie's suite, FPBench, and textbook examples.  Each has a twin
that keeps its digits.  The float32 programs are small models in which one cancellation is planted.
With ``--pymc``, the log-densities and gradients of ``tests/pymc_guard/healthy.py`` are measured.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

from theanoguard import GuardMode, MeasuredCalls, precision

Formula = Callable[..., Any]
Program = tuple[Any, dict[Any, np.ndarray]]
"""A graph, and the values of its inputs."""


@dataclass(frozen=True)
class Core:
    """A formula that loses digits, the operations that may be named, and one that does not.

    Parameters
    ----------
    name, source : str
    at : tuple of float
    formula : callable
    lost_by : tuple of str
    twin : callable
    """

    name: str
    source: str
    at: tuple[float, ...]
    formula: Formula
    lost_by: tuple[str, ...]
    twin: Formula


HAMMING, FPBENCH, TEXTBOOK = "Herbie, Hamming's problems", "FPBench", "textbook"


def _quadratic(sign: int) -> Formula:
    return lambda a, b, c: (-b + sign * pt.sqrt(b * b - 4 * a * c)) / (2 * a)


def _stable_quadratic(a: Any, b: Any, c: Any) -> Any:
    return 2 * c / (-b - pt.sqrt(b * b - 4 * a * c))


def _stable_quadratic_minus(a: Any, b: Any, c: Any) -> Any:
    return 2 * c / (-b + pt.sqrt(b * b - 4 * a * c))


def _sqrt_difference(x: Any) -> Any:
    return 1 / (pt.sqrt(x + 1) + pt.sqrt(x))


def _cube_root_difference(x: Any) -> Any:
    a, b = (x + 1) ** (1 / 3), x ** (1 / 3)
    return 1 / (a * a + a * b + b * b)


SUB = ("sub",)
V = pt.as_tensor(np.array([0.25, 1.0, 2.5]))
CORES = [
    Core("2sqrt", HAMMING, (1e12,), lambda x: pt.sqrt(x + 1) - pt.sqrt(x), SUB, _sqrt_difference),
    Core("2isqrt", HAMMING, (1e12,), lambda x: 1 / pt.sqrt(x) - 1 / pt.sqrt(x + 1), SUB,
         lambda x: 1 / (pt.sqrt(x) * pt.sqrt(x + 1) * (pt.sqrt(x + 1) + pt.sqrt(x)))),
    Core("2frac", HAMMING, (1e9,), lambda x: 1 / (x + 1) - 1 / x, SUB,
         lambda x: -1 / (x * (x + 1))),
    Core("3frac", HAMMING, (1e6,), lambda x: 1 / (x + 1) - 2 / x + 1 / (x - 1), ("add", "sub"),
         lambda x: 2 / (x * (x + 1) * (x - 1))),
    Core("2cbrt", HAMMING, (1e12,), lambda x: (x + 1) ** (1 / 3) - x ** (1 / 3), SUB,
         _cube_root_difference),
    Core("2cos", HAMMING, (1.0, 1e-10), lambda x, e: pt.cos(x + e) - pt.cos(x), SUB,
         lambda x, e: -2 * pt.sin(x + e / 2) * pt.sin(e / 2)),
    Core("2sin", HAMMING, (1.0, 1e-10), lambda x, e: pt.sin(x + e) - pt.sin(x), SUB,
         lambda x, e: 2 * pt.cos(x + e / 2) * pt.sin(e / 2)),
    Core("2tan", HAMMING, (1.0, 1e-10), lambda x, e: pt.tan(x + e) - pt.tan(x), SUB,
         lambda x, e: pt.sin(e) / (pt.cos(x) * pt.cos(x + e))),
    Core("2atan", HAMMING, (1e9,), lambda x: pt.arctan(x + 1) - pt.arctan(x), SUB,
         lambda x: pt.arctan(1 / (1 + x * (x + 1)))),
    Core("2log", HAMMING, (1e12,), lambda x: pt.log(x + 1) - pt.log(x), SUB,
         lambda x: pt.log1p(1 / x)),
    Core("2exp", HAMMING, (1e-9,), lambda x: pt.exp(x) - 2 + pt.exp(-x), ("add", "sub"),
         lambda x: 4 * pt.sinh(x / 2) ** 2),
    Core("expm1", HAMMING, (1e-10,), lambda x: pt.exp(x) - 1, SUB, pt.expm1),
    Core("expax", HAMMING, (1e-6, 1e-6), lambda a, x: pt.exp(a * x) - 1, SUB,
         lambda a, x: pt.expm1(a * x)),
    Core("cos2", HAMMING, (1e-7,), lambda x: (1 - pt.cos(x)) / (x * x), SUB,
         lambda x: 0.5 * (pt.sin(x / 2) / (x / 2)) ** 2),
    Core("tanhf", HAMMING, (1e-7,), lambda x: (1 - pt.cos(x)) / pt.sin(x), SUB,
         lambda x: pt.tan(x / 2)),
    Core("invcot", HAMMING, (1e-5,), lambda x: 1 / x - 1 / pt.tan(x), SUB,
         lambda x: x / 3 * (1 + x * x / 15)),
    Core("qlog", HAMMING, (1e-9,), lambda x: pt.log(1 - x) / pt.log(1 + x), ("sub", "add", "log"),
         lambda x: pt.log1p(-x) / pt.log1p(x)),
    Core("logq", HAMMING, (1e-9,), lambda e: pt.log((1 - e) / (1 + e)),
         ("true_div", "sub", "add", "log"), lambda e: pt.log1p(-e) - pt.log1p(e)),
    Core("logs", HAMMING, (1e9,), lambda n: (n + 1) * pt.log(n + 1) - n * pt.log(n) - 1, SUB,
         lambda n: n * pt.log1p(1 / n) - 1 + pt.log(n + 1) + 0.0),
    Core("expq2", HAMMING, (1e-10,), lambda x: pt.exp(x) / (pt.exp(x) - 1), SUB,
         lambda x: -1 / pt.expm1(-x)),
    Core("sqrtexp", HAMMING, (1e-10,),
         lambda x: pt.sqrt((pt.exp(2 * x) - 1) / (pt.exp(x) - 1)), SUB,
         lambda x: pt.sqrt(pt.exp(x) + 1)),
    Core("sintan", HAMMING, (1e-4,), lambda x: (x - pt.sin(x)) / (x - pt.tan(x)), SUB,
         lambda x: -0.5 + 9 * x * x / 40),
    Core("quadp", HAMMING, (1.0, 1e8, 1.0), _quadratic(1), ("add", "sub"), _stable_quadratic),
    Core("quadm", HAMMING, (1.0, -1e8, 1.0), _quadratic(-1), ("add", "sub"),
         _stable_quadratic_minus),
    Core("quad2p", HAMMING, (1.0, 1e8, 1.0), lambda a, b, c: (-b + pt.sqrt(b * b - a * c)) / a,
         ("add", "sub"), lambda a, b, c: c / (-b - pt.sqrt(b * b - a * c))),
    Core("exp - cos", FPBENCH, (1e-10,), lambda x: pt.exp(x) - pt.cos(x), SUB,
         lambda x: pt.expm1(x) + 2 * pt.sin(x / 2) ** 2),
    Core("sine_newton", FPBENCH, (1e-4,), lambda x: x - (x - x**3 / 6 + x**5 / 120), SUB,
         lambda x: x**3 / 6 - x**5 / 120),
    Core("kepler", FPBENCH, (1e-5,), lambda x: x - 1.0 * pt.sin(x), SUB,
         lambda x: x**3 / 6 * (1 - x * x / 20)),
    Core("nonlin", FPBENCH, (1e10,), lambda z: z / (z + 1) - 1, SUB, lambda z: -1 / (z + 1)),
    Core("verhulst", FPBENCH, (1e-9,), lambda x: 4.0 * x / (1 + x / 1.11) - 4.0 * x, SUB,
         lambda x: -4.0 * x * (x / 1.11) / (1 + x / 1.11)),
    Core("predatorPrey", FPBENCH, (1e9,), lambda x: 1 - (x * x) / (x * x + 1.0), SUB,
         lambda x: 1.0 / (x * x + 1.0)),
    Core("sqroot", FPBENCH, (1e-9,), lambda x: pt.sqrt(1 + x) - 1, SUB,
         lambda x: x / (pt.sqrt(1 + x) + 1)),
    Core("intro-example", FPBENCH, (1e12,), lambda t: t - t * t / (t + 1), SUB,
         lambda t: t / (t + 1)),
    Core("doppler", FPBENCH, (1e-5,), lambda u: (331.4 + u) ** 2 - 331.4**2, SUB,
         lambda u: u * (662.8 + u)),
    Core("hypot", FPBENCH, (1e8, 1.0), lambda x, y: pt.sqrt(x * x + y * y) - x, SUB,
         lambda x, y: y * y / (pt.sqrt(x * x + y * y) + x)),
    Core("logexp", FPBENCH, (-40.0,), lambda x: pt.log(1 + pt.exp(x)), ("add", "log"),
         lambda x: pt.log1p(pt.exp(x))),
    Core("sphere", FPBENCH, (1e-9,), lambda x: pt.arccos(1 - x), ("sub", "arccos"),
         lambda x: 2 * pt.arcsin(pt.sqrt(x / 2))),
    Core("azimuth", FPBENCH, (1e-9,), lambda x: pt.arccos(pt.cos(x)), ("cos", "arccos"),
         lambda x: abs(x)),
    Core("asinh", TEXTBOOK, (-1e9,), lambda x: pt.log(x + pt.sqrt(x * x + 1)), ("add", "log"),
         pt.arcsinh),
    Core("acosh", TEXTBOOK, (1e-12,), lambda d: pt.log((1 + d) + pt.sqrt((1 + d) ** 2 - 1)),
         ("add", "sub", "pow", "sqr", "log"), lambda d: pt.log1p(d + pt.sqrt(d * (2 + d)))),
    Core("atanh", TEXTBOOK, (1e-12,), lambda x: 0.5 * pt.log((1 + x) / (1 - x)),
         ("add", "sub", "true_div", "log"), pt.arctanh),
    Core("tanh", TEXTBOOK, (1e-10,),
         lambda x: (pt.exp(x) - pt.exp(-x)) / (pt.exp(x) + pt.exp(-x)), SUB, pt.tanh),
    Core("sinh", TEXTBOOK, (1e-10,), lambda x: (pt.exp(x) - pt.exp(-x)) / 2, SUB, pt.sinh),
    Core("erfc", TEXTBOOK, (5.0,), lambda x: 1 - pt.erf(x), SUB, pt.erfc),
    Core("sigmoid", TEXTBOOK, (30.0,), lambda x: 1 - pt.sigmoid(x), SUB, lambda x: pt.sigmoid(-x)),
    Core("logit", TEXTBOOK, (1e-12,), lambda q: pt.log((1 - q) / (1 - q * q)),
         ("sub", "true_div", "log"), lambda q: -pt.log1p(q)),
    Core("gammaln", TEXTBOOK, (1e10,), lambda x: pt.gammaln(x + 1) - pt.gammaln(x), SUB, pt.log),
    Core("annuity", TEXTBOOK, (1e-9, 12.0), lambda r, n: ((1 + r) ** n - 1) / r, ("add", "sub"),
         lambda r, n: pt.expm1(n * pt.log1p(r)) / r),
    Core("compound", TEXTBOOK, (1e-9, 1e9), lambda r, n: (1 + r) ** n, ("add", "pow"),
         lambda r, n: pt.exp(n * pt.log1p(r))),
    Core("cancelled sum", TEXTBOOK, (1e-6,), lambda x: (1e10 + x) - 1e10, ("add", "sub"),
         lambda x: x + 0.0),
    Core("midpoint", TEXTBOOK, (1e-9,), lambda h: (pt.exp(1 + h) - pt.exp(1 - h)) / (2 * h), SUB,
         lambda h: np.e * pt.sinh(h) / h),
    Core("second difference", TEXTBOOK, (1e-5,),
         lambda h: (pt.sin(1 + h) - 2 * pt.sin(pt.as_tensor(1.0)) + pt.sin(1 - h)) / h**2,
         ("add", "sub"), lambda h: -4 * np.sin(1.0) * pt.sin(h / 2) ** 2 / h**2),
    Core("Kahan's angle", TEXTBOOK, (1.0, 1e-9),
         lambda x, y: pt.arccos(x * x / (x * pt.sqrt(x * x + y * y))),
         ("true_div", "arccos", "add", "mul", "sqrt"), lambda x, y: pt.arctan2(y, x)),
    Core("law of cosines", TEXTBOOK, (1e-8,), lambda g: pt.sqrt(2.0 - 2.0 * pt.cos(g)), SUB,
         lambda g: 2 * pt.sin(g / 2)),
    Core("log of ratio", TEXTBOOK, (1e-10,), lambda x: pt.log((2 + x) / 2),
         ("add", "log", "true_div"),
         lambda x: pt.log1p(x / 2)),
    Core("power", TEXTBOOK, (1e-10,), lambda x: (1 + x) ** 0.25 - 1, ("add", "sub"),
         lambda x: pt.expm1(0.25 * pt.log1p(x))),
    Core("geometric", TEXTBOOK, (1e-9,), lambda q: (1 - (1 - q) ** 5) / q, ("sub", "pow"),
         lambda q: -pt.expm1(5 * pt.log1p(-q)) / q),
    Core("Bessel", TEXTBOOK, (1e-6,), lambda x: 1 - pt.j0(x), SUB,
         lambda x: x * x / 4 * (1 - x * x / 16)),
    Core("variance", TEXTBOOK, (1e8,),
         lambda m: ((m + V) ** 2).mean() - (m + V).mean() ** 2, SUB, lambda m: V.var() + 0 * m),
    Core("determinant", TEXTBOOK, (1e-9,), lambda e: (1 + e) * (1 - e) - 1 * 1.0, ("mul", "sub"),
         lambda e: -e * e),
]  # fmt: skip


def _hidden() -> tuple[Any, dict[Any, np.ndarray]]:
    """Return the hidden layer of a float32 net, and inputs."""
    rng = np.random.default_rng(0)
    x, w, b = pt.fmatrix("x"), pt.fmatrix("w"), pt.fvector("b")
    given = {
        x: rng.normal(size=(5, 4)).astype("float32"),
        w: rng.normal(size=(4, 3)).astype("float32"),
        b: rng.normal(size=3).astype("float32"),
    }
    return pt.tanh(x @ w + b), given


def _programs(losses: dict[str, Any], given: dict[Any, np.ndarray]) -> dict[str, Program]:
    return {name: ((loss * np.float32(2)).mean(), given) for name, loss in losses.items()}


def planted() -> dict[str, Program]:
    """Return float32 programs with a planted cancellation: graph and inputs."""
    hidden, given = _hidden()
    small = pt.exp(hidden * np.float32(1e-5))
    scale = np.float32(3e3)
    large = hidden + scale
    probability = pt.sigmoid(hidden + np.float32(12))
    size = pt.sqr(hidden).sum(axis=1) + np.float32(1)
    one, far = np.float32(1), np.float32(1e7)
    plants = {
        "exp - 1": small - one,
        "one-pass variance": pt.sqr(large).mean(axis=0) - pt.sqr(large.mean(axis=0)),
        "shift and back": large * scale - scale * scale,
        "1 - sigmoid": one - probability,
        "log(1 - p)": pt.log(one - probability),
        "sqrt difference": pt.sqrt(size * far + one) - pt.sqrt(size * far),
        "1 - cos": one - pt.cos(hidden / scale),
        "log difference": pt.log(size * scale + one) - pt.log(size * scale),
        "hypotenuse": pt.sqrt(pt.sqr(size * scale) + one) - size * scale,
        "log(1 + x)": pt.log(one + pt.exp(hidden - np.float32(14))),
        "1 - erf": one - pt.erf(np.float32(3) + hidden / scale),
        "difference of powers": (size + one / scale) ** 3 - size**3,
        "tan - sin": pt.tan(hidden / scale) - pt.sin(hidden / scale),
        "sum and back": (size + far) - far,
        "exp difference": pt.exp(size + one / scale) - pt.exp(size),
        "reciprocals": one / (size * far) - one / (size * far + one),
    }
    return _programs(plants, given)


def lost_by(name: str) -> str:
    """Return the operation that loses the digits of a planted program."""
    return {"log(1 + x)": "log"}.get(name, "sub")


def planted_twins() -> dict[str, Program]:
    """Return forms of the planted programs that keep their digits."""
    hidden, given = _hidden()
    scale = np.float32(3e3)
    size = pt.sqr(hidden).sum(axis=1) + np.float32(1)
    one, two, far, step = np.float32([1, 2, 1e7, 1 / 3e3])
    twins = {
        "exp - 1": pt.expm1(hidden * np.float32(1e-5)),
        "one-pass variance": pt.sqr(hidden - hidden.mean(axis=0)).mean(axis=0),
        "shift and back": hidden * scale,
        "1 - sigmoid": pt.sigmoid(-hidden - np.float32(12)),
        "log(1 - p)": -pt.softplus(hidden + np.float32(12)),
        "sqrt difference": one / (pt.sqrt(size * far + one) + pt.sqrt(size * far)),
        "1 - cos": two * pt.sqr(pt.sin(hidden / scale / two)),
        "log difference": pt.log1p(one / (size * scale)),
        "hypotenuse": one / (pt.sqrt(pt.sqr(size * scale) + one) + size * scale),
        "log(1 + x)": pt.log1p(pt.exp(hidden - np.float32(14))),
        "1 - erf": pt.erfc(np.float32(3) + hidden / scale),
        "exp difference": pt.exp(size) * pt.expm1(step),
    }
    return _programs(twins, given)


def nets(count: int = 42) -> list[tuple[Any, dict[Any, np.ndarray]]]:
    """Return losses of small float32 nets with their gradients, and inputs: none loses digits."""
    made = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        activation = (pt.tanh, pt.sigmoid, pt.softplus, lambda v: pt.maximum(v, 0))[seed % 4]
        x, y = pt.fmatrix("x"), pt.ivector("y")
        width = int(rng.integers(3, 17))
        layers = int(rng.integers(1, 4))
        weights = [pt.fmatrix(f"w{i}") for i in range(layers + 1)]
        h = x
        for w in weights[:-1]:
            h = activation(h @ w)
        logits = h @ weights[-1]
        log_p = pt.special.log_softmax(logits, axis=1)
        loss = -log_p[pt.arange(8), y].mean()
        sizes = [5, *(width for _ in range(layers)), 3]
        given: dict[Any, np.ndarray] = {
            x: rng.normal(size=(8, 5)).astype("float32"),
            y: rng.integers(0, 3, 8).astype("int32"),
        }
        for w, shape in zip(weights, zip(sizes[:-1], sizes[1:], strict=True), strict=True):
            given[w] = (rng.normal(size=shape) / np.sqrt(shape[0])).astype("float32")
        made.append(([loss, *pytensor.grad(loss, weights)], given))
    return made


def evaluated(formula: Formula, at: tuple[float, ...]) -> Any:
    """Return the precision of a formula at a point, in float64."""
    inputs = [pt.dscalar(f"x{i}") for i in range(len(at))]
    result = formula(*inputs)
    return precision(result, dict(zip(inputs, at, strict=True)))


def named(found: Any) -> list[str]:
    """Return the operations that are named, for the worst output."""
    return [loss.operation for digits in found.outputs.values() for loss in digits.losses]


SHAPES: dict[str, tuple[None, ...]] = {"x": (None,), "m": (), "s": ()}


def density(dtype: str, size: int) -> tuple[list[Any], Program]:
    """Return the inputs of a log-density with its gradient, and the program."""
    x, m, s = (
        pt.vector("x", dtype=dtype),
        pt.scalar("m", dtype=dtype),
        pt.scalar("s", dtype=dtype),
    )
    z = (x - m) / s
    total = (-0.5 * pt.sqr(z) - pt.log(s) + pt.log1p(pt.exp(-abs(z)))).sum()
    given = {
        x: (np.linspace(-2, 3, size) ** 2).astype(dtype),
        m: np.asarray(0.25, dtype),
        s: np.asarray(1.5, dtype),
    }
    return list(given), ([total, *pytensor.grad(total, [m, s])], given)


def cost(dtype: str, size: int = 1000) -> float:
    """Return the processor's time of ``precision`` against a call of Python's linker."""
    inputs, (graph, given) = density(dtype, size)
    run = pytensor.function(inputs, graph, mode=Mode("py", None))
    run(*given.values())
    plain = min(_seconds(lambda: run(*given.values())) for _ in range(10))
    precision(graph, given, seconds=300, work=1e12)
    return (
        min(_seconds(lambda: precision(graph, given, seconds=300, work=1e12)) for _ in range(3))
        / plain
    )


def cost_of_calls(dtype: str, size: int, backend: str) -> tuple[float, float]:
    """Return the seconds of a guarded call, and how many such calls a measured one costs."""
    inputs, (graph, given) = density(dtype, size)
    modes = [GuardMode(backend=backend, precision=m) for m in (None, MeasuredCalls(every=1))]
    plain, measured = (pytensor.function(inputs, graph, mode=mode) for mode in modes)
    times: dict[Any, list[float]] = {plain: [], measured: []}
    for _ in range(5):
        for run, calls in ((plain, 300), (measured, 3)):
            run(*given.values())
            seconds = _seconds(
                lambda run=run, calls=calls: [run(*given.values()) for _ in range(calls)]
            )
            times[run].append(seconds / calls)
    return min(times[plain]), min(times[measured]) / min(times[plain])


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def pymc_models() -> None:
    """Print which sound PyMC models are said to lose digits, at a point near the initial one."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "pymc_guard"))
    import healthy

    counts: Counter = Counter()
    for name, build in healthy.MODELS.items():
        model = build()
        start = model.initial_point(random_seed=1)
        graph = [model.logp(), *([model.dlogp()] if model.continuous_value_vars else [])]
        rng = np.random.default_rng(1)
        point = {
            v: np.asarray(value + 0.1 * rng.normal(size=value.shape), value.dtype)
            if (value := np.asarray(start[v.name])).dtype.kind == "f"
            else value
            for v in model.value_vars
        }
        found = precision(graph, point)
        counts["models"] += 1
        counts["reported"] += not found.is_precise
        counts["beyond the limits"] += not found.outputs
        if not found.is_precise or found.notes:
            print(f"{name}:\n{found}", flush=True)
    print(dict(counts))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pymc", action="store_true", help="only sound PyMC models")
    if parser.parse_args().pymc:
        pymc_models()
        return
    hit, false = 0, 0
    for core in CORES:
        found = evaluated(core.formula, core.at)
        operations = named(found)
        good = bool(set(operations) & set(core.lost_by))
        hit += good
        twin = evaluated(core.twin, core.at)
        false += not twin.is_precise
        if not good or not twin.is_precise:
            print(f"{core.name} ({core.source}): {operations}; twin {twin}\n{found}")
    print(f"cores: {hit} of {len(CORES)} named, {false} of the twins reported")
    programs = planted()
    right = 0
    for name, (graph, given) in programs.items():
        found = precision(graph, given)
        good = named(found) == [lost_by(name)] and not found.is_precise
        right += good
        if not good:
            print(f"{name}:\n{found}")
    print(f"float32 programs: {right} of {len(programs)} named")
    sound = {
        "twins of the float32 programs": list(planted_twins().values()),
        "float32 nets with gradients": nets(),
    }
    for kind, pairs in sound.items():
        reported = [f for graph, given in pairs if not (f := precision(graph, given)).is_precise]
        print(*reported, sep="\n")
        print(f"{kind}: {len(reported)} of {len(pairs)} reported")
    for dtype in ("float32", "float64"):
        for size in (10, 1000, 10_000):
            print(
                f"cost, {dtype}, {size} elements: {cost(dtype, size):.0f} calls of Python's linker"
            )
    for backend in ("c", "numba"):
        for dtype in ("float32", "float64"):
            for size in (10, 1000, 10_000):
                call, ratio = cost_of_calls(dtype, size, backend)
                print(
                    f"a measured call, {backend}, {dtype}, {size} elements: {ratio:.0f} guarded "
                    f"calls of {call * 1e6:.0f} us"
                )


if __name__ == "__main__":
    main()
