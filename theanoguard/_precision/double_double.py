"""Double-double numbers with error bounds: about 100 bits at the speed of NumPy.

A number is ``hi + lo``, two float64 of which ``lo`` is within the rounding of ``hi``.  ``err``
bounds the distance to the true value.  If nothing is certain, it is infinite.  The sums and
products are those of Dekker, Knuth and Joldes and others ("Tight and rigorous error bounds for
basic building blocks of double-word arithmetic", ACM TOMS 2017).  The functions take one step of
Newton's method from NumPy's value.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from flint import arb, ctx

DOUBLED = np.dtype([("hi", "f8"), ("lo", "f8"), ("err", "f8")])

UNIT = 2.0**-90
"""The relative error of one operation: 2**-104 for a sum, and 2**-95 for an exponential."""

TINY = 1e-321  # the absolute error where a term underflows

LARGEST = 1e290  # beyond this, splitting a number may overflow


class Pair(NamedTuple):
    """A double-double array, or a float64 array with ``lo`` and ``err`` of 0."""

    hi: Any
    lo: Any = 0.0
    err: Any = 0.0


def unpacked(value: np.ndarray) -> Pair:
    """Return an array of floats, integers or double-doubles as a pair."""
    if value.dtype == DOUBLED:
        return Pair(*(np.array(value[part]) for part in DOUBLED.names))
    if value.dtype.kind in "iu" and value.dtype.itemsize == 8:
        hi = value.astype("float64")
        return Pair(hi, 0.0, np.where(np.abs(hi) > 2.0**53, np.spacing(hi), 0.0))
    return Pair(value.astype("float64"))


def packed(pair: Pair) -> np.ndarray:
    """Return a pair as one array."""
    hi, lo, err = np.broadcast_arrays(*pair)
    found: np.ndarray = np.empty(hi.shape, DOUBLED)
    with np.errstate(all="ignore"):
        known = np.abs(hi) <= LARGEST
        known &= ~np.isnan(err)
    found["hi"], found["lo"], found["err"] = hi, lo, np.where(known, err, np.inf)
    return found


# Sums and products without error


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    s = a + b
    z = s - a
    return s, (a - (s - z)) + (b - z)


def _quick_two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    s = a + b
    return s, b - (s - a)


def _split(a: Any) -> tuple[Any, Any]:
    c = 134217729.0 * a
    high = c - (c - a)
    return high, a - high


def _two_product(a: Any, b: Any) -> tuple[Any, Any]:
    p = a * b
    (a1, a2), (b1, b2) = _split(a), _split(b)
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


# Arithmetic


def add(a: Pair, b: Pair) -> Pair:
    """Return the sum."""
    s, e = _two_sum(a.hi, b.hi)
    if type(b.lo) is float:  # (0, of a plain float)
        s, e = _quick_two_sum(s, e + a.lo)
    else:
        t, f = _two_sum(a.lo, b.lo)
        s, e = _quick_two_sum(s, e + t)
        s, e = _quick_two_sum(s, e + f)
    return Pair(s, e, a.err + b.err + UNIT * np.abs(s))


def neg(a: Pair) -> Pair:
    """Return the negative."""
    return Pair(-a.hi, -a.lo, a.err)


def sub(a: Pair, b: Pair) -> Pair:
    """Return the difference."""
    return add(a, neg(b))


def mul(a: Pair, b: Pair) -> Pair:
    """Return the product."""
    p, e = _two_product(a.hi, b.hi)
    p, e = _quick_two_sum(p, e + (a.hi * b.lo + a.lo * b.hi))
    err = np.abs(a.hi) * b.err + np.abs(b.hi) * a.err
    tiny = np.where((a.hi == 0) | (b.hi == 0), 0.0, TINY)
    return Pair(p, e, 1.01 * err + a.err * b.err + UNIT * np.abs(p) + tiny)


def sqr(a: Pair) -> Pair:
    """Return the square."""
    return mul(a, a)


def div(a: Pair, b: Pair) -> Pair:
    """Return the quotient."""
    q = a.hi / b.hi
    exact_b, first = b._replace(err=0.0), Pair(q)
    rest = sub(a._replace(err=0.0), mul(exact_b, first))
    q, e = _quick_two_sum(q, (rest.hi + rest.lo) / b.hi)
    size = np.abs(b.hi) - b.err
    moved = a.err + np.abs(q) * b.err + rest.err
    err = np.where(size > 0.5 * np.abs(b.hi), 1.01 * moved / size, np.inf)
    return Pair(q, e, err + UNIT * np.abs(q) + np.where(a.hi == 0, 0.0, TINY))


def reciprocal(a: Pair) -> Pair:
    """Return ``1 / a``."""
    return div(Pair(np.ones(())), a)


def sqrt(a: Pair) -> Pair:
    """Return the square root."""
    y = np.sqrt(a.hi)
    safe = np.where(y > 0, y, 1.0)
    rest = sub(a._replace(err=0.0), mul(Pair(y), Pair(y)))
    hi, lo = _quick_two_sum(y, (rest.hi + rest.lo) / (2 * safe))
    is_zero = (a.hi == 0) & (a.lo == 0) & (a.err == 0)
    moved = 1.01 * (a.err + rest.err) / safe
    err = np.where(a.hi > 4 * a.err, moved + UNIT * y, np.inf)
    return Pair(hi, lo, np.where(is_zero, 0.0, err))


def absolute(a: Pair) -> Pair:
    """Return the absolute value."""
    sign = np.where((a.hi < 0) | ((a.hi == 0) & (a.lo < 0)), -1.0, 1.0)
    return Pair(a.hi * sign, a.lo * sign, a.err)


def where(condition: Any, a: Pair, b: Pair) -> Pair:
    """Return one of two numbers for each element."""
    return Pair(*(np.where(condition, x, y) for x, y in zip(a, b, strict=True)))


def maximum(a: Pair, b: Pair) -> Pair:
    """Return the larger number.  Where either may be larger, both errors count."""
    return _chosen(a, b, (a.hi > b.hi) | ((a.hi == b.hi) & (a.lo >= b.lo)))


def minimum(a: Pair, b: Pair) -> Pair:
    """Return the smaller number, as :func:`maximum`."""
    return _chosen(a, b, (a.hi < b.hi) | ((a.hi == b.hi) & (a.lo <= b.lo)))


def _chosen(a: Pair, b: Pair, is_first: Any) -> Pair:
    found = where(is_first, a, b)
    not_a_number = np.isnan(a.hi) | np.isnan(b.hi)
    return found._replace(err=np.where(not_a_number, np.inf, np.maximum(a.err, b.err)))


# Functions


STEPS = 256  # the exponentials of multiples of 1/256 are in a table


@cache
def _constants() -> tuple[np.ndarray, np.ndarray, list[float], list[Pair]]:
    """Return the table of exponentials, ln(2) in three parts, and coefficients."""

    def split(ball: arb) -> tuple[float, float]:
        high = float(ball.mid())
        return high, float((ball - high).mid())

    with ctx.workprec(256):
        half = STEPS // 2
        table = np.array([split((arb(j) / STEPS).exp()) for j in range(-half, half + 1)])
        left, parts = arb(2).log(), []
        for bits in (32, 64):
            parts.append(float((left * arb(2) ** bits).floor().mid()) / 2.0**bits)
            left = left - parts[-1]
        parts.append(float(left.mid()))
        coefficients = [Pair(*split(1 / arb(n))) for n in (6, 24)]
    return table[:, 0], table[:, 1], parts, coefficients


def _exponential(a: Pair) -> tuple[Pair, Pair, Any, Any]:
    """Return ``exp(t)`` and ``expm1(t)`` without their errors; t is `a` but for whole steps."""
    high, low, (one, two, three), (sixth, twenty_fourth) = _constants()
    x = where(a.hi < -760, Pair(-760.0), Pair(a.hi, a.lo))  # (where it is 0)
    k = np.rint(np.nan_to_num(np.minimum(x.hi, 800.0)) / (one + two))
    j = np.rint((x.hi - k * (one + two)) * STEPS)
    j = np.clip(np.nan_to_num(j), -(STEPS // 2), STEPS // 2)
    for part in (k * one, k * two, k * three, j / STEPS):
        x = add(x, Pair(-part))
    t = x.hi
    tail = t * t * (1 / 120 + t * (1 / 720 + t * (1 / 5040 + t * (1 / 40320))))
    inner = add(mul(x, add(sixth, add(mul(x, twenty_fourth), Pair(tail)))), Pair(0.5))
    p = add(x, mul(mul(x, x), inner))
    place = (j + STEPS // 2).astype(int)
    step = Pair(high[place], low[place])
    return add(step, mul(step, p)), p, k, (k == 0) & (j == 0)


def _moved(a: Pair, size: Any) -> Any:
    """Return how far the error of an exponent moves an exponential of some size."""
    return np.where(a.err < 0.1, 1.2 * size * a.err, np.inf)


def exp(a: Pair) -> Pair:
    """Return the exponential."""
    e, _, k, _ = _exponential(a)
    hi, lo = np.ldexp(e.hi, k.astype(int)), np.ldexp(e.lo, k.astype(int))
    return Pair(hi, lo, _moved(a, hi) + UNIT * hi + TINY)


def expm1(a: Pair) -> Pair:
    """Return ``exp(a) - 1``."""
    e, p, k, is_small = _exponential(a)
    hi, lo = np.ldexp(e.hi, k.astype(int)), np.ldexp(e.lo, k.astype(int))
    large = add(Pair(hi, lo), Pair(-1.0))
    found = where(is_small, p, large)
    own = UNIT * np.where(is_small, np.abs(p.hi), hi + 1)
    return found._replace(err=_moved(a, hi) + own + np.where(a.hi == 0, 0.0, TINY))


def log1p(a: Pair) -> Pair:
    """Return ``log(1 + a)``."""
    near = np.abs(a.hi) < 0.5
    if near.all():
        return _log1p_near(a)
    far = _log_far(add(a, Pair(1.0)))
    return where(near, _log1p_near(a), far) if near.any() else far


def log(a: Pair) -> Pair:
    """Return the logarithm."""
    near = (a.hi > 0.5) & (a.hi < 1.5)
    if near.all():
        return _log1p_near(add(a, Pair(-1.0)))
    far = _log_far(a)
    return where(near, _log1p_near(add(a, Pair(-1.0))), far) if near.any() else far


def _log1p_near(a: Pair) -> Pair:
    y = Pair(np.log1p(a.hi))
    e = expm1(neg(y))
    x = Pair(a.hi, a.lo)
    delta = add(add(x, e), mul(x, e))
    found = add(y, Pair(delta.hi, delta.lo - delta.hi * delta.hi / 2))
    return found._replace(err=2.5 * a.err + UNIT * np.abs(a.hi) + TINY)


def _log_far(a: Pair) -> Pair:
    y = Pair(np.log(a.hi))
    delta = add(mul(Pair(a.hi, a.lo), exp(neg(y))), Pair(-1.0))
    found = add(y, Pair(delta.hi, delta.lo - delta.hi * delta.hi / 2))
    size = a.hi - a.err
    err = np.where(size > 0.5 * a.hi, a.err / size, np.inf)
    is_normal = (a.hi > 1e-290) & (a.hi < LARGEST)
    return found._replace(err=np.where(is_normal, err + UNIT * (1 + np.abs(y.hi)), np.inf))


def sigmoid(a: Pair) -> Pair:
    """Return ``1 / (1 + exp(-a))``."""
    return reciprocal(add(exp(neg(a)), Pair(1.0)))


def softplus(a: Pair) -> Pair:
    """Return ``log(1 + exp(a))``."""
    rest = log1p(exp(neg(absolute(a))))
    return add(maximum(a, Pair(0.0)), rest)


def tanh(a: Pair) -> Pair:
    """Return the hyperbolic tangent."""
    e = expm1(mul(a, Pair(2.0)))
    large = np.abs(a.hi) > 40  # (the difference from 1 is below 1e-34)
    found = div(e, add(e, Pair(2.0)))
    return where(large, Pair(np.sign(a.hi), 0.0, 1e-34 + 0 * a.err), found)


def power(a: Pair, b: Pair) -> Pair | None:
    """Return a power: of any base for an exponent of 0 to 8, or of a positive base."""
    first = np.ravel(b.hi)[:1]
    is_one = first.size and np.all(b.hi == first[0]) and np.all(b.lo == 0) and np.all(b.err == 0)
    if is_one and first[0] in range(9):
        found = Pair(np.ones(np.broadcast_shapes(np.shape(a.hi), np.shape(b.hi))))
        for _ in range(int(first[0])):
            found = mul(found, a)
        return found
    if is_one and first[0] == 0.5:
        return sqrt(add(a, Pair(np.zeros(np.shape(b.hi)))))
    return exp(mul(b, log(a))) if np.all(a.hi > 0) else None


def folded(operation: Callable[[Pair, Pair], Pair], a: Pair, axis: int) -> Pair:
    """Return the elements along an axis, which are not none, combined in pairs."""
    parts = [np.moveaxis(np.broadcast_to(p, np.shape(a.hi)), axis, 0) for p in a]
    while (size := len(parts[0])) > 1:
        half = size // 2
        first, second = (Pair(*(p[at : at + half] for p in parts)) for at in (0, half))
        both = operation(first, second)
        rest = [p[2 * half :] for p in parts]
        parts = [np.concatenate([np.asarray(p), r]) for p, r in zip(both, rest, strict=True)]
    return Pair(*(p[0] for p in parts))
