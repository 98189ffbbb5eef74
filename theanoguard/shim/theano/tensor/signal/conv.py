"""The convolution of single images, or of stacks of them with stacks of filters."""

import warnings

from pytensor.tensor.basic import join, stack
from pytensor.tensor.shape import reshape

from ...configdefaults import config
from ..basic import flatten
from ..nnet.conv import ConvOp


def conv2d(
    input,
    filters,
    image_shape=None,
    filter_shape=None,
    border_mode="valid",
    subsample=(1, 1),
    **kargs,
):
    """Convolve one image or each of a stack with one filter or each of a stack.

    Parameters
    ----------
    input : TensorVariable
        (rows, columns) or (images, rows, columns).
    filters : TensorVariable
        (rows, columns) or (filters, rows, columns); they are flipped.
    image_shape, filter_shape : tuple of int, optional
        The shapes, which are checked when the function runs.
    border_mode : {"valid", "full"}
    subsample : tuple of 2 int
        The steps of the filters.
    **kargs
        Passed to `ConvOp`.

    Returns
    -------
    TensorVariable
        (rows, columns), with the axes of images and filters, where there are any, before them.
    """
    assert input.ndim in (2, 3)
    assert filters.ndim in (2, 3)
    bsize = imshp = nkern = kshp = None
    if filter_shape and image_shape:
        bsize = image_shape[0] if input.ndim == 3 else 1
        imshp = (1, *image_shape[-2:])
        nkern = filter_shape[0] if filters.ndim == 3 else 1
        kshp = tuple(filter_shape[-2:])

    def as_4d(x):
        size = x.shape[0] if x.ndim == 3 else 1
        return reshape(x, join(0, stack([size, 1]), x.shape[-2:]), ndim=4)

    op = ConvOp(
        imshp,
        kshp,
        nkern,
        bsize,
        dx=subsample[0],
        dy=subsample[1],
        output_mode=border_mode,
        **kargs,
    )
    output = op(as_4d(input), as_4d(filters))
    if input.ndim == 2 and filters.ndim == 2:
        if config.warn.signal_conv2d_interface:
            warnings.warn(
                "theano.tensor.signal.conv2d() now outputs a 2d tensor when both inputs are 2d. "
                "To disable this warning, set the Theano flag warn.signal_conv2d_interface to "
                "False",
                stacklevel=2,
            )
        return flatten(output.T, ndim=2).T
    if input.ndim == 2 or filters.ndim == 2:
        return flatten(output.T, ndim=3).T
    return output
