"""Theano's ``theano.tensor.slinalg``.

PyTensor's operations give NaNs for a matrix that has no solution.  Those here raise as Theano's do,
in the gradient as well.
"""

import numpy as np
import scipy.linalg
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scalar.basic import upcast
from pytensor.tensor.basic import diag as matrix_of
from pytensor.tensor.basic import diagonal, switch, tril, triu
from pytensor.tensor.math import any as any_of
from pytensor.tensor.math import dot, isnan, outer
from pytensor.tensor.type import matrix, tensor, vector
from pytensor.tensor.type_other import NoneTypeT

from theanoguard._pytensor.for_theano import input_shapes

from .basic import as_tensor_variable
from .nlinalg import one_triangle

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


def _as_matrix(x):
    """Return a variable that is a matrix."""
    x = as_tensor_variable(x)
    assert x.ndim == 2
    return x


def _float_dtype(*variables):
    """Return the dtype of a solution."""
    return scipy.linalg.solve(*(np.eye(1, dtype=variables[i].dtype) for i in (0, -1))).dtype.name


class Cholesky(Op):
    """``Cholesky(lower, on_error)(x)`` is a triangular factor of `x`.

    Parameters
    ----------
    lower : bool
    on_error : {"raise", "nan"}
        Whether a matrix without one raises LinAlgError, or gives NaNs.
    """

    __props__ = ("lower", "destructive", "on_error")
    destructive = False

    def __init__(self, lower=True, on_error="raise"):
        if on_error not in ("raise", "nan"):
            raise ValueError('on_error must be one of "raise" or ""nan"')
        self.lower = lower
        self.on_error = on_error

    def make_node(self, x):
        x = _as_matrix(x)
        return Apply(self, [x], [matrix(dtype=_float_dtype(x))])

    def perform(self, node, inputs, outputs):
        try:
            factor = scipy.linalg.cholesky(inputs[0], lower=self.lower)
        except scipy.linalg.LinAlgError as error:
            if self.on_error == "raise":
                raise scipy.linalg.LinAlgError("Matrix is not positive definite") from error
            factor = np.full(inputs[0].shape, np.nan)
        outputs[0][0] = factor.astype(node.outputs[0].dtype, copy=False)

    def infer_shape(self, *args):
        return input_shapes(args)[:1]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient as in "Differentiation of the Cholesky decomposition", I. Murray."""
        (factor,), (gradient,) = outputs, cotangents
        if self.on_error == "nan":
            # The solver of triangular systems refuses NaNs.
            bad = any_of(isnan(factor))
            factor, gradient = switch(bad, 1, factor), switch(bad, 1, gradient)
        if not self.lower:
            factor, gradient = factor.T, gradient.T
        inner = tril(dot(factor.T, gradient))
        inner = inner - matrix_of(diagonal(inner) / 2)
        found = solve_upper_triangular(factor.T, solve_upper_triangular(factor.T, inner.T).T)
        triangle = tril if self.lower else triu
        result = triangle(found + found.T) - matrix_of(diagonal(found))
        return [switch(bad, np.nan, result) if self.on_error == "nan" else result]


cholesky = Cholesky()


class CholeskyGrad(Op):
    """``CholeskyGrad(lower)(x, l, dz)`` is the gradient by `x`, of which `l` is the factor."""

    __props__ = ("lower", "destructive")
    destructive = False

    def __init__(self, lower=True):
        self.lower = lower

    def make_node(self, x, l, dz):  # noqa: E741
        x, l, dz = map(_as_matrix, (x, l, dz))  # noqa: E741
        assert l.owner.op.lower == self.lower, (
            "lower/upper mismatch between Cholesky op and CholeskyGrad op"
        )
        return Apply(self, [x, l, dz], [x.type()])

    def perform(self, node, inputs, outputs):
        _, factor, gradient = (m if self.lower else m.T for m in inputs)
        inner = np.tril(factor.T @ np.tril(gradient))
        inner -= np.diag(np.diag(inner) / 2)
        half = scipy.linalg.solve_triangular(factor.T, inner)
        found = scipy.linalg.solve_triangular(factor.T, half.T).T
        result = np.tril(found + found.T) - np.diag(np.diag(found))
        outputs[0][0] = (result if self.lower else result.T).astype(node.outputs[0].dtype)

    def infer_shape(self, *args):
        return input_shapes(args)[:1]


_TRIANGLES = {"lower_triangular": tril, "upper_triangular": triu}


class Solve(Op):
    """``Solve(A_structure)(A, b)`` solves ``A x = b``; only triangles are treated apart."""

    __props__ = ("A_structure", "lower", "overwrite_A", "overwrite_b")

    def __init__(self, A_structure="general", lower=False, overwrite_A=False, overwrite_b=False):
        if A_structure not in MATRIX_STRUCTURES:
            raise ValueError("Invalid matrix structure argument", A_structure)
        self.A_structure = A_structure
        self.lower = lower
        self.overwrite_A = overwrite_A
        self.overwrite_b = overwrite_b

    def __repr__(self):
        return f"Solve{{{self._props()}}}"

    def make_node(self, A, b):
        A, b = _as_matrix(A), as_tensor_variable(b)
        assert b.ndim in (1, 2)
        found = tensor(
            dtype=_float_dtype(A, b), shape=[1 if one else None for one in b.broadcastable]
        )
        return Apply(self, [A, b], [found])

    def perform(self, node, inputs, outputs):
        A, b = inputs
        if self.A_structure in _TRIANGLES:
            lower = self.A_structure == "lower_triangular"
            outputs[0][0] = scipy.linalg.solve_triangular(A, b, lower=lower)
            return
        try:
            outputs[0][0] = scipy.linalg.solve(A, b)
        except scipy.linalg.LinAlgError as error:
            raise scipy.linalg.LinAlgError("Matrix is singular") from error

    def infer_shape(self, *args):
        of_matrix, of_side = input_shapes(args)
        return [(of_matrix[1], *of_side[1:])]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by `A` and by `b`."""
        (A, _), (found,), (gradient,) = inputs, outputs, cotangents
        other = dict(zip(_TRIANGLES, reversed(_TRIANGLES), strict=True))
        transposed = Solve(other.get(self.A_structure, self.A_structure), not self.lower)
        by_b = transposed(A.T, gradient)
        by_A = -outer(by_b, found) if found.ndim == 1 else -dot(by_b, found.T)
        return [_TRIANGLES.get(self.A_structure, lambda x: x)(by_A), by_b]


