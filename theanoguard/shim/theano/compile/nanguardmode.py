"""The mode that stops at NaN, Inf and big values."""

import numpy as np

from theanoguard.guard import NanGuardMode as GuardNanGuardMode


class NanGuardMode(GuardNanGuardMode):
    """Theano's ``NanGuardMode``: theanoguard's guard with its arguments.

    A variable whose ``tag.nan_guard_mode_check`` is False is not looked at.
    """

    def __init__(
        self,
        nan_is_error=None,
        inf_is_error=None,
        big_is_error=None,
        optimizer="default",
        linker=None,
    ):
        super().__init__(nan_is_error, inf_is_error, big_is_error, optimizer, linker)


def _as_numbers(value):
    """Return the numbers of a value as an array, or None where it has none."""
    if not isinstance(value, np.ndarray | np.number | float | int):
        return None
    array = np.asarray(value)
    return array if array.size and array.dtype.kind in "fc" else None


def contains_nan(arr, node=None, var=None):
    """Whether a value has a NaN in it; other things than arrays have none."""
    numbers = _as_numbers(arr)
    return numbers is not None and bool(np.isnan(numbers).any())


def contains_inf(arr, node=None, var=None):
    """Whether a value has an infinity in it; other things than arrays have none."""
    numbers = _as_numbers(arr)
    return numbers is not None and bool(np.isinf(numbers).any())
