"""Patches of images as rows of a matrix, and back."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pytensor.gradient import grad_not_implemented, grad_undefined
from pytensor.graph.basic import Apply
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import as_tensor_variable, concatenate, stack, zeros, zeros_like
from pytensor.tensor.math import eq
from pytensor.tensor.subtensor import set_subtensor
from pytensor.tensor.type import TensorType
from pytensor.utils import hash_from_code

from ..._rebroadcast import rebroadcast
from ...gof.op import Op
from .._headers import headers

MODES = ("valid", "half", "full", "wrap_centered", "ignore_borders")

_HEADER = headers("arrays.h", "neighbours.h")


class Images2Neibs(Op):
    """Cut images into patches, each of which becomes a row of a matrix.

    Parameters
    ----------
    mode : {"valid", "half", "full", "wrap_centered", "ignore_borders"}
        Whether patches may reach over the border, and what is there: zeros ("half", "full"), or
        the other side of the image ("wrap_centered").  "ignore_borders" drops what is left over
        at the end, where "valid" raises TypeError.
    """

    __props__ = ("mode",)

    def __init__(self, mode="valid"):
        if mode not in MODES:
            raise NotImplementedError(
                f"Only modes {', '.join(MODES)} have been implemented for {type(self).__name__}"
            )
        self.mode = mode

    def __str__(self):
        return f"{type(self).__name__}{{{self.mode}}}"

    def make_node(self, ten4, neib_shape, neib_step=None):
        """Take images (batch, channels, rows, columns) and pairs of integers."""
        ten4 = as_tensor_variable(ten4)
        neib_shape = as_tensor_variable(neib_shape)
        neib_step = neib_shape if neib_step is None else as_tensor_variable(neib_step)
        assert ten4.ndim == 4
        assert neib_shape.ndim == 1
        assert neib_step.ndim == 1
        output = TensorType(ten4.dtype, (None, None))()
        return Apply(self, [ten4, neib_shape, neib_step], [output])

    def _span(self, size, patch):
        """Return the way between the first and the last patch, in elements."""
        spans = {"half": size - patch % 2, "full": size + patch - 2, "wrap_centered": size - 1}
        return spans.get(self.mode, size - patch)

    def _check(self, size, patch, step, axis):
        if step <= 0 or patch <= 0:
            raise ValueError("neib_shape or neib_step has values <= 0")
        if self.mode == "wrap_centered":
            if patch % 2 != 1 or size < patch:
                raise TypeError(
                    "Images2Neibs: mode wrap_centered needs patches of odd shape that fit into "
                    f"the image; got {patch} for an image of {size}"
                )
        elif self.mode != "ignore_borders" and (size < patch or self._span(size, patch) % step):
            raise TypeError(
                f"neib_shape[{axis}]={patch}, neib_step[{axis}]={step} and "
                f"ten4.shape[{axis + 2}]={size} not consistent"
            )

    def perform(self, node, inputs, outputs):
        """Cut in NumPy."""
        images, shape, step = inputs
        assert shape.shape == step.shape == (2,)
        pads = []
        for axis in range(2):
            size, patch = images.shape[axis + 2], int(shape[axis])
            self._check(size, patch, int(step[axis]), axis)
            before = {"half": patch // 2, "full": patch - 1, "wrap_centered": patch // 2}
            pad = before.get(self.mode, 0)
            pads.append((pad, pad))
        how = "wrap" if self.mode == "wrap_centered" else "constant"
        padded = np.pad(images, [(0, 0), (0, 0), *pads], mode=how)
        rows, columns = (int(s) for s in shape)
        if padded.shape[2] < rows or padded.shape[3] < columns:
            outputs[0][0] = np.empty((0, rows * columns), images.dtype)
            return
        patches = sliding_window_view(padded, (rows, columns), axis=(2, 3))
        patches = patches[:, :, :: int(step[0]), :: int(step[1])]
        outputs[0][0] = patches.reshape(-1, rows * columns)

    def c_code(self, node, name, inputs, outputs, sub):
        """Cut in C."""
        dtype = node.outputs[0].dtype
        if dtype.startswith("complex") or dtype == "float16":
            raise NotImplementedError("left to NumPy")
        images, *pairs = inputs
        sizes, checks = [], []
        for name in pairs:
            sizes.append(
                [f"(npy_intp)*(dtype_{name} *)PyArray_GETPTR1({name}, {i})" for i in (0, 1)]
            )
            checks.append(f"PyArray_DIMS({name})[0] != 2")
        fail = sub["fail"]
        return f"""
        {{
            if ({" || ".join(checks)}) {{
                PyErr_SetString(PyExc_ValueError, "neib_shape and neib_step need two elements");
                {fail}
            }}
            const npy_intp patch[] = {{{", ".join(sizes[0])}}}, step[] = {{{", ".join(sizes[1])}}};
            if (images2neibs<npy_{dtype}>({MODES.index(self.mode)}, {images}, patch, step,
                                          &{outputs[0]})) {{
                {fail}
            }}
        }}
        """

    def c_support_code(self, **kwargs):
        """Return the cutting itself."""
        return _HEADER

    def c_code_cache_version(self):
        """Return the version of the C code."""
        return (1, hash_from_code(_HEADER))

    def infer_shape(self, *args):
        """Return the number of patches and of the elements of each."""
        node, ((batch, channels, *image), *_) = args[-2:]
        patch = [node.inputs[1][i] for i in range(2)]
        step = [node.inputs[2][i] for i in range(2)]
        grid = [1 + self._span(size, p) // s for size, p, s in zip(image, patch, step, strict=True)]
        return [(grid[0] * grid[1] * channels * batch, patch[0] * patch[1])]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient by the images, for patches that stay inside of them."""
        x, neib_shape, neib_step = inputs
        (gz,) = cotangents
        undefined = [grad_undefined(self, 1, neib_shape), grad_undefined(self, 2, neib_step)]
        if self.mode in ("valid", "ignore_borders"):
            same = neib_shape is neib_step or (
                hasattr(neib_shape, "equals") and neib_shape.equals(neib_step)
            )
            if same:
                images = neibs2images(gz, neib_shape, x.shape, mode=self.mode)
                pattern = dict(enumerate(x.type.broadcastable))
                return [rebroadcast(images, pattern), *undefined]
        if self.mode == "valid":
            return [neibs_gradient(x, gz, neib_shape, neib_step), *undefined]
        return [grad_not_implemented(self, 0, x), *undefined]


