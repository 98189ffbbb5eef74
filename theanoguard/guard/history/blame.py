"""Since when: the first call that is unlike those before, and what left its history there."""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from theanoguard.explain.facts.records import Since
from theanoguard.guard.history.table import Series, Table

Kind: TypeAlias = Literal["set", "turned", "input", "update", "value", "bad"]

FEW = 8
"""Number of calls before which nothing can be said of a history."""

BEFORE = 16
"""Number of calls with which a growing value is compared."""

GROWTH = np.log(4.0)
"""By how much a value that has left its history has to grow, as a logarithm."""

DRIFT = np.log(10.0)
"""The same of a value that has grown all the time."""

JUMP = np.log(2.5)
"""By how much an input has to exceed all inputs before it, as a logarithm."""

FAR, FAR_ROWS = np.log(30.0), 32
"""The same where no call has failed, also of an update, and the number of calls that it takes."""

NOTHING = 3e-3
"""An update that moves a variable by less than so much of its norm is as good as none."""

AGAIN = 3
"""Number of calls for which a value has to be off its history, where no call has failed."""


@dataclass(frozen=True)
class Left:
    """Where a series left its own history."""

    series: Series
    #: ndarray of float64, shape (number of calls,).  The figure that left it.
    figures: np.ndarray
    kind: Kind
    #: Which call of the table it was.
    row: int
    #: Logarithm of the largest value from there on over that which was usual before.
    growth: float
    #: The median before.
    usual: float


def since(table: Table) -> Since | None:
    """Return what left its history first before the last call, or None if nothing stands out.

    Parameters
    ----------
    table : Table
    """
    table = table.without_failed()
    if len(table.calls) < 2:
        return None
    with np.errstate(all="ignore"):
        spoiled = _spoiled(table)
        left = _updates(table) or _values(table)
        rows = [found.row for found in (spoiled, left) if found is not None]
        start = min(rows, default=None)
        brought = _brought(table, start)
        if brought is not None:
            return brought
        steady = _brought_steadily(table)
        if steady is not None and (start is None or steady.row <= start):
            return _grown(table, steady)
        if spoiled is not None and spoiled.row == start:
            return _said(table, spoiled.row, "bad", spoiled.series, 0.0, 0.0, np.nan)
        return None if left is None else _grown(table, left)


# -- what came in from outside


def _brought(table: Table, start: int | None) -> Since | None:
    """Return the input, or the shared variable that was set, with which the growth began."""
    last = len(table.calls) - 1
    rows = [last] if table.failed else _far_off(table)
    if start is not None:
        rows += [row for row in (start - 1, start, start + 1) if 0 <= row < last]
    for row in rows:
        told = [
            *(_set(table, series, i, row) for series, i in table.of("shared")),
            *(_unlike(table, series, i, row) for series, i in table.of("input")),
        ]
        found = max((t for t in told if t is not None), key=lambda t: t.growth, default=None)
        if found is not None:
            return found
    return None


def _brought_steadily(table: Table) -> Left | None:
    """Return the input, or the variable that is set, that grows until the call that failed."""
    found = []
    for series, i in [*table.of("input"), *table.of("shared")] if table.failed else ():
        y = table.start(i, "norm")
        most = y[: _last_fall(y, np.less) + 1].max()
        row, growth = int(np.argmax(y > most)), float(np.log(y[-1] / most))
        is_comparable = np.ptp(table.start(i, "size")) == 0 and np.isfinite(y).all()
        if is_comparable and not series.updated and row >= FEW and DRIFT < growth < np.inf:
            found.append(Left(series, y, "value", row, growth, _median(y[:row])))
    return max(found, key=lambda left: left.growth, default=None)


def _far_off(table: Table) -> list[int]:
    """Return the first call with an input, or a variable that was set, far above all before."""
    rows = []
    for _, i in [*table.of("input"), *table.of("shared")]:
        rows += _jumps(np.log(table.start(i, "magnitude")))[:1]
    return sorted(rows)[:1]


def _jumps(x: np.ndarray) -> list[int]:
    """Return where a series of logarithms is far above all before."""
    most = np.fmax.accumulate(x)
    found: list[int] = np.flatnonzero(most[FAR_ROWS:] > most[FAR_ROWS - 1 : -1] + FAR).tolist()
    return [row + FAR_ROWS for row in found]


def _set(table: Table, series: Series, i: int, row: int) -> Since | None:
    """Return that a shared variable was last set to what is much larger, or has another sign.

    In the call that failed any value does, of a variable that was never set before.
    """
    # (data may be set once, and be read by many calls; but after long it is not what is new)
    fresh = table.start(i, "moved")[1 : row + 1]
    was_set: np.ndarray = np.flatnonzero((fresh > 0) | np.isnan(fresh)) + 1
    if not len(was_set) or row > 2 * was_set[-1] or not _has_number(table.level(i)[: was_set[-1]]):
        return None
    row = int(was_set[-1])
    norms, levels = table.end(i, "norm")[:row], table.level(i)[:row]
    usual, most, now = np.nanmedian(norms), np.nanmax(norms), table.start(i, "norm")[row]
    signs = np.sign(table.end(i, "largest")[:row])
    signs = signs[np.isfinite(signs)]
    largest = table.start(i, "largest")[row]
    jumped = table.level(i, at_start=True)[row] > np.nanmax(levels) * np.exp(JUMP) and now > most
    is_new = table.failed and FEW <= row == len(table.calls) - 1 and len(was_set) == 1
    if jumped:
        return _said(table, row, "set", series, usual, most, now)
    if largest != 0 and len(signs) and (signs == -np.sign(largest)).all():
        return _said(table, row, "turned", series, usual, table.end(i, "largest")[row - 1], largest)
    return _said(table, row, "set", series, usual, most, now) if is_new else None


