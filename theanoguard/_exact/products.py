"""Matrix products."""

from typing import Any

import numpy as np
import pytensor.scalar as ps
from flint import arb, arb_mat
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.blas import BatchedDot, Dot22, Dot22Scalar, Gemm, Gemv
from pytensor.tensor.math import Dot

from theanoguard._exact.balls import ZERO, array_of, to_balls
from theanoguard._exact.rules import exact_value
from theanoguard._exact.scalars import SUMMING, of_elements, over_arrays


def matrix(array: np.ndarray) -> arb_mat:
    """Return a two-dimensional array of balls as a matrix of python-flint."""
    rows, columns = array.shape
    return arb_mat(rows, columns, array.ravel().tolist())


def from_matrix(values: arb_mat) -> np.ndarray:
    """Return a matrix of python-flint as an array of balls."""
    return array_of(values.entries(), (values.nrows(), values.ncols()))


def product(a: np.ndarray, b: np.ndarray, spend: Any) -> np.ndarray:
    """Return the matrix product of two arrays of one or two dimensions."""
    left = a.reshape(1, -1) if a.ndim == 1 else a
    right = b.reshape(-1, 1) if b.ndim == 1 else b
    spend(left.shape[0] * right.size // 2 + left.size + right.size)
    if left.shape[1] == 0:
        result = array_of([ZERO] * (left.shape[0] * right.shape[1]), (len(left), right.shape[1]))
    else:
        result = from_matrix(matrix(left) * matrix(right))
    if not all(map(arb.is_finite, [*left.ravel().tolist(), *right.ravel().tolist()])):
        columns = right.T.tolist()
        rows = left.tolist()
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                result[i, j] = _inner(row, column)
    return result.reshape(a.shape[:-1] + b.shape[1:])


def _inner(row: list[arb], column: list[arb]) -> arb:
    total = ZERO
    for x, y in zip(row, column, strict=True):
        term = of_elements(SUMMING[ps.Mul], ps.mul, (x, y))
        total = of_elements(SUMMING[ps.Add], ps.add, (total, term))
    return total


def _combined(twin: Any, kind: type, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return over_arrays(SUMMING[kind], None, [x, y], twin.context.budget.spend)


@exact_value.register(Dot)
@exact_value.register(Dot22)
def _dot(op: Op, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a, b = map(to_balls, values)
    return [product(a, b, twin.context.budget.spend)]


@exact_value.register
def _batched_dot(op: BatchedDot, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a, b = map(to_balls, values)
    parts = [product(x, y, twin.context.budget.spend) for x, y in zip(a, b, strict=True)]
    shape = (len(a), *a.shape[1:-1], *b.shape[2:])
    return [array_of([ball for part in parts for ball in part.ravel().tolist()], shape)]


@exact_value.register
def _scaled_dot(op: Dot22Scalar, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a, b, scale = map(to_balls, values)
    return [_combined(twin, ps.Mul, product(a, b, twin.context.budget.spend), scale)]


@exact_value.register(Gemm)
@exact_value.register(Gemv)
def _accumulated_dot(op: Op, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    z, alpha, a, b, beta = map(to_balls, values)
    new = _combined(twin, ps.Mul, product(a, b, twin.context.budget.spend), alpha)
    if beta.item().is_zero():
        return [new]
    return [_combined(twin, ps.Add, new, _combined(twin, ps.Mul, z, beta))]
