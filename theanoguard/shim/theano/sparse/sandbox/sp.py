"""Convolution and pooling of images that are the rows of a matrix."""

import numpy as np

from ...tensor.nnet import conv2d
from ...tensor.signal.pool import pool_2d


def _as_images(images, imgshp):
    """Return the rows of a matrix as images with channels, and the shape of one of them."""
    shape = (1, *imgshp) if len(imgshp) == 2 else tuple(imgshp)
    return images.reshape((images.shape[0], *map(int, shape))), shape


def convolve(
    kerns, kshp, nkern, images, imgshp, step=(1, 1), bias=None, mode="valid", flatten=True
):
    """Return the correlation of images with kernels, and the shape of one result.

    Parameters
    ----------
    kerns : matrix
        A row for each kernel: its pixels for each channel.
    kshp : tuple of int
    nkern : int
    images : matrix
        A row for each image.
    imgshp : tuple of int
        ``(height, width)`` or ``(channels, height, width)``.
    step : tuple of int
        Of the columns, and of the rows.
    bias : vector, optional
        A number for each kernel.
    mode : {"valid", "full"}
    flatten : bool
        Whether to return a row for each image, or a matrix with a row for each kernel.
    """
    stack, (channels, *sizes) = _as_images(images, imgshp)
    filters = kerns.reshape((nkern, int(channels), *kshp))
    steps = tuple(step)[::-1]
    found = conv2d(stack, filters, border_mode=mode, subsample=steps, filter_flip=False)
    if bias is not None:
        found = found + bias.dimshuffle("x", 0, "x", "x")
    more = 1 if mode == "full" else -1
    sizes = [
        -(-(size + more * (k - 1)) // by) for size, k, by in zip(sizes, kshp, steps, strict=True)
    ]
    return found.flatten(2 if flatten else 3), np.array([nkern, *sizes])


def max_pool(images, imgshp, maxpoolshp):
    """Return the maxima of the parts of images as a matrix, and the shape of one result.

    The steps are those of `convolve`, so that parts which are not square overlap as in Theano.
    """
    stack, (_, *sizes) = _as_images(images, imgshp)
    steps = tuple(maxpoolshp)[::-1]
    found = pool_2d(stack, tuple(maxpoolshp), ignore_border=True, stride=steps)
    return found.flatten(2), (np.array(sizes) - maxpoolshp) // steps + 1