def _unlike(table: Table, series: Series, i: int, row: int) -> Since | None:
    """Return that an input is unlike all those of the calls before."""
    level = table.level(i, at_start=True)
    if row < FEW or not _has_number(level[:row]):
        return None
    bad = table.start(i, "bad")
    if bad[row] > 0 and not (bad[:row] > 0).any():
        return _said(table, row, "input", series, 0.0, 0.0, np.nan)
    for figure, y in {"magnitude": table.start(i, "magnitude"), "level": level}.items():
        usual, most, least = np.nanmedian(y[:row]), np.nanmax(y[:row]), np.nanmin(y[:row])
        if y[row] > most * np.exp(JUMP):
            return _said(table, row, "input", series, usual, most, y[row], figure=figure)
        if y[row] < least * np.exp(-FAR):
            return _said(table, row, "input", series, usual, least, y[row], figure=figure)
    ends = {"largest": np.fmax, "smallest": np.fmin}
    if all(_is_whole(table.start(i, figure)[:row]) for figure in ends):
        # A label: most batches have the first and the last of them.
        for figure, end in ends.items():
            y = table.start(i, figure)
            most = end.reduce(y[:row])
            if end(most, y[row]) != most and np.mean(y[:row] == most) > 0.5:
                usual = np.nanmedian(y[:row])
                return _said(table, row, "input", series, usual, most, y[row], figure=figure)
    size = table.start(i, "size")
    if table.failed and row == len(size) - 1 and np.ptp(size[:row]) == 0 and size[row] != size[0]:
        return _said(table, row, "input", series, size[0], size[0], size[row], figure="size")
    return None


def _has_number(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).any())


def _median(values: np.ndarray) -> float:
    return float(np.nanmedian(values)) if _has_number(values) else 0.0


def _is_whole(values: np.ndarray) -> bool:
    finite = values[np.isfinite(values)]
    return finite.size > 0 and bool((finite == np.round(finite)).all())


# -- what the function itself makes grow


def _updates(table: Table) -> Left | None:
    """Return the shared variable whose updates left their history first."""
    found = [
        left
        for series, i in table.of("shared")
        if series.updated and (left := _left(table, series, i)) is not None
    ]
    first = min((left.row for left in found), default=0)
    return max((f for f in found if f.row <= first + 1), key=lambda f: f.growth, default=None)


def _values(table: Table) -> Left | None:
    """Return the shared variable that has grown the most, all the time, before a call failed.

    Where no call has failed, that is no fault: a parameter that began at 0 does so.
    """
    followed = table.of("shared") if table.failed else []
    drifts = (
        _drifted(table, series, table.end(i, "norm"))
        for series, i in followed
        if series.updated and np.ptp(table.start(i, "size")) == 0
    )
    found = [left for left in drifts if left is not None]
    return max(found, key=lambda f: f.growth, default=None)


def _spoiled(table: Table) -> Left | None:
    """Return the input, shared variable or output that was the first to hold a NaN or an Inf."""
    found = []
    for i, series in enumerate(table.series):
        bad = (table.start if series.kind == "input" else table.end)(i, "bad") > 0
        row = int(np.argmax(bad))
        if bad.any() and row > 0:  # (what has one from the first call on may have it on purpose)
            found.append(Left(series, bad, "bad", row, 0.0, 0.0))
    return min(found, key=lambda left: left.row, default=None)


