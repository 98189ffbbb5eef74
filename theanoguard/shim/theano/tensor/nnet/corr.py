"""Correlation of 2-d images with filters, and its gradients, by im2col and gemm.

This is C because windows and a matrix product (``sliding_window_view`` and ``tensordot``) take
longer in NumPy.  With the two layers of LeNet, 500 images in float32 and one thread, they take 2.6
and 1.5 times as long forward, 2.0 and 1.4 times for the gradient of the filters, and 45 and 8 times
for the gradient of the images.
"""

import numpy as np
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.link.c.type import generic
from pytensor.scalar import upcast
from pytensor.tensor.basic import as_tensor_variable
from pytensor.tensor.type import TensorType
from pytensor.utils import hash_from_code

from ...gof.op import Op
from .._headers import headers
from . import _correlate
from ._correlate import Axis

# What stands for a padding that depends on the kernel; see corr.h.
_AUTOMATIC = {"half": -1, "full": -2}
_HEADER = headers("arrays.h", "corr.h")
_GEMM = {"float32": "sgemm", "float64": "dgemm"}


def _pairs(border_mode, n, allows_asymmetric):
    """Return a border mode as its name, or as one pair of paddings for each of `n` axes."""
    if border_mode in ("valid", "full", "half"):
        return border_mode
    if isinstance(border_mode, int | np.integer):
        border_mode = (border_mode,) * n
    if isinstance(border_mode, tuple) and len(border_mode) == n:
        pairs = tuple(m if isinstance(m, tuple) else (m, m) for m in border_mode)
        if all(
            len(pair) == 2
            and all(isinstance(p, int | np.integer) and p >= 0 for p in pair)
            and (allows_asymmetric or pair[0] == pair[1])
            for pair in pairs
        ):
            return tuple((int(left), int(right)) for left, right in pairs)
    raise ValueError(
        f"invalid border_mode {border_mode}, which must be either "
        f'"valid", "full", "half", a non-negative integer or a tuple of {n} of them'
        + (" or of pairs of them" if allows_asymmetric else "")
    )


class BaseCorrMM(Op):
    """What `CorrMM` and its gradients have in common.

    Parameters
    ----------
    border_mode : {"valid", "full", "half"}, int, or tuple of 2 (int or pair of int)
        Zeros put around the images.
    subsample : tuple of 2 int
        The steps of the filters.
    filter_dilation : tuple of 2 int
        The distance between the elements of a filter on the image.
    num_groups : int
        Groups of channels that do not see each other.
    unshared : bool
        Whether each position of the output has filters of its own.
    openmp : object
        Not used.
    """

    convdim = 2
    check_broadcast = False
    __props__ = ("border_mode", "subsample", "filter_dilation", "num_groups", "unshared")
    # Bytes: what PyTensor passes to C code must be hashable.
    params_type = generic

    def __init__(
        self,
        border_mode="valid",
        subsample=(1, 1),
        filter_dilation=(1, 1),
        num_groups=1,
        unshared=False,
        openmp=None,
    ):
        n = self.convdim
        self.border_mode = self._normal_border_mode(border_mode)
        if len(subsample) != n:
            raise ValueError(f"subsample must have {n} elements")
        if len(filter_dilation) != n:
            raise ValueError(f"filter_dilation must have {n} elements")
        if num_groups < 1:
            raise ValueError("Number of groups should be greater than 0")
        self.subsample = tuple(subsample)
        self.filter_dilation = tuple(filter_dilation)
        self.num_groups = num_groups
        self.unshared = bool(unshared)

    def _normal_border_mode(self, border_mode):
        return _pairs(border_mode, self.convdim, allows_asymmetric=True)

    @property
    def pad(self):
        """A pair of paddings for each axis; -1 stands for "half", -2 for "full"."""
        if isinstance(self.border_mode, tuple):
            return self.border_mode
        return ((_AUTOMATIC.get(self.border_mode, 0),) * 2,) * self.convdim

    def geometry(self, kernel):
        """Return one `Axis` for each axis of the image, for a kernel of this spatial shape."""
        axes = []
        for (left, right), stride, dilation, size in zip(
            self.pad, self.subsample, self.filter_dilation, kernel, strict=True
        ):
            if self.border_mode in _AUTOMATIC:
                span = (size - 1) * dilation + 1
                left = right = span // 2 if self.border_mode == "half" else span - 1
            axes.append(Axis(left, right, stride, dilation))
        return axes

    def _settings(self):
        return {name: getattr(self, name) for name in self.__props__}

    def _related(self, direction):
        """Return the operation of another direction with the same settings."""
        return _OPS[direction, self.convdim](**self._settings())

    def __str__(self):
        settings = ", ".join(str(getattr(self, name)) for name in self.__props__)
        return f"{type(self).__name__}{{{settings}}}"

    def get_params(self, node):
        """Return the settings for the C code."""
        axes = zip(self.pad, self.subsample, self.filter_dilation, strict=True)
        flat = [x for pad, stride, dilation in axes for x in (*pad, stride, dilation)]
        return np.array([*flat, self.num_groups], dtype="int64").tobytes()

    def c_headers(self, **kwargs):
        """Return nothing but what the header needs."""
        return ["<algorithm>", "<new>", "<vector>"]

    def c_support_code(self, **kwargs):
        """Return the correlation itself."""
        return _HEADER

    def c_init_code(self, **kwargs):
        """Find the BLAS."""
        return ['if (load_gemm<float>("sgemm") || load_gemm<double>("dgemm")) return NULL;']

    def c_code_cache_version(self):
        """Return the version of the C code."""
        return (1, hash_from_code(_HEADER))

    def _c_call(self, node, result, bottom, weights, top, shape, out, sub):
        """Return the C code of one call; `shape` names the scalars, or is empty."""
        dtype = node.outputs[0].dtype
        if self.unshared or dtype not in _GEMM or any(v.ndim > 5 for v in node.inputs):
            raise NotImplementedError("left to NumPy")
        sizes = ", ".join(f"((npy_int64 *)PyArray_DATA({s}))[0]" for s in shape)
        return f"""
        {{
            {f"const npy_int64 shape[] = {{{sizes}}};" if shape else ""}
            if (correlate<npy_{dtype}>("{type(self).__name__}", {result},
                                       NPY_{dtype.upper()}, {bottom}, {weights}, {top}, &{out},
                                       (npy_int64 *)PyBytes_AS_STRING({sub["params"]}),
                                       {"shape" if shape else "NULL"})) {{
                {sub["fail"]}
            }}
        }}
        """

    def _as_inputs(self, *variables):
        """Return tensors of one dtype."""
        variables = [as_tensor_variable(v) for v in variables]
        dtype = upcast(*(v.dtype for v in variables))
        return [v.astype(dtype) for v in variables]

    def _check_ndim(self, variable, name, is_weights=False):
        ndim = 2 + self.convdim * (2 if is_weights and self.unshared else 1)
        if variable.type.ndim != ndim:
            raise TypeError(f"{name} must be {ndim}D tensor")

    def _shape_inputs(self, shape, needs_shape):
        """Return the symbolic sizes that a gradient gets besides its arrays."""
        if shape is not None:
            return [as_tensor_variable(shape[i]).astype("int64") for i in range(self.convdim)]
        if needs_shape:
            raise ValueError(
                "shape must be given if subsample is not 1 everywhere"
                + (' or border_mode is "half"' if self.direction == "weights" else "")
            )
        return []

    def _output(self, like, broadcastable):
        return TensorType(like.dtype, tuple(1 if b else None for b in broadcastable))()


