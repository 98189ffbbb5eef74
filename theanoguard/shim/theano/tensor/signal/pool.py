"""Pooling of the last axes of tensors, and its gradients."""

import warnings

import numpy as np
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.link.c.type import generic
from pytensor.tensor.basic import (
    as_tensor_variable,
    int_dtypes,
    switch,
    zeros_like,
)
from pytensor.tensor.math import ge, maximum
from pytensor.tensor.type import TensorType
from pytensor.utils import hash_from_code

from ...gof.op import Op
from .._headers import headers
from ..basic import extract_constant

_HEADER = headers("arrays.h", "pool.h")

# As in pool.h.
MODES = ("max", "sum", "average_inc_pad", "average_exc_pad")


def max_pool_2d_same_size(input, patch_size):
    """Keep the maximum of each patch of `input` and set everything else to zero.

    Parameters
    ----------
    input : TensorVariable
        Its last two axes are pooled.
    patch_size : tuple of 2 int
    """
    output = Pool(True)(input, patch_size)
    return MaxPoolGrad(True)(input, output, output, patch_size)


def _renamed(old_name, old, new_name, new, default=None, stacklevel=3):
    """Return the argument by its old or its new name."""
    if old is None:
        return new
    if new is not None and new != default:
        raise ValueError(
            f"You can't provide a tuple value to both '{new_name}' and '{old_name}'. "
            f"Please provide a value only to '{new_name}'."
        )
    warnings.warn(
        f"DEPRECATION: the '{old_name}' parameter is not going to exist anymore as it is going "
        f"to be replaced by the parameter '{new_name}'.",
        stacklevel=stacklevel,
    )
    return old


def _old_names(ws, stride, pad, ds, st, padding, ndim):
    """Return window, stride and padding, whichever names they came by."""
    ws = _renamed("ds", ds, "ws", ws, stacklevel=4)
    if ws is None:
        raise ValueError("You must provide a tuple value for the window size.")
    stride = _renamed("st", st, "stride", stride, stacklevel=4)
    pad = _renamed("padding", padding, "pad", pad, (0,) * ndim, stacklevel=4)
    return ws, stride, pad


def _pool(ndim, input, ws, ignore_border, stride, pad, mode):
    if input.ndim < ndim:
        raise NotImplementedError(f"pool_{ndim}d requires a dimension >= {ndim}")
    if ignore_border is None:
        warnings.warn(
            f"pool_{ndim}d() will have the parameter ignore_border default value changed to True "
            "(currently False). To have consistent behavior with all Theano version, explicitly "
            "add the parameter ignore_border=True.",
            stacklevel=3,
        )
        ignore_border = False
    return Pool(ignore_border, ndim=ndim, mode=mode)(input, ws, stride, pad)


def pool_2d(
    input,
    ws=None,
    ignore_border=None,
    stride=None,
    pad=(0, 0),
    mode="max",
    ds=None,
    st=None,
    padding=None,
):
    """Pool the last two axes.

    Parameters
    ----------
    input : TensorVariable
        Of two or more axes.
    ws : tuple of 2 int or TensorVariable
        Rows and columns of a window.
    ignore_border : bool
        Whether windows that do not fit are left out, or cut off at the border.
    stride : tuple of 2 int or TensorVariable, optional
        Rows and columns from one window to the next; by default the windows touch.
    pad : tuple of 2 int or TensorVariable
        Rows and columns put around, where `ignore_border` is True; smaller than `ws`.
    mode : {"max", "sum", "average_inc_pad", "average_exc_pad"}
        An average may count the padding as zeros or leave it out.
    ds, st, padding : optional
        The old names of `ws`, `stride` and `pad`.

    Returns
    -------
    TensorVariable

    Raises
    ------
    ValueError
        Where the window is not given, or an argument twice.
    NotImplementedError
        For fewer axes than two, and for a padding that cannot be.
    """
    ws, stride, pad = _old_names(ws, stride, pad, ds, st, padding, 2)
    return _pool(2, input, ws, ignore_border, stride, pad, mode)


