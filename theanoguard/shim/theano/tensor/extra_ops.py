"""Theano's ``theano.tensor.extra_ops``."""

from functools import partial

from pytensor.tensor.extra_ops import CumOp as PyTensorCumOp
from pytensor.tensor.extra_ops import Unique as PyTensorUnique
from pytensor.tensor.extra_ops import diff
from pytensor.tensor.extra_ops import repeat as pt_repeat
from pytensor.tensor.extra_ops import squeeze as pt_squeeze
from pytensor.tensor.extra_ops import unravel_index as pt_unravel_index

from .._standin import StandIn
from ._one_node import Cumulative
from .basic import as_tensor_variable, get_vector_length, stack
from .elemwise import DimShuffle


def squeeze(x, axis=None):
    """Drop the broadcastable dimensions, or those in `axis`."""
    if axis is not None:
        return pt_squeeze(x, axis)
    x = as_tensor_variable(x)
    return DimShuffle(x.broadcastable, [i for i, b in enumerate(x.broadcastable) if not b])(x)


def repeat(x, repeats, axis=None):
    """Repeat the elements of a tensor along an axis, or those of the flat tensor."""
    return pt_repeat(x, repeats, axis)


def unravel_index(indices, dims, order="C", ndim=None):
    """Return the coordinates of flat indices; `ndim` is the length of `dims` if it is unknown.

    As in Theano 1.0.5, the order is that of C, whatever `order` says.
    """
    assert order in ("C", "F")
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
    if not isinstance(ndim, int):
        raise ValueError("ndim must be an integer greater than 0")
    dims = as_tensor_variable(dims)
    found = pt_unravel_index(indices, stack([dims[i] for i in range(ndim)]))
    return tuple(found) if isinstance(found, list | tuple) else (found,)


class CumOp(metaclass=StandIn):
    """``CumOp(axis, mode)(x)`` is a cumulative sum or product; the mode is "add" or "mul"."""

    stands_for = (PyTensorCumOp, Cumulative)

    def __init__(self, axis=None, mode="add"):
        if mode not in ("add", "mul"):
            raise ValueError(f'{type(self).__name__}: Unknown mode "{mode}"')
        self.axis, self.mode = axis, mode

    def __call__(self, x):
        """Return the sum or the product."""
        x = as_tensor_variable(x)
        if not (self.axis is None or -x.ndim <= self.axis < x.ndim):
            raise ValueError(f"axis(={self.axis}) out of bounds")
        return Cumulative(self.axis, self.mode)(x)


def cumsum(x, axis=None):
    """Return the cumulative sum of the elements along `axis`, or of the flattened tensor."""
    return CumOp(axis, "add")(x)


def cumprod(x, axis=None):
    """Return the cumulative product of the elements along `axis`, or of the flattened tensor."""
    return CumOp(axis, "mul")(x)


class CumsumOp:
    """``CumsumOp(axis)(x)`` is a cumulative sum."""

    def __new__(cls, axis=None):
        return CumOp(axis, "add")


class CumprodOp:
    """``CumprodOp(axis)(x)`` is a cumulative product."""

    def __new__(cls, axis=None):
        return CumOp(axis, "mul")


class Unique(metaclass=StandIn):
    """``Unique(...)(x)`` are the different elements of `x`, and where they are and how many."""

    stands_for = PyTensorUnique

    def __init__(self, return_index=False, return_inverse=False, return_counts=False, axis=None):
        self.return_index = return_index
        self.return_inverse = return_inverse
        self.return_counts = return_counts
        self.axis = axis

    def __call__(self, x, return_list=False):
        """Return the elements, and a list if there is more than one result."""
        x = as_tensor_variable(x)
        axis = self.axis
        if axis is not None:
            if not -x.ndim <= axis < x.ndim:
                raise RuntimeError(f"Unique axis `{axis}` is outside of input ndim = {x.ndim}.")
            axis %= x.ndim
        op = PyTensorUnique(self.return_index, self.return_inverse, self.return_counts, axis)
        return op(x, return_list=return_list)


class DiffOp:
    """``DiffOp(n, axis)(x)`` is a difference of order `n`."""

    def __new__(cls, n=1, axis=-1):
        return partial(diff, n=n, axis=axis)


class RepeatOp:
    """``RepeatOp(axis)(x, repeats)`` repeats elements."""

    def __new__(cls, axis=None):
        return partial(repeat, axis=axis)
