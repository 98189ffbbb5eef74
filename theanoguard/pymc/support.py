"""Where PyMC's distributions have a density."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Support:
    """Where a distribution has a density."""

    text: str  # with ``{y}`` for the name of the variable
    #: ``holds(values, *parameters)`` returns which observed values lie inside; for a distribution
    #: of vectors, one truth value for each.
    holds: Callable
    #: What the text calls the parameters; empty for those that it does not name.
    names: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()  # what it calls the lengths of their last axes


def _is_whole(values: Any) -> Any:
    return np.equal(values, np.floor(values))


NUMBERS = Support("finite numbers", lambda y, *_: np.isfinite(y))
_POSITIVE = Support("positive numbers", lambda y, *_: y > 0)
_NONNEGATIVE = Support("numbers of at least 0", lambda y, *_: y >= 0)
_COUNTS = Support("whole numbers of at least 0", lambda y, *_: (y >= 0) & _is_whole(y))
_UP_TO_N = Support(
    "whole numbers from 0 to n", lambda y, n, *_: (y >= 0) & (y <= n) & _is_whole(y), ("n",)
)
_BETWEEN = Support(
    "lower <= {y} <= upper", lambda y, low, high: (y >= low) & (y <= high), ("lower", "upper")
)
_SUM_N = Support(
    "vectors of whole numbers of at least 0 whose sum is n",
    lambda y, n, p: np.all((y >= 0) & _is_whole(y), axis=-1) & (np.sum(y, axis=-1) == n),
    ("n",),
)
_UNIT = Support("numbers between 0 and 1", lambda y, *_: (y > 0) & (y < 1))

_TRIANGLE = Support(
    "lower < {y} < upper",
    lambda y, low, c, high: (
        ((y > low) | ((y == low) & (c == low))) & ((y < high) | ((y == high) & (c == high)))
    ),
    ("lower", "", "upper"),
)
_WEIBULL = replace(_POSITIVE, holds=lambda y, alpha, beta: (y > 0) | ((y == 0) & (alpha <= 1)))

# By the name of the random variable's operation, or of its class.
SUPPORTS = {
    "bernoulli": Support("0 and 1", lambda y, *_: (y == 0) | (y == 1)),
    "beta": _UNIT,
    "beta_binomial": _UP_TO_N,
    "binomial": _UP_TO_N,
    "categorical": Support(
        "whole numbers from 0 to k - 1",
        lambda y, p: (y >= 0) & (y < np.shape(p)[-1]) & _is_whole(y),
        sizes=("k",),
    ),
    "dirichlet": Support(
        "vectors of positive numbers whose sum is 1",
        lambda y, a: np.all(y > 0, axis=-1) & np.isclose(np.sum(y, axis=-1), 1),
    ),
    "diracdelta": Support("c", lambda y, c: y == c, ("c",)),
    "discrete_weibull": _COUNTS,
    "discrete_uniform": Support(
        "whole numbers from lower to upper",
        lambda y, low, high: (y >= low) & (y <= high) & _is_whole(y),
        ("lower", "upper"),
    ),
    "exponential": _NONNEGATIVE,
    "gamma": _POSITIVE,
    "geometric": Support("whole numbers of at least 1", lambda y, *_: (y >= 1) & _is_whole(y)),
    "halfcauchy": _NONNEGATIVE,
    "half_flat": _NONNEGATIVE,
    "halfnormal": _NONNEGATIVE,
    "halfstudentt": _NONNEGATIVE,
    "hypergeometric": Support(
        "whole numbers from max(0, n - N + k) to min(k, n)",
        lambda y, k, rest, n: (y >= np.maximum(0, n - rest)) & (y <= np.minimum(k, n)),
        ("k", "", "n"),
    ),
    "interpolated": Support(
        "numbers between the first and the last of x_points",
        lambda y, x, *_: (y >= x[..., 0]) & (y <= x[..., -1]),
    ),
    "invgamma": _POSITIVE,
    "kumaraswamy": _UNIT,
    "logitnormal": _UNIT,
    "lognormal": _POSITIVE,
    "dirichlet_multinomial": _SUM_N,
    "multinomial": _SUM_N,
    "nbinom": _COUNTS,
    "negative_binomial": _COUNTS,
    "pareto": Support("{y} >= m", lambda y, alpha, m: y >= m, ("", "m")),
    "poisson": _COUNTS,
    "rice": _POSITIVE,
    "truncated_normal": Support(
        "lower <= {y} <= upper",
        lambda y, mu, sigma, low, high: (y >= low) & (y <= high),
        ("", "", "lower", "upper"),
    ),
    "triangular": _TRIANGLE,
    "uniform": _BETWEEN,
    "wald": _POSITIVE,
    "vonmises": Support("-pi <= {y} <= pi", lambda y, *_: np.abs(y) <= np.pi),
    "weibull": _WEIBULL,
    "weibullbeta": _WEIBULL,
}


def support_of(variable: Any) -> tuple[Support, list[Any]]:
    """Return the support of a random variable, and the parameters that it depends on.

    Of a distribution that is made of others, such as a censored one, it is put together from
    theirs.  Where nothing is known, all numbers are in it.
    """
    op = variable.owner.op
    if type(op).__name__ == "TruncatedRV":
        *inputs, lower, upper = variable.owner.inputs
        base = op.base_rv_op.make_node(*inputs).default_output()
        return _within(False, base, lower, upper)
    try:
        parameters = list(op.dist_params(variable.owner))
    except (AttributeError, ValueError):  # symbolic ones of PyMC need not have any
        return NUMBERS, []
    made_of = COMPOUND.get(type(op).__name__)
    if made_of is not None:
        return made_of(*parameters)
    name = getattr(op, "name", None) or type(op).__name__.removesuffix("RV").lower()
    return SUPPORTS.get(name, NUMBERS), parameters


def _within(with_bounds: bool, base: Any, lower: Any, upper: Any) -> tuple[Support, list[Any]]:
    """Return the support of a distribution between bounds, which may have a mass of their own."""
    inner, parameters = support_of(base)

    def holds(y: Any, low: Any, high: Any, *parameters: Any) -> Any:
        at_bounds = with_bounds & ((y == low) | (y == high))
        return (y >= low) & (y <= high) & (at_bounds | inner.holds(y, *parameters))

    text = "lower <= {y} <= upper and, between these, " + inner.text
    names = ("lower", "upper", *inner.names)
    return Support(text, holds, names), [lower, upper, *parameters]


def _mixture(_weights: Any, *components: Any) -> tuple[Support, list[Any]]:
    if any(getattr(c.owner, "op", None) is None for c in components):
        return NUMBERS, []
    if len(components) == 1 or any(getattr(c.owner.op, "ndim_supp", 0) for c in components):
        return NUMBERS, []  # (one variable with an axis for the components)
    found = [support_of(component) for component in components]
    sizes = [len(parameters) for _, parameters in found]

    def holds(y: Any, *parameters: Any) -> Any:
        inside, start = np.zeros(np.shape(y), bool), 0
        for (support, _), size in zip(found, sizes, strict=True):
            inside |= support.holds(y, *parameters[start : start + size])
            start += size
        return inside

    text = " or ".join(dict.fromkeys(support.text for support, _ in found))
    names = [name for (s, p) in found for name in (*s.names, *[""] * (len(p) - len(s.names)))]
    return Support(text, holds, tuple(names)), [p for _, parameters in found for p in parameters]


COMPOUND: dict[str, Callable[..., tuple[Support, list[Any]]]] = {
    "CensoredRV": partial(_within, True),
    "MarginalMixtureRV": _mixture,
    "MixtureRV": _mixture,
    "_HurdleRV": _mixture,
}
"""By the class of the operation of a distribution that is made of others, its support."""


def is_compound(variable: Any) -> bool:
    """Return whether a random variable's distribution is made of others."""
    return type(variable.owner.op).__name__ in COMPOUND


def aligned(value: Any, type_: Any, like: Any) -> Any:
    """Return the value of a parameter, shaped to fit an observed value of named dimensions."""
    dims, wanted = getattr(type_, "dims", None), getattr(like, "dims", None)
    if dims is None or wanted is None or not set(dims) <= set(wanted):
        return value
    ordered = [dim for dim in wanted if dim in dims]
    moved = np.transpose(value, [dims.index(dim) for dim in ordered])
    return moved.reshape([moved.shape[ordered.index(d)] if d in ordered else 1 for d in wanted])
