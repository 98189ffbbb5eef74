"""Balls: real numbers with a certified error bound, and what is no number.

A ball is one of python-flint's ``arb``: a midpoint and a radius, with exponents of any size.  Three
balls are no numbers:

- ``NONE``: the formula has no value (``log(-1)``, ``0 / 0``, a NaN that was given);
- ``INFINITY`` and ``-INFINITY``: an infinity that was given, or the limit at a pole;
- ``UNKNOWN``: any of these, or any number.
"""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np
from flint import arb

NONE = arb.nan()
INFINITY = arb.pos_inf()
NEG_INFINITY = arb.neg_inf()
UNKNOWN = arb(0, INFINITY)
ZERO = arb(0)
ONE = arb(1)
TINY = arb(2) ** -1100  # below every float64: a smaller error is not worth more digits

ENOUGH_BITS = 64  # the digits of a number that anybody needs

MAX_FLOAT = float(np.finfo(np.float64).max)
MIN_FLOAT = 5e-324


def kind_of(ball: arb) -> str:
    """Return "number", "none", "infinite" or "unknown".

    Examples
    --------
    >>> kind_of(arb(1) / 3), kind_of(NONE), kind_of(NEG_INFINITY), kind_of(UNKNOWN)
    ('number', 'none', 'infinite', 'unknown')
    """
    if ball.is_finite():
        return "number"
    if ball.is_nan():
        return "none"
    return "infinite" if ball > 0 or ball < 0 else "unknown"


def array_of(balls: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Return balls as an object array."""
    out: np.ndarray = np.empty(len(balls), object)
    out[:] = balls
    return out.reshape(shape)


def filled(ball: arb, shape: tuple[int, ...]) -> np.ndarray:
    """Return an object array that holds one ball throughout."""
    return np.full(shape, ball, object)


def is_floats(value: Any) -> bool:
    """Whether a value is an array of floats, which are exact as they are."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def is_balls(value: Any) -> bool:
    """Whether a value is an array of balls."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def is_discrete(value: Any) -> bool:
    """Whether a value is an array of integers or booleans."""
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iub"


def to_balls(value: Any) -> np.ndarray:
    """Return an array of real numbers as balls.

    Examples
    --------
    >>> import numpy as np
    >>> to_balls(np.array([0.5, 2.0]))
    array([0.500000000000000, 2.00000000000000], dtype=object)
    """
    array = np.asarray(value)
    if array.dtype == object:
        return array
    return array_of([arb(v) for v in array.ravel().tolist()], array.shape)


def to_floats(value: Any, dtype: Any = None) -> Any:
    """Return a value with the nearest floats for balls."""
    if not isinstance(value, np.ndarray) or value.dtype != object:
        return value
    floats = np.array([nearest_float(b) for b in value.ravel().tolist()]).reshape(value.shape)
    return floats if dtype is None else floats.astype(dtype)


def nearest_float(ball: arb) -> float:
    """Return the float64 nearest to the midpoint: Inf where it is too large, NaN for no number."""
    return float(ball.mid()) if not ball.is_nan() and kind_of(ball) != "unknown" else float("nan")


def bounded_float(ball: arb) -> float:
    """Return a float64 of the same sign, which is 0 or infinite only if the ball is."""
    value = nearest_float(ball)
    if not ball.is_finite():
        return value
    if value == 0 and not ball.is_zero():
        return MIN_FLOAT if ball > 0 else -MIN_FLOAT if ball < 0 else value
    return min(max(value, -MAX_FLOAT), MAX_FLOAT)


def bounded_error(ball: arb) -> float:
    """Return a bound on the distance of a ball from its :func:`nearest_float`."""
    kind = kind_of(ball)
    if kind != "number":
        return 0.0 if kind == "infinite" else float("nan")
    distance = float(abs(ball - arb(nearest_float(ball))).abs_upper())
    return float(np.nextafter(distance, np.inf)) if distance else 0.0


def is_close_enough(ball: arb, bits: int = ENOUGH_BITS) -> bool:
    """Whether a ball has as many digits as anybody needs, or is no number for certain."""
    if not ball.is_finite():
        return kind_of(ball) != "unknown"
    return ball.is_exact() or ball.rel_accuracy_bits() >= bits or ball.rad() < TINY


def maximum(x: arb, y: arb) -> arb:
    """Return the larger ball; the operand itself if it is certain, so that ``==`` finds it."""
    if x.is_nan() or y.is_nan():
        return NONE
    if x is y or x >= y:
        return x
    return y if y >= x else x.max(y)


def minimum(x: arb, y: arb) -> arb:
    """Return the smaller ball, as :func:`maximum`."""
    if x.is_nan() or y.is_nan():
        return NONE
    if x is y or x <= y:
        return x
    return y if y <= x else x.min(y)


def midpoint_key(ball: arb) -> arb:
    """Return what balls are sorted by: the midpoint; what is no number comes last, as in NumPy."""
    return ball.mid() if kind_of(ball) in ("number", "infinite") else INFINITY


def text_of(ball: arb, digits: int = 12) -> str:
    """Return a ball as a decimal number, with exponents of any size.

    Examples
    --------
    >>> text_of(arb(-1000).exp(), 6), text_of(arb("500.75")), text_of(NEG_INFINITY)
    ('5.07596e-435', '500.75', '-inf')
    >>> text_of(-arb("2e-12345678901"))
    '-10**(-1.23e+10)'
    >>> text_of(NONE), text_of(arb(0, 1e-9))
    ('no value', '0 +/- 1e-09')
    """
    kind = kind_of(ball)
    if kind == "infinite":
        return "inf" if ball > 0 else "-inf"
    if kind != "number":
        return {"none": "no value", "unknown": "unknown"}[kind]
    if ball.is_zero():
        return "0"
    if not is_close_enough(ball, bits=4 * digits):
        middle, radius = ball.mid(), ball.rad()
        middle = ZERO if abs(middle) < radius else middle
        return f"{text_of(middle, digits)} +/- {_decimal(radius, 1)}"
    return _decimal(ball.mid(), digits)


MOST_DIGITS = 10  # of an exponent that is written out


def _decimal(number: arb, digits: int) -> str:
    value = float(number)
    if 1e-300 < abs(value) < 1e300:
        return f"{value:.{min(digits, 15)}g}"
    mantissa, _, exponent = number.str(digits, radius=False).partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    if len(exponent) > MOST_DIGITS:
        return f"{'-' if number < 0 else ''}10**({Decimal(exponent):.3g})"
    return f"{mantissa}e{exponent}" if exponent else mantissa


def mapped(function: Callable[..., Any], arrays: Iterable[np.ndarray]) -> np.ndarray:
    """Return ``function`` of each element of arrays that are broadcast against each other."""
    broadcast = np.broadcast_arrays(*arrays)
    lists = [a.ravel().tolist() for a in broadcast]
    return array_of(list(map(function, *lists)), broadcast[0].shape)
