"""How the points where trajectories broke differ from the other draws, and what shape does that.

The samples are compared by ranks on the unconstrained scale, so that no edge is fixed.  A
trajectory that is too fast in a narrow place may break far outside of it: the draw from before
shows the place.  So the last sound points and the draws are compared with the others, each by
themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.stats import mannwhitneyu, rankdata

from theanoguard._pytensor import Mode
from theanoguard._steps import attempt
from theanoguard._text import number_text
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc.points import joined, of_points
from theanoguard.pymc.scales import PRIOR_DRAWS, Scale, scales_of

SURE = 1e-3
"""A difference counts if its rank test gives less than this, divided by the number of tests."""

NEARLY_SURE = 0.05  # this is enough for a scale if the log-density is stiff as well

LOW = 0.35
"""And if a broken point is below another draw with a probability of at least 1 minus this."""

FEWEST = 4  # so many broken points at least are compared

FEW = 2  # so many are compared with the neck of a funnel, which the other draws show as well

NECK = 0.1  # the neck of a funnel holds this share of the draws, those with the smallest scale

NARROW = 4.0
"""There what is scaled bends the log-density at least so many times as much as at all draws: the
neck is half as wide."""

STIFF = 10.0
"""The log-density is stiff where it bends so many times as much as at the median of the others."""

HEAVY = 12.0  # tails are heavy if 99 % of the draws span so many quartile ranges (a normal: 3.8)

OFTEN, LONG = 0.1, 8.0
"""If so large a share of the draws diverges, tails that no rank test shows may be the cause.  So
many quartile ranges are enough then: chains that break do not reach the end of the tails."""

LIGHTER = "Give {} a prior with lighter tails, such as pm.StudentT with nu=4 or more."

RIDGE = 0.95  # a correlation by ranks from which on two variables lie on a ridge

CURVED = 0.4
"""And the share of the variance of one that the square of the other explains, on a banana."""

MOST_PAIRS = 20  # the pairs of so many coordinates are compared

TINY = -5.0  # a variable collapses if its logarithm is below this, and by as much below its prior

APART = 5.0
"""Chains, or two halves of the draws, are so many of their own standard deviations apart."""

NEARER = 1.0
"""A variable is near a bound if it is nearer than usual by so much on the unconstrained scale."""

# By the name of a transform, the sides on which its bound lies at infinity.
BOUNDS = {"log": ("lower",), "interval": ("lower", "upper"), "logodds": ("lower", "upper")}
SPREAD = ("simplex", "cholesky-cov-packed", "cholesky_corr", "ordered", "zerosum")


Point = dict[str, Any]

Cause = Literal[
    "bad", "wall", "funnel", "boundary", "modes", "tails", "ridge", "banana", "stiff", "unknown"
]


@dataclass(frozen=True)
class Difference:
    """How a number at the points where trajectories broke differs from the one at other draws.

    Parameters
    ----------
    p : float
        Of a rank test, times the number of tests.
    above : float
        How often it is larger at a broken point than at another draw.
    broken, others : float
        The medians.
    """

    p: float
    above: float
    broken: float
    others: float


@dataclass(frozen=True)
class Shape:
    """What shape of the log-density breaks trajectories."""

    cause: Cause  # as in :class:`~theanoguard.pymc.DivergenceGroup`
    title: str
    advice: str
    scale: Scale | None = None  # of a funnel


@dataclass
class Comparison:
    """The points where trajectories broke, and the other draws.

    Parameters
    ----------
    model : pymc.Model
    broken : list of list of dict of str to ndarray
        The last sound points of the trajectories, and the draws, by the names of the value
        variables.
    others : list of dict of str to ndarray
    chains : sequence of int
        Of the others.
    bend : callable
        From a point to how much the log-density bends there, and along which variable; or, along
        the variable that is given.
    """

    model: Any
    broken: list[list[Point]]
    others: list[Point]
    chains: Sequence[int]
    bend: Callable[..., tuple[float, str]]
    labels: list[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self.labels = []
        for value in self.model.continuous_value_vars:
            shape = np.shape(self.others[0][value.name])
            for index in np.ndindex(shape):
                place = f"[{', '.join(map(str, index))}]" if index else ""
                self.labels.append((value.name, f"{value.name}{place}"))
        self.b = [np.stack([joined(self.model, p) for p in points]) for points in self.broken]
        self.g = np.stack([joined(self.model, point) for point in self.others])

    def shape(self) -> Shape | None:
        """Return the first of the known shapes that the points show, or None."""
        if len(self.g) < 5 * FEWEST:
            return None
        if len(self.b[0]) < FEWEST:
            return attempt("the look for a neck", None, self.neck)
        looks = (
            self.funnel,
            self.boundary,
            self.collapse,
            self.modes,
            self.tails,
            self.banana,
            self.neck,
            self.stiff,
            self.long_tails,
        )
        found = (attempt(f"the look for a {look.__name__}", None, look) for look in looks)
        return next(filter(None, found), None)

    def differs(self, broken: Sequence[Any], others: Any, n_tests: int) -> Difference:
        """Return the clearest difference of one of the samples from the others."""
        found = []
        for sample in broken:
            if np.ptp(np.concatenate([sample, others])) == 0:
                continue
            test = mannwhitneyu(sample, others)
            above = test.statistic / (len(sample) * len(others))
            p = min(1.0, test.pvalue * n_tests * len(broken))
            found.append(Difference(p, above, float(np.median(sample)), float(np.median(others))))
        return min(found, key=lambda one: one.p, default=Difference(1.0, 0.5, 0.0, 0.0))

    def funnel(self, sure: float = SURE) -> Shape | None:
        """A scale that is small where trajectories break."""
        found = ((d, shape) for d, shape in self.funnels() if d.p < sure and d.above < LOW)
        return next((shape for _, shape in found), None)

    def neck(self) -> Shape | None:
        """A scale that is nearly surely small where trajectories break, in a funnel of the draws.

        That is one in which the prior alone makes what it scales stiff where the scale is small.
        """
        if (shape := self.funnel(NEARLY_SURE)) is None or shape.scale is None:
            return None
        sizes = self._sizes(shape.scale, self.others).mean(axis=1)
        in_neck = np.argsort(sizes)[: max(1, round(NECK * len(sizes)))]
        child = self.model.rvs_to_values[shape.scale.child].name
        stiff = self._usual_bend([self.others[i] for i in in_neck], child)
        return shape if stiff >= NARROW * self._usual_bend(self.others, child) else None

    def _usual_bend(self, points: list[Point], along: str = "") -> float:
        some = points[:: max(1, len(points) // 20)]
        return float(np.median([self.bend(point, along)[0] for point in some]))

    def _sizes(self, scale: Scale, points: list[Point]) -> Any:
        """Return the logarithm of each element of a scale at points."""
        size_of = of_points(self.model, self.model.replace_rvs_by_values([scale.size]))
        return np.log(np.abs([np.ravel(size_of(point)[0]) for point in points]))

    def _smaller(self, scale: Scale, n_scales: int) -> tuple[Difference, str]:
        """Return how a scale differs, or one of its elements that differs more surely."""
        *broken, usual = (self._sizes(scale, points) for points in (*self.broken, self.others))
        different = np.sort(np.unique(usual, axis=1, return_index=True)[1])
        elements = different[:MOST_PAIRS] if len(different) > 1 else different[:0]
        n_tests = n_scales * (1 + len(elements))
        means = [sizes.mean(axis=1) for sizes in (*broken, usual)]
        found = [(self.differs(means[:-1], means[-1], n_tests), "")]
        for k in elements:
            seen = self.differs([sizes[:, k] for sizes in broken], usual[:, k], n_tests)
            found.append((seen, f", in its element {k},"))
        return min(found, key=lambda one: (one[0].above >= LOW, one[0].p))

    def funnels(self) -> list[tuple[Difference, Shape]]:
        """Return the difference and the shape of each scale, the surest first."""
        found = []
        scales = scales_of(self.model)
        for scale in scales:
            seen, element = self._smaller(scale, len(scales))
            title = (
                f"a funnel: {scale.text}, the scale of {scale.child.name},{element[1:]} is "
                f"{_short(np.exp(seen.broken))} where trajectories break, and "
                f"{_short(np.exp(seen.others))} in the other draws (medians, p = {seen.p:.0e})."
            )
            advice = f"Write it non-centred: {scale.non_centred}"
            found.append((seen, Shape("funnel", title, advice, scale)))
        return sorted(found, key=lambda one: (one[0].above, one[0].p))

    def boundary(self) -> Shape | None:
        """A variable that is near a bound of its domain where trajectories break."""
        best = None
        for i, (name, label) in enumerate(self.labels):
            transform = getattr(self._transform(name), "name", None) or ""
            sides = BOUNDS.get(transform, ())
            broken, usual = [sample[:, i] for sample in self.b], self.g[:, i]
            if transform.lower().startswith(SPREAD):
                centre = np.median(usual)
                broken, usual = [np.abs(b - centre) for b in broken], np.abs(usual - centre)
                sides = ("upper",)
            seen = self.differs(broken, usual, len(self.labels))
            for side in sides:
                inside = seen.above if side == "lower" else 1 - seen.above
                is_near = abs(seen.broken - seen.others) >= NEARER and inside < LOW
                if seen.p < SURE and is_near and (best is None or seen.p < best[0].p):
                    best = seen, name, label, side
        if best is None:
            return None
        seen, name, label, side = best
        rv = self._random(name)
        bound = "a bound" if rv.ndim else f"its {side} bound"
        title = (
            f"{rv.name} is near {bound}: {label} is {_short(seen.broken)} where trajectories "
            f"break, and {_short(seen.others)} in the other draws (medians, p = {seen.p:.0e})."
        )
        return Shape("boundary", title, f"Give {rv.name} a prior with less mass at that bound.")

    def collapse(self) -> Shape | None:
        """A positive variable that the posterior draws into 0, far below all that its prior has."""
        import pymc

        for i, (name, label) in enumerate(self.labels):
            rv, usual = self._random(name), float(np.median(self.g[:, i]))
            if getattr(self._transform(name), "name", None) != "log" or usual > TINY:
                continue
            with unguarded():
                prior = pymc.draw(
                    rv, draws=PRIOR_DRAWS, random_seed=0, mode=Mode("py", "fast_compile")
                )
            least = float(np.log(np.min(prior)))
            if usual > least + TINY:
                continue
            title = (
                f"{rv.name} goes to 0, where the density grows without a bound: {label} is "
                f"{_short(usual)} in the draws, and at least {_short(least)} in {PRIOR_DRAWS} of "
                "the prior."
            )
            advice = (
                f"Give {rv.name} a prior that keeps it away from 0, such as pm.InverseGamma, and "
                "look whether the model explains some data exactly."
            )
            return Shape("boundary", title, advice)
        return None

    def modes(self) -> Shape | None:
        """Chains, or parts of them, that stay in different places."""
        chains = np.asarray(self.chains)
        for i, (name, label) in enumerate(self.labels):
            parts = [self.g[chains == c, i] for c in np.unique(chains)]
            parts = [part for part in parts if len(part) > FEWEST]
            if len(parts) < 2:
                return None
            within = np.mean([np.std(part) for part in parts])
            centers = np.array([np.median(part) for part in parts])
            if np.ptp(centers) <= APART * within:
                continue
            if (bent := self.banana()) is not None and bent.cause == "banana":
                return bent  # (chains move slowly along it)
            rv = self._random(name)
            labels = " (its elements may be exchanged: label switching)" if rv.ndim else ""
            title = (
                f"several modes: {label} has the median {_short(centers.min())} in one chain, and "
                f"{_short(centers.max())} in another one{labels}."
            )
            advice = f"Fix the order of {rv.name}: transform=pm.distributions.transforms.ordered."
            other = f"Give {rv.name} a prior that chooses one of the modes."
            return Shape("modes", title, advice if rv.ndim else other)
        return None

    def tails(self) -> Shape | None:
        """A variable with heavy tails that is far out where trajectories break."""
        best = None
        for i, (name, label) in enumerate(self.labels):
            middle, span = np.median(self.g[:, i]), _span(self.g[:, i])
            far = [np.abs(sample[:, i] - middle) for sample in self.b]
            seen = self.differs(far, np.abs(self.g[:, i] - middle), len(self.labels))
            further = seen.p < SURE and seen.above > 1 - LOW
            if span > HEAVY and further and (best is None or seen.p < best[0]):
                best = seen.p, name, label, span
        if best is None:
            return None
        p, name, label, span = best
        title = (
            f"heavy tails: 99 % of the draws of {label} span {_short(span)} times the middle half, "
            f"and trajectories break far out (p = {p:.0e})."
        )
        return Shape("tails", title, LIGHTER.format(self._random(name).name))

    def long_tails(self) -> Shape | None:
        """A variable with heavy tails, where trajectories break often and anywhere."""
        draws = np.concatenate([self.b[-1], self.g])
        spans = [_span(draws[:, i]) for i in range(len(self.labels))]
        widest = int(np.argmax(spans))
        if len(self.b[-1]) < OFTEN * len(draws) or spans[widest] <= LONG:
            return None
        name, label = self.labels[widest]
        title = (
            f"heavy tails: 99 % of the draws of {label} span {_short(spans[widest])} times the "
            "middle half, and trajectories break anywhere."
        )
        return Shape("tails", title, LIGHTER.format(self._random(name).name))

    def banana(self) -> Shape | None:
        """Two variables on a ridge, straight or bent."""
        ranks = [
            self.differs([np.abs(b[:, i] - m) for b in self.b], np.abs(self.g[:, i] - m), 1).p
            for i, m in enumerate(np.median(self.g, axis=0))
        ]
        order = np.argsort(ranks)[:MOST_PAIRS]
        best: tuple[float, Cause, int, int, float] | None = None
        for i in order:
            for j in order:
                if i == j:
                    continue
                x, y = (rankdata(self.g[:, k]) for k in (i, j))
                straight = abs(np.corrcoef(x, y)[0, 1]) if np.std(x) and np.std(y) else 0.0
                bent = _explained_by_square(self.g[:, i], self.g[:, j])
                ridges: tuple[tuple[Cause, float, float], ...] = (
                    ("ridge", straight, RIDGE),
                    ("banana", bent, CURVED),
                )
                for cause, value, limit in ridges:
                    if value > limit and (best is None or value / limit > best[0]):
                        best = value / limit, cause, i, j, value
        if best is None:
            return None
        _, cause, i, j, value = best
        one, two = self.labels[i][1], self.labels[j][1]
        if cause == "ridge":
            title = f"a ridge: {one} and {two} have a rank correlation of {value:.3f}."
            advice = "Sample their sum and difference, or centre the predictors that couple them."
        else:
            title = (
                f"a bent ridge: the square of {one} explains {100 * value:.0f} % of the variance "
                f"of {two} that a line leaves."
            )
            advice = f"Sample {two} minus its mean given {one}, in place of {two}."
        return Shape(cause, title, advice)

    def stiff(self) -> Shape | None:
        """A log-density that bends far more where trajectories break than elsewhere."""
        usual = self._usual_bend(self.others)
        broken = self.broken[0]
        bends = [self.bend(p) for p in broken[:: max(1, len(broken) // 20)]]
        bend = float(np.median([value for value, _ in bends]))
        if not bend >= STIFF * usual:
            return None
        if (funnel := self.funnel(NEARLY_SURE)) is not None:
            return funnel  # (the stiff place is its neck)
        names = [name for _, name in bends]
        name = max(set(names), key=names.count)
        title = (
            f"the log-density bends {_short(bend / usual)} times as much as usual, mostly along "
            f"{name}."
        )
        rv = self._random(name).name
        advice = f"Give {rv} a narrower prior, scale or reparametrize it, or raise target_accept."
        return Shape("stiff", title, advice)

    def _random(self, name: str) -> Any:
        return next(self.model.values_to_rvs[v] for v in self.model.value_vars if v.name == name)

    def _transform(self, name: str) -> Any:
        return self.model.rvs_to_transforms[self._random(name)]


def _short(value: float) -> str:
    return number_text(float(f"{value:.3g}"))


def _span(values: Any) -> float:
    """Return how many quartile ranges 99 % of some values span."""
    low, q1, q3, high = np.quantile(values, [0.005, 0.25, 0.75, 0.995])
    return float((high - low) / (q3 - q1)) if q3 > q1 else 0.0


def _explained_by_square(x: Any, y: Any) -> float:
    """Return the share of the variance of y, left by a line in x, that the square of x explains."""
    design = np.stack([np.ones_like(x), x], axis=1)
    rest = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    bent = np.column_stack([design, x**2])
    left = y - bent @ np.linalg.lstsq(bent, y, rcond=None)[0]
    total = np.var(rest)
    return 0.0 if total == 0 else float(1 - np.var(left) / total)
