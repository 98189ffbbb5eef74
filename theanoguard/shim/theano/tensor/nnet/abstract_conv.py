"""Convolutions as they are asked for, before a rewrite chooses how they are computed."""

from math import gcd

import numpy as np
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import (
    arange,
    as_tensor,
    as_tensor_variable,
    cast,
    concatenate,
    get_scalar_constant_value,
    zeros,
)
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.math import eq, ge, gt
from pytensor.tensor.type import TensorType

from ...configdefaults import config
from ...gof.op import Op
from ..basic import patternbroadcast
from ..opt import Assert
from . import _correlate
from ._correlate import Axis

imported_scipy_signal = True


def get_conv_output_shape(image_shape, kernel_shape, border_mode, subsample, filter_dilation=None):
    """Return the shape of the output of a convolution.

    Parameters
    ----------
    image_shape : tuple of (int or symbolic or None)
        (batch, channels, image...).
    kernel_shape : tuple of (int or symbolic or None)
        (filters, channels, kernel...), or for an unshared convolution
        (filters, output..., channels, kernel...).
    border_mode : {"valid", "half", "full"}, int, or tuple of (int or pair of int)
        Zeros put around the images.
    subsample : tuple of int
        The steps of the filters.
    filter_dilation : tuple of int, optional
        The distance between the elements of a filter on the image.

    Returns
    -------
    tuple
        (batch, filters, output...), None where something is unknown.
    """
    sizes = _by_axis(
        get_conv_shape_1axis, image_shape, kernel_shape, border_mode, subsample, filter_dilation
    )
    return (image_shape[0], kernel_shape[0], *sizes)


def _by_axis(function, first, second, border_mode, subsample, filter_dilation):
    """Apply `function` to the last entries of two shapes and to the settings of each axis."""
    n = len(subsample)
    modes = border_mode if isinstance(border_mode, tuple) else (border_mode,) * n
    dilations = filter_dilation if filter_dilation is not None else (1,) * n
    return tuple(
        function(*of_axis)
        for of_axis in zip(first[-n:], second[-n:], modes, subsample, dilations, strict=True)
    )


def _is_unknown(*values):
    return any(v is None for v in values)


