"""Theano's ``theano.tensor.extra_ops``."""

from functools import partial

from pytensor.tensor.extra_ops import cumprod, cumsum, diff, repeat
from pytensor.tensor.extra_ops import squeeze as pt_squeeze
from pytensor.tensor.extra_ops import unravel_index as pt_unravel_index

from .basic import as_tensor_variable, get_vector_length, stack
from .elemwise import DimShuffle


def squeeze(x, axis=None):
    """Drop the broadcastable dimensions, or those in `axis`."""
    if axis is not None:
        return pt_squeeze(x, axis)
    x = as_tensor_variable(x)
    return DimShuffle(x.broadcastable, [i for i, b in enumerate(x.broadcastable) if not b])(x)


def unravel_index(indices, dims, order="C", ndim=None):
    """Return the coordinates of flat indices; `ndim` is the length of `dims` if it is unknown."""
    if ndim is None:
        try:
            ndim = get_vector_length(dims)
        except ValueError as error:
            raise ValueError(
                f"The length of the provided dimension list ({dims}) cannot be automatically "
                "determined, so Theano is not able to know what the number of dimensions of the "
                "unraveled index will be. You can provide the 'ndim' keyword argument to "
                "'unravel_index' to avoid this problem."
            ) from error
    dims = as_tensor_variable(dims)
    found = pt_unravel_index(indices, stack([dims[i] for i in range(ndim)]), order)
    return tuple(found) if isinstance(found, list | tuple) else (found,)


class CumsumOp:
    """``CumsumOp(axis)(x)`` is a cumulative sum."""

    def __new__(cls, axis=None):
        return partial(cumsum, axis=axis)


class CumprodOp:
    """``CumprodOp(axis)(x)`` is a cumulative product."""

    def __new__(cls, axis=None):
        return partial(cumprod, axis=axis)


class DiffOp:
    """``DiffOp(n, axis)(x)`` is a difference of order `n`."""

    def __new__(cls, n=1, axis=-1):
        return partial(diff, n=n, axis=axis)


class RepeatOp:
    """``RepeatOp(axis)(x, repeats)`` repeats elements."""

    def __new__(cls, axis=None):
        return partial(repeat, axis=axis)
