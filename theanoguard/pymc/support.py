"""Where PyMC's distributions have a density."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Support:
    """Where a distribution has a density.

    Parameters
    ----------
    text : str
    holds : callable
        ``holds(values, *parameters)`` returns which observed values lie inside; for a distribution
        of vectors, one truth value for each.
    """

    text: str
    holds: Callable


def _is_whole(values):
    return np.equal(values, np.floor(values))


NUMBERS = Support("numbers, not NaN", lambda y, *_: ~np.isnan(y))
_POSITIVE = Support("positive numbers", lambda y, *_: y > 0)
_NONNEGATIVE = Support("numbers of at least 0", lambda y, *_: y >= 0)
_COUNTS = Support("whole numbers of at least 0", lambda y, *_: (y >= 0) & _is_whole(y))
_UP_TO_N = Support("whole numbers from 0 to n", lambda y, n, *_: (y >= 0) & (y <= n) & _is_whole(y))
_UNIT = Support("numbers between 0 and 1", lambda y, *_: (y > 0) & (y < 1))

# By the name of the random variable's operation.
SUPPORTS = {
    "bernoulli": Support("0 and 1", lambda y, *_: (y == 0) | (y == 1)),
    "beta": _UNIT,
    "beta_binomial": _UP_TO_N,
    "binomial": _UP_TO_N,
    "categorical": Support(
        "whole numbers from 0 to k - 1",
        lambda y, p: (y >= 0) & (y < np.shape(p)[-1]) & _is_whole(y),
    ),
    "dirichlet": Support(
        "vectors of positive numbers whose sum is 1",
        lambda y, a: np.all(y > 0, axis=-1) & np.isclose(np.sum(y, axis=-1), 1),
    ),
    "exponential": _NONNEGATIVE,
    "gamma": _POSITIVE,
    "geometric": Support("whole numbers of at least 1", lambda y, *_: (y >= 1) & _is_whole(y)),
    "halfcauchy": _NONNEGATIVE,
    "halfnormal": _NONNEGATIVE,
    "invgamma": _POSITIVE,
    "kumaraswamy": _UNIT,
    "lognormal": _POSITIVE,
    "multinomial": Support(
        "vectors of whole numbers of at least 0 whose sum is n",
        lambda y, n, p: np.all((y >= 0) & _is_whole(y), axis=-1) & (np.sum(y, axis=-1) == n),
    ),
    "nbinom": _COUNTS,
    "negative_binomial": _COUNTS,
    "poisson": _COUNTS,
    "uniform": Support("lower <= y <= upper", lambda y, low, high: (y >= low) & (y <= high)),
    "wald": _POSITIVE,
    "weibull": _NONNEGATIVE,
}
