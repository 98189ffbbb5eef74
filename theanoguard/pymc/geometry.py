"""How the points where trajectories broke differ from the other draws, and what shape does that.

The two samples are compared by ranks on the unconstrained scale, so that no edge is fixed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu, rankdata

from theanoguard.explain.facts.naming import number_text
from theanoguard.pymc.points import joined, of_points
from theanoguard.pymc.scales import Scale, scales_of

SURE = 1e-3
"""A difference counts if its rank test gives less than this, divided by the number of tests."""

NEARLY_SURE = 0.05
"""This is enough for a scale if the log-density is stiff as well."""

LOW = 0.35
"""And if a broken point is below another draw with a probability of at least 1 minus this."""

FEWEST = 4
"""So many broken points at least are compared."""

STIFF = 10.0
"""The log-density is stiff where it bends so many times as much as at the median of the others."""

HEAVY = 12.0
"""Tails are heavy if 99 % of the draws span so many quartile ranges (a normal: 3.8)."""

RIDGE = 0.95
"""A correlation by ranks from which on two variables lie on a ridge."""

CURVED = 0.4
"""And the share of the variance of one that the square of the other explains, on a banana."""

MOST_PAIRS = 20
"""The pairs of so many coordinates are compared."""

APART = 5.0
"""Chains, or two halves of the draws, are so many of their own standard deviations apart."""

# By the name of a transform, the sides on which its bound lies at infinity.
BOUNDS = {"log": ("lower",), "interval": ("lower", "upper"), "logodds": ("lower", "upper")}
SPREAD = ("simplex", "cholesky-cov-packed", "cholesky_corr", "ordered", "zerosum")


@dataclass(frozen=True)
class Shape:
    """What shape of the log-density breaks trajectories.

    Parameters
    ----------
    cause : str
        As in :class:`~theanoguard.pymc.DivergenceGroup`.
    title : str
    advice : str
    scale : Scale or None
        Of a funnel.
    """

    cause: str
    title: str
    advice: str
    scale: Scale | None = None


@dataclass
class Comparison:
    """The points where trajectories broke, and the other draws.

    Parameters
    ----------
    model : pymc.Model
    broken, others : list of dict of str to ndarray
        By the names of the value variables.
    chains : sequence of int
        Of the others.
    bend : callable
        From a point to how much the log-density bends there, and along which variable.
    """

    model: Any
    broken: list[Any]
    others: list[Any]
    chains: Sequence[int]
    bend: Callable
    labels: list[tuple[str, str]] = field(init=False)

    def __post_init__(self):
        self.labels = []
        for value in self.model.continuous_value_vars:
            shape = np.shape(self.others[0][value.name])
            for index in np.ndindex(shape):
                place = f"[{', '.join(map(str, index))}]" if index else ""
                self.labels.append((value.name, f"{value.name}{place}"))
        self.b = np.stack([joined(self.model, point) for point in self.broken])
        self.g = np.stack([joined(self.model, point) for point in self.others])

    def shape(self) -> Shape | None:
        """Return the first of the known shapes that the points show, or None."""
        if len(self.b) < FEWEST or len(self.g) < 5 * FEWEST:
            return None
        looks = (self.funnel, self.boundary, self.modes, self.tails, self.banana, self.stiff)
        return next((found for look in looks if (found := look()) is not None), None)

    def differs(self, broken, others, n_tests):
        """Return the rank test's p, and how often a broken point is above another draw."""
        if np.ptp(np.concatenate([broken, others])) == 0:
            return 1.0, 0.5
        test = mannwhitneyu(broken, others)
        return min(1.0, test.pvalue * n_tests), test.statistic / (len(broken) * len(others))

    def funnel(self, sure=SURE):
        """A scale that is small where trajectories break."""
        return next((shape for p, above, shape in self.funnels() if p < sure and above < LOW), None)

    def funnels(self):
        """Return p, the probability above, and the shape of each scale, the surest first."""
        found = []
        scales = scales_of(self.model)
        for scale in scales:
            size_of = of_points(self.model, self.model.replace_rvs_by_values([scale.scale]))
            small, usual = (
                np.array([np.mean(np.log(np.abs(size_of(point)[0]))) for point in points])
                for points in (self.broken, self.others)
            )
            p, above = self.differs(small, usual, len(scales))
            small, usual = (_short(np.exp(np.median(sizes))) for sizes in (small, usual))
            title = (
                f"a funnel: {scale.text}, the scale of {scale.child.name}, is {small} where "
                f"trajectories break, and {usual} in the other draws (medians, p = {p:.0e})."
            )
            advice = f"Write it non-centred: {scale.non_centred}"
            found.append((p, above, Shape("funnel", title, advice, scale)))
        return sorted(found, key=lambda one: (one[1], one[0]))

    def boundary(self):
        """A variable that is near a bound of its domain where trajectories break."""
        best = None
        for i, (name, label) in enumerate(self.labels):
            transform = getattr(self._transform(name), "name", None) or ""
            sides = BOUNDS.get(transform, ())
            b, g = self.b[:, i], self.g[:, i]
            if transform.lower().startswith(SPREAD):
                center = np.median(g)
                b, g, sides = np.abs(b - center), np.abs(g - center), ("upper",)
            p, above = self.differs(b, g, len(self.labels))
            for side in sides:
                inside = above if side == "lower" else 1 - above
                if p < SURE and inside < LOW and (best is None or p < best[0]):
                    best = p, name, label, side, np.median(self.b[:, i]), np.median(self.g[:, i])
        if best is None:
            return None
        p, name, label, side, at, usual = best
        rv = self._random(name)
        bound = "a bound" if rv.ndim else f"its {side} bound"
        title = (
            f"{rv.name} is near {bound}: {label} is {_short(at)} where trajectories break, and "
            f"{_short(usual)} in the other draws (medians, p = {p:.0e})."
        )
        return Shape("boundary", title, f"Give {rv.name} a prior with less mass at that bound.")

    def modes(self):
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

    def tails(self):
        """A variable with heavy tails that is far out where trajectories break."""
        best = None
        for i, (name, label) in enumerate(self.labels):
            low, q1, middle, q3, high = np.quantile(self.g[:, i], [0.005, 0.25, 0.5, 0.75, 0.995])
            far = np.abs(self.b[:, i] - middle), np.abs(self.g[:, i] - middle)
            p, above = self.differs(*far, len(self.labels))
            heavy = q3 > q1 and (high - low) / (q3 - q1) > HEAVY
            if heavy and p < SURE and above > 1 - LOW and (best is None or p < best[0]):
                best = p, name, label, (high - low) / (q3 - q1)
        if best is None:
            return None
        p, name, label, span = best
        title = (
            f"heavy tails: 99 % of the draws of {label} span {_short(span)} times the middle half, "
            f"and trajectories break far out (p = {p:.0e})."
        )
        name = self._random(name).name
        advice = f"Give {name} a prior with lighter tails, such as pm.StudentT with nu=4 or more."
        return Shape("tails", title, advice)

    def banana(self):
        """Two variables on a ridge, straight or bent."""
        ranks = [
            self.differs(np.abs(self.b[:, i] - m), np.abs(self.g[:, i] - m), 1)[0]
            for i, m in enumerate(np.median(self.g, axis=0))
        ]
        order = np.argsort(ranks)[:MOST_PAIRS]
        best = None
        for i in order:
            for j in order:
                if i == j:
                    continue
                x, y = (rankdata(self.g[:, k]) for k in (i, j))
                straight = abs(np.corrcoef(x, y)[0, 1]) if np.std(x) and np.std(y) else 0.0
                bent = _explained_by_square(self.g[:, i], self.g[:, j])
                for cause, value, limit in (("ridge", straight, RIDGE), ("banana", bent, CURVED)):
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

    def stiff(self):
        """A log-density that bends far more where trajectories break than elsewhere."""
        usual = np.median([self.bend(p)[0] for p in self.others[:: max(1, len(self.others) // 20)]])
        bends = [self.bend(p) for p in self.broken[:: max(1, len(self.broken) // 20)]]
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
        advice = f"Scale or reparametrize {self._random(name).name}, or raise target_accept."
        return Shape("stiff", title, advice)

    def _random(self, name):
        return next(self.model.values_to_rvs[v] for v in self.model.value_vars if v.name == name)

    def _transform(self, name):
        return self.model.rvs_to_transforms[self._random(name)]


def _short(value):
    return number_text(float(f"{value:.3g}"))


def _explained_by_square(x, y):
    """Return the share of the variance of y, left by a line in x, that the square of x explains."""
    design = np.stack([np.ones_like(x), x], axis=1)
    rest = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    bent = np.column_stack([design, x**2])
    left = y - bent @ np.linalg.lstsq(bent, y, rcond=None)[0]
    total = np.var(rest)
    return 0.0 if total == 0 else float(1 - np.var(left) / total)
