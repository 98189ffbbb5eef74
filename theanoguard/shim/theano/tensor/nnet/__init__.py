"""Neural networks: activations, losses, convolutions, batch normalization."""

import warnings

from .abstract_conv import conv2d as abstract_conv2d
from .abstract_conv import conv2d_grad_wrt_inputs


def conv2d(
    input,
    filters,
    input_shape=None,
    filter_shape=None,
    border_mode="valid",
    subsample=(1, 1),
    filter_flip=True,
    image_shape=None,
    filter_dilation=(1, 1),
    num_groups=1,
    unshared=False,
    **kwargs,
):
    """Convolve a batch of 2-d images with 2-d filters.

    Parameters
    ----------
    input : TensorVariable
        (batch, input channels, rows, columns).
    filters : TensorVariable
        (output channels, input channels / groups, rows, columns); if `unshared`
        (output channels, output rows, output columns, input channels / groups, rows, columns).
    input_shape, filter_shape : sequence of (int or None), optional
        What is known of these shapes.
    border_mode : {"valid", "full", "half"}, int, or tuple of 2 (int or pair of int)
        Only where the filters fit; wherever they touch; with zeros of half their size around; or
        with so many zeros on both sides, or on each side.
    subsample : tuple of 2 int
        The steps of the filters.
    filter_flip : bool
        Whether the filters are flipped, as in a convolution, or not, as in a correlation.
    image_shape : sequence, optional
        The old name of `input_shape`.
    filter_dilation : tuple of 2 int
        The distance between the elements of a filter on the image.
    num_groups : int
        Groups of channels that do not see each other.
    unshared : bool
        Whether each position of the output has filters of its own.
    **kwargs
        Ignored with a warning, but for two that raise.

    Returns
    -------
    TensorVariable
        (batch, output channels, rows, columns).

    Raises
    ------
    ValueError
        When `input_shape` and `image_shape` are both given, or an argument that is no more.
    """
    if "imshp_logical" in kwargs or "kshp_logical" in kwargs:
        raise ValueError(
            "Keyword arguments 'imshp_logical' and 'kshp_logical' for conv2d are not supported "
            "anymore. theano.tensor.nnet.conv.conv2d() still has them."
        )
    if kwargs:
        warnings.warn(
            f"{list(kwargs)} are now deprecated in `tensor.nnet.abstract_conv.conv2d` interface "
            "and will be ignored.",
            stacklevel=2,
        )
    if image_shape is not None:
        warnings.warn(
            "The `image_shape` keyword argument to `tensor.nnet.conv2d` is deprecated, "
            "it has been renamed to `input_shape`.",
            stacklevel=2,
        )
        if input_shape is not None:
            raise ValueError("input_shape and image_shape should not be provided at the same time.")
        input_shape = image_shape
    return abstract_conv2d(
        input,
        filters,
        input_shape,
        filter_shape,
        border_mode,
        subsample,
        filter_flip,
        filter_dilation,
        num_groups,
        unshared,
    )


def conv2d_transpose(
    input,
    filters,
    output_shape,
    filter_shape=None,
    border_mode="valid",
    input_dilation=(1, 1),
    filter_flip=True,
    filter_dilation=(1, 1),
    num_groups=1,
    unshared=False,
):
    """Apply the transpose of the convolution that `conv2d` makes of the other arguments.

    Parameters
    ----------
    input : TensorVariable
        (batch, input channels, rows, columns).
    filters : TensorVariable
        (input channels, output channels, rows, columns): the other way round than in `conv2d`.
    output_shape : sequence of 4
        The shape of the result; the last two may be symbolic.
    input_dilation : tuple of 2 int
        What `subsample` is in `conv2d`.

    The other parameters are those of `conv2d`.
    """
    return conv2d_grad_wrt_inputs(
        output_grad=input,
        filters=filters,
        input_shape=output_shape,
        filter_shape=filter_shape,
        border_mode=border_mode,
        subsample=input_dilation,
        filter_flip=filter_flip,
        filter_dilation=filter_dilation,
        num_groups=num_groups,
        unshared=unshared,
    )
