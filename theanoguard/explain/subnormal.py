"""Numbers below the smallest normal one, which some compiled code takes for 0."""

import numpy as np


def smallest_normal(dtype):
    """Return the smallest positive number of a floating type that has all its bits."""
    return float(np.finfo(dtype).smallest_normal)


def is_subnormal(array):
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