class NeibsGradient(Op):
    """Add up what the patches of a "valid" `Images2Neibs` hold of each element of the images."""

    __props__ = ()

    def make_node(self, x, neibs, neib_shape, neib_step):
        """Take the images, for their shape, the patches, and pairs of integers."""
        inputs = [as_tensor_variable(v) for v in (x, neibs, neib_shape, neib_step)]
        return Apply(self, inputs, [x.type()])

    def perform(self, node, inputs, outputs):
        """Add up in NumPy."""
        x, neibs, (rows, columns), (row_step, column_step) = inputs
        result = np.zeros_like(x)
        batch, channels, height, width = x.shape
        grid = (height - rows) // row_step + 1, (width - columns) // column_step + 1
        patches = neibs.reshape(batch, channels, *grid, rows, columns)
        for i, j in np.ndindex(int(rows), int(columns)):
            reached = result[
                :,
                :,
                i : height - rows + i + 1 : row_step,
                j : width - columns + j + 1 : column_step,
            ]
            reached += patches[..., i, j]
        outputs[0][0] = result

    def infer_shape(self, *args):
        """Return the shape of the images."""
        return [args[-1][0]]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient by the patches: cut the other gradient into them."""
        x, _, neib_shape, neib_step = inputs
        (g,) = cotangents
        return [
            zeros_like(x),
            Images2Neibs("valid")(g, neib_shape, neib_step),
            grad_undefined(self, 2, neib_shape),
            grad_undefined(self, 3, neib_step),
        ]


neibs_gradient = NeibsGradient()


def images2neibs(ten4, neib_shape, neib_step=None, mode="valid"):
    """Cut images into patches, each of which becomes a row of a matrix.

    Parameters
    ----------
    ten4 : TensorVariable
        (batch, channels, rows, columns).
    neib_shape : TensorVariable or TensorLike
        Rows and columns of a patch.
    neib_step : TensorVariable or TensorLike, optional
        Rows and columns from one patch to the next; by default the patches touch.
    mode : {"valid", "half", "full", "wrap_centered", "ignore_borders"}
        See `Images2Neibs`.

    Returns
    -------
    TensorVariable
        A matrix, one patch to a row.
    """
    return Images2Neibs(mode)(ten4, neib_shape, neib_step)


def neibs2images(neibs, neib_shape, original_shape, mode="valid"):
    """Put patches that touch together into images: undo `images2neibs`.

    Parameters
    ----------
    neibs : TensorVariable
        A matrix, one patch to a row.
    neib_shape : TensorVariable or TensorLike
        Rows and columns of a patch.
    original_shape : TensorVariable or TensorLike
        The shape of the images, (batch, channels, rows, columns).
    mode : {"valid", "ignore_borders"}
        As it was for `images2neibs`; the ignored borders become zeros.
    """
    neibs = as_tensor_variable(neibs)
    neib_shape = as_tensor_variable(neib_shape)
    original_shape = as_tensor_variable(original_shape)
    has_four = CheckAndRaise(ValueError, "original_shape must have four elements")
    original_shape = has_four(original_shape, eq(original_shape.shape[0], 4))
    new_shape = stack([original_shape[-1] // neib_shape[1], neib_shape[1]])
    output_2d = images2neibs(neibs.dimshuffle("x", "x", 0, 1), new_shape, mode=mode)
    if mode == "valid":
        return output_2d.reshape(original_shape, ndim=4)
    if mode != "ignore_borders":
        raise NotImplementedError(f"neibs2images do not support mode={mode}")
    whole = original_shape
    for i in range(2):
        whole = set_subtensor(whole[i + 2], whole[i + 2] // neib_shape[i] * neib_shape[i])
    images = output_2d.reshape(whole, ndim=4)
    for axis in (2, 3):
        border = list(images.shape)
        border[axis] = original_shape[axis] - whole[axis]
        images = concatenate([images, zeros(border, dtype=images.dtype)], axis=axis)
    return images