def _left(table: Table, series: Series, i: int) -> Left | None:
    """Return where updates began to be above all that they had been in the calls before."""
    moved, norms = table.end(i, "moved"), table.start(i, "norm")
    if not _has_number(moved):
        return None
    # (those that hardly move the variable, as it was at first, are all alike)
    y = np.fmax(moved, NOTHING * _median(norms[: len(norms) // 4 + 1])) + 0 * moved
    rows = np.flatnonzero(np.isfinite(y) & (y > 0))
    x, n = np.log(y[rows]), len(rows)
    if n < 4:
        return None
    if not table.failed and (far := _jumps(x)):
        t, usual = far[0], _median(moved[rows[far[0] - BEFORE : far[0]]])
        return Left(series, y, "update", int(rows[t]), float(x[t:].max() - np.log(usual)), usual)
    least_after = np.minimum.accumulate(x[::-1])[::-1]
    start = 1 if _grows_steadily(x) else FEW
    rise = np.array([least_after[t] - x[max(0, t - BEFORE) : t].max() for t in range(start, n)])
    if not len(rise) or rise.max() <= 0:
        return None
    # The first rise that is as steep as the steepest, or about so: a growth at a steady rate is
    # seen where it began, and a small step long before a large one is not taken for it.
    steep: list[int] = (start + np.flatnonzero(rise >= rise.max() / 2)).tolist()
    for t in steep:
        before = slice(max(0, t - BEFORE), t)
        usual = float(np.median(x[before]))
        growth = float(x[t:].max()) - usual
        if growth < GROWTH or (not table.failed and n - t < AGAIN):
            return None
        if rise[t - start] > JUMP or _goes_on(x[t - 1 :], rise[t - start]):
            t = _began(x, t, usual)
            return Left(series, y, "update", int(rows[t]), growth, _median(moved[rows[before]]))
    return None


def _goes_on(x: np.ndarray, rise: float) -> bool:
    """Whether a series that begins with a rise grows about so fast until it is largest."""
    x = x[: np.argmax(x) + 1]
    return bool((x[FEW:] - x[:-FEW] > FEW * rise / 4).all())


def _grows_steadily(x: np.ndarray) -> bool:
    """Whether a series grows in nearly each call, and at its end as fast as at its start."""
    half = len(x) // 2
    early, late = x[half] - x[0], x[-1] - x[half]
    return bool(np.mean(np.diff(x) > 0) > 0.8 and late > early / 2)


def _began(x: np.ndarray, t: int, usual: float) -> int:
    """Return where a steady growth that is above the noise from `t` on began, or `t` for a jump."""
    steps = np.diff(x[t - 1 : t + 5])
    rate = float(np.median(steps))
    if rate <= 0 or steps[0] > 2 * rate:
        return t
    return max(0, t - round(max(0.0, x[t - 1] - usual) / rate))


def _drifted(table: Table, series: Series, y: np.ndarray) -> Left | None:
    """Return where a series that grows as fast at its end as at its start began to grow."""
    figures, rows = y, np.flatnonzero(np.isfinite(y))
    y, calls = y[rows], table.calls[rows]
    if len(y) < 2 * FEW:
        return None
    quarter, half = (int(np.searchsorted(calls, calls[-1] / n)) for n in (4, 2))
    usual = float(y[: quarter + 1].max())
    growth = np.log(y[-1] / usual) if usual > 0 else np.inf
    early = (y[half] - y[0]) / (calls[half] - calls[0])
    late = (y[-1] - y[half]) / (calls[-1] - calls[half])
    steps = np.diff(y[half:])
    if not (
        y[-1] > 0 and growth > np.log(2.5) and late >= 0.8 * early and np.mean(steps > 0) > 0.9
    ):
        return None
    if np.log(y[-1] / max(y[0], np.finfo(float).tiny)) < DRIFT:
        return None
    return Left(series, figures, "value", int(rows[_last_fall(y)]), float(growth), usual)


def _last_fall(y: np.ndarray, is_fall: np.ufunc = np.less_equal) -> int:
    """Return the position after which no number is a fall from one before; 0 if none is."""
    least_after = np.minimum.accumulate(y[::-1])[::-1]
    falls = np.flatnonzero(is_fall(least_after[1:], np.maximum.accumulate(y)[:-1]))
    return int(falls[-1]) + 1 if len(falls) else 0


# -- the record of it


def _said(
    table: Table, row: int, kind: Kind, series: Series, *numbers: Any, figure: str = "norm"
) -> Since:
    usual, most, value = map(float, numbers)
    return Since(
        call=int(table.calls[row]),
        last=int(table.calls[-1]),
        kind=kind,
        name=series.name,
        usual=usual,
        most=most,
        value=value,
        growth=value / most if most else np.inf,
        followed=_followed(table, row, series),
        figure=figure,
    )


def _grown(table: Table, left: Left) -> Since:
    start, end = left.row, int(np.flatnonzero(np.isfinite(left.figures))[-1])
    if left.figures[end] < left.figures[start]:  # (it jumped, and has come down since)
        end = start
    value, last = left.figures[[start, end]]
    calls = int(table.calls[end] - table.calls[start])
    grows = calls > 0
    return replace(
        _said(table, start, left.kind, left.series, left.usual, left.usual, last),
        growth=float(np.exp(min(left.growth, 700.0))),
        rate=float((last / value) ** (1 / calls)) if grows and value > 0 else None,
        step=float((last - value) / calls) if grows else None,
    )


def _followed(table: Table, row: int, blamed: Series) -> tuple[tuple[str, float], ...]:
    """Return the shared variables whose updates grew from a call on, and by how much."""
    found = []
    for series, i in table.of("shared"):
        moved = table.end(i, "moved")
        before, after = moved[max(0, row - BEFORE) : row], moved[row:]
        usual = _median(before)
        most = np.nanmax(after) if _has_number(after) else 0.0
        if series.updated and series != blamed and usual > 0 and most > usual * np.exp(GROWTH):
            found.append((series.name, float(most / usual)))
    return tuple(sorted(found, key=lambda pair: -pair[1])[:3])
