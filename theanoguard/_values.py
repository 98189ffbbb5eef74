"""The kind of a value, without importing the library that it comes from."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

BadKind: TypeAlias = Literal["nan", "inf", "big"]
KINDS: tuple[BadKind, ...] = get_args(BadKind)

Mask: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""A function from an array to the mask of its bad elements."""


def is_sparse(value: object) -> bool:
    """Return whether a value is a SciPy sparse matrix or array.

    Importing ``scipy.sparse`` takes longer than all of this package, and a program without such
    values does not need it.

    Examples
    --------
    >>> import scipy.sparse
    >>> is_sparse(scipy.sparse.eye_array(2)), is_sparse([[1.0]])
    (True, False)
    """
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and sparse.issparse(value)


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    """Yield the numeric arrays of a value; nothing for generators, slices, None and such.

    `value`: an array, a sparse matrix, a number, or a list of such.

    Yields
    ------
    numpy.ndarray
        Of a sparse matrix, the elements that it stores.

    Examples
    --------
    >>> import scipy.sparse
    >>> [array.tolist() for array in arrays_in([scipy.sparse.eye_array(2), 3.0])]
    [[[1.0, 1.0]], 3.0]
    """
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "fciu":
            yield value
    elif is_sparse(value):
        yield value.data
    elif isinstance(value, np.generic | float | complex | int):
        yield np.asarray(value)
    elif isinstance(value, list):
        for item in value:
            yield from arrays_in(item)
    elif hasattr(value, "__array__"):  # JAX's
        yield from arrays_in(np.asarray(value))


def kind_of(value: object) -> BadKind:
    """Return what is wrong with a number: "nan", "inf", or "big".

    Examples
    --------
    >>> kind_of(float("-inf"))
    'inf'
    """
    if np.isnan(value):
        return "nan"
    return "inf" if np.isinf(value) else "big"


def listed(result: Any) -> Sequence[Any]:
    """Return what a compiled function has returned as a list, whatever form it was asked for.

    Examples
    --------
    >>> listed(1.0), listed([1.0, 2.0]), listed({"a": 1.0})
    ([1.0], [1.0, 2.0], [1.0])
    """
    if isinstance(result, dict):
        return list(result.values())
    return result if isinstance(result, list | tuple) else [result]
