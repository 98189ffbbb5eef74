"""Data of a PyMC model that are probably not meant."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, graph_inputs
from scipy.optimize import linprog
from scipy.special import expit

from theanoguard._provenance import SourceLine, source_line
from theanoguard._provenance.places import source_text
from theanoguard._shown import displayed
from theanoguard._text import number_text
from theanoguard.pymc.broadcasts import crossed
from theanoguard.pymc.parameters import distribution_of, given_data, given_parameters
from theanoguard.pymc.points import Point, compiled

SENTINELS = (-9, -99, -999, -9999, 999, 9999)  # numbers that stand for a missing value in tables

FEW = 5  # arrays with fewer elements are not audited

CUT = 1e-6  # a number that is cut by less is a whole number but for rounding

ROUNDED = 2e-3  # rows whose sum is nearer to 1 are compositions that were rounded to three decimals

ALIKE = 1 / 50
"""Two predictors are reported if the ratio of them varies by less than this share of its mean."""

MOST_SLOPES = 20  # a parameter that depends on more coefficients is not audited

MOST_OUTCOMES = 5000  # whether more outcomes are separated is not looked for

CERTAIN, OFTEN = 1e-4, 0.2
"""Separated outcomes are reported if so large a share of the prior's probabilities is so near to 0
or to 1: a narrower prior holds the coefficients, whatever the data are."""


@displayed
@dataclass(frozen=True)
class DataFault:
    """Data that are probably not meant.

    Parameters
    ----------
    key : {"cut", "sum", "sentinel", "cast-nan", "alike", "separated", "crossed"}
    variable : str
        Name of the observed variable or of the array.
    values : tuple of float or str
        The numbers and the names in question.
    at : tuple of int
        Index of the first one.
    n : int
        How many elements are concerned.
    source : SourceLine or None
    """

    key: str
    variable: str
    values: tuple[float | str, ...] = ()
    at: tuple[int, ...] = ()
    n: int = 0
    source: SourceLine | None = None

    def __str__(self) -> str:
        shown = [v if isinstance(v, str) else number_text(v) for v in self.values]
        text = TEXTS[self.key].format(*shown, name=self.variable, at=list(self.at), n=self.n)
        place = "" if self.source is None else f"\n  {source_text(self.source)}"
        first, end, rest = text.partition("\n")
        return f"{first}{place}{end}{rest}"


TEXTS = {
    "cut": "{name}{at} is {0} in your data and {1} in the model: its distribution takes whole "
    "numbers, and PyMC has cut {n} elements\n"
    "Round the data, or use a distribution of real numbers.",
    "sentinel": "{name}{at} is {0}, far from all other elements ({n} in all): a code for missing "
    "values?\nReplace it by NaN, or leave these rows out.",
    "sum": "{name}{at} sum to {0}, not to 1, which PyMC does not check ({n} rows in all)\n"
    "Divide each row by its sum.",
    "cast-nan": "{name}{at} is {0}: a NaN that was cast to an integer\nLeave out the {n} rows with "
    "a missing index.",
    "alike": "{name}: the predictor of {0} is {2} times the one of {1}, up to {3}: the data can "
    "hardly tell them apart\nIf {1} is the intercept, subtract the mean of the predictor of {0}; "
    "else leave one of them out.",
    "separated": "{name}: the predictor of {0} separates the outcomes: the likelihood does not "
    "fall as {0} grow, and at the prior's draws {1} of the probabilities are 0 or 1, up to {2}\n"
    "Give {0} priors with lighter tails, such as pm.Normal(..., 0, 2.5) for a predictor with the "
    "standard deviation 1.",
    "crossed": "{0}",
}


def audited(model: Any, points: Sequence[Point]) -> Iterator[DataFault]:
    """Yield what is wrong with the observed data and with the arrays that a model computes with.

    `points` are draws from the prior, at which the model can be computed.
    """
    for rv in model.observed_RVs:
        yield from _of_observed(model, rv)
    for variable in [*model.observed_RVs, *model.potentials]:
        for text in crossed(model, variable.name, variable):
            yield DataFault("crossed", variable.name, (text,), source=source_line(variable))
    seen = {model.rvs_to_values[rv] for rv in model.observed_RVs}
    terms = [*model.basic_RVs, *model.potentials, *model.deterministics]
    for v in dict.fromkeys(graph_inputs(terms)):
        if v in seen or not isinstance(v, Constant | SharedVariable):
            continue
        value = v.data if isinstance(v, Constant) else v.get_value(borrow=True)
        if isinstance(value, np.ndarray) and value.size >= FEW and value.dtype.kind in "iuf":
            yield from _of_array(v.name or "an array", value, source_line(v))
    if points:
        yield from of_designs(model, points)


def _data_of(model: Any, rv: Any) -> Any:
    """Return the data of an observed variable; None if they are computed."""
    value = model.rvs_to_values[rv]
    if isinstance(value, SharedVariable):
        return value.get_value(borrow=True)
    return value.data if isinstance(value, Constant) else None


def _of_observed(model: Any, rv: Any) -> Iterator[DataFault]:
    data = _data_of(model, rv)
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "iuf":
        return
    line = source_line(rv)
    given = given_data(rv)
    if given is not None and given.shape == data.shape:
        with np.errstate(invalid="ignore"):
            cut = np.isfinite(given) & (np.abs(given - data) > CUT)
        if cut.any():
            first = tuple(int(i) for i in np.argwhere(cut)[0])
            numbers = float(given[first]), float(data[first])
            yield DataFault("cut", rv.name, numbers, first, int(cut.sum()), line)
    if distribution_of(rv) == "Dirichlet":
        sums = data.sum(axis=-1)
        off = np.abs(sums - 1) > ROUNDED
        if off.any():
            first = tuple(int(i) for i in np.argwhere(off)[0])
            yield DataFault("sum", rv.name, (float(sums[first]),), first, int(off.sum()), line)
    yield from _sentinels(rv.name, data, line)


def _of_array(name: str, value: np.ndarray, line: SourceLine | None) -> Iterator[DataFault]:
    if value.dtype.kind == "i":
        lost = value == np.iinfo(value.dtype).min
        if lost.any():
            first = tuple(int(i) for i in np.argwhere(lost)[0])
            number = (float(value[first]),)
            yield DataFault("cast-nan", name, number, first, int(lost.sum()), line)
    yield from _sentinels(name, value, line)


@dataclass(frozen=True)
class Design:
    """How a parameter of observed data changes with each coefficient, at two points."""

    rv: Any  # the observed variable
    names: tuple[str, ...]  # of the coefficients
    #: tuple of ndarray, shape (n_data, n_coefficients).  The derivatives of the parameter.  Of a
    #: linear predictor they are the columns of the design matrix, and behind a link these times one
    #: number for each row.
    slopes: tuple[Any, Any]
    #: ndarray of bool, shape (n_coefficients,).  Which coefficients have a prior that is not
    #: learnt: a learnt one holds together those that the data do not tell apart.
    free: Any

    @np.errstate(all="ignore")  # (a slope may be 0 at one of the points)
    def alike(self) -> tuple[int, int, float, float] | None:
        """Return two columns that are nearly proportional, and the mean and sd of their ratio."""
        for i, j in combinations(np.flatnonzero(self.free), 2):
            rows = self.slopes[0][:, i] != 0
            if rows.sum() < FEW or not np.array_equal(rows, self.slopes[0][:, j] != 0):
                continue
            ratios = [s[rows, i] / s[rows, j] for s in self.slopes]
            if abs(ratios[0].mean()) < 1:
                i, j, ratios = j, i, [1 / ratio for ratio in ratios]
            if all(ratio.std() < ALIKE * abs(ratio.mean()) for ratio in ratios):
                mean, sd = ratios[0].mean(), ratios[0].std()
                return int(i), int(j), float(f"{mean:.5g}"), float(f"{sd:.2g}")
        return None

    def separating(self, signs: Any) -> list[str]:
        """Return the coefficients along which the probability of no outcome falls; [] if none.

        `signs`: ndarray, shape (n_data,).  1 and -1 of the outcomes that are the largest and the
        smallest possible, else 0.
        """
        sizes = [np.linalg.norm(s, axis=1, keepdims=True) for s in self.slopes]
        rows = [s / np.maximum(n, 1e-300) for s, n in zip(self.slopes, sizes, strict=True)]
        if not np.allclose(rows[0], rows[1], atol=1e-4):
            return []  # (not linear, so what holds here need not hold elsewhere)
        gains = rows[0] * np.where(signs == 0, 1, signs)[:, None]
        bounds = [(-1, 1) if one else (0, 0) for one in self.free]
        fixed = {"A_eq": gains[signs == 0], "b_eq": np.zeros((signs == 0).sum())}
        found = linprog(
            -gains.sum(axis=0),
            A_ub=-gains,
            b_ub=np.zeros(len(gains)),
            bounds=bounds,
            **(fixed if (signs == 0).any() else {}),
        )
        if found.status != 0 or -found.fun < 1e-6 * len(gains):
            return []
        return [name for name, x in zip(self.names, found.x, strict=True) if abs(x) > 1e-6]


def of_designs(model: Any, points: Sequence[Point]) -> Iterator[DataFault]:
    """Yield predictors that the data can hardly tell apart, and those that separate outcomes."""
    own = {rv: model.rvs_to_values[rv] for rv in model.free_RVs}
    learnt = {own[rv].name: own.keys() & set(ancestors(rv.owner.inputs)) for rv in own}
    start = model.initial_point()
    slopes = {
        rv: (own[rv].name, index)
        for rv in model.free_RVs
        if model.rvs_to_transforms.get(rv) is None and rv.dtype.startswith("float")
        for index in [list(np.ndindex(np.shape(start[own[rv].name])))]
    }
    asked = []
    for rv in model.observed_RVs:
        size = np.size(_data_of(model, rv))
        for key, parameter in given_parameters(rv).items():
            reached = set() if parameter is None else set(ancestors([parameter]))
            of = [one for free, one in slopes.items() if free in reached]
            n = sum(len(index) for _, index in of)
            if size >= FEW and n + 2 <= size and 0 < n <= MOST_SLOPES:
                asked.append((rv, key, parameter, size, of))
    if not asked:
        return
    outputs = model.replace_rvs_by_values([one[2] for one in asked])
    function = compiled(model, list(model.value_vars), outputs, on_c=False)

    def at(point: Point) -> list[Any]:
        return [np.asarray(v, float) for v in function(*(point[v.name] for v in model.value_vars))]

    rng = np.random.default_rng(0)
    near = {
        name: np.asarray(v + rng.uniform(-0.01, 0.01, np.shape(v)), v.dtype)
        if v.dtype.kind == "f"
        else v
        for name, v in start.items()
    }
    moves = list(dict.fromkeys((name, i) for *_, of in asked for name, index in of for i in index))
    changes = [{move: _change(at, point, *move) for move in moves} for point in (start, near)]
    for number, (rv, key, _, size, of) in enumerate(asked):
        own_moves = [(name, i) for name, index in of for i in index]
        columns = [[c[move][number] for move in own_moves] for c in changes]
        if any(c.shape != np.shape(_data_of(model, rv)) for one in columns for c in one):
            continue
        both = tuple(np.stack([c.ravel() for c in one], axis=1) for one in columns)
        if not all(np.isfinite(one).all() for one in both):
            continue
        names = tuple(f"{name}{list(i) if i else ''}" for name, i in own_moves)
        free = np.array([not learnt[name] for name, _ in own_moves])
        design, line = Design(rv, names, both, free), source_line(rv)
        if (found := design.alike()) is not None:
            i, j, *ratio = found
            yield DataFault("alike", rv.name, (names[i], names[j], *ratio), (), size, line)
        elif key in OUTCOMES.get(distribution_of(rv), ()) and size <= MOST_OUTCOMES:
            yield from _separated(model, design, key, [at(point)[number] for point in points])


OUTCOMES = {"Bernoulli": ("p", "logit_p"), "Binomial": ("p", "logit_p")}
"""By the name of a distribution of outcomes, its probabilities."""


def _separated(model: Any, design: Design, key: str, values: Sequence[Any]) -> Iterator[DataFault]:
    """Yield the fault that outcomes are separated, if no prior holds the coefficients."""
    rv, data = design.rv, _data_of(model, design.rv)
    n = given_parameters(rv).get("n")
    most = np.broadcast_to(1 if n is None else getattr(n, "data", np.nan), np.shape(data))
    signs = np.where(data == most, 1, np.where(data == 0, -1, 0)).ravel()
    names = design.separating(signs)
    if not names:
        return
    probabilities = np.array([expit(v) if key == "logit_p" else v for v in values])
    share = np.mean(np.abs(probabilities - 0.5) > 0.5 - CERTAIN) if len(values) else 0.0
    if share > OFTEN:
        told = (" and ".join(names), f"{share:.0%}", CERTAIN)
        yield DataFault("separated", rv.name, told, (), len(signs), source_line(rv))


def _change(at: Callable, point: Point, name: str, index: tuple[int, ...]) -> list[Any]:
    """Return the derivatives of some values by one element of a point, by central differences."""
    step: Any = np.zeros_like(point[name])
    step[index] = size = np.cbrt(np.finfo(step.dtype).eps)
    right, left = (at({**point, name: point[name] + sign * step}) for sign in (1, -1))
    with np.errstate(all="ignore"):
        return [(r - le) / (2 * size) for r, le in zip(right, left, strict=True)]


def _sentinels(name: str, data: np.ndarray, line: SourceLine | None) -> Iterator[DataFault]:
    """Yield the codes for a missing value: far from all other elements, on one side of them."""
    for code in SENTINELS:
        coded = data == code
        n = int(coded.sum())
        if not n or data.size - n < FEW:
            continue
        others = data[~coded & np.isfinite(data)]
        if not len(others):
            continue
        low, high = float(others.min()), float(others.max())
        is_far = low >= 0 if code < 0 else high < code / 5
        if is_far and len(np.unique(others)) > 1:
            first = tuple(int(i) for i in np.argwhere(coded)[0])
            yield DataFault("sentinel", name, (float(code),), first, n, line)
