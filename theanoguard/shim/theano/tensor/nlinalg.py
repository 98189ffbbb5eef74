"""Theano's ``theano.tensor.nlinalg``."""

from functools import reduce

import pytensor.tensor.linalg as pt_linalg
from pytensor.tensor.basic import AllocDiag as PyTensorAllocDiag
from pytensor.tensor.basic import alloc_diag as pt_alloc_diag
from pytensor.tensor.linalg import Eigh as PyTensorEigh
from pytensor.tensor.linalg import MatrixPinv as PyTensorMatrixPinv
from pytensor.tensor.linalg import lstsq as pt_lstsq
from pytensor.tensor.linalg import pinv

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


class Eigh(metaclass=StandIn):
    """``Eigh(UPLO)(x)`` gives eigenvalues and eigenvectors of a symmetric matrix."""

    stands_for = PyTensorEigh

    def __init__(self, UPLO="L"):
        assert UPLO in ("L", "U")
        self.UPLO = UPLO

    def __call__(self, x):
        """Return the eigenvalues and the eigenvectors."""
        return eigh(x, self.UPLO)


def eigh(a, UPLO="L"):
    """Return eigenvalues and eigenvectors of a symmetric matrix; `UPLO` is the triangle read."""
    return pt_linalg.eigh(a, lower=UPLO == "L")


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