class CorrMM(BaseCorrMM):
    """Correlate images with filters (which are not flipped)."""

    direction = "forward"

    def make_node(self, img, kern):
        """Correlate `img` (batch, channels, ...) with `kern` (filters, channels, ...)."""
        img, kern = self._as_inputs(img, kern)
        self._check_ndim(img, "img")
        self._check_ndim(kern, "kern", is_weights=True)
        pattern = [img.broadcastable[0], kern.broadcastable[0]] + [False] * self.convdim
        return Apply(self, [img, kern], [self._output(img, pattern)])

    def perform(self, node, inputs, outputs):
        """Correlate in NumPy."""
        img, kern = inputs
        axes = self.geometry(kern.shape[-self.convdim :])
        top = _correlate.forward(img, kern, axes, self.num_groups, self.unshared)
        outputs[0][0] = top.astype(node.outputs[0].dtype, copy=False)

    def c_code(self, node, name, inputs, outputs, sub):
        """Correlate in C."""
        bottom, weights = inputs
        return self._c_call(node, "CORR_TOP", bottom, weights, "NULL", [], outputs[0], sub)

    def infer_shape(self, *args):
        """Return the shape of the output."""
        bottom, weights = args[-1]
        kernel = weights[-self.convdim :]
        axes = zip(bottom[2:], kernel, self.geometry(kernel), strict=True)
        out = [(s + a.left + a.right - a.dilated(k)) // a.stride + 1 for s, k, a in axes]
        return [(bottom[0], weights[0], *out)]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the images and by the filters."""
        bottom, weights = inputs
        (top,) = cotangents
        n = self.convdim
        return [
            self._related("inputs")(weights, top, bottom.shape[-n:]),
            self._related("weights")(bottom, top, weights.shape[-n:]),
        ]


class _Gradient(BaseCorrMM):
    """A gradient: two arrays, and maybe the spatial shape of the result."""

    def connection_pattern(self, node):
        """Tell that the result does not depend on the sizes."""
        return [[True], [True]] + [[False]] * (len(node.inputs) - 2)

    def _sizes(self, sizes):
        return [int(s) for s in sizes]


class CorrMM_gradWeights(_Gradient):
    """The gradient of `CorrMM` with respect to the filters."""

    direction = "weights"

    def make_node(self, img, topgrad, shape=None):
        """Return the gradient from the images and the gradient of the output."""
        img, topgrad = self._as_inputs(img, topgrad)
        self._check_ndim(img, "img")
        self._check_ndim(topgrad, "topgrad")
        needs_shape = self.border_mode == "half" or any(s != 1 for s in self.subsample)
        sizes = self._shape_inputs(shape, needs_shape)
        free = [False] * self.convdim
        pattern = [img.broadcastable[1], *free]
        if self.unshared:
            pattern = [*free, *pattern]
        output = self._output(img, [topgrad.broadcastable[1], *pattern])
        return Apply(self, [img, topgrad, *sizes], [output])

    def _kernel(self, bottom, top, sizes):
        """Return the spatial shape of the filters."""
        if len(sizes):
            return tuple(sizes)
        kernel = []
        for image, out, (left, right), dilation in zip(
            bottom[2:], top[2:], self.pad, self.filter_dilation, strict=True
        ):
            span = out + 1 - image if self.border_mode == "full" else image + left + right + 1 - out
            kernel.append((span - 1) // dilation + 1)
        return tuple(kernel)

    def perform(self, node, inputs, outputs):
        """Compute the gradient in NumPy."""
        img, top, *sizes = inputs
        kernel = self._kernel(img.shape, top.shape, self._sizes(sizes))
        weights = _correlate.gradient_of_weights(
            img, top, kernel, self.geometry(kernel), self.num_groups, self.unshared
        )
        outputs[0][0] = weights.astype(node.outputs[0].dtype, copy=False)

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute the gradient in C."""
        bottom, top, *sizes = inputs
        return self._c_call(node, "CORR_WEIGHTS", bottom, "NULL", top, sizes, outputs[0], sub)

    def infer_shape(self, *args):
        """Return the shape of the filters."""
        node, (bottom, top, *_) = args[-2:]
        out = top[2:] if self.unshared else ()
        kernel = self._kernel(bottom, top, node.inputs[2:])
        return [(top[1], *out, bottom[1] // self.num_groups, *kernel)]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the images and by the gradient of the output."""
        bottom, top, *sizes = inputs
        (weights,) = cotangents
        return [
            self._related("inputs")(weights, top, bottom.shape[-self.convdim :]),
            self._related("forward")(bottom, weights),
            *(DisconnectedType()() for _ in sizes),
        ]


class CorrMM_gradInputs(_Gradient):
    """The gradient of `CorrMM` with respect to the images."""

    direction = "inputs"

    def make_node(self, kern, topgrad, shape=None):
        """Return the gradient from the filters and the gradient of the output."""
        kern, topgrad = self._as_inputs(kern, topgrad)
        self._check_ndim(kern, "kern", is_weights=True)
        self._check_ndim(topgrad, "topgrad")
        sizes = self._shape_inputs(shape, any(s != 1 for s in self.subsample))
        n = self.convdim
        one_channel = self.num_groups == 1 and kern.broadcastable[-n - 1]
        output = self._output(kern, [topgrad.broadcastable[0], one_channel] + [False] * n)
        return Apply(self, [kern, topgrad, *sizes], [output])

    def _image(self, weights, top, sizes):
        """Return the spatial shape of the images."""
        if len(sizes):
            return tuple(sizes)
        kernel = weights[-self.convdim :]
        axes = zip(kernel, top[2:], self.geometry(kernel), strict=True)
        return tuple((t - 1) * a.stride + a.dilated(k) - a.left - a.right for k, t, a in axes)

    def perform(self, node, inputs, outputs):
        """Compute the gradient in NumPy."""
        weights, top, *sizes = inputs
        image = self._image(weights.shape, top.shape, self._sizes(sizes))
        axes = self.geometry(weights.shape[-self.convdim :])
        bottom = _correlate.gradient_of_inputs(
            weights, top, image, axes, self.num_groups, self.unshared
        )
        outputs[0][0] = bottom.astype(node.outputs[0].dtype, copy=False)

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute the gradient in C."""
        weights, top, *sizes = inputs
        return self._c_call(node, "CORR_BOTTOM", "NULL", weights, top, sizes, outputs[0], sub)

    def infer_shape(self, *args):
        """Return the shape of the images."""
        node, (weights, top, *_) = args[-2:]
        channels = weights[-self.convdim - 1] * self.num_groups
        return [(top[0], channels, *self._image(weights, top, node.inputs[2:]))]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the filters and by the gradient of the output."""
        weights, top, *sizes = inputs
        (bottom,) = cotangents
        return [
            self._related("weights")(bottom, top, weights.shape[-self.convdim :]),
            self._related("forward")(bottom, weights),
            *(DisconnectedType()() for _ in sizes),
        ]


# The operations of all directions by the number of axes of the image; corr3d adds its own.
_OPS = {(op.direction, op.convdim): op for op in (CorrMM, CorrMM_gradWeights, CorrMM_gradInputs)}
