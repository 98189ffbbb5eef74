"""Directions of flat priors along which the log-density of a PyMC model does not fall."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import qr

from theanoguard._provenance import SourceLine, source_line
from theanoguard._provenance.places import source_text
from theanoguard._text import number_text
from theanoguard.pymc.points import Point

FAR = {False: (1e2, 1e4, 1e6), True: (10.0, 20.0, 40.0)}
"""How far a value is moved to see whether the density falls; True for a value in logarithms."""

MOST_FLAT = 40
"""If there are more elements with flat priors, each variable is looked at alone."""

FLAT = ("Flat", "HalfFlat", "FlatRV", "HalfFlatRV")
"""Classes of the operations of priors without an end."""


@dataclass(frozen=True)
class Improper:
    """Free variables along which the log-density does not fall.

    Parameters
    ----------
    moves : tuple of str
        How they move, such as ``"a + t"`` and ``"b / t"``.
    variable : str
        The first of them.
    to : float
        How far `t` was followed.
    change : float
        Of the log-density, over the last step.
    """

    moves: tuple[str, ...]
    variable: str
    to: float
    change: float
    source: SourceLine | None = None

    def __str__(self) -> str:
        place = "" if self.source is None else f"\n  {source_text(self.source)}"
        return (
            f"the log-density does not fall along {', '.join(self.moves)} as t goes to "
            f"{number_text(self.to)}: the data do not determine it, and no prior ends it"
            f"{place}\nGive {self.variable} a proper prior, or fix one element of it."
        )


def flat_priors(model: Any) -> list[Any]:
    """Return the free variables whose priors have no end."""
    return [rv for rv in model.free_RVs if type(rv.owner.op).__name__ in FLAT]


def rays(
    model: Any, points: Sequence[Point], height_at: Callable, slopes_at: Callable
) -> Iterator[Improper]:
    """Yield the directions of flat priors along which the log-density does not fall.

    Parameters
    ----------
    model : pymc.Model
    points : sequence of dict
        Draws from the prior, at which the log-density is finite.
    height_at, slopes_at : callable
        From a point to the log-density, and to its gradient by the continuous values.
    """
    flat = flat_priors(model)
    told: set[str] = set()
    for direction in [
        *_alone(model, flat, points[0]),
        *_unchanging(model, flat, points, slopes_at),
    ]:
        names = {name for name, *_ in direction}
        if names <= told:
            continue
        falls = [_not_falling(height_at, p, direction) for p in points[:2]]
        if falls[0] is not None and None not in falls:
            told |= names
            rv = next(rv for rv in flat if rv.name == direction[0][0])
            shown = tuple(words for _, _, words, _ in direction)
            yield Improper(shown, rv.name, *falls[0], source_line(rv))


@dataclass(frozen=True)
class _Column:
    """One way to move a flat variable: an element of it, or the logarithm of its size."""

    rv: str
    value: str
    at: Any
    is_size: bool
    in_logs: bool

    def slope(self, slopes: Point, point: Point) -> float:
        """Return the derivative of the log-density."""
        slope = np.asarray(slopes[self.value])[self.at]
        return float(np.sum(slope * point[self.value]) if self.is_size else slope)

    def move(self, weight: float) -> tuple[str, str, str, Callable]:
        """Return the variable, its value, the words, and the function from a value and t."""
        name = f"{self.rv}{list(self.at) if isinstance(self.at, tuple) and self.at else ''}"
        by = "" if abs(weight) == 1 else f"{abs(weight):.3g} "
        power = "" if abs(weight) == 1 else f"**{abs(weight):.3g}"
        sign = "+" if weight > 0 else "-"
        times = self.is_size or self.in_logs
        words = f"{name} {'*' if weight > 0 else '/'} t{power}" if times else f"{name} {sign} {by}t"

        def moved(value: Any, t: float) -> Any:
            value = np.array(value, float)
            if self.is_size:
                return value * np.exp(weight * t)
            value[self.at] += weight * t
            return value

        return self.rv, self.value, words, moved


Direction = list[tuple[str, str, str, Callable]]


def _columns(model: Any, flat: Sequence[Any], point: Point) -> list[_Column]:
    """Return the ways to move flat variables: each element, and the sizes of those of all signs."""
    found = []
    for rv in flat:
        name, in_logs = model.rvs_to_values[rv].name, model.rvs_to_transforms.get(rv) is not None
        found += [
            _Column(rv.name, name, at, False, in_logs) for at in np.ndindex(point[name].shape)
        ]
        if not in_logs:
            found.append(_Column(rv.name, name, ..., True, False))
    return found


def _alone(model: Any, flat: Sequence[Any], point: Point) -> Iterator[Direction]:
    """Yield all elements of each flat variable together, and each by itself."""
    for rv in flat:
        name, in_logs = model.rvs_to_values[rv].name, model.rvs_to_transforms.get(rv) is not None
        shape = np.shape(point[name])
        each = np.ndindex(shape) if 1 < np.prod(shape) <= MOST_FLAT else ()
        for at in (..., *each):
            yield [_Column(rv.name, name, at, False, in_logs).move(1.0)]


def _direction(columns: Sequence[_Column], weights: Any) -> Direction:
    weights = np.where(np.abs(weights) < 1e-6 * np.max(np.abs(weights)), 0, weights)
    first = weights[np.flatnonzero(weights)[0]] if weights.any() else 1.0
    scaled = np.round(weights / first, 6)
    return [one.move(float(w)) for one, w in zip(columns, scaled, strict=True) if w]


def _unchanging(
    model: Any, flat: Sequence[Any], points: Sequence[Point], slopes_at: Callable
) -> list[Direction]:
    """Return the directions in which the log-density changes by the same number everywhere.

    They are the null space of the gradients at all points, by the elements of the variables and
    by the logarithm of their sizes.
    """
    names = [v.name for v in model.continuous_value_vars]
    columns = _columns(model, flat, points[0])
    if not 1 < len(columns) <= MOST_FLAT or len(points) < len(columns) + 3:
        return []
    rows = []
    for point in points:
        slopes = dict(zip(names, slopes_at(point), strict=True))
        rows.append([one.slope(slopes, point) for one in columns] + [1.0])
    matrix = np.array(rows)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    sizes = np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
    _, values, directions = np.linalg.svd(matrix / sizes)
    null = directions[values < 1e-9 * values[0]].T / sizes[:, None]
    if not null.shape[1]:
        return []
    _, _, pivots = qr(null.T, pivoting=True)
    sparse = null @ np.linalg.inv(null[pivots[: null.shape[1]]])
    return [_direction(columns, weights[:-1]) for weights in sparse.T]


def _not_falling(
    height_at: Callable, point: Point, direction: Direction
) -> tuple[float, float] | None:
    """Return how far a point was moved without a fall of the density, and its last change."""
    in_logs = any("* t" in words or "/ t" in words for _, _, words, _ in direction)
    for sign in (1, -1):
        heights = []
        for t in FAR[in_logs]:
            moved = dict(point)
            for _, name, _, move in direction:
                moved[name] = move(moved[name], sign * t)
            heights.append(height_at(moved))
        changes = np.diff(heights)
        if np.isfinite(heights).all() and (changes > -1e-3).all():
            return sign * FAR[in_logs][-1], float(changes[-1])
    return None
