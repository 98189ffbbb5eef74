"""Theano's ``theano.tensor.slinalg``."""

import numpy as np
import pytensor.tensor.linalg as pt_linalg
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.linalg import Cholesky as PyTensorCholesky
from pytensor.tensor.linalg import Eigvalsh as PyTensorEigvalsh
from pytensor.tensor.linalg import Solve as PyTensorSolve
from pytensor.tensor.linalg import SolveTriangular
from pytensor.tensor.math import all, any, invert, isnan, or_, outer

from .._standin import StandIn
from .basic import as_tensor_variable

imported_scipy = True
MATRIX_STRUCTURES = (
    "general",
    "symmetric",
    "lower_triangular",
    "upper_triangular",
    "hermitian",
    "banded",
    "diagonal",
    "toeplitz",
)


def _or_raise(result, matrix, message):
    """Raise `LinAlgError` where PyTensor gives NaNs for a matrix that has none."""
    is_right = or_(any(isnan(matrix)), all(invert(isnan(result))))
    return CheckAndRaise(np.linalg.LinAlgError, message)(result, is_right)


class Cholesky(metaclass=StandIn):
    """``Cholesky(lower, on_error)(x)`` is a triangular factor of `x`."""

    stands_for = PyTensorCholesky

    def __init__(self, lower=True, on_error="raise"):
        if on_error not in ("raise", "nan"):
            raise ValueError('on_error must be one of "raise" or ""nan"')
        self.lower = lower
        self.on_error = on_error

    def __call__(self, x):
        """Return the factor."""
        x = as_tensor_variable(x)
        assert x.ndim == 2
        result = pt_linalg.cholesky(x, lower=self.lower)
        if self.on_error == "nan":
            return result
        return _or_raise(result, x, "Matrix is not positive definite")


cholesky = Cholesky()


class Solve(metaclass=StandIn):
    """``Solve(A_structure)(A, b)`` solves ``A x = b``."""

    stands_for = (PyTensorSolve, SolveTriangular)

    def __init__(self, A_structure="general", lower=False, overwrite_A=False, overwrite_b=False):
        if A_structure not in MATRIX_STRUCTURES:
            raise ValueError("Invalid matrix structure argument", A_structure)
        self.A_structure = A_structure
        self.lower = lower

    def __call__(self, A, b):
        """Return `x`; only triangles are treated apart, as in Theano."""
        A, b = as_tensor_variable(A), as_tensor_variable(b)
        assert A.ndim == 2
        assert b.ndim in (1, 2)
        if self.A_structure.endswith("triangular"):
            lower = self.A_structure == "lower_triangular"
            result = pt_linalg.solve_triangular(A, b, lower=lower, b_ndim=b.ndim)
        else:
            result = pt_linalg.solve(A, b, b_ndim=b.ndim)
        return _or_raise(result, A, "Matrix is singular")


solve = Solve()
solve_lower_triangular = Solve(A_structure="lower_triangular", lower=True)
solve_upper_triangular = Solve(A_structure="upper_triangular", lower=False)
solve_symmetric = Solve(A_structure="symmetric")


class Eigvalsh(metaclass=StandIn):
    """``Eigvalsh(lower)(a, b)`` gives the generalized eigenvalues of a pair of matrices."""

    stands_for = PyTensorEigvalsh

    def __init__(self, lower=True):
        assert lower in [True, False]
        self.lower = lower

    def __call__(self, a, b):
        """Return the eigenvalues; `b` may be None."""
        return eigvalsh(a, b, self.lower)


def eigvalsh(a, b, lower=True):
    """Return the generalized eigenvalues of a pair of matrices; `b` may be None."""
    return pt_linalg.eigvalsh(a, b, lower)


def kron(a, b):
    """Return the Kronecker product; where a rank is not 2, it is Theano's and not NumPy's."""
    a, b = as_tensor_variable(a), as_tensor_variable(b)
    if a.ndim + b.ndim <= 2:
        raise TypeError(
            f"kron: inputs dimensions must sum to 3 or more. You passed {a.ndim} and {b.ndim}."
        )
    product = outer(a, b).reshape([*a.shape, *b.shape])
    if product.ndim == 3:
        return product.dimshuffle(1, 0, 2).flatten()
    shuffled = product.dimshuffle(0, 2, 1, *range(3, product.ndim))
    sizes = list(product.shape)
    return shuffled.reshape([sizes[0] * sizes[2], sizes[1] * sizes[3], *sizes[4:]])