def _padding(border_mode, dilated_kernel):
    """Return the zeros put at both ends of one axis."""
    if isinstance(border_mode, str):
        pads = {"half": dilated_kernel // 2, "full": dilated_kernel - 1, "valid": 0}
        return (pads[border_mode],) * 2
    pair = border_mode if isinstance(border_mode, tuple) else (border_mode,) * 2
    if any(p < 0 for p in pair):
        raise ValueError("border_mode must be >= 0")
    return pair


def get_conv_shape_1axis(image_shape, kernel_shape, border_mode, subsample, dilation=1):
    """Return the size of the output along one axis, None where something is unknown."""
    if _is_unknown(image_shape, kernel_shape, border_mode, subsample, dilation):
        return None
    dilated = (kernel_shape - 1) * dilation + 1
    left, right = _padding(border_mode, dilated)
    size = image_shape - dilated
    if border_mode != "valid":
        size = size + left + right
    return (size // subsample if subsample != 1 else size) + 1


def get_conv_gradweights_shape(
    image_shape,
    top_shape,
    border_mode,
    subsample,
    filter_dilation=None,
    num_groups=1,
    unshared=False,
):
    """Return the shape of the filters, None where the other shapes do not settle it."""
    sizes = _by_axis(
        get_conv_gradweights_shape_1axis,
        image_shape,
        top_shape,
        border_mode,
        subsample,
        filter_dilation,
    )
    channels = top_shape[1] // num_groups if num_groups > 1 else top_shape[1]
    between = tuple(top_shape[2:]) if unshared else ()
    return (channels, *between, image_shape[1], *sizes)


def get_conv_gradweights_shape_1axis(image_shape, top_shape, border_mode, subsample, dilation):
    """Return the size of a filter along one axis, None where it cannot be known."""
    if _is_unknown(image_shape, top_shape, border_mode, subsample, dilation):
        return None
    if subsample != 1 or border_mode == "half":
        return None
    if border_mode == "full":
        span = top_shape - image_shape
    else:
        span = image_shape + sum(_padding(border_mode, 1)) - top_shape
    return (span / dilation if dilation > 1 else span) + 1


def get_conv_gradinputs_shape(
    kernel_shape, top_shape, border_mode, subsample, filter_dilation=None, num_groups=1
):
    """Return the shape of the images, None where the other shapes do not settle it."""
    sizes = _by_axis(
        get_conv_gradinputs_shape_1axis,
        kernel_shape,
        top_shape,
        border_mode,
        subsample,
        filter_dilation,
    )
    channels = kernel_shape[1] * num_groups if num_groups > 1 else kernel_shape[1]
    return (top_shape[0], channels, *sizes)


def get_conv_gradinputs_shape_1axis(kernel_shape, top_shape, border_mode, subsample, dilation):
    """Return the size of the images along one axis, None where it cannot be known."""
    if _is_unknown(kernel_shape, top_shape, border_mode, subsample, dilation):
        return None
    if subsample != 1:
        return None
    dilated = (kernel_shape - 1) * dilation + 1
    left, right = _padding(border_mode, dilated)
    return top_shape + dilated - 1 - left - right


def check_conv_gradinputs_shape(
    image_shape, kernel_shape, output_shape, border_mode, subsample, filter_dilation=None
):
    """Return False where images of this shape cannot give an output of that shape."""
    shapes = [tuple(s) for s in (image_shape, kernel_shape, output_shape)]
    n = len(subsample)
    if any(len(s) != n + 2 for s in shapes):
        return False
    if filter_dilation is not None and len(filter_dilation) != n:
        return False
    computed = get_conv_output_shape(shapes[0], shapes[1], border_mode, subsample, filter_dilation)

    def fits(given, expected):
        if given is None or expected is None:
            return True
        try:
            return int(get_scalar_constant_value(given)) == int(get_scalar_constant_value(expected))
        except NotScalarConstantError:
            return True

    return all(fits(g, c) for g, c in zip(shapes[2], computed, strict=True))


def assert_conv_shape(shape):
    """Raise, or make the function raise, where a convolution would give an empty output.

    Parameters
    ----------
    shape : sequence of (int or symbolic)
        (batch, filters, output...).

    Returns
    -------
    tuple
        The shape, with an Assert around what is not known yet.
    """
    checked = []
    for i, size in enumerate(shape):
        is_enough, wrong = (ge, "<") if i < 2 else (gt, "<=")
        message = "The convolution would produce an invalid shape (dim[{}]{} {} 0)."
        try:
            constant = get_scalar_constant_value(size)
        except NotScalarConstantError:
            size = Assert(message.format(i, "", wrong))(size, is_enough(size, 0))
        else:
            if constant < 0 or (i >= 2 and constant == 0):
                raise ValueError(message.format(i, f": {int(constant)}", wrong))
        checked.append(size)
    return tuple(checked)


def assert_shape(x, expected_shape, msg="Unexpected shape."):
    """Return `x`, checked where ``config.conv.assert_shape`` asks for it."""
    if expected_shape is None or not config.conv.assert_shape:
        return x
    tests = [eq(x.shape[i], s) for i, s in enumerate(expected_shape) if s is not None]
    return Assert(msg)(x, *tests) if tests else x


def border_mode_to_pad(mode, convdim, kshp):
    """Return a pair of paddings for each axis, for a kernel of the (dilated) shape `kshp`."""
    if isinstance(mode, tuple):
        if len(mode) != convdim:
            raise ValueError(
                f"invalid border_mode {mode} which must be a tuple of length {convdim}"
            )
        pads = []
        for m in mode:
            pair = m if isinstance(m, tuple) else (m, m)
            if not all(isinstance(p, int | np.integer) for p in pair) or min(pair) < 0:
                raise ValueError(
                    f"invalid border mode {mode}. The tuple can only contain integers "
                    "or tuples of length 2"
                )
            if len(pair) != 2:
                raise NotImplementedError(f"Asymmetric padding not implemented for {len(pair)}d")
            pads.append(tuple(pair))
        return tuple(pads)
    if mode not in ("valid", "full", "half"):
        raise ValueError(
            f'invalid border_mode {mode}, which must be either "valid", "full", "half", '
            f"an integer or a tuple of length {convdim}"
        )
    return tuple(_padding(mode, k) for k in kshp)


def _is_constant_size(size):
    return size is None or isinstance(size, int | np.integer | Constant)


def _check_sizes(name, shape, symbolic_from):
    """Raise where sizes that must be known are not; the last ones may be symbolic."""
    for i, size in enumerate(shape):
        if i >= symbolic_from:
            if size is None or not isinstance(size, int | np.integer | Variable):
                raise ValueError(f"{name}[{i}] must be a symbolic variable or a constant.")
        elif not _is_constant_size(size):
            raise ValueError(f"{name}[{i}] must be a constant or None.")


def _known(shape):
    return [size if _is_constant_size(size) else None for size in shape]


def conv2d(
    input,
    filters,
    input_shape=None,
    filter_shape=None,
    border_mode="valid",
    subsample=(1, 1),
    filter_flip=True,
    filter_dilation=(1, 1),
    num_groups=1,
    unshared=False,
):
    """Convolve a batch of 2-d images with 2-d filters; see `theano.tensor.nnet.conv2d`."""
    op = AbstractConv2d(
        input_shape,
        filter_shape,
        border_mode,
        subsample,
        filter_flip,
        filter_dilation,
        num_groups,
        unshared,
    )
    return op(as_tensor_variable(input), as_tensor_variable(filters))


def conv3d(
    input,
    filters,
    input_shape=None,
    filter_shape=None,
    border_mode="valid",
    subsample=(1, 1, 1),
    filter_flip=True,
    filter_dilation=(1, 1, 1),
    num_groups=1,
):
    """Convolve a batch of 3-d images with 3-d filters.

    Parameters
    ----------
    input : TensorVariable
        (batch, channels, depth, rows, columns).
    filters : TensorVariable
        (filters, channels, depth, rows, columns).

    The other parameters are those of `theano.tensor.nnet.conv2d`, with three axes.
    """
    op = AbstractConv3d(
        input_shape,
        filter_shape,
        border_mode,
        subsample,
        filter_flip,
        filter_dilation,
        num_groups,
    )
    return op(as_tensor_variable(input), as_tensor_variable(filters))


def _separable(
    op_class,
    input,
    depthwise_filters,
    pointwise_filters,
    num_channels,
    input_shape,
    depthwise_filter_shape,
    pointwise_filter_shape,
    border_mode,
    subsample,
    filter_flip,
    filter_dilation,
):
    depthwise = op_class(
        imshp=input_shape,
        kshp=depthwise_filter_shape,
        border_mode=border_mode,
        subsample=subsample,
        filter_flip=filter_flip,
        filter_dilation=filter_dilation,
        num_groups=num_channels,
    )
    between = None
    if input_shape is not None and depthwise_filter_shape is not None:
        between = depthwise.infer_shape(None, [input_shape, depthwise_filter_shape])[0]
    pointwise = op_class(imshp=between, kshp=pointwise_filter_shape, filter_flip=filter_flip)
    spread = depthwise(as_tensor_variable(input), as_tensor_variable(depthwise_filters))
    return pointwise(spread, as_tensor_variable(pointwise_filters))


def separable_conv2d(
    input,
    depthwise_filters,
    pointwise_filters,
    num_channels,
    input_shape=None,
    depthwise_filter_shape=None,
    pointwise_filter_shape=None,
    border_mode="valid",
    subsample=(1, 1),
    filter_flip=True,
    filter_dilation=(1, 1),
):
    """Convolve each channel with filters of its own, then mix the channels at each point.

    Parameters
    ----------
    depthwise_filters : TensorVariable
        (channels * multiplier, 1, rows, columns).
    pointwise_filters : TensorVariable
        (filters, channels * multiplier, 1, 1).
    num_channels : int
        The channels of `input`.
    """
    return _separable(
        AbstractConv2d,
        input,
        depthwise_filters,
        pointwise_filters,
        num_channels,
        input_shape,
        depthwise_filter_shape,
        pointwise_filter_shape,
        border_mode,
        subsample,
        filter_flip,
        filter_dilation,
    )


def separable_conv3d(
    input,
    depthwise_filters,
    pointwise_filters,
    num_channels,
    input_shape=None,
    depthwise_filter_shape=None,
    pointwise_filter_shape=None,
    border_mode="valid",
    subsample=(1, 1, 1),
    filter_flip=True,
    filter_dilation=(1, 1, 1),
):
    """Do in three dimensions what `separable_conv2d` does in two."""
    return _separable(
        AbstractConv3d,
        input,
        depthwise_filters,
        pointwise_filters,
        num_channels,
        input_shape,
        depthwise_filter_shape,
        pointwise_filter_shape,
        border_mode,
        subsample,
        filter_flip,
        filter_dilation,
    )


def conv2d_grad_wrt_inputs(
    output_grad,
    filters,
    input_shape,
    filter_shape=None,
    border_mode="valid",
    subsample=(1, 1),
    filter_flip=True,
    filter_dilation=(1, 1),
    num_groups=1,
    unshared=False,
):
    """Return the gradient of `conv2d` with respect to its images.

    Parameters
    ----------
    output_grad : TensorVariable
        The gradient of the output, (batch, filters, rows, columns).
    filters : TensorVariable
        As for `conv2d`.
    input_shape : sequence of 4
        The shape of the images; the first two may be None, the last two may be symbolic.

    Raises
    ------
    ValueError
        Where a shape holds something else.
    """
    _check_sizes("input_shape", input_shape, 2)
    if filter_shape is not None:
        n = 6 if unshared else 4
        if len(filter_shape) != n:
            raise ValueError(
                f"The length of filter_shape was {len(filter_shape)}, but we expected {n}."
            )
        _check_sizes("filter_shape", filter_shape, n)
    op = AbstractConv2d_gradInputs(
        _known(input_shape),
        filter_shape,
        border_mode,
        subsample,
        filter_flip,
        filter_dilation,
        num_groups,
        unshared,
    )
    return op(as_tensor_variable(filters), as_tensor_variable(output_grad), input_shape[-2:])


def conv3d_grad_wrt_inputs(
    output_grad,
    filters,
    input_shape,
    filter_shape=None,
    border_mode="valid",
    subsample=(1, 1, 1),
    filter_flip=True,
    filter_dilation=(1, 1, 1),
    num_groups=1,
):
    """Return the gradient of `conv3d` with respect to its images."""
    _check_sizes("input_shape", input_shape, 2)
    if filter_shape is not None:
        _check_sizes("filter_shape", filter_shape, 5)
    op = AbstractConv3d_gradInputs(
        _known(input_shape),
        filter_shape,
        border_mode,
        subsample,
        filter_flip,
        filter_dilation,
        num_groups,
    )
    return op(as_tensor_variable(filters), as_tensor_variable(output_grad), input_shape[-3:])


def conv2d_grad_wrt_weights(
    input,
    output_grad,
    filter_shape,
    input_shape=None,
    border_mode="valid",
    subsample=(1, 1),
    filter_flip=True,
    filter_dilation=(1, 1),
    num_groups=1,
    unshared=False,
):
    """Return the gradient of `conv2d` with respect to its filters.

    Parameters
    ----------
    input : TensorVariable
        As for `conv2d`.
    output_grad : TensorVariable
        The gradient of the output, (batch, filters, rows, columns).
    filter_shape : sequence of 4 or 6
        The shape of the filters; the last two may be symbolic, the others may be None.
    """
    _check_sizes("filter_shape", filter_shape, len(filter_shape) - 2)
    if input_shape is not None:
        _check_sizes("input_shape", input_shape, 4)
    op = AbstractConv2d_gradWeights(
        input_shape,
        _known(filter_shape),
        border_mode,
        subsample,
        filter_flip,
        filter_dilation,
        num_groups,
        unshared,
    )
    return op(as_tensor_variable(input), as_tensor_variable(output_grad), filter_shape[-2:])


def conv3d_grad_wrt_weights(
    input,
    output_grad,
    filter_shape,
    input_shape=None,
    border_mode="valid",
    subsample=(1, 1, 1),
    filter_flip=True,
    filter_dilation=(1, 1, 1),
    num_groups=1,
):
    """Return the gradient of `conv3d` with respect to its filters."""
    _check_sizes("filter_shape", filter_shape, 2)
    if input_shape is not None:
        _check_sizes("input_shape", input_shape, 5)
    op = AbstractConv3d_gradWeights(
        input_shape,
        _known(filter_shape),
        border_mode,
        subsample,
        filter_flip,
        filter_dilation,
        num_groups,
    )
    return op(as_tensor_variable(input), as_tensor_variable(output_grad), filter_shape[-3:])


def causal_conv1d(
    input,
    filters,
    filter_shape,
    input_shape=None,
    subsample=1,
    filter_flip=True,
    filter_dilation=1,
    num_groups=1,
    unshared=False,
):
    """Convolve sequences so that no output sees a later input.

    Parameters
    ----------
    input : TensorVariable
        (batch, channels, length).
    filters : TensorVariable
        (filters, channels, length).
    filter_shape : sequence of 3
        The shape of the filters; the last entry must be known.

    Returns
    -------
    TensorVariable
        (batch, filters, length of the output).
    """
    input = as_tensor_variable(input)
    filters = as_tensor_variable(filters)
    if input.ndim != 3:
        raise ValueError("Input should be 3D for causal convolution.")
    if filters.ndim != 3:
        raise ValueError("Filters should be 3D for causal convolution")
    op = AbstractConv2d(
        imshp=None if input_shape is None else (*input_shape, 1),
        kshp=(*filter_shape, 1),
        border_mode=((filter_dilation * (filter_shape[2] - 1), 0), 0),
        subsample=(subsample, 1),
        filter_flip=filter_flip,
        filter_dilation=(filter_dilation, 1),
        num_groups=num_groups,
        unshared=unshared,
    )
    output = op(input.dimshuffle(0, 1, 2, "x"), filters.dimshuffle(0, 1, 2, "x"))
    return output[:, :, :, 0]


def bilinear_kernel_2D(ratio, normalize=True):
    """Return the kernel that upsamples by `ratio` (int, or one for rows and one for columns)."""
    rows, columns = ratio if isinstance(ratio, tuple) else (ratio, ratio)
    horizontal = bilinear_kernel_1D(columns, normalize).dimshuffle("x", 0)
    return horizontal * bilinear_kernel_1D(rows, normalize).dimshuffle(0, "x")


def bilinear_kernel_1D(ratio, normalize=True):
    """Return the triangle 1, 2, ..., `ratio`, ..., 2, 1, divided by `ratio` if `normalize`."""
    half = arange(1, ratio + 1, dtype=config.floatX)
    kernel = concatenate([half, half[-2::-1]])
    return kernel / cast(ratio, config.floatX) if normalize else kernel


def _with_repeated_border(images):
    rows = concatenate((images[:, :, :1, :], images, images[:, :, -1:, :]), axis=2)
    return concatenate((rows[:, :, :, :1], rows, rows[:, :, :, -1:]), axis=3)


def frac_bilinear_upsampling(input, frac_ratio):
    """Upsample images by a fraction; see `bilinear_upsampling`."""
    if not isinstance(frac_ratio, tuple):
        raise ValueError("frac_ratio must be a tuple")
    pairs = frac_ratio if isinstance(frac_ratio[0], tuple) else (frac_ratio, frac_ratio)
    pairs = [(p // gcd(p, q), q // gcd(p, q)) for p, q in pairs]
    ratio, subsample = tuple(p for p, _ in pairs), tuple(q for _, q in pairs)
    row, col = input.shape[2:]
    images = _with_repeated_border(input.reshape((-1, 1, row, col)))

    # The images become the filters: their elements are what is dilated.
    double_pad = (2 * as_tensor([row, col]) - 1) * np.array(ratio) + 1
    pad = double_pad // 2
    kernel = bilinear_kernel_2D(ratio=ratio)[None, None, :, :]
    height, width = kernel.shape[2], kernel.shape[3]

    def blank(rows, columns):
        return zeros((1, 1, rows, columns), dtype=config.floatX)

    kernel = concatenate(
        (blank(pad[0], width), kernel, blank(double_pad[0] - pad[0], width)), axis=2
    )
    height = kernel.shape[2]
    kernel = concatenate(
        (blank(height, pad[1]), kernel, blank(height, double_pad[1] - pad[1])), axis=3
    )
    result = conv2d(kernel, images, filter_dilation=ratio, subsample=subsample)
    return result.reshape((input.shape[0], input.shape[1], result.shape[2], result.shape[3]))


def bilinear_upsampling(
    input,
    ratio=None,
    frac_ratio=None,
    batch_size=None,
    num_input_channels=None,
    use_1D_kernel=True,
):
    """Upsample images by bilinear interpolation, their borders repeated.

    Parameters
    ----------
    input : TensorVariable
        (batch, channels, rows, columns).
    ratio : int, optional
        How many times larger the result is.
    frac_ratio : tuple of int or tuple of 2 tuples of int, optional
        Instead of `ratio`: numerator and denominator, for both axes or for each.  Needs
        ``use_1D_kernel=False``.
    batch_size, num_input_channels : int, optional
        What is known of the shape of `input`.
    use_1D_kernel : bool
        Work along the rows and then along the columns, not along both at once.

    Returns
    -------
    TensorVariable
        (batch, channels, rows * ratio, columns * ratio).

    Raises
    ------
    ValueError
        When both or none of `ratio` and `frac_ratio` are given.
    """
    if ratio and frac_ratio:
        raise ValueError("can't use ratio and frac_ratio together")
    if not (ratio or frac_ratio):
        raise ValueError("No ratio (or frac_ratio) provided")
    if frac_ratio:
        if use_1D_kernel:
            raise ValueError(
                "For fractional ratios 1D kernel method not implemented. "
                "You may want to pass use_1D_kernel as False"
            )
        return frac_bilinear_upsampling(input, frac_ratio=frac_ratio)
    known = batch_size is not None and num_input_channels is not None
    images_in_all = batch_size * num_input_channels if known else None
    row, col = input.shape[2:]
    images = _with_repeated_border(input.reshape((-1, 1, row, col)))
    pad = 2 * ratio - (ratio - 1) // 2 - 1

    def upsample(images, kernel, rows, columns, along):
        by_axis = [(pad, ratio) if is_along else (0, 1) for is_along in along]
        return conv2d_grad_wrt_inputs(
            output_grad=images,
            filters=kernel,
            input_shape=(images_in_all, 1, rows, columns),
            filter_shape=(1, 1, *(None if is_along else 1 for is_along in along)),
            border_mode=tuple(p for p, _ in by_axis),
            subsample=tuple(r for _, r in by_axis),
        )

    if use_1D_kernel:
        kernel = bilinear_kernel_1D(ratio=ratio)
        images = upsample(
            images, kernel.dimshuffle("x", "x", 0, "x"), row * ratio, col + 2, (True, False)
        )
        images = upsample(
            images,
            kernel.dimshuffle("x", "x", "x", 0),
            row * ratio,
            col * ratio,
            (False, True),
        )
    else:
        kernel = bilinear_kernel_2D(ratio=ratio)[None, None, :, :]
        images = upsample(images, kernel, row * ratio, col * ratio, (True, True))
    return images.reshape((input.shape[0], input.shape[1], row * ratio, col * ratio))


class BaseAbstractConv(Op):
    """What all abstract convolutions have in common.

    Parameters
    ----------
    convdim : {2, 3}
        The axes of an image.
    imshp, kshp : sequence of (int or None), optional
        What is known of the shapes of the images and of the filters.
    border_mode : {"valid", "full", "half"}, int, or tuple of (int or pair of int)
        Zeros put around the images.
    subsample : tuple of int
        The steps of the filters.
    filter_flip : bool
        Whether the filters are flipped, as in a convolution, or not, as in a correlation.
    filter_dilation : tuple of int
        The distance between the elements of a filter on the image.
    num_groups : int
        Groups of channels that do not see each other.
    unshared : bool
        Whether each position of the output has filters of its own (only in 2-d).
    """

    check_broadcast = False
    __props__ = (
        "convdim",
        "border_mode",
        "subsample",
        "filter_flip",
        "imshp",
        "kshp",
        "filter_dilation",
        "num_groups",
        "unshared",
    )

    def __init__(
        self,
        convdim,
        imshp=None,
        kshp=None,
        border_mode="valid",
        subsample=None,
        filter_flip=True,
        filter_dilation=None,
        num_groups=1,
        unshared=False,
    ):
        if convdim not in (2, 3):
            raise ValueError(f"convolution dimension {convdim} is not supported")
        self.convdim = convdim
        self.border_mode = self._normal_border_mode(border_mode)
        self.imshp = self._constants("imshp", imshp, 2 + convdim)
        self.kshp = self._constants("kshp", kshp, 2 + convdim * (2 if unshared else 1))
        self.filter_flip = filter_flip
        self.subsample = (1,) * convdim if subsample is None else tuple(subsample)
        if len(self.subsample) != convdim:
            raise ValueError(f"subsample must have {convdim} elements")
        self.filter_dilation = (1,) * convdim if filter_dilation is None else tuple(filter_dilation)
        if len(self.filter_dilation) != convdim:
            raise ValueError(f"filter_dilation must have {convdim} elements")
        if num_groups < 1:
            raise ValueError("num_groups must have value greater than zero")
        self.num_groups = num_groups
        if unshared and convdim != 2:
            raise NotImplementedError(f"Unshared convolution not implemented for {convdim}D")
        self.unshared = unshared

    def _normal_border_mode(self, mode):
        n = self.convdim
        if isinstance(mode, int | np.integer):
            if mode < 0:
                raise ValueError(
                    f"invalid border_mode {mode}, which must be a non-negative integer"
                )
            mode = (int(mode),) * n
        pads = border_mode_to_pad(mode, n, (1,) * n)
        if not isinstance(mode, tuple):
            return mode
        if n != 2 and any(isinstance(m, tuple) for m in mode):
            raise NotImplementedError(f"Asymmetric padding not implemented for {n}D")
        if not any(map(any, pads)):
            return "valid"
        return tuple(left if left == right else (left, right) for left, right in pads)

    @staticmethod
    def _constants(name, shape, n):
        for size in shape or ():
            if size is not None:
                try:
                    get_scalar_constant_value(size, only_process_constants=True)
                except NotScalarConstantError as error:
                    raise ValueError(
                        f"{name} should be None or a tuple of constant int values"
                    ) from error
        return tuple(shape) if shape else (None,) * n

    def do_constant_folding(self, *args):
        """Leave even constant convolutions to the rewrites."""
        return False

    def flops(self, inp, outp):
        """Return the number of floating-point operations for these shapes."""
        if self.convdim != 2:
            raise NotImplementedError(f"flops not implemented for convdim={self.convdim}")
        (inputs, filters), (outputs,) = inp, outp
        assert inputs[1] == filters[1] * self.num_groups
        flops = filters[2] * filters[3] * 2 * outputs[2] * outputs[3]
        return flops * inputs[1] * filters[0] * inputs[0] / self.num_groups

    def geometry(self, kernel):
        """Return one `Axis` for each axis of the image, for a kernel of this spatial shape."""
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, self.filter_dilation, strict=True)]
        pads = border_mode_to_pad(self.border_mode, self.convdim, spans)
        return [
            Axis(left, right, stride, dilation)
            for (left, right), stride, dilation in zip(
                pads, self.subsample, self.filter_dilation, strict=True
            )
        ]

    def flip(self, kernel):
        """Return the filters as they lie on the image, from an array or a variable."""
        if not self.filter_flip:
            return kernel
        keep = (slice(None),) * (kernel.ndim - self.convdim)
        return kernel[keep + (slice(None, None, -1),) * self.convdim]

    def _related(self, direction, *inputs):
        """Apply the operation of another direction with the same settings."""
        order = ("imshp", "kshp", "border_mode", "subsample", "filter_flip", "filter_dilation")
        settings = [getattr(self, name) for name in (*order, "num_groups")]
        if self.convdim == 2:
            settings.append(self.unshared)
        return _OPS[direction, self.convdim](*settings)(*inputs)

    def _check_ndim(self, variable, name, is_weights=False):
        unshared = is_weights and self.unshared
        ndim = 2 + self.convdim * (2 if unshared else 1)
        if variable.type.ndim != ndim:
            what = " for unshared convolution" if unshared else ""
            raise TypeError(f"{name} must be {ndim}D tensor{what}")

    def _checked(self, variable, shape, name):
        kind = type(self).__name__.replace("2d", "").replace("3d", "")
        given = "imshp" if name == "image" else "kshp"
        return assert_shape(
            variable, shape, f"{kind} shape mismatch: shape of {name} does not match given {given}."
        )

    def _output(self, like, broadcastable):
        return TensorType(like.dtype, tuple(1 if b else None for b in broadcastable))()

    def _store(self, node, outputs, value):
        outputs[0][0] = value.astype(node.outputs[0].dtype, copy=False)

    @staticmethod
    def _prefer(known, inferred):
        return [i if k is None else k for k, i in zip(known, inferred, strict=True)]


def _as_tensor(variable):
    return variable if isinstance(variable, Variable) else as_tensor_variable(variable)


def _as_pattern(gradient, variable):
    return patternbroadcast(gradient, variable.broadcastable)


class AbstractConv(BaseAbstractConv):
    """Convolve images with filters."""

    def make_node(self, img, kern):
        """Convolve `img` (batch, channels, ...) with `kern` (filters, channels, ...)."""
        img, kern = _as_tensor(img), _as_tensor(kern)
        self._check_ndim(img, "img")
        self._check_ndim(kern, "kern", is_weights=True)
        img = self._checked(img, self.imshp, "image")
        kern = self._checked(kern, self.kshp, "filters")
        pattern = [img.broadcastable[0], kern.broadcastable[0]] + [False] * self.convdim
        return Apply(self, [img, kern], [self._output(img, pattern)])

    def perform(self, node, inputs, outputs):
        """Convolve in NumPy."""
        img, kern = inputs
        axes = self.geometry(kern.shape[-self.convdim :])
        top = _correlate.forward(img, self.flip(kern), axes, self.num_groups, self.unshared)
        self._store(node, outputs, top)

    def pushforward(self, inputs, outputs, tangents):
        """Return the sum of the convolutions with each tangent in place of its input."""
        if self.num_groups > 1:
            raise NotImplementedError("Rop not implemented for grouped convolutions")
        if self.unshared:
            raise NotImplementedError("Rop not implemented for unshared convolution")
        terms = [
            self(*(tangent if j == i else x for j, x in enumerate(inputs)))
            for i, tangent in enumerate(tangents)
            if not isinstance(tangent.type, DisconnectedType)
        ]
        return [sum(terms[1:], terms[0])] if terms else [DisconnectedType()()]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the images and by the filters."""
        bottom, weights = inputs
        (top,) = cotangents
        n = self.convdim
        d_bottom = self._related("inputs", weights, top, bottom.shape[-n:], False)
        d_weights = self._related("weights", bottom, top, weights.shape[-n:], False)
        return [_as_pattern(d_bottom, bottom), _as_pattern(d_weights, weights)]

    def infer_shape(self, *args):
        """Return the shape of the output."""
        bottom, weights = args[-1]
        shape = get_conv_output_shape(
            self._prefer(self.imshp, bottom),
            self._prefer(self.kshp, weights),
            self.border_mode,
            self.subsample,
            self.filter_dilation,
        )
        return [shape]


class AbstractConv_gradWeights(BaseAbstractConv):
    """The gradient of `AbstractConv` with respect to the filters."""

    def make_node(self, img, topgrad, shape, add_assert_shape=True):
        """Return the gradient, for filters of the spatial `shape`."""
        img, topgrad = _as_tensor(img), _as_tensor(topgrad)
        self._check_ndim(img, "img")
        self._check_ndim(topgrad, "topgrad")
        if add_assert_shape:
            img = self._checked(img, self.imshp, "image")
        free = [False] * self.convdim
        pattern = [img.broadcastable[1], *free]
        if self.unshared:
            pattern = [*free, *pattern]
        output = self._output(img, [topgrad.broadcastable[1], *pattern])
        return Apply(self, [img, topgrad, as_tensor_variable(shape)], [output])

    def perform(self, node, inputs, outputs):
        """Compute the gradient in NumPy."""
        img, top, shape = inputs
        kernel = tuple(int(s) for s in shape)
        weights = _correlate.gradient_of_weights(
            img, top, kernel, self.geometry(kernel), self.num_groups, self.unshared
        )
        self._store(node, outputs, self.flip(weights))

    def connection_pattern(self, node):
        """Tell that the result does not depend on the sizes."""
        return [[True], [True], [False]]

    def infer_shape(self, *args):
        """Return the shape of the filters."""
        node, (bottom, top, _) = args[-2:]
        out = top[2:] if self.unshared else ()
        kernel = [node.inputs[2][i] for i in range(self.convdim)]
        inferred = [top[1], *out, bottom[1] // self.num_groups, *kernel]
        return [self._prefer(self.kshp, inferred)]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the images and by the gradient of the output."""
        bottom, top = inputs[:2]
        (weights,) = cotangents
        d_bottom = self._related("inputs", weights, top, bottom.shape[-self.convdim :])
        d_top = self._related("forward", bottom, weights)
        return [_as_pattern(d_bottom, bottom), _as_pattern(d_top, top), DisconnectedType()()]


class AbstractConv_gradInputs(BaseAbstractConv):
    """The gradient of `AbstractConv` with respect to the images."""

    def make_node(self, kern, topgrad, shape, add_assert_shape=True):
        """Return the gradient, for images of the spatial `shape`."""
        kern, topgrad = _as_tensor(kern), _as_tensor(topgrad)
        self._check_ndim(kern, "kern", is_weights=True)
        self._check_ndim(topgrad, "topgrad")
        if add_assert_shape:
            kern = self._checked(kern, self.kshp, "filters")
        one_channel = self.num_groups == 1 and kern.broadcastable[-self.convdim - 1]
        free = [False] * self.convdim
        output = self._output(kern, [topgrad.broadcastable[0], one_channel, *free])
        return Apply(self, [kern, topgrad, as_tensor_variable(shape)], [output])

    def perform(self, node, inputs, outputs):
        """Compute the gradient in NumPy."""
        kern, top, shape = inputs
        image = tuple(int(s) for s in shape)
        axes = self.geometry(kern.shape[-self.convdim :])
        bottom = _correlate.gradient_of_inputs(
            self.flip(kern), top, image, axes, self.num_groups, self.unshared
        )
        self._store(node, outputs, bottom)

    def connection_pattern(self, node):
        """Tell that the result does not depend on the sizes."""
        return [[True], [True], [False]]

    def infer_shape(self, *args):
        """Return the shape of the images."""
        node, (weights, top, _) = args[-2:]
        channels = weights[-self.convdim - 1]
        if self.num_groups > 1:
            channels = channels * self.num_groups
        image = [node.inputs[2][i] for i in range(self.convdim)]
        return [self._prefer(self.imshp, [top[0], channels, *image])]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the filters and by the gradient of the output."""
        weights, top = inputs[:2]
        (bottom,) = cotangents
        d_weights = self._related("weights", bottom, top, weights.shape[-self.convdim :])
        d_top = self._related("forward", bottom, weights)
        return [_as_pattern(d_weights, weights), _as_pattern(d_top, top), DisconnectedType()()]


class _In2d:
    """Two axes, and Theano's order of the settings."""

    def __init__(
        self,
        imshp=None,
        kshp=None,
        border_mode="valid",
        subsample=(1, 1),
        filter_flip=True,
        filter_dilation=(1, 1),
        num_groups=1,
        unshared=False,
    ):
        super().__init__(
            2,
            imshp,
            kshp,
            border_mode,
            subsample,
            filter_flip,
            filter_dilation,
            num_groups,
            unshared,
        )


class _In3d:
    """Three axes, and Theano's order of the settings."""

    def __init__(
        self,
        imshp=None,
        kshp=None,
        border_mode="valid",
        subsample=(1, 1, 1),
        filter_flip=True,
        filter_dilation=(1, 1, 1),
        num_groups=1,
    ):
        super().__init__(
            3, imshp, kshp, border_mode, subsample, filter_flip, filter_dilation, num_groups
        )


class AbstractConv2d(_In2d, AbstractConv):
    """Convolve 2-d images."""


class AbstractConv3d(_In3d, AbstractConv):
    """Convolve 3-d images."""


class AbstractConv2d_gradWeights(_In2d, AbstractConv_gradWeights):
    """The gradient of `AbstractConv2d` with respect to the filters."""


class AbstractConv3d_gradWeights(_In3d, AbstractConv_gradWeights):
    """The gradient of `AbstractConv3d` with respect to the filters."""


class AbstractConv2d_gradInputs(_In2d, AbstractConv_gradInputs):
    """The gradient of `AbstractConv2d` with respect to the images."""


class AbstractConv3d_gradInputs(_In3d, AbstractConv_gradInputs):
    """The gradient of `AbstractConv3d` with respect to the images."""


_OPS = {
    ("forward", 2): AbstractConv2d,
    ("forward", 3): AbstractConv3d,
    ("weights", 2): AbstractConv2d_gradWeights,
    ("weights", 3): AbstractConv3d_gradWeights,
    ("inputs", 2): AbstractConv2d_gradInputs,
    ("inputs", 3): AbstractConv3d_gradInputs,
}
