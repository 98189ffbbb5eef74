"""Theano's ``theano.tensor.nlinalg``."""

import warnings
from functools import reduce

import numpy as np
import pytensor.tensor.linalg as pt_linalg
from numpy.exceptions import ComplexWarning
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scalar.basic import upcast
from pytensor.tensor.basic import AllocDiag as PyTensorAllocDiag
from pytensor.tensor.basic import alloc_diag as pt_alloc_diag
from pytensor.tensor.linalg import MatrixPinv as PyTensorMatrixPinv
from pytensor.tensor.linalg import lstsq as pt_lstsq
from pytensor.tensor.linalg import pinv
from pytensor.tensor.type import matrix, vector

from theanoguard._pytensor.for_theano import input_shapes

from .._standin import StandIn
from .basic import abs_, as_tensor_variable, diagonal, dot, max, min, sum
from .basic import diag as tensor_diag


class AllocDiag(metaclass=StandIn):
    """``AllocDiag()(v)`` is the matrix with `v` on a diagonal."""

    stands_for = PyTensorAllocDiag

    def __init__(self, offset=0, axis1=0, axis2=1):
        self.offset, self.axis1, self.axis2 = offset, axis1, axis2

    def __call__(self, v):
        """Return the matrix."""
        v = as_tensor_variable(v)
        if v.ndim != 1:
            raise TypeError("AllocDiag only works on vectors", v)
        return pt_alloc_diag(v, self.offset, self.axis1, self.axis2)


alloc_diag = AllocDiag()


class MatrixInverse(metaclass=StandIn):
    """``MatrixInverse()(x)`` is the inverse of `x`."""

    stands_for = pt_linalg.MatrixInverse

    def __call__(self, x):
        """Return the inverse."""
        return pt_linalg.inv(x)


class Det(metaclass=StandIn):
    """``Det()(x)`` is the determinant of `x`."""

    stands_for = pt_linalg.Det

    def __call__(self, x):
        """Return the determinant."""
        return pt_linalg.det(x)


class MatrixPinv(metaclass=StandIn):
    """``MatrixPinv()(x)`` is the pseudo-inverse of `x`."""

    stands_for = PyTensorMatrixPinv

    def __call__(self, x):
        """Return the pseudo-inverse."""
        return pinv(x)


class Eig(Op):
    """Eigenvalues and right eigenvectors of a matrix, in its dtype: of real ones the real parts."""

    _numop = staticmethod(np.linalg.eig)
    __props__ = ()

    def make_node(self, x):
        x = as_tensor_variable(x)
        assert x.ndim == 2
        return Apply(self, [x], [vector(dtype=x.dtype), matrix(dtype=x.dtype)])

    def perform(self, node, inputs, outputs):
        (x,) = inputs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ComplexWarning)
            for output, found in zip(outputs, self._numop(x), strict=True):
                output[0] = found.astype(x.dtype)

    def infer_shape(self, *args):
        n = input_shapes(args)[0][0]
        return [(n,), (n, n)]


eig = Eig()


