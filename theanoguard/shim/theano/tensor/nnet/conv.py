"""The convolution of Theano's first years: `ConvOp`, and `conv2d` that makes one.

It takes as long as `theano.tensor.nnet.conv2d`, as both are computed by the same C code.  Where
`conv2d` makes an `AbstractConv2d` instead, 15 of the 24 tests of Theano's ``test_conv.py`` pass,
and 23 with `ConvOp`: they check the shapes that are given, and what each refuses.
"""

import warnings

import numpy as np
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.tensor.basic import (
    as_tensor_variable,
    discrete_dtypes,
    get_scalar_constant_value,
)
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.type import TensorType

from ...gof.op import Op
from ..basic import patternbroadcast
from . import _correlate
from ._correlate import Axis
from .abstract_conv import (
    AbstractConv2d_gradInputs,
    AbstractConv2d_gradWeights,
    get_conv_output_shape,
    get_conv_shape_1axis,
)

imported_scipy_signal = True


def _constant_shape(shape, name):
    """Return the known sizes as integers."""
    if shape is None:
        return None
    sizes = []
    for size in shape:
        if size is not None:
            try:
                size = get_scalar_constant_value(as_tensor_variable(size))
            except NotScalarConstantError as error:
                raise NotScalarConstantError(
                    "The convolution need that the shape information are constant values. "
                    f"We got {size} for the {name} parameter"
                ) from error
            assert str(size.dtype) in discrete_dtypes
            size = int(size)
        sizes.append(size)
    return sizes


def conv2d(
    input,
    filters,
    image_shape=None,
    filter_shape=None,
    border_mode="valid",
    subsample=(1, 1),
    **kargs,
):
    """Convolve a batch of 2-d images with 2-d filters; `theano.tensor.nnet.conv2d` does more.

    Parameters
    ----------
    input : TensorVariable
        (batch, channels, rows, columns).
    filters : TensorVariable
        (filters, channels, rows, columns); they are flipped.
    image_shape, filter_shape : sequence of 4 (int or None), optional
        The shapes, which are checked when the function runs.
    border_mode : {"valid", "full"}
    subsample : tuple of 2 int
        The steps of the filters.
    **kargs
        Passed to `ConvOp`.

    Raises
    ------
    NotScalarConstantError
        When a shape is not made of constants.
    """
    warnings.warn(
        "theano.tensor.nnet.conv.conv2d is deprecated. Use theano.tensor.nnet.conv2d instead.",
        stacklevel=2,
    )
    image_shape = _constant_shape(image_shape, "image_shape")
    filter_shape = _constant_shape(filter_shape, "filter_shape")
    if image_shape and filter_shape and None not in (image_shape[1], filter_shape[1]):
        assert image_shape[1] == filter_shape[1], (
            f"The images have {image_shape[1]} channels, the filters {filter_shape[1]}."
        )
    nkern, kshp = (filter_shape[0], filter_shape[2:]) if filter_shape else (None, None)
    bsize, imshp = (image_shape[0], image_shape[1:]) if image_shape else (None, None)
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
    return op(input, filters)


