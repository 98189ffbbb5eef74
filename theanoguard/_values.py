"""What a value is, without importing the library that it would come from."""

import sys
from typing import Any

import numpy as np


def is_sparse(value: Any) -> bool:
    """Return whether a value is a SciPy sparse matrix or array.

    Importing ``scipy.sparse`` takes longer than all of this package, and a program without such
    values does not need it.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool

    Examples
    --------
    >>> import scipy.sparse
    >>> is_sparse(scipy.sparse.eye_array(2)), is_sparse([[1.0]])
    (True, False)
    """
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and sparse.issparse(value)


def kind_of(value: Any) -> str:
    """Return what is wrong with a number: "nan", "inf", or "big".

    Examples
    --------
    >>> kind_of(float("-inf"))
    'inf'
    """
    if np.isnan(value):
        return "nan"
    return "inf" if np.isinf(value) else "big"
