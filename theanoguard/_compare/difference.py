"""How far two values of the same variable are apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from theanoguard._evaluate.culprit import dense
from theanoguard._shown import brief
from theanoguard._text import index_text
from theanoguard._values import is_sparse

RTOL = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-9}
"""Relative difference that rounding may make, by the narrower of two precisions."""


@brief
@dataclass(frozen=True)
class Tolerance:
    """The difference of two elements that is allowed.

    Two elements agree if they meet one of the three limits.  NaN agrees with NaN, and an Inf with
    the same Inf.  Integers and booleans must be equal.

    Parameters
    ----------
    rtol : float or None
        Limit relative to the larger magnitude of the two.  None takes ``RTOL``.
    ulp : float
        Limit in units in the last place of the narrower precision.
    atol : float or None
        Absolute limit.  None allows 16 units in the last place of the variable's largest element,
        because numbers of that size cancel with such an error.
    """

    rtol: float | None = None
    ulp: float = 4
    atol: float | None = None

    def __post_init__(self) -> None:
        for name in ("rtol", "ulp", "atol"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is None and name != "ulp":
                continue
            if not (number and 0 <= value < np.inf):
                raise ValueError(f"{name} is {value!r}.\nIt must be a finite number, at least 0.")


@brief
@dataclass(frozen=True)
class Difference:
    """The difference between a value and its reference.

    Parameters
    ----------
    n_parted : int
        Number of elements that differ by more than the tolerance.  If the shapes differ, all
        elements.
    size : int
        Number of elements.
    shape, other_shape : tuple of int
        Shapes of the reference and of the value.
    dtype : str
        The dtype of the comparison.  Of two floating-point types it is the narrower one.
    max_ulp : float
        Largest distance in units in the last place.  It is inf if only one of two elements is a
        number, or if the shapes differ.  For integers, the largest difference.
    max_relative : float
        Largest difference, divided by the larger magnitude of the two.
    index : tuple of int or None
        The element that differs most.  None if the shapes differ or there is no element.
    expected, found : number or None
        That element in the reference and in the value.
    """

    n_parted: int
    size: int
    shape: tuple[int, ...]
    other_shape: tuple[int, ...]
    dtype: str
    max_ulp: float
    max_relative: float
    index: tuple[int, ...] | None
    expected: float | int | complex | None
    found: float | int | complex | None

    @property
    def parted(self) -> bool:
        """Whether an element differs by more than the tolerance."""
        return self.n_parted > 0

    def texts(self) -> tuple[str, str]:
        """Return the largest distances as text, in ULP and relative."""
        return f"{self.max_ulp:.5g}", f"{self.max_relative:.2g}"

    def __str__(self) -> str:
        if self.shape != self.other_shape:
            return f"shape {self.other_shape}, expected {self.shape}"
        if self.max_ulp == 0:
            return "equal"
        at = f" at {index_text(self.index)}" if self.index else ""
        ulp, relative = self.texts()
        return (
            f"{_exact(self.found)}, expected {_exact(self.expected)}{at}: "
            f"{ulp} ULP, relative {relative} ({self.dtype})"
        )


def _exact(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic) else value)


def is_comparable(value: Any) -> bool:
    """Whether a value holds numbers."""
    return is_sparse(value) or np.asarray(value).dtype.kind in "biufc"


def difference(expected: Any, found: Any, tolerance: Tolerance = Tolerance()) -> Difference:  # noqa: B008 (it is frozen)
    """Compare two values of a variable.

    Examples
    --------
    >>> import numpy as np
    >>> print(difference(np.array([1.0, np.nan]), np.array([1.5, np.nan])))
    1.5, expected 1.0 at [0]: 2.2518e+15 ULP, relative 0.33 (float64)
    >>> difference(np.float32(1), np.nextafter(np.float32(1), np.float32(2))).max_ulp
    1.0
    """
    expected, found = map(as_dense, (expected, found))
    shapes = expected.shape, found.shape
    kind = _common(expected.dtype, found.dtype)
    if shapes[0] != shapes[1]:
        n = max(expected.size, found.size, 1)
        return Difference(n, n, *shapes, kind.name, np.inf, np.inf, None, None, None)
    if not expected.size:
        return Difference(0, 0, *shapes, kind.name, 0.0, 0.0, None, None, None)
    with np.errstate(all="ignore"):
        parted, ulp, relative = _distances(expected, found, kind, tolerance)
    # Among equal relative distances, such as two infinite ones, the first.
    worst = np.where(parted, relative, -1.0) if parted.any() else relative
    index = tuple(map(int, np.unravel_index(np.argmax(worst), expected.shape)))
    return Difference(
        int(parted.sum()),
        expected.size,
        *shapes,
        kind.name,
        float(ulp.max()),
        float(relative.max()),
        index,
        expected[index],
        found[index],
    )


def as_dense(value: Any) -> np.ndarray:
    """Return a value as an array that holds all its elements."""
    return np.asarray(dense(value))


def _common(one: np.dtype, other: np.dtype) -> np.dtype:
    """The type in which two are compared: what both can be said to hold exactly."""
    if one.kind == other.kind and one.kind in "fc":
        return min(one, other, key=lambda dtype: dtype.itemsize)
    return np.result_type(one, other)


def _distances(
    a: np.ndarray, b: np.ndarray, kind: np.dtype, tolerance: Tolerance
) -> tuple[np.ndarray, ...]:
    """Return, by element, whether two arrays part, their distance in ULP and the relative one."""
    if kind.kind == "c":
        part = np.empty(0, kind).real.dtype
        found = [_distances(x, y, part, tolerance) for x, y in ((a.real, b.real), (a.imag, b.imag))]
        return tuple(np.maximum(*pair) for pair in zip(*found, strict=True))
    finite = np.isfinite(a), np.isfinite(b)  # (what is finite may not be any more when it is cast)
    number = np.logical_and(*finite)
    a, b = a.astype(kind), b.astype(kind)
    same = ((a == b) | ((a != a) & (b != b))) & (finite[0] == finite[1])
    if kind.kind in "biu":
        # (in Python's integers, which do not overflow, where there is anything to subtract)
        apart = np.zeros(a.shape)
        apart[~same] = np.abs(a[~same].astype(object) - b[~same].astype(object)).astype(float)
        size = np.maximum(np.abs(a.astype(float)), np.abs(b.astype(float)))
        return ~same, apart, np.divide(apart, size, out=np.zeros(a.shape), where=size > 0)
    wide_a: np.ndarray = a.astype(np.longdouble)
    wide_b: np.ndarray = b.astype(np.longdouble)
    apart = np.where(same, 0, np.abs(wide_a - wide_b))
    size = np.maximum(np.abs(wide_a), np.abs(wide_b))
    ulp = np.where(same, 0, np.where(number, _ulps(a, b), np.inf)).astype(float)
    relative = np.where(number, apart / np.where(size > 0, size, 1), np.inf)
    relative = np.where(same, 0, relative).astype(float)
    largest = np.abs(wide_a[np.isfinite(a)]).max(initial=0)
    atol, rtol = tolerance.atol, tolerance.rtol
    if atol is None:
        atol = 16 * np.finfo(a.dtype).eps * largest
    if rtol is None:
        rtol = RTOL.get(a.dtype.name, RTOL["float64"])
    near = number & ((apart <= rtol * size) | (ulp <= tolerance.ulp) | (apart <= atol))
    return ~(same | near), ulp, relative


def _ulps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return how many floating-point numbers lie from one to the other."""
    if a.dtype.itemsize > 8:  # long double: no integer of that size
        return np.abs(a - b) / np.spacing(np.maximum(np.abs(a), np.abs(b)))
    ordered = [_in_order(x) for x in (a, b)]
    high, low = np.maximum(*ordered), np.minimum(*ordered)
    # The distance of two signed integers fits into an unsigned one.
    return (high.view(_UNSIGNED[a.dtype.itemsize]) - low.view(_UNSIGNED[a.dtype.itemsize])).astype(
        float
    )


_UNSIGNED = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_SIGNED = {2: np.int16, 4: np.int32, 8: np.int64}


def _in_order(a: np.ndarray) -> np.ndarray:
    """Return integers in the order of floating-point numbers, neighbours for neighbours."""
    bits = np.ascontiguousarray(a).view(_SIGNED[a.dtype.itemsize])
    return np.where(bits < 0, np.iinfo(bits.dtype).min - bits, bits)
