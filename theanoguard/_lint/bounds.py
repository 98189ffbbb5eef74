"""Bounds of the elements of a value, and how arithmetic changes them."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from theanoguard._shown import brief

INF = math.inf


@brief
@dataclass(frozen=True)
class Bounds:
    """An interval that holds every element, and whether 0 can be among them.

    Parameters
    ----------
    lo, hi : float
        The ends.  An infinite end says that nothing is known, not that an element is infinite.
    zero : bool
        False for what is bounded away from zero: the interval is open at 0, or, where 0 lies
        inside, has a hole there.  Rounding counts: ``exp(x)`` underflows, so it may be 0.

    Examples
    --------
    >>> Bounds(0, 1) + Bounds(1e-6, 1e-6)
    Bounds(lo=1e-06, hi=1.000001, zero=False)
    >>> Bounds(0, 1, zero=False).union(Bounds(-2, -1))
    Bounds(lo=-2, hi=1, zero=False)
    """

    lo: float = -INF
    hi: float = INF
    zero: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "zero", bool(self.zero and self.lo <= 0 <= self.hi))

    @property
    def positive(self) -> bool:
        """Whether every element is above 0."""
        return self.lo >= 0 and not self.zero

    @property
    def smallest(self) -> float:
        """The smallest magnitude that the ends allow."""
        return max(self.lo, -self.hi, 0.0)

    def union(self, other: "Bounds") -> "Bounds":
        """The bounds of what comes from either."""
        if self is NOTHING or other is NOTHING:
            return other if self is NOTHING else self
        return Bounds(min(self.lo, other.lo), max(self.hi, other.hi), self.zero or other.zero)

    def intersect(self, other: "Bounds") -> "Bounds":
        """The bounds of what fulfils both; itself where nothing does."""
        lo, hi = max(self.lo, other.lo), min(self.hi, other.hi)
        return Bounds(lo, hi, self.zero and other.zero) if lo <= hi else self

    def rounded(self, dtype: str) -> "Bounds":
        """The bounds after rounding to a dtype, in which a small number may become 0."""
        kind = np.dtype(dtype)
        if self is NOTHING or kind.kind not in "fiu":
            return self
        if kind.kind == "f":
            with np.errstate(over="ignore"):
                lo, hi = float(kind.type(self.lo)), float(kind.type(self.hi))
            underflows = (lo == 0 < self.lo) or (hi == 0 > self.hi)
        else:
            lo, hi = (math.trunc(v) if math.isfinite(v) else v for v in (self.lo, self.hi))
            underflows = (lo, hi) != (self.lo, self.hi)
        return Bounds(lo, hi, self.zero or underflows)

    def __add__(self, other: "Bounds") -> "Bounds":
        same_sign = min(self.lo, other.lo) >= 0 or max(self.hi, other.hi) <= 0
        zero = self.zero and other.zero if same_sign else True
        return Bounds(_sum(self.lo, other.lo, -INF), _sum(self.hi, other.hi, INF), zero)

    def __neg__(self) -> "Bounds":
        return Bounds(-self.hi, -self.lo, self.zero)

    def __sub__(self, other: "Bounds") -> "Bounds":
        return self + -other

    def __mul__(self, other: "Bounds") -> "Bounds":
        ends = [_product(a, b) for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        return Bounds(min(ends), max(ends), self.smallest * other.smallest == 0)

    def __truediv__(self, other: "Bounds") -> "Bounds":
        if other.lo < 0 < other.hi or other.lo == other.hi == 0:
            return Bounds()
        inverse = [
            1 / v if v else math.copysign(INF, other.lo + other.hi) for v in (other.lo, other.hi)
        ]
        quotient = self * Bounds(min(inverse), max(inverse))
        return Bounds(
            quotient.lo, quotient.hi, self.smallest == 0 or math.inf in map(abs, other.ends)
        )

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends."""
        return self.lo, self.hi

    def __abs__(self) -> "Bounds":
        return Bounds(self.smallest, max(abs(self.lo), abs(self.hi)), self.zero)

    def square(self) -> "Bounds":
        """The bounds of the squares."""
        size = abs(self)
        return size * size

    def times(self, count: "Bounds") -> "Bounds":
        """The bounds of sums of `count` elements, a number within bounds itself."""
        lo = _product(self.lo, count.lo if self.lo >= 0 else count.hi)
        hi = _product(self.hi, count.lo if self.hi <= 0 else count.hi)
        return Bounds(lo, hi, self.zero or self.lo < 0 < self.hi)

    def map(self, function: Callable[[np.float64], Any], zero: bool = True) -> "Bounds":
        """The bounds under a function that never decreases.

        Parameters
        ----------
        function : callable
            From a float to a float; infinite ends included.
        zero : bool
            Whether the result can be 0.
        """
        with np.errstate(all="ignore"):
            lo, hi = (float(function(np.float64(v))) for v in self.ends)
        return Bounds(-INF if math.isnan(lo) else lo, INF if math.isnan(hi) else hi, zero)

    def power(self, exponent: "Bounds") -> "Bounds":
        """The bounds of powers, for a base that is not negative."""
        with np.errstate(all="ignore"):
            ends = [np.float_power(b, e) for b in self.ends for e in exponent.ends]
        if any(map(math.isnan, ends)):
            return Bounds(0.0)
        return Bounds(float(min(ends)), float(max(ends)))

    def maximum(self, other: "Bounds") -> "Bounds":
        """The bounds of the larger of two."""
        zero = (self.zero and other.lo <= 0) or (other.zero and self.lo <= 0)
        return Bounds(max(self.lo, other.lo), max(self.hi, other.hi), zero)

    def minimum(self, other: "Bounds") -> "Bounds":
        """The bounds of the smaller of two."""
        return -(-self).maximum(-other)

    @property
    def phrase(self) -> str:
        """The bounds, as the second half of a sentence."""
        if self == Bounds():
            return "nothing bounds it"
        return f"its bounds are {self}"

    def __str__(self) -> str:
        left = "(" if math.isinf(self.lo) or (self.lo == 0 and not self.zero) else "["
        right = ")" if math.isinf(self.hi) or (self.hi == 0 and not self.zero) else "]"
        hole = " but 0" if not self.zero and self.lo < 0 < self.hi else ""
        return f"{left}{self.lo + 0.0:g}, {self.hi + 0.0:g}{right}{hole}"


NOTHING = Bounds(INF, -INF)  # the bounds of no element at all: of memory that nobody has written


def _sum(a: float, b: float, unknown: float) -> float:
    return unknown if math.isnan(a + b) else a + b


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def unite(bounds: Iterable[Bounds]) -> Bounds:
    """The bounds of what comes from any of several."""
    return reduce(Bounds.union, bounds, NOTHING)


def of_array(values: Any) -> Bounds:
    """The bounds of the elements of an array; NaN is passed over.

    Examples
    --------
    >>> of_array(np.array([1.0, np.nan, 3.0]))
    Bounds(lo=1.0, hi=3.0, zero=False)
    """
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        return Bounds()
    values = values[~np.isnan(values)]
    if not values.size:
        return Bounds()
    return Bounds(float(values.min()), float(values.max()), bool((values == 0).any()))


def of_arrays(arrays: Iterable[Any]) -> Bounds:
    """The bounds of the elements of several arrays of one variable.

    Examples
    --------
    >>> of_arrays([np.array([1.0]), np.array([-2.0])])
    Bounds(lo=-2.0, hi=1.0, zero=True)
    """
    found = unite([of_array(np.asarray(array)) for array in arrays])
    return Bounds(found.lo, found.hi)
