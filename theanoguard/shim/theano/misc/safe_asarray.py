"""Conversion to arrays of a dtype."""

import numpy as np

from ..configdefaults import config


def _asarray(a, dtype, order=None):
    """Return an array of exactly the dtype given, which may be ``"floatX"``."""
    dtype = np.dtype(config.floatX if str(dtype) == "floatX" else dtype)
    array = np.asarray(a, dtype=dtype, order=order)
    # Of two dtypes that look alike, such as those of C's int and long, NumPy may give the other.
    return array if array.dtype.num == dtype.num else array.view(dtype=dtype)
