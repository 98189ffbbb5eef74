"""Correlation of images with filters, and its two gradients, in NumPy.

These stand in where no compiler is, and for what the C code leaves out.  Throughout,

- `bottom` has the shape (batch, channels, image...),
- `weights` (filters, channels / groups, kernel...), or where each position of the output has
  filters of its own (`unshared`) (filters, out..., channels / groups, kernel...),
- `top` (batch, filters, out...),

and `geometry` holds one `Axis` for each axis of the image.
"""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


@dataclass(frozen=True)
class Axis:
    """How the kernel moves along one axis: zeros put on at both ends, and the steps."""

    left: int
    right: int
    stride: int
    dilation: int

    def dilated(self, kernel):
        """Return the span of `kernel` elements."""
        return (kernel - 1) * self.dilation + 1


def _windows(bottom, kernel, geometry):
    """Return a view of shape (batch, channels, out..., kernel...) of the padded images."""
    n = len(geometry)
    padded = np.pad(bottom, [(0, 0), (0, 0), *((a.left, a.right) for a in geometry)])
    spans = [a.dilated(k) for a, k in zip(geometry, kernel, strict=True)]
    if any(span > size for span, size in zip(spans, padded.shape[2:], strict=True)):
        raise ValueError(
            f"A kernel of {tuple(spans)} does not fit into images of {padded.shape[2:]}, "
            "padding included."
        )
    view = sliding_window_view(padded, spans, axis=tuple(range(2, 2 + n)))
    strides = tuple(slice(None, None, a.stride) for a in geometry)
    dilations = tuple(slice(None, None, a.dilation) for a in geometry)
    return view[(slice(None), slice(None), *strides, *dilations)]


def _check_groups(channels, filters, in_group, groups):
    if channels % groups:
        raise ValueError("number of input channels must be divisible by num_groups")
    if filters % groups:
        raise ValueError("number of filters must be divisible by num_groups")
    if channels // groups != in_group:
        raise ValueError(
            "images and kernel must have the same stack size: the kernel has "
            f"{in_group} input channels, one group of the images {channels // groups}"
        )


def _check_out(expected, given):
    if tuple(expected) != tuple(given):
        raise ValueError(
            f"The output of the convolution would have the shape {tuple(expected)}, "
            f"but an array of the shape {tuple(given)} was given for it."
        )


def _each_group(groups, *arrays):
    """Yield for each group the parts of the arrays, which are split along the given axes."""
    return zip(*(np.split(array, groups, axis) for array, axis in arrays), strict=True)


def forward(bottom, weights, geometry, groups=1, unshared=False):
    """Return `top`."""
    n = len(geometry)
    windows = _windows(bottom, weights.shape[-n:], geometry)
    _check_groups(bottom.shape[1], weights.shape[0], weights.shape[-n - 1], groups)
    if unshared:
        _check_out(windows.shape[2 : 2 + n], weights.shape[1 : 1 + n])
    tops = []
    for x, w in _each_group(groups, (windows, 1), (weights, 0)):
        if unshared:
            tops.append(np.einsum("nchwij,fhwcij->nfhw", x, w))
            continue
        over_x = [1, *range(2 + n, 2 + 2 * n)]
        over_w = [1, *range(2, 2 + n)]
        tops.append(np.moveaxis(np.tensordot(x, w, (over_x, over_w)), -1, 1))
    return np.concatenate(tops, axis=1)


def gradient_of_weights(bottom, top, kernel, geometry, groups=1, unshared=False):
    """Return the gradient of `weights`, of which `kernel` is the spatial shape."""
    n = len(geometry)
    windows = _windows(bottom, kernel, geometry)
    _check_groups(bottom.shape[1], top.shape[1], bottom.shape[1] // groups, groups)
    _check_out((bottom.shape[0], top.shape[1], *windows.shape[2 : 2 + n]), top.shape)
    weights = []
    for x, t in _each_group(groups, (windows, 1), (top, 1)):
        if unshared:
            weights.append(np.einsum("nfhw,nchwij->fhwcij", t, x))
            continue
        over = [0, *range(2, 2 + n)]
        weights.append(np.tensordot(t, x, (over, over)))
    return np.concatenate(weights, axis=0)


def gradient_of_inputs(weights, top, image, geometry, groups=1, unshared=False):
    """Return the gradient of `bottom`, of which `image` is the spatial shape."""
    n = len(geometry)
    kernel = weights.shape[-n:]
    _check_groups(weights.shape[-n - 1] * groups, weights.shape[0], weights.shape[-n - 1], groups)
    expected = [
        (size + a.left + a.right - a.dilated(k)) // a.stride + 1
        for size, k, a in zip(image, kernel, geometry, strict=True)
    ]
    _check_out((top.shape[0], weights.shape[0], *expected), top.shape)
    padded = [size + a.left + a.right for size, a in zip(image, geometry, strict=True)]
    bottoms = []
    for w, t in _each_group(groups, (weights, 0), (top, 1)):
        bottom = np.zeros((top.shape[0], w.shape[-n - 1], *padded), np.result_type(w, t))
        for offset in np.ndindex(*kernel):
            reached = tuple(
                slice(o * a.dilation, o * a.dilation + (size - 1) * a.stride + 1, a.stride)
                for o, a, size in zip(offset, geometry, top.shape[2:], strict=True)
            )
            at_offset = w[(..., *offset)]
            if unshared:
                bottom[(..., *reached)] += np.einsum("nfhw,fhwc->nchw", t, at_offset)
            else:
                bottom[(..., *reached)] += np.moveaxis(np.tensordot(t, at_offset, (1, 0)), -1, 1)
        bottoms.append(bottom)
    inner = tuple(slice(a.left, a.left + size) for a, size in zip(geometry, image, strict=True))
    return np.concatenate(bottoms, axis=1)[(..., *inner)]