class ConvOp(Op):
    """Convolve a batch of 2-d images with 2-d filters.

    Parameters
    ----------
    imshp : tuple of 2 or 3 (int or None), optional
        (channels, rows, columns) of the images.
    kshp : tuple of 2 (int or None), optional
        (rows, columns) of the filters.
    nkern, bsize : int, optional
        How many filters and images there are.
    dx, dy : int
        The steps of the filters along rows and columns.
    output_mode : {"valid", "full"}
    imshp_logical : tuple of 3 int, optional
        The shape of the images after zeros are put between their elements.
    kshp_logical : tuple of 2 int, optional
        The shape of the filters after zeros are put between their elements.
    kshp_logical_top_aligned : bool
        Where the first element goes then.
    unroll_batch, unroll_kern, unroll_patch, verbose, version, direction_hint, openmp : object
        Kept for those who read them; they change nothing.
    """

    __props__ = (
        "imshp",
        "kshp",
        "nkern",
        "bsize",
        "dx",
        "dy",
        "out_mode",
        "unroll_batch",
        "unroll_kern",
        "unroll_patch",
        "imshp_logical",
        "kshp_logical",
        "kshp_logical_top_aligned",
    )

    @staticmethod
    def has_all_shape(imshp, kshp, nkern=1, bsize=1):
        """Whether nothing is unknown."""
        return None not in (nkern, bsize, *imshp, *kshp)

    @staticmethod
    def getOutputShape(inshp, kshp, stride=(1, 1), mode="valid"):
        """Return the rows and columns of the output; see `get_conv_output_shape`."""
        warnings.warn(
            "The method `getOutputShape` is deprecated use`get_conv_output_shape` instead.",
            stacklevel=2,
        )
        return tuple(
            get_conv_shape_1axis(i, k, mode, d)
            for i, k, d in zip(inshp, kshp, stride, strict=False)
        )

    def __init__(
        self,
        imshp=None,
        kshp=None,
        nkern=None,
        bsize=None,
        dx=1,
        dy=1,
        output_mode="valid",
        unroll_batch=None,
        unroll_kern=None,
        unroll_patch=None,
        imshp_logical=None,
        kshp_logical=None,
        kshp_logical_top_aligned=True,
        verbose=0,
        version=-1,
        direction_hint="forward",
        openmp=None,
    ):
        imshp = (None,) * 3 if imshp is None else tuple(imshp)
        if len(imshp) == 2:
            imshp = (1, *imshp)
        elif len(imshp) != 3:
            raise ValueError(f"len(imshp) must be 2 or 3, got {len(imshp)}")
        kshp = (None,) * 2 if kshp is None else tuple(kshp)
        if len(kshp) != 2:
            raise ValueError(f"len(kshp) must be 2, got {len(kshp)}")
        steps = []
        for name, step in (("dx", dx), ("dy", dy)):
            step = 1 if step is None else step
            if int(step) != step:
                raise TypeError(f"ConvOp.__init__ param {name} must be an int", step)
            steps.append(int(step))
        if (unroll_batch or unroll_kern) and not self.has_all_shape(imshp, kshp, nkern, bsize):
            raise Exception(
                "In ConvOp, when using unroll_batch and unroll_nkern, all shape are needed"
            )
        if output_mode not in ("valid", "full"):
            raise Exception(f"Mode {output_mode} not implemented")
        self.imshp, self.kshp, self.nkern, self.bsize = imshp, kshp, nkern, bsize
        self.dx, self.dy = steps
        self.out_mode = output_mode
        self.unroll_batch, self.unroll_kern = unroll_batch, unroll_kern
        self.unroll_patch = unroll_patch
        self.verbose, self.version, self.direction_hint = verbose, version, direction_hint
        self.imshp_logical = imshp if imshp_logical is None else tuple(imshp_logical)
        if len(self.imshp_logical) != 3:
            raise ValueError(f"len(imshp_logical) must be 3, got {len(self.imshp_logical)}")
        self.kshp_logical = kshp if kshp_logical is None else tuple(kshp_logical)
        if len(self.kshp_logical) != 2:
            raise ValueError(f"len(kshp_logical) must be 2, got {len(self.kshp_logical)}")
        self.kshp_logical_top_aligned = kshp_logical_top_aligned
        self.outshp, self.fulloutshp = (
            get_conv_output_shape(
                (None, *self.imshp_logical), (None, None, *self.kshp_logical), output_mode, strides
            )[2:]
            for strides in (tuple(steps), (1, 1))
        )
        if any(size is not None and size <= 0 for size in self.outshp):
            raise Exception(
                "Bad size for the output shape. Verify that [post-supersampling] input shape "
                f"({self.imshp_logical}) and kern shape({self.kshp_logical}) are ok. "
                "(Hint: kerns must fit inside image in valid mode)"
            )

    @property
    def is_plain(self):
        """Whether no zeros are put between elements."""
        return self.imshp == self.imshp_logical and self.kshp == self.kshp_logical

    def __str__(self):
        settings = ",".join(str((name, getattr(self, name))) for name in self.__props__)
        return f"ConvOp{{{settings}}}"

    def flops(self, inputs, outputs):
        """Return the number of floating-point operations for these shapes."""
        images, kerns = inputs
        (out,) = outputs
        assert images[1] == kerns[1]
        positions = out[2] * out[3] if self.out_mode == "valid" else images[2] * images[3]
        return 2 * images[0] * kerns[0] * images[1] * kerns[2] * kerns[3] * positions

    def make_node(self, inputs, kerns):
        """Take images and filters of one dtype."""
        inputs, kerns = as_tensor_variable(inputs), as_tensor_variable(kerns)
        if inputs.ndim != 4:
            raise TypeError(
                "ConvOp (make_node) requires input be a 4D tensor; "
                f'received "{inputs}" ({inputs.ndim} dims)'
            )
        if kerns.ndim != 4:
            raise TypeError("make_node requires 4D tensor of kernels")
        if inputs.dtype != kerns.dtype:
            raise NotImplementedError(
                "The image and the kernel must have the same type."
                f"inputs({inputs.dtype}), kerns({kerns.dtype})"
            )
        pattern = [inputs.broadcastable[0], kerns.broadcastable[0]]
        pattern += [size == 1 for size in self.outshp]
        output = TensorType(inputs.dtype, tuple(1 if b else None for b in pattern))()
        return Apply(self, [inputs, kerns], [output])

    def expected_shapes(self):
        """Return what is known of the shapes of the images and of the filters."""
        return (self.bsize, *self.imshp), (self.nkern, self.imshp[0], *self.kshp)

    def perform(self, node, inputs, outputs):
        """Convolve in NumPy."""
        images, filters = inputs
        for name, array, expected in zip(
            ("image", "filter"), inputs, self.expected_shapes(), strict=True
        ):
            if any(e not in (None, size) for e, size in zip(expected, array.shape, strict=True)):
                raise ValueError(
                    f"The {name} shape provided at build time is different from the one passed "
                    f"at run time: {expected} and {array.shape}"
                )
        images = _spread(images, self.imshp_logical[1:])
        filters = _spread(filters, self.kshp_logical, self.kshp_logical_top_aligned)
        axes = []
        for size, stride in zip(filters.shape[2:], (self.dx, self.dy), strict=True):
            pad = size - 1 if self.out_mode == "full" else 0
            axes.append(Axis(pad, pad, stride, 1))
        outputs[0][0] = _correlate.forward(images, filters[:, :, ::-1, ::-1], axes).astype(
            images.dtype, copy=False
        )

    def infer_shape(self, *args):
        """Return the shape of the output."""
        image, kernel = (
            [
                given if known is None else known
                for known, given in zip(shape, inferred, strict=True)
            ]
            for shape, inferred in zip(
                (
                    (self.bsize, *self.imshp_logical),
                    (self.nkern, self.imshp_logical[0], *self.kshp_logical),
                ),
                args[-1],
                strict=True,
            )
        )
        return [get_conv_output_shape(image, kernel, self.out_mode, (self.dx, self.dy))]

    def pushforward(self, inputs, outputs, tangents):
        """Return the sum of the convolutions with each tangent in place of its input."""
        terms = [
            self(*(tangent if j == i else x for j, x in enumerate(inputs)))
            for i, tangent in enumerate(tangents)
            if not isinstance(tangent.type, DisconnectedType)
        ]
        return [sum(terms[1:], terms[0])] if terms else [DisconnectedType()()]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the images and by the filters, where Theano has them."""
        images, kerns = inputs
        (gz,) = cotangents
        if not self.is_plain:
            raise NotImplementedError(
                "ConvOp with imshp_logical or kshp_logical has no gradient; "
                "use filter_dilation and conv2d_transpose of theano.tensor.nnet."
            )
        steps = (self.dx, self.dy)
        if self.out_mode == "valid" and steps != (1, 1):
            raise NotImplementedError(
                "ERROR: ConvOp.grad is now disabled for 'valid' convolutions with "
                "stride != (1, 1); call theano.tensor.nnet.conv2d() instead."
            )
        if any(step not in (1, 2) for step in steps):
            raise NotImplementedError(
                "ERROR: We disable ConvOp.grad now when output_mode is not 'valid' and dx or dy "
                "are greater than 2; call theano.tensor.nnet.conv2d() instead."
            )
        known = self.has_all_shape(self.imshp, self.kshp, self.nkern, self.bsize)
        if steps != (1, 1) and not known:
            raise Exception(
                "ConvOp.grad when dx!=1 or dy!=1 we must have all the optional shape information"
            )
        settings = (*self.expected_shapes(), self.out_mode, steps)
        # What is known needs neither the images nor the filters as inputs of a function.
        image_size, kern_size = (
            variable.shape[-2:] if None in shape[-2:] else shape[-2:]
            for variable, shape in zip(inputs, self.expected_shapes(), strict=True)
        )
        d_images = AbstractConv2d_gradInputs(*settings)(kerns, gz, image_size)
        d_kerns = AbstractConv2d_gradWeights(*settings)(images, gz, kern_size)
        return [
            patternbroadcast(d_images, images.broadcastable),
            patternbroadcast(d_kerns, kerns.broadcastable),
        ]


def _spread(array, logical, top_aligned=True):
    """Return `array` with zeros between its elements, to the spatial shape `logical`."""
    logical = tuple(
        given if wanted is None else wanted
        for wanted, given in zip(logical, array.shape[2:], strict=True)
    )
    if logical == array.shape[2:]:
        return array
    places = []
    for wanted, given in zip(logical, array.shape[2:], strict=True):
        step = -(-wanted // given)
        first = 0 if top_aligned else (wanted - given * step - 1 + step) % step
        places.append(slice(first, None, step))
    result = np.zeros((*array.shape[:2], *logical), dtype=array.dtype)
    result[(slice(None), slice(None), *places)] = array
    return result