solve = Solve()
solve_lower_triangular = Solve(A_structure="lower_triangular", lower=True)
solve_upper_triangular = Solve(A_structure="upper_triangular", lower=False)
solve_symmetric = Solve(A_structure="symmetric")


class Eigvalsh(Op):
    """``Eigvalsh(lower)(a, b)`` gives the generalized eigenvalues of a pair of matrices."""

    __props__ = ("lower",)

    def __init__(self, lower=True):
        assert lower in (True, False)
        self.lower = lower

    def make_node(self, a, b):
        alone = b is None or isinstance(getattr(b, "type", None), NoneTypeT)
        given = [_as_matrix(x) for x in ([a] if alone else [a, b])]
        return Apply(self, given, [vector(dtype=upcast(*(x.dtype for x in given)))])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = scipy.linalg.eigvalsh(*inputs, lower=self.lower)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by both matrices, or by the only one."""
        if len(inputs) == 1:
            identity = matrix_of(outputs[0] * 0 + 1)
            return EigvalshGrad(self.lower)(inputs[0], identity, *cotangents)[:1]
        return EigvalshGrad(self.lower)(*inputs, *cotangents)

    def infer_shape(self, *args):
        return [input_shapes(args)[0][:1]]


class EigvalshGrad(Op):
    """``EigvalshGrad(lower)(a, b, gw)`` gives the gradients of `Eigvalsh`."""

    __props__ = ("lower",)

    def __init__(self, lower=True):
        assert lower in (True, False)
        self.lower = lower

    def make_node(self, a, b, gw):
        a, b, gw = _as_matrix(a), _as_matrix(b), as_tensor_variable(gw)
        assert gw.ndim == 1
        dtype = upcast(a.dtype, b.dtype, gw.dtype)
        return Apply(self, [a, b, gw], [matrix(dtype=dtype), matrix(dtype=dtype)])

    def perform(self, node, inputs, outputs):
        a, b, gw = inputs
        values, vectors = scipy.linalg.eigh(a, b, lower=self.lower)
        for output, weights, variable in zip(
            outputs, (gw, -gw * values), node.outputs, strict=True
        ):
            gradient = one_triangle((vectors * weights) @ vectors.T, self.lower)
            output[0] = np.asarray(gradient, dtype=variable.dtype)

    def infer_shape(self, *args):
        return input_shapes(args)[:2]


def eigvalsh(a, b, lower=True):
    """Return the generalized eigenvalues of a pair of matrices; `b` may be None."""
    return Eigvalsh(lower)(a, b)


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