class Eigh(Eig):
    """``Eigh(UPLO)(x)`` gives eigenvalues and eigenvectors of a symmetric matrix."""

    _numop = staticmethod(np.linalg.eigh)
    __props__ = ("UPLO",)

    def __init__(self, UPLO="L"):
        assert UPLO in ("L", "U")
        self.UPLO = UPLO

    def make_node(self, x):
        x = as_tensor_variable(x)
        assert x.ndim == 2
        values, vectors = self._numop(np.eye(1, dtype=x.dtype))
        return Apply(self, [x], [vector(dtype=values.dtype.name), matrix(dtype=vectors.dtype.name)])

    def perform(self, node, inputs, outputs):
        (outputs[0][0], outputs[1][0]) = self._numop(inputs[0], self.UPLO)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient, as perturbation theory has it."""
        return [EighGrad(self.UPLO)(*inputs, *outputs, *_zero_disconnected(outputs, cotangents))]


def _zero_disconnected(outputs, grads):
    """Return gradients of which those that are disconnected are zeros."""
    return [
        output.zeros_like() if isinstance(gradient.type, DisconnectedType) else gradient
        for output, gradient in zip(outputs, grads, strict=True)
    ]


class EighGrad(Op):
    """``EighGrad(UPLO)(x, w, v, gw, gv)`` is the gradient of `Eigh`."""

    __props__ = ("UPLO",)

    def __init__(self, UPLO="L"):
        assert UPLO in ("L", "U")
        self.UPLO = UPLO

    def make_node(self, x, w, v, gw, gv):
        given = [as_tensor_variable(variable) for variable in (x, w, v, gw, gv)]
        assert [variable.ndim for variable in given] == [2, 1, 2, 1, 2]
        return Apply(self, given, [matrix(dtype=upcast(*(variable.dtype for variable in given)))])

    def perform(self, node, inputs, outputs):
        _, w, v, gw, gv = inputs
        gaps = w[None, :] - w[:, None]
        np.fill_diagonal(gaps, np.inf)
        inner = (v.T @ gv) / gaps
        np.fill_diagonal(inner, gw)
        gradient = one_triangle(v @ inner @ v.T, self.UPLO == "L")
        outputs[0][0] = np.asarray(gradient, dtype=node.outputs[0].dtype)

    def infer_shape(self, *args):
        return input_shapes(args)[:1]


def one_triangle(gradient, lower):
    """Return the gradient of a function that reads one triangle of a symmetric matrix."""
    read, other = (np.tril, np.triu) if lower else (np.triu, np.tril)
    return read(gradient) + other(gradient, 1 if lower else -1).T


def eigh(a, UPLO="L"):
    """Return eigenvalues and eigenvectors of a symmetric matrix; `UPLO` is the triangle read."""
    return Eigh(UPLO)(a)


def qr(a, mode="reduced"):
    """Return the QR decomposition of a matrix; the modes are NumPy's."""
    found = pt_linalg.qr(a, mode)
    if mode == "r":
        return found[: found.shape[1]]
    return [found[0].T, found[1]] if mode == "raw" else found


class QRFull:
    """``QRFull(mode)(x)`` is ``qr(x, mode)``, for a mode with two results."""

    def __init__(self, mode):
        self.mode = mode

    def __call__(self, x):
        """Return the decomposition."""
        return qr(x, self.mode)


class QRIncomplete(QRFull):
    """``QRIncomplete(mode)(x)`` is ``qr(x, mode)``, for a mode with one result."""


def svd(a, full_matrices=1, compute_uv=1):
    """Return the singular value decomposition; the flags may be numbers."""
    return pt_linalg.svd(a, bool(full_matrices), bool(compute_uv))


def lstsq():
    """Return the Op, which Theano has as a class."""
    return pt_lstsq


def extract_diag(x):
    """Return the diagonal of a matrix."""
    return diagonal(x)


def trace(X):
    """Return the sum of the diagonal of a matrix."""
    return sum(diagonal(X))


def matrix_dot(*args):
    """Return the product of matrices."""
    return reduce(dot, args)


def diag(x):
    """Return the diagonal of a matrix, or the matrix with this diagonal."""
    x = as_tensor_variable(x)
    if x.ndim not in (1, 2):
        raise TypeError("diag requires vector or matrix argument", x)
    return tensor_diag(x)


def norm(x, ord):
    """Return the norm of a vector or a matrix; infinities are the strings "inf" and "-inf"."""
    x = as_tensor_variable(x)
    size = abs_(x)
    if x.ndim == 0:
        raise ValueError("'axis' entry is out of bounds.")
    if x.ndim > 2:
        raise NotImplementedError("We don't support norm with ndim > 2")
    if ord is None or (ord == "fro" and x.ndim == 2):
        return sum(size**2) ** 0.5
    lines = {"inf": 1, "-inf": 1, 1: 0, -1: 0}
    if x.ndim == 2:
        if ord not in lines:
            raise ValueError(0)
        sums = sum(size, lines[ord])
        return max(sums) if ord in ("inf", 1) else min(sums)
    if ord in ("inf", "-inf"):
        return max(size) if ord == "inf" else min(size)
    if ord == 0:
        return x[x.nonzero()].shape[0]
    if isinstance(ord, str):
        raise ValueError("Invalid norm order for vectors.")
    return sum(size**ord) ** (1.0 / ord)
