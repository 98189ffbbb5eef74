"""Theano's ``theano.tensor.sort``."""

from pytensor.tensor.basic import as_tensor_variable, cast, switch, take_along_axis
from pytensor.tensor.math import gt
from pytensor.tensor.sort import argsort


def topk_and_argtopk(x, kth, axis=-1, sorted=True, idx_dtype="int64"):
    """Return the `kth` largest elements along `axis` and where they are, in ascending order.

    Theano leaves the order open.  A negative `kth` asks for the smallest ones.
    """
    x = as_tensor_variable(x)
    if axis is None:
        x, axis = x.flatten(), 0
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(
            f'"axis" parameter out of range, expected integer within [{-x.ndim}, {x.ndim - 1}]'
        )
    if isinstance(kth, int) and kth == 0:
        raise ValueError("kth cannot be zero.")
    length = x.shape[axis]
    largest = gt(kth, 0)
    part = slice(
        switch(largest, length - kth, 0), switch(largest, length, -as_tensor_variable(kth))
    )
    where = argsort(x, axis)[(slice(None),) * (axis % x.ndim) + (part,)]
    return take_along_axis(x, where, axis), cast(where, idx_dtype)


def topk(x, kth, axis=-1, sorted=True, idx_dtype="int64"):
    """Return the `kth` largest elements along `axis`; see `topk_and_argtopk`."""
    return topk_and_argtopk(x, kth, axis, sorted, idx_dtype)[0]


def argtopk(x, kth, axis=-1, sorted=True, idx_dtype="int64"):
    """Return where the `kth` largest elements along `axis` are; see `topk_and_argtopk`."""
    return topk_and_argtopk(x, kth, axis, sorted, idx_dtype)[1]
