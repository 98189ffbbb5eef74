"""Directions of flat priors along which the log-density of a PyMC model does not fall."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.linalg import qr

from theanoguard._provenance import SourceLine, source_line
from theanoguard._provenance.places import source_text
from theanoguard._text import number_text
from theanoguard.pymc.points import Point

FAR = {False: (1e2, 1e4, 1e6), True: (10.0, 20.0, 40.0)}
"""How far a value is moved to see whether the density falls; True for the logarithm of a factor."""

MOST_FLAT = 40  # if there are more elements with flat priors, each variable is looked at alone

FLAT = ("Flat", "HalfFlat", "FlatRV", "HalfFlatRV")
"""Classes of the operations of priors without an end."""


@dataclass(frozen=True)
class Improper:
    """Free variables along which the log-density does not fall."""

    moves: tuple[str, ...]  # how they move as `t` grows, such as ``"a + t"`` and ``"b / t"``
    variable: str  # the first of them
    to: float  # how far `t` was followed
    change: float  # of the log-density, over the last step
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

    - `points`: draws from the prior, at which the log-density is finite.
    - `height_at`, `slopes_at`: callable from a point to the log-density, and to its gradient by the
      continuous values.
    """
    flat = flat_priors(model)
    told: set[str] = set()
    for direction in [
        *_alone(model, flat, points[0]),
        *_unchanging(model, flat, points, slopes_at),
    ]:
        names = {column.rv for column, _ in direction}
        if names <= told:
            continue
        in_logs = any(column.is_factor for column, _ in direction)
        found = _not_falling(height_at, points[:2], direction, FAR[in_logs])
        if found is not None:
            told |= names
            sign, change = found
            rv = next(rv for rv in flat if rv.name == direction[0][0].rv)
            moves = tuple(column.text(sign * weight, in_logs) for column, weight in direction)
            to = float(np.exp(FAR[True][-1])) if in_logs else FAR[False][-1]
            yield Improper(moves, rv.name, to, change, source_line(rv))


@dataclass(frozen=True)
class _Column:
    """One way to move a flat variable: an element of its value, or the logarithm of its size."""

    rv: str  # `rv`, `value`: names of the variable and of its value variable
    value: str
    at: Any
    is_size: bool
    is_log: bool  # whether the value is the logarithm of the variable
    shown: str

    @property
    def is_factor(self) -> bool:
        """Whether the variable is multiplied."""
        return self.is_size or self.is_log

    def slope(self, slopes: Point, point: Point) -> float:
        """Return the derivative of the log-density."""
        slope = np.asarray(slopes[self.value])[self.at]
        return float(np.sum(slope * point[self.value]) if self.is_size else slope)

    def moved(self, value: Any, by: float) -> Any:
        """Return a value after a move."""
        value = np.array(value, float)
        if self.is_size:
            return value * np.exp(by)
        value[self.at] += by
        return value

    def text(self, weight: float, in_logs: bool) -> str:
        """Return how the variable moves as t grows; `in_logs` if t multiplies another one."""
        name = f"{self.shown}{list(self.at) if isinstance(self.at, tuple) and self.at else ''}"
        is_one, number = abs(weight) == 1, f"{abs(weight):.3g}"
        if self.is_factor:
            return f"{name} {'*' if weight > 0 else '/'} t{'' if is_one else f'**{number}'}"
        t = "log(t)" if in_logs else "t"
        return f"{name} {'+' if weight > 0 else '-'} {'' if is_one else f'{number} '}{t}"


Direction = list[tuple[_Column, float]]


def _column(model: Any, rv: Any, at: Any, is_size: bool = False) -> _Column:
    value, transform = model.rvs_to_values[rv].name, model.rvs_to_transforms.get(rv)
    is_log = getattr(transform, "name", "") == "log"
    shown = rv.name if transform is None or is_log else value
    return _Column(rv.name, value, at, is_size, is_log, shown)


def _columns(model: Any, flat: Sequence[Any], point: Point) -> list[_Column]:
    """Return the ways to move flat variables: each element, and the sizes of those of all signs."""
    found = []
    for rv in flat:
        shape = np.shape(point[model.rvs_to_values[rv].name])
        found += [_column(model, rv, at) for at in np.ndindex(shape)]
        if model.rvs_to_transforms.get(rv) is None:
            found.append(_column(model, rv, ..., True))
    return found


def _alone(model: Any, flat: Sequence[Any], point: Point) -> Iterator[Direction]:
    """Yield all elements of each flat variable together, and each by itself."""
    for rv in flat:
        shape = np.shape(point[model.rvs_to_values[rv].name])
        each = np.ndindex(shape) if 1 < np.prod(shape) <= MOST_FLAT else ()
        for at in (..., *each):
            yield [(_column(model, rv, at), 1.0)]


def _direction(columns: Sequence[_Column], weights: Any) -> Direction:
    weights = np.where(np.abs(weights) < 1e-6 * np.max(np.abs(weights)), 0, weights)
    first = weights[np.flatnonzero(weights)[0]] if weights.any() else 1.0
    scaled = np.round(weights / first, 6)
    return [(one, float(w)) for one, w in zip(columns, scaled, strict=True) if w]


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
    height_at: Callable, points: Sequence[Point], direction: Direction, far: Sequence[float]
) -> tuple[int, float] | None:
    """Return the sign of the moves from all points that do not lower the density.

    And its last change at the first point.
    """
    for sign in (1, -1):
        heights = []
        for start, t in product(points, far):
            moved = dict(start)
            for column, weight in direction:
                moved[column.value] = column.moved(moved[column.value], sign * weight * t)
            heights.append(height_at(moved))
        if not np.isfinite(heights).all():
            continue
        changes = np.diff(np.reshape(heights, (len(points), -1)))
        if (changes > -1e-3).all():
            return sign, float(changes[0, -1])
    return None