def pool_3d(
    input,
    ws=None,
    ignore_border=None,
    stride=None,
    pad=(0, 0, 0),
    mode="max",
    ds=None,
    st=None,
    padding=None,
):
    """Pool the last three axes: as `pool_2d`, with three numbers for each argument."""
    ws, stride, pad = _old_names(ws, stride, pad, ds, st, padding, 3)
    return _pool(3, input, ws, ignore_border, stride, pad, mode)


def _out_size(size, window, stride, ignore_border):
    """Return the windows along one axis of the padded `size`; any of them may be symbolic."""
    is_symbolic = any(isinstance(v, Variable) for v in (size, window, stride))
    if ignore_border:
        out = (size - window) // stride + 1
        return maximum(out, 0) if is_symbolic else max(out, 0)
    if is_symbolic:
        cut_off = maximum(0, (size - 1 - window) // stride + 1) + 1
        return switch(ge(stride, window), (size - 1) // stride + 1, cut_off)
    if stride >= window:
        return (size - 1) // stride + 1
    return max(0, (size - 1 - window + stride) // stride) + 1


class _PoolOp(Op):
    """What pooling and its gradients have in common.

    Parameters
    ----------
    ignore_border : bool
        Whether windows that do not fit are left out, or cut off at the border.
    mode : {"max", "sum", "average_inc_pad", "average_exc_pad"}
    ndim : int
        The axes that are pooled, the last ones.
    openmp : object
        Not used.
    """

    __props__ = ("ignore_border", "mode", "ndim")
    # Bytes: what PyTensor passes to C code must be hashable.
    params_type = generic

    def __init__(self, ignore_border=False, mode="max", ndim=2, openmp=None):
        if mode == "max_deterministic":
            mode = "max"
        if mode not in MODES:
            raise ValueError(
                "Pool mode parameter only support 'max', 'sum', 'average_inc_pad' and "
                f"'average_exc_pad'. Got {mode}"
            )
        self.ignore_border = bool(ignore_border)
        self.mode = mode
        self.ndim = ndim

    @staticmethod
    def out_shape(
        imgshape,
        ws=None,
        ignore_border=False,
        stride=None,
        pad=None,
        ndim=2,
        ds=None,
        st=None,
        padding=None,
    ):
        """Return the shape of the output.

        Parameters
        ----------
        imgshape : sequence of (int or TensorVariable)
            The shape of the input.

        The other parameters are those of `pool_2d`, for `ndim` axes.

        Returns
        -------
        list
        """
        ndim = 2 if ndim is None else ndim
        ws, stride, pad = _old_names(ws, stride, pad, ds, st, padding, ndim)
        if len(imgshape) < ndim:
            raise TypeError(f"imgshape must have at least {ndim} dimensions")
        stride = ws if stride is None else stride
        pad = (0,) * ndim if pad is None else pad
        sizes = (extract_constant(size) for size in imgshape[-ndim:])
        out = [
            _out_size(size + pad[i] * 2, ws[i], stride[i], ignore_border)
            for i, size in enumerate(sizes)
        ]
        return [*imgshape[:-ndim], *out]

    def _node(self, arrays, ws, stride, pad, output, checks_pad=False):
        """Return the node of these arrays, whose sizes are checked."""
        n = self.ndim
        stride = ws if stride is None else stride
        pad = (0,) * n if pad is None else pad
        if checks_pad and isinstance(pad, tuple | list):
            if any(isinstance(p, Variable) or p != 0 for p in pad) and not self.ignore_border:
                raise NotImplementedError("padding works only with ignore_border=True")
            # What is symbolic is compared when the function runs.
            if isinstance(ws, tuple | list) and any(
                p >= w
                for p, w in zip(pad, ws, strict=True)
                if not isinstance(p, Variable) and not isinstance(w, Variable)
            ):
                raise NotImplementedError("padding must be smaller than strides")
        sizes = [as_tensor_variable(v) for v in (ws, stride, pad)]
        for size, name in zip(sizes, ("Pool downsample", "Stride", "Padding"), strict=True):
            assert size.ndim == 1
            if size.dtype not in int_dtypes:
                raise TypeError(f"{name} parameters must be ints.")
        if any(v.type.ndim != arrays[0].type.ndim for v in arrays) or arrays[0].type.ndim < n:
            raise TypeError(f"Pooling of {n} axes needs tensors of one rank, {n} or more.")
        return Apply(self, [*arrays, *sizes], [output])

    def connection_pattern(self, node):
        """Tell that the sizes have no gradient."""
        arrays = len(node.inputs) - 3
        return [[True]] * arrays + [[False]] * 3

    def c_headers(self, **kwargs):
        """Return the headers of the pooling."""
        return ["<algorithm>", "<vector>"]

    def c_support_code(self, **kwargs):
        """Return the pooling itself."""
        return _HEADER

    def c_code_cache_version(self):
        """Return the version of the C code."""
        return (2, hash_from_code(_HEADER))

    def _c_call(self, node, function, inputs, outputs, sub, with_mode):
        """Return C code that calls the function of the header."""
        dtype = node.outputs[0].dtype
        arrays = node.inputs[:-3]
        if (
            self.ndim > 3
            or dtype.startswith("complex")
            or dtype == "float16"
            or any(v.dtype != dtype for v in arrays)
        ):
            raise NotImplementedError("left to NumPy")
        first = 0 if with_mode else 1
        settings = ", ".join(f"settings[{i}]" for i in range(first, 3))
        return f"""
        {{
            const npy_int64 *settings = (npy_int64 *)PyBytes_AS_STRING({sub["params"]});
            if ({function}<npy_{dtype}>({settings}, {", ".join(inputs)}, &{outputs[0]})) {{
                {sub["fail"]}
            }}
        }}
        """

    def get_params(self, node):
        """Return mode, axes and border for the C code, so that one module serves them all."""
        settings = [MODES.index(self.mode), self.ndim, self.ignore_border]
        return np.array(settings, dtype="int64").tobytes()

    def _regions(self, shape, ws, stride, pad):
        """Yield (index of the output, slices of the input, divisor) for each window."""
        n = self.ndim
        if not ws.shape == stride.shape == pad.shape == (n,):
            raise ValueError(f"ws, stride and pad must be vectors of size {n}")
        if pad.any() and not self.ignore_border:
            raise ValueError("padding must be zero when ignore border is False")
        out = self._out(shape, ws, stride, pad)[-n:]
        whole = int(np.prod(ws))
        counts_padding = self.mode == "average_inc_pad" and self.ignore_border
        for index in np.ndindex(*out):
            slices, size = [], 1
            for i, position in enumerate(index):
                start = position * int(stride[i]) - int(pad[i])
                first, last = max(start, 0), min(start + int(ws[i]), shape[-n + i])
                slices.append(slice(first, last))
                size *= last - first
            divisor = 1 if self.mode == "sum" else whole if counts_padding else size
            yield (..., *index), (..., *slices), divisor

    def _out(self, shape, ws, stride, pad):
        sizes = ([int(s) for s in v] for v in (ws, stride, pad))
        ws, stride, pad = sizes
        return self.out_shape(list(shape), ws, self.ignore_border, stride, pad, self.ndim)

    def _over(self, array):
        """Sum over the pooled axes."""
        return array.sum(axis=tuple(range(-self.ndim, 0)))


def _known(sizes):
    """Return the numbers of a constant vector, else the vector."""
    return [int(s) for s in sizes.data] if isinstance(sizes, Constant) else sizes


def _like(x):
    """Return a new variable of the type that a gradient by `x` has."""
    return TensorType(x.dtype, tuple(1 if b else None for b in x.broadcastable))()


class Pool(_PoolOp):
    """Pool the last axes."""

    def make_node(self, x, ws, stride=None, pad=None):
        """Pool `x` by vectors of integers; see `pool_2d`."""
        x = as_tensor_variable(x)
        kept = [1 if b else None for b in x.broadcastable[: -self.ndim]]
        output = TensorType(x.dtype, (*kept, *[None] * (x.ndim - len(kept))))()
        return self._node([x], ws, stride, pad, output, checks_pad=True)

    def perform(self, node, inputs, outputs):
        """Pool in NumPy."""
        x, *sizes = inputs
        z = np.empty(self._out(x.shape, *sizes), dtype=x.dtype)
        axes = tuple(range(-self.ndim, 0))
        for index, region, divisor in self._regions(x.shape, *sizes):
            if self.mode == "max":
                z[index] = x[region].max(axis=axes)
            else:
                z[index] = x[region].sum(axis=axes) / divisor
        outputs[0][0] = z

    def c_code(self, node, name, inputs, outputs, sub):
        """Pool in C."""
        return self._c_call(node, "pool", inputs, outputs, sub, with_mode=True)

    def infer_shape(self, *args):
        """Return the shape of the output."""
        node, shapes = args[-2:]
        ws, stride, pad = (_known(v) for v in node.inputs[1:])
        return [self.out_shape(shapes[0], ws, self.ignore_border, stride, pad, self.ndim)]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient."""
        x, *sizes = inputs
        (gz,) = cotangents
        if self.mode == "max":
            gx = MaxPoolGrad(self.ignore_border, self.ndim)(x, outputs[0], gz, *sizes)
        else:
            gx = AveragePoolGrad(self.ignore_border, self.mode, self.ndim)(x, gz, *sizes)
        return [gx, *(DisconnectedType()() for _ in sizes)]

    def pushforward(self, inputs, outputs, tangents):
        """Return the tangent."""
        x, *sizes = inputs
        tangent = tangents[0]
        if isinstance(tangent.type, DisconnectedType):
            return [DisconnectedType()()]
        if self.mode != "max":
            return [self(tangent, *sizes)]
        op = DownsampleFactorMaxGradGrad(self.ignore_border, self.mode, self.ndim)
        return [op(x, outputs[0], tangent, *sizes)]


class PoolGrad(_PoolOp):
    """What the gradients of `Pool` have in common."""

    def infer_shape(self, *args):
        """Return the shape of the input of the pooling."""
        return [args[-1][0]]


class MaxPoolGrad(PoolGrad):
    """The gradient of the maximum, which every element that equals it gets in full."""

    def __init__(self, ignore_border, ndim=2, openmp=None):
        super().__init__(ignore_border, "max", ndim, openmp)

    def make_node(self, x, maxout, gz, ws, stride=None, pad=None):
        """Take the input, the maximum and its gradient, then the sizes."""
        x, maxout, gz = (as_tensor_variable(v) for v in (x, maxout, gz))
        return self._node([x, maxout, gz], ws, stride, pad, _like(x))

    def perform(self, node, inputs, outputs):
        """Compute the gradient in NumPy."""
        x, maxout, gz, *sizes = inputs
        gx = np.zeros_like(x)
        more = (..., *[None] * self.ndim)
        for index, region, _ in self._regions(x.shape, *sizes):
            gx[region] += (x[region] == maxout[index][more]) * gz[index][more]
        outputs[0][0] = gx

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute the gradient in C."""
        return self._c_call(node, "max_pool_grad", inputs, outputs, sub, with_mode=False)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients: only the gradient of the maximum has one."""
        x, maxout, _, *sizes = inputs
        op = DownsampleFactorMaxGradGrad(self.ignore_border, ndim=self.ndim)
        return [
            zeros_like(x),
            zeros_like(maxout),
            op(x, maxout, cotangents[0], *sizes),
            *(DisconnectedType()() for _ in sizes),
        ]


class AveragePoolGrad(PoolGrad):
    """The gradient of a sum or an average."""

    def __init__(self, ignore_border, mode="average_inc_pad", ndim=2):
        assert mode in MODES[1:]
        super().__init__(ignore_border, mode, ndim)

    def make_node(self, x, gz, ws, stride=None, pad=None, dummy=None):
        """Take the input and the gradient of the output, then the sizes."""
        x, gz = as_tensor_variable(x), as_tensor_variable(gz)
        return self._node([x, gz], ws, stride, pad, _like(x))

    def perform(self, node, inputs, outputs):
        """Compute the gradient in NumPy."""
        x, gz, *sizes = inputs
        gx = np.zeros_like(x)
        more = (..., *[None] * self.ndim)
        for index, region, divisor in self._regions(x.shape, *sizes):
            gx[region] += (gz[index] / divisor)[more]
        outputs[0][0] = gx

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute the gradient in C."""
        return self._c_call(node, "average_pool_grad", inputs, outputs, sub, with_mode=True)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients: pooling is linear."""
        x, _, *sizes = inputs
        op = Pool(self.ignore_border, self.mode, self.ndim)
        return [
            zeros_like(x),
            op(cotangents[0], *sizes),
            *(DisconnectedType()() for _ in sizes),
        ]


class DownsampleFactorMaxGradGrad(_PoolOp):
    """Sum, over each window, what lies where the maximum is: the gradient of `MaxPoolGrad`."""

    def __init__(self, ignore_border, mode="max", ndim=2, openmp=None):
        assert mode == "max"
        super().__init__(ignore_border, mode, ndim, openmp)

    def make_node(self, x, maxout, gz, ws, stride=None, pad=None):
        """Take the input, the maximum, and what is summed, of the shape of the input."""
        x, maxout, gz = (as_tensor_variable(v) for v in (x, maxout, gz))
        return self._node([x, maxout, gz], ws, stride, pad, _like(maxout), checks_pad=True)

    def perform(self, node, inputs, outputs):
        """Sum in NumPy."""
        x, maxout, ggx, *sizes = inputs
        z = np.zeros_like(maxout)
        more = (..., *[None] * self.ndim)
        for index, region, _ in self._regions(x.shape, *sizes):
            z[index] = self._over((x[region] == maxout[index][more]) * ggx[region])
        outputs[0][0] = z

    def c_code(self, node, name, inputs, outputs, sub):
        """Sum in C."""
        return self._c_call(node, "max_pool_grad_grad", inputs, outputs, sub, with_mode=False)

    def infer_shape(self, *args):
        """Return the shape of the maximum."""
        return [args[-1][1]]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients: only what is summed has one."""
        x, maxout, _, *sizes = inputs
        op = MaxPoolGrad(self.ignore_border, self.ndim)
        return [
            zeros_like(x),
            zeros_like(maxout),
            op(x, maxout, cotangents[0], *sizes),
            *(DisconnectedType()() for _ in sizes),
        ]


class MaxPoolRop(_PoolOp):
    """Take from a second array what lies where the maximum of each window of the first is."""

    def __init__(self, ignore_border=False, mode="max", ndim=2, openmp=None):
        assert mode == "max"
        super().__init__(ignore_border, mode, ndim, openmp)

    def make_node(self, x, eval_point, ws, stride=None, pad=None):
        """Take the two arrays, then the sizes."""
        x, eval_point = as_tensor_variable(x), as_tensor_variable(eval_point)
        kept = [1 if b else None for b in x.broadcastable[: -self.ndim]]
        output = TensorType(eval_point.dtype, (*kept, *[None] * (x.ndim - len(kept))))()
        return self._node([x, eval_point], ws, stride, pad, output, checks_pad=True)

    def perform(self, node, inputs, outputs):
        """Take in NumPy."""
        x, tangent, *sizes = inputs
        z = np.empty(self._out(x.shape, *sizes), dtype=tangent.dtype)
        for index, region, _ in self._regions(x.shape, *sizes):
            kept = x.shape[: -self.ndim]
            values, taken = (a[region].reshape(*kept, -1) for a in (x, tangent))
            where = values.argmax(axis=-1)[..., None]
            z[index] = np.take_along_axis(taken, where, axis=-1)[..., 0]
        outputs[0][0] = z

    def c_code(self, node, name, inputs, outputs, sub):
        """Take in C."""
        return self._c_call(node, "max_pool_rop", inputs, outputs, sub, with_mode=False)
