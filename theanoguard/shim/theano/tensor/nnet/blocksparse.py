"""Products of chosen blocks of a matrix of blocks with chosen blocks of vectors."""

import numpy as np
from pytensor.gradient import grad_undefined
from pytensor.graph.basic import Apply
from pytensor.tensor.basic import as_tensor_variable, constant, discrete_dtypes

from ...gof.op import Op


def _indices(*variables):
    found = [as_tensor_variable(v) for v in variables]
    assert all(v.type.dtype in discrete_dtypes for v in found)
    return found


class SparseBlockGemv(Op):
    """Add to blocks of a vector the products of chosen blocks of a matrix with blocks of another.

    ``o[b, j] += sum_i dot(h[b, i], W[inputIdx[b, i], outputIdx[b, j]])``

    Parameters
    ----------
    inplace : bool
        Whether the first input may be overwritten.
    """

    __props__ = ("inplace",)

    def __init__(self, inplace=False):
        self.inplace = inplace
        if inplace:
            self.destroy_map = {0: [0]}

    def make_node(self, o, W, h, inputIdx, outputIdx):
        """Take tensors.

        `o` is (batch, output blocks, output size), `W` (blocks in, blocks out, input size, output
        size), `h` (batch, input blocks, input size), and the indices are (batch, blocks).
        """
        o, W, h = (as_tensor_variable(v) for v in (o, W, h))
        inputIdx, outputIdx = _indices(inputIdx, outputIdx)
        for variable, ndim, name in (
            (o, 3, "output o"),
            (W, 4, "weight matrix W"),
            (h, 3, "input h"),
            (inputIdx, 2, "input indices inputIdx"),
            (outputIdx, 2, "output indices outputIdx"),
        ):
            if variable.ndim != ndim:
                raise TypeError(f"The {name} must be a {ndim}D tensor")
        return Apply(self, [o, W, h, inputIdx, outputIdx], [o.type()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        o, W, h, into, out = inputs
        chosen = W[into[:, :, None], out[:, None, :]]
        product = np.einsum("bik,bijkl->bjl", h, chosen)
        if self.inplace:
            o += product
        else:
            o = (o + product).astype(o.dtype, copy=False)
        outputs[0][0] = o

    def infer_shape(self, *args):
        """Return the shape of the first input."""
        return [args[-1][0]]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the three arrays."""
        _, W, h, inputIdx, outputIdx = inputs
        (go,) = cotangents
        return [
            go,
            sparse_block_outer(W.zeros_like(), h, go, inputIdx, outputIdx),
            sparse_block_gemv(h.zeros_like(), W.dimshuffle((1, 0, 3, 2)), go, outputIdx, inputIdx),
            grad_undefined(self, 3, inputIdx, "grad of inputIdx makes no sense"),
            grad_undefined(self, 4, outputIdx, "grad of outputIdx makes no sense"),
        ]


class SparseBlockOuter(Op):
    """Add outer products of blocks to chosen blocks: the gradient of `SparseBlockGemv`.

    ``o[xIdx[b, i], yIdx[b, j]] += alpha * outer(x[b, i], y[b, j])``

    Parameters
    ----------
    inplace : bool
        Whether the first input may be overwritten.
    """

    __props__ = ("inplace",)

    def __init__(self, inplace=False):
        self.inplace = inplace
        if inplace:
            self.destroy_map = {0: [0]}

    def make_node(self, o, x, y, xIdx, yIdx, alpha=None):
        """Take the blocks, as the gradient has them; `alpha` is a number."""
        o, x, y = (as_tensor_variable(v) for v in (o, x, y))
        xIdx, yIdx = _indices(xIdx, yIdx)
        alpha = constant(np.float32(1)) if alpha is None else as_tensor_variable(alpha)
        return Apply(self, [o, x, y, xIdx, yIdx, alpha], [o.type()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        o, x, y, x_index, y_index, alpha = inputs
        if not self.inplace:
            o = o.copy()
        products = (alpha * np.einsum("bik,bjl->bijkl", x, y)).astype(o.dtype, copy=False)
        np.add.at(o, (x_index[:, :, None], y_index[:, None, :]), products)
        outputs[0][0] = o

    def infer_shape(self, *args):
        """Return the shape of the first input."""
        return [args[-1][0]]


sparse_block_gemv = SparseBlockGemv(False)
sparse_block_gemv_inplace = SparseBlockGemv(True)
sparse_block_outer = SparseBlockOuter(False)
sparse_block_outer_inplace = SparseBlockOuter(True)


def sparse_block_dot(W, h, inputIdx, b, outputIdx):
    """Return for chosen output blocks the product of chosen blocks of `W` with `h`, plus `b`.

    Parameters
    ----------
    W : TensorVariable
        (blocks in, blocks out, input size, output size).
    h : TensorVariable
        (batch, input blocks, input size), or without the first axis.
    inputIdx, outputIdx : TensorVariable
        (batch, blocks) of integers, or without the first axis.
    b : TensorVariable
        (blocks out, output size).

    Returns
    -------
    TensorVariable
        (batch, output blocks, output size).
    """
    assert inputIdx.ndim == h.ndim - 1
    assert outputIdx.ndim == inputIdx.ndim
    if h.ndim == 2:
        h = h.dimshuffle("x", 0, 1)
        inputIdx = inputIdx.dimshuffle("x", 0)
        outputIdx = outputIdx.dimshuffle("x", 0)
    return sparse_block_gemv(b.take(outputIdx, axis=0), W, h, inputIdx, outputIdx)
