"""Signs that a training goes wrong, before a number is bad: one function for each rule."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from theanoguard._shown import brief
from theanoguard.guard.history.table import Series, Table

NOW = 16  # number of calls of which a rule says what is so now

LONG = 64  # number of calls without any change after which a rule speaks


@brief
@dataclass(frozen=True)
class Sign:
    """A sign that a training goes wrong.

    Parameters
    ----------
    rule : str
        Name of the rule, by which it can be left out.
    name : str
        The shared variable or output.
    call : int
        The last call that it was found in.
    text : str
        The evidence.
    """

    rule: str
    name: str
    call: int
    text: str

    def __str__(self) -> str:
        return f"call {self.call}: {self.name}: {self.text}"


def signs(table: Table, skip: tuple[str, ...] = ()) -> list[Sign]:
    """Return the signs of the last calls, leaving out some rules."""
    table = table.without_failed()
    if len(table.calls) < 2 * NOW:
        return []
    last = int(table.calls[-1])
    with np.errstate(all="ignore"):
        return [
            Sign(rule, series.name, last, text)
            for series, i in [*table.of("shared"), *table.of("output")]
            for rule, find in RULES.items()
            if rule not in skip and (text := find(table, series, i))
        ]


def _moves(table: Table, series: Series, i: int) -> tuple[float, float, float]:
    """Return by how much the last calls have moved a parameter, the calls before, and its norm.

    They are medians, or NaN where there are too few calls.
    """
    moved = table.end(i, "moved")
    moved = moved[np.isfinite(moved)]
    if not (series.kind == "shared" and series.updated and len(moved) >= 2 * NOW):
        return np.nan, np.nan, np.nan
    norm = table.end(i, "norm")[-NOW:]
    return float(np.median(moved[-NOW:])), float(np.median(moved[:-NOW])), float(np.median(norm))


def _explodes(table: Table, series: Series, i: int) -> str | None:
    now, before, _ = _moves(table, series, i)
    if not now > 100 * before > 0:
        return None
    return f"its updates are {now / before:.3g} times as large as before (norm {now:.3g})"


def _vanishes(table: Table, series: Series, i: int) -> str | None:
    now, before, _ = _moves(table, series, i)
    if not 0 < now < 1e-4 * before:
        return None
    return f"its updates have shrunk from {before:.3g} to {now:.3g}"


def _stands(table: Table, series: Series, i: int) -> str | None:
    moved = table.end(i, "moved")[-LONG:]
    if not series.updated or len(moved) < LONG or (moved != 0).any():
        return None
    return f"no call of the last {LONG} has changed any of its sampled elements"


def _moves_far(table: Table, series: Series, i: int) -> str | None:
    now, _, norm = _moves(table, series, i)
    if not 0 < 0.3 * norm < now:
        return None
    return f"each update moves it by {now / norm:.0%} of its norm"


def _is_dead(table: Table, series: Series, i: int) -> str | None:
    zeros = table.end(i, "zeros")[-NOW:]
    if series.kind != "output" or not np.median(zeros) > 0.9 or table.end(i, "norm")[-1] == 0:
        return None
    return f"{np.median(zeros):.0%} of its sampled elements are 0"


def _collapses(table: Table, series: Series, i: int) -> str | None:
    width = table.end(i, "largest") - table.end(i, "smallest")
    now, before = np.median(width[-NOW:]), np.median(width[:-NOW])
    if series.kind != "output" or not 0 <= now < 1e-6 * before:
        return None
    return f"its sampled elements differ by {now:.3g}, and differed by {before:.3g}"


def _stands_still(table: Table, series: Series, i: int) -> str | None:
    y = table.end(i, "norm")[-LONG:]
    if series.kind != "output" or len(y) < LONG or not y[-1] > 0:
        return None
    if not float(y.max() - y.min()) < 1e-6 * y[-1]:
        return None
    return f"it has stood at {y[-1]:.6g} for {LONG} calls"


def _saturates(table: Table, series: Series, i: int) -> str | None:
    slope = SLOPES.get(series.made_by or "")
    if slope is None or not table.end(i, "size")[-1] > 1:
        return None
    level, mean = table.level(i)[-NOW:], table.end(i, "mean")[-NOW:]
    share = float(np.median(slope(mean, level**2)))
    if not share < 0.03:
        return None
    name = (series.made_by or "").lower()
    return f"{name} is flat there: its slope is {share:.2g} of the largest, on average"


SLOPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Tanh": lambda mean, square: 1 - square,
    "Sigmoid": lambda mean, square: 4 * (mean - square),
}
"""The mean slope of an activation as a share of the largest, by the mean and the mean square of
what it returns: the slopes are ``1 - y**2`` and ``y * (1 - y)``."""


def _grows(y: np.ndarray) -> bool:
    return bool(np.isfinite(y).all() and (np.diff(y) > 0).all())


def _overflows(table: Table, series: Series, i: int) -> str | None:
    if series.kind == "shared" and not series.updated:
        return None
    y, calls = table.end(i, "magnitude")[-NOW:], table.calls[-NOW:]
    if not (_grows(y) and y[0] > 1):
        return None
    rate = float(np.log(y[-1] / y[0]) / (calls[-1] - calls[0]))
    left = (np.log(series.most) - np.log(y[-1])) / rate
    if not (rate > np.log(1.1) and left < 10_000):
        return None
    return f"it grows {np.exp(rate):.3g}-fold a call and overflows in about {left:.0f} calls"


def _overflows_in_exp(table: Table, series: Series, i: int) -> str | None:
    if not series.into_exp or (series.kind == "shared" and not series.updated):
        return None
    y, calls = table.end(i, "largest")[-NOW:], table.calls[-NOW:]
    rate = float((y[-1] - y[0]) / (calls[-1] - calls[0]))
    below = np.log(series.most) - y[-1]
    if not (_grows(y) and y[-1] > 1 and 0 < below < 1000 * rate):
        return None
    return (
        f"it is {below:.3g} below the overflow of its exp, and grows by {rate:.3g} a call: "
        f"{below / rate:.0f} calls are left"
    )


RULES: dict[str, Callable[[Table, Series, int], str | None]] = {
    "exploding updates": _explodes,
    "vanishing updates": _vanishes,
    "unchanged": _stands,
    "large updates": _moves_far,
    "dead": _is_dead,
    "collapsed": _collapses,
    "still": _stands_still,
    "saturated": _saturates,
    "overflow": _overflows,
    "overflow in exp": _overflows_in_exp,
}
"""The rules by their names."""
