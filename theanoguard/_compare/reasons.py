"""Why a device may give another number than NumPy, where that is known."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.math import Dot

from theanoguard._backends import backends
from theanoguard._pytensor import advanced_increment_ops

# A float32 product of which the factors were rounded to tf32 has an error of this size at most.
TF32 = 1e-2


@dataclass(frozen=True)
class Case:
    """A variable that differs, with what it was computed from."""

    op: Any
    names: tuple[str, ...]  # of the variable, and of its operands
    expected: tuple[Any, ...]  # `expected`, `found`: their values; None for one that is not known
    found: tuple[Any, ...]
    device: str | None

    @property
    def relative(self) -> float:
        """The largest difference of the variable, relative to its largest element."""
        expected, found = (np.asarray(v[0]) for v in (self.expected, self.found))
        return float(np.abs(found - expected).max() / np.abs(expected).max())

    @property
    def on_gpu(self) -> bool:
        """Whether the mode computed on a device of its own."""
        return self.device not in (None, "cpu")


def smallest_normal(dtype: Any) -> float:
    """Return the smallest positive number of a floating type that has all its bits."""
    return float(np.finfo(dtype).smallest_normal)


def is_subnormal(array: Any) -> Any:
    """Return which elements of an array are subnormal.

    Examples
    --------
    >>> is_subnormal(np.array([1e-42, 0.0, 1.0], "float32"))
    array([ True, False, False])
    """
    array = np.asarray(array)
    if array.dtype.kind != "f":
        return np.zeros(array.shape, bool)
    return (array != 0) & (np.abs(array) < smallest_normal(array.dtype))


def flushed(case: Case) -> str | None:
    """Name a number that is too small for the device."""
    for name, expected, found in zip(case.names, case.expected, case.found, strict=True):
        if expected is None or found is None:
            continue
        expected, found = np.asarray(expected), np.asarray(found)
        lost = is_subnormal(expected) & (found == 0)
        if lost.any():
            value = expected[lost].flat[0]
            return (
                f"{name} is {value:.3g} in NumPy, a subnormal number of {expected.dtype} (below "
                f"{smallest_normal(expected.dtype):.2g}). The mode takes such numbers for 0, as "
                "XLA does on a CPU."
            )
    return None


def rounded_factors(case: Case) -> str | None:
    """Say that a GPU may round the factors of a product."""
    op = getattr(case.op, "core_op", case.op)
    single = np.asarray(case.expected[0]).dtype == np.float32
    if not (case.on_gpu and single and isinstance(op, Dot | BatchedDot) and case.relative < TF32):
        return None
    return (
        "GPUs may round the factors of float32 products to tf32 (10 bits). To keep all bits, set "
        f"{', or '.join(b.full_precision for b in backends().values() if b.full_precision)}."
    )


def order_of_sums(case: Case) -> str | None:
    """Say that a GPU adds in another order."""
    if not (case.on_gpu and isinstance(case.op, (CAReduce, *advanced_increment_ops))):
        return None
    return (
        "A GPU adds in another order than NumPy; with atomic operations the order changes from "
        "run to run."
    )


REASONS: tuple[Callable[[Case], str | None], ...] = (flushed, rounded_factors, order_of_sums)


def reason_of(case: Case) -> str:
    """Return why a variable differs, as text; empty if that is not known."""
    return next((text for reason in REASONS if (text := reason(case))), "")
