"""A convolution in time and two dimensions of space, made of 2-d convolutions."""

from numpy.lib.stride_tricks import as_strided
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import as_tensor_variable, zeros, zeros_like
from pytensor.tensor.subtensor import set_subtensor

from ...gof.op import Op
from .abstract_conv import conv2d


def get_diagonal_subtensor_view(x, i0, i1):
    """Return a view ``v`` with ``v[..., i, ..., j, ...] = x[..., i + n - 1 - j, ..., j, ...]``.

    Parameters
    ----------
    x : numpy.ndarray
    i0, i1 : int
        The axes of `i` and of `j`; `n` is the length of `i1`, at most that of `i0`.

    Raises
    ------
    NotImplementedError
        When `i0` is shorter than `i1`.
    """
    i0, i1 = int(i0), int(i1)
    if x.shape[i0] < x.shape[i1]:
        raise NotImplementedError("is this allowed?")
    index = [slice(None)] * x.ndim
    index[i0] = slice(x.shape[i1] - 1, None, None)
    view = x[tuple(index)]
    strides = list(view.strides)
    if x.shape[i1] != 1:
        strides[i1] -= strides[i0]
    return as_strided(view, strides=strides)


class DiagonalSubtensor(Op):
    """Return the view of `get_diagonal_subtensor_view`, or a copy of it.

    Parameters
    ----------
    inplace : bool
        Whether the output is a view of the input.
    """

    __props__ = ("inplace",)

    def __init__(self, inplace=False):
        self.inplace = inplace
        if inplace:
            self.view_map = {0: [0]}

    def __str__(self):
        return type(self).__name__ + ("{inplace}" if self.inplace else "")

    def make_node(self, x, i0, i1):
        """Take a tensor and two axes."""
        inputs = [as_tensor_variable(v) for v in (x, i0, i1)]
        return Apply(self, inputs, [inputs[0].type.clone(shape=_free(inputs[0]))()])

    def perform(self, node, inputs, outputs):
        """Take the view."""
        view = get_diagonal_subtensor_view(*inputs)
        outputs[0][0] = view if self.inplace else view.copy()

    def connection_pattern(self, node):
        """Tell that the output does not depend on the axes."""
        return [[True], [False], [False]]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient by the tensor."""
        x, i0, i1 = inputs
        gradient = inc_diagonal_subtensor(zeros_like(x), i0, i1, cotangents[0])
        return [gradient, DisconnectedType()(), DisconnectedType()()]


def _free(x):
    """Return a static shape that knows of nothing but the ones."""
    return tuple(1 if s == 1 else None for s in x.type.shape)


class IncDiagonalSubtensor(Op):
    """Add to the view of `get_diagonal_subtensor_view`: the gradient of `DiagonalSubtensor`.

    Parameters
    ----------
    inplace : bool
        Whether the input is overwritten.
    """

    __props__ = ("inplace",)

    def __init__(self, inplace=False):
        self.inplace = inplace
        if inplace:
            self.destroy_map = {0: [0]}

    def __str__(self):
        return type(self).__name__ + ("{inplace}" if self.inplace else "")

    def make_node(self, x, i0, i1, amt):
        """Take a tensor, two axes, and what is added."""
        inputs = [as_tensor_variable(v) for v in (x, i0, i1, amt)]
        return Apply(self, inputs, [inputs[0].type()])

    def perform(self, node, inputs, outputs):
        """Add in NumPy."""
        x, i0, i1, amount = inputs
        if not self.inplace:
            x = x.copy()
        view = get_diagonal_subtensor_view(x, i0, i1)
        view += amount
        outputs[0][0] = x

    def connection_pattern(self, node):
        """Tell that the output does not depend on the axes."""
        return [[True], [False], [False], [True]]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the tensor and by what is added."""
        _, i0, i1, _ = inputs
        (gy,) = cotangents
        nothing = DisconnectedType()()
        return [gy, nothing, nothing, diagonal_subtensor(gy, i0, i1)]


diagonal_subtensor = DiagonalSubtensor(False)
inc_diagonal_subtensor = IncDiagonalSubtensor(False)


def conv3d(signals, filters, signals_shape=None, filters_shape=None, border_mode="valid"):
    """Convolve signals in time and two dimensions of space.

    Parameters
    ----------
    signals : TensorVariable
        (batch, time, channels, rows, columns).
    filters : TensorVariable
        (filters, time, channels, rows, columns).
    signals_shape, filters_shape : tuple of int, optional
        What is known of the shapes.
    border_mode : {"valid", "full", "half"} or tuple of 3 of them
        For time, rows and columns; the last two must agree.

    Returns
    -------
    TensorVariable
        (batch, time, filters, rows, columns).
    """
    modes = (border_mode,) * 3 if isinstance(border_mode, str) else border_mode
    batch, times, channels, height, width = (
        signals.shape if signals_shape is None else signals_shape
    )
    n_filters, filter_times, _, filter_height, filter_width = (
        filters.shape if filters_shape is None else filters_shape
    )
    if modes[1] != modes[2]:
        raise NotImplementedError("height and width bordermodes must match")
    for mode in modes[:2]:
        if mode == "same":
            raise NotImplementedError("border mode same")
        if mode not in ("valid", "full", "half"):
            raise ValueError("invalid border mode", mode)
    signals_4d = (batch * times, channels, height, width)
    filters_4d = (n_filters * filter_times, channels, filter_height, filter_width)
    out_4d = conv2d(
        signals.reshape(signals_4d),
        filters.reshape(filters_4d),
        input_shape=None if signals_shape is None else signals_4d,
        filter_shape=None if filters_shape is None else filters_4d,
        border_mode=modes[1],
    )
    size = {
        "valid": lambda image, kernel: image - kernel + 1,
        "full": lambda image, kernel: image + kernel - 1,
        "half": lambda image, kernel: image - kernel % 2 + 1,
    }[modes[1]]
    out_shape = size(height, filter_height), size(width, filter_width)
    if isinstance(filter_times, int) and filter_times == 1:
        return out_4d.reshape((batch, times, n_filters, *out_shape))
    pad = {"valid": 0, "full": filter_times - 1, "half": filter_times // 2}[modes[0]]
    out = out_4d.reshape((batch, times, n_filters, filter_times, *out_shape))
    if modes[0] != "valid":
        padded = zeros(
            (batch, times + 2 * pad, n_filters, filter_times, *out_shape), dtype=out.dtype
        )
        out = set_subtensor(padded[:, pad : times + pad], out)
    return diagonal_subtensor(out, 1, 3).sum(axis=3)


@node_rewriter([DiagonalSubtensor, IncDiagonalSubtensor], inplace=True)
def local_inplace_DiagonalSubtensor(fgraph, node):
    """Work in place."""
    if node.op.inplace:
        return None
    new = type(node.op)(inplace=True)(*node.inputs)
    copy_stack_trace(node.outputs[0], new)
    return [new]
