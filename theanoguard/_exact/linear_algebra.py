"""Determinants, inverses, solutions, decompositions and eigenvalues of matrices.

A matrix that is singular for certain has no inverse.  Whether it is, rational arithmetic decides.
"""

from typing import Any

import numpy as np
import pytensor.scalar as ps
from flint import acb_mat, arb, arb_mat, fmpq_mat
from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.eigen import Eigh, Eigvalsh
from pytensor.tensor.linalg.decomposition.svd import SVD
from pytensor.tensor.linalg.inverse import MatrixInverse, MatrixPinv
from pytensor.tensor.linalg.products import Expm
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.summary import Det, SLogDet

from theanoguard._exact.balls import (
    NONE,
    ONE,
    UNKNOWN,
    ZERO,
    array_of,
    filled,
    kind_of,
    to_balls,
    to_floats,
)
from theanoguard._exact.products import from_matrix, matrix
from theanoguard._exact.rules import exact_value
from theanoguard._exact.scalars import RULES, of_elements
from theanoguard._pytensor import core_node

RATIONAL_SIZE = 40  # rows of a matrix whose rank is decided in rational arithmetic

_RANGE = arb(2) ** 2200  # beyond the range of float64: larger numbers are not turned into fractions


def _rational(entries: list[arb], rows: int) -> fmpq_mat | None:
    """Return a square matrix of exact numbers as fractions, None if it has others."""
    plain = all(x.is_exact() and (x.is_zero() or 1 / _RANGE < abs(x) < _RANGE) for x in entries)
    if rows > RATIONAL_SIZE or not plain:
        return None
    return fmpq_mat(rows, rows, [x.fmpq() for x in entries])


def _is_singular(values: arb_mat) -> bool:
    """Whether a square matrix is singular for certain."""
    rational = _rational(values.entries(), values.nrows())
    return rational is not None and rational.det() == 0


def _without_number(array: np.ndarray) -> arb | None:
    """Return what an operation gives if an element of its operand is no number."""
    kinds = {kind_of(x) for x in array.ravel().tolist()}
    if kinds <= {"number"}:
        return None
    return UNKNOWN if "unknown" in kinds and "none" not in kinds else NONE


def _solved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the solution of ``a @ x = b``, for a vector or a matrix `b`."""
    columns = b.reshape(len(b), -1)
    bad = _without_number(np.concatenate([a.ravel(), b.ravel()]))
    if bad is not None:
        return filled(bad, b.shape)
    if not b.size:
        return b
    left = matrix(a)
    try:
        return from_matrix(left.solve(matrix(columns))).reshape(b.shape)
    except ZeroDivisionError:
        return filled(NONE if _is_singular(left) else UNKNOWN, b.shape)


def determinant(a: np.ndarray) -> arb:
    """Return the determinant: 0 is exact if the numbers in the matrix are."""
    bad = _without_number(a)
    if bad is not None:
        return bad
    found = matrix(a).det()
    if not found.is_exact() and found.contains(0):
        rational = _rational(a.ravel().tolist(), len(a))
        if rational is not None:
            return arb(rational.det())
    return found


def mirrored(a: np.ndarray, lower: bool) -> np.ndarray:
    """Return the symmetric matrix of which a function reads one triangle."""
    triangle: np.ndarray = np.tri(len(a), dtype=bool) if lower else np.tri(len(a), dtype=bool).T
    return np.where(triangle, a, a.T)


def triangular(a: np.ndarray, lower: bool, unit_diagonal: bool = False) -> np.ndarray:
    """Return the triangle of a matrix that a function reads."""
    kept: np.ndarray = np.tri(len(a), dtype=bool) if lower else np.tri(len(a), dtype=bool).T
    out = np.where(kept, a, ZERO)
    return np.where(np.eye(len(a), dtype=bool), ONE, out) if unit_diagonal else out


def cholesky_factor(a: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor; no value throughout if there is none for certain."""
    n = len(a)
    bad = _without_number(a)
    if bad is not None:
        return filled(bad, a.shape)
    rows: list[list[arb]] = []
    for i in range(n):
        row: list[arb] = []
        for j in range(i):
            inner = sum((x * y for x, y in zip(row, rows[j], strict=False)), ZERO)
            row.append((a[i, j] - inner) / rows[j][j])
        left = a[i, i] - sum((x * x for x in row), ZERO)
        if not left > 0:
            certain = left <= 0 or _is_singular(matrix(a[: i + 1, : i + 1]))
            return filled(NONE if certain else UNKNOWN, a.shape)
        rows.append([*row, left.sqrt(), *[ZERO] * (n - i - 1)])
    return array_of([x for row in rows for x in row], a.shape)


def _is_definite(a: np.ndarray) -> arb | None:
    """Return what ``solve(assume_a="pos")`` gives for a matrix that is not, None if it is."""
    factor = cholesky_factor(a)
    first: Any = factor[0, 0]
    return None if kind_of(first) == "number" else first


def eigenvalues(a: np.ndarray) -> list[arb] | None:
    """Return the eigenvalues of a symmetric matrix, from the smallest to the largest."""
    found = acb_mat(matrix(a)).eig(multiple=True, nonstop=True)
    values = [x.real for x in found]
    return sorted(values, key=arb.mid) if all(map(arb.is_finite, values)) else None


@exact_value.register
def _blockwise(op: Blockwise, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    inner = core_node(node)
    counts = [v.ndim - len(core) for v, core in zip(values, op.inputs_sig, strict=True)]
    batch = np.broadcast_shapes(*(v.shape[:k] for v, k in zip(values, counts, strict=True)))
    wide = [np.broadcast_to(v, (*batch, *v.shape[k:])) for v, k in zip(values, counts, strict=True)]
    results: list[list[np.ndarray]] = [[] for _ in node.outputs]
    for index in np.ndindex(*batch):
        given = [np.asarray(v[(*index, ...)]) for v in wide]
        part = twin.of_node(inner, given)
        for found, value in zip(results, part, strict=True):
            found.append(value)
    return [
        _stacked(found, batch, len(core))
        for found, core in zip(results, op.outputs_sig, strict=True)
    ]


def _stacked(parts: list[np.ndarray], batch: tuple[int, ...], core_ndim: int) -> np.ndarray:
    """Return the results for the entries of a batch as one array."""
    if not parts:
        return np.empty((*batch, *[0] * core_ndim), object)
    flat = [x for part in parts for x in part.ravel().tolist()]
    shape = (*batch, *parts[0].shape)
    return array_of(flat, shape) if parts[0].dtype == object else np.reshape(flat, shape)


def _spend_cube(twin: Any, a: np.ndarray, factor: int = 1) -> None:
    twin.context.budget.spend(factor * len(a) ** 3)


@exact_value.register
def _determinant(op: Det, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a = to_balls(values[0])
    _spend_cube(twin, a)
    return [array_of([determinant(a)], ())]


@exact_value.register
def _log_determinant(op: SLogDet, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a = to_balls(values[0])
    _spend_cube(twin, a)
    det = determinant(a)
    sign = of_elements(RULES[ps.Sign], ps.sign, (det,))
    log = of_elements(RULES[ps.Log], ps.log, (abs(det),))
    return [array_of([sign], ()), array_of([log], ())]


@exact_value.register
def _inverse(op: MatrixInverse, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a = to_balls(values[0])
    _spend_cube(twin, a, 3)
    return [_solved(a, to_balls(np.eye(len(a))))]


@exact_value.register
def _pseudoinverse(op: MatrixPinv, node: Apply, twin: Any, values: list[Any]) -> list[Any] | None:
    a = to_balls(values[0])
    if _without_number(a) is not None:
        return None
    _spend_cube(twin, a, 3)
    tall = a.shape[0] >= a.shape[1]
    left = matrix(a)
    across = left.transpose()
    try:
        if tall:
            return [from_matrix((across * left).solve(across))]
        return [from_matrix((left * across).solve(left).transpose())]
    except ZeroDivisionError:  # not of full rank
        return None


@exact_value.register
def _matrix_exponential(op: Expm, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a = to_balls(values[0])
    _spend_cube(twin, a, 30)
    bad = _without_number(a)
    return [filled(bad, a.shape) if bad is not None else from_matrix(matrix(a).exp())]


@exact_value.register
def _solve(op: Solve, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a, b = map(to_balls, values)
    _spend_cube(twin, a)
    if op.assume_a in ("sym", "her", "pos"):
        a = mirrored(a, op.lower)
    if op.assume_a == "pos" and len(a):
        bad = _is_definite(a)
        if bad is not None:
            return [filled(bad, b.shape)]
    return [_solved(a, b)]


@exact_value.register
def _solve_triangular(op: SolveTriangular, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a, b = map(to_balls, values)
    _spend_cube(twin, a)
    return [_solved(triangular(a, op.lower, op.unit_diagonal), b)]


@exact_value.register
def _solve_with_cholesky(op: CholeskySolve, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a, b = map(to_balls, values)
    _spend_cube(twin, a, 2)
    factor = triangular(a, op.lower)
    first, second = (factor, factor.T) if op.lower else (factor.T, factor)
    return [_solved(second, _solved(first, b))]


@exact_value.register
def _cholesky(op: Cholesky, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    a = to_balls(values[0])
    _spend_cube(twin, a)
    factor = cholesky_factor(mirrored(a, op.lower))
    return [factor if op.lower else factor.T]


def _spectrum(a: np.ndarray) -> np.ndarray:
    found = eigenvalues(a) if len(a) else []
    return filled(UNKNOWN, (len(a),)) if found is None else array_of(found, (len(a),))


@exact_value.register
def _symmetric_eigenvalues(
    op: Eigvalsh, node: Apply, twin: Any, values: list[Any]
) -> list[Any] | None:
    if len(values) > 1 and isinstance(values[1], np.ndarray):
        return None
    a = mirrored(to_balls(values[0]), op.lower)
    bad = _without_number(a)
    _spend_cube(twin, a, 100)
    return [filled(bad, (len(a),)) if bad is not None else _spectrum(a)]


@exact_value.register
def _symmetric_eigenvectors(
    op: Eigh, node: Apply, twin: Any, values: list[Any]
) -> list[Any] | None:
    if len(values) > 1:
        return None
    a = mirrored(to_balls(values[0]), getattr(op, "lower", getattr(op, "UPLO", "L") == "L"))
    bad = _without_number(a)
    if bad is not None:
        return [filled(bad, (len(a),)), filled(bad, a.shape)]
    _spend_cube(twin, a, 200)
    return [_spectrum(a), _eigenvectors(a, twin.kernels.run(node, [to_floats(a)])[1])]


def _eigenvectors(a: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Eigenvectors of length 1 with the signs of those in `near`; unknown in a cluster."""
    try:
        found, vectors = acb_mat(matrix(a)).eig(right=True)
    except ValueError:
        return filled(UNKNOWN, a.shape)
    columns = []
    order = sorted(range(len(a)), key=lambda i: found[i].real.mid())
    for place, i in enumerate(order):
        column = [vectors[j, i] for j in range(len(a))]
        largest = max(range(len(a)), key=lambda j: abs(column[j]).mid())
        column = [(x / column[largest]).real for x in column]
        length = sum((x * x for x in column), ZERO).sqrt()
        sign = -1 if near[largest, place] < 0 else 1
        columns.append([sign * x / length for x in column])
    return array_of([x for row in zip(*columns, strict=True) for x in row], a.shape)


@exact_value.register
def _singular_values(op: SVD, node: Apply, twin: Any, values: list[Any]) -> list[Any] | None:
    a = to_balls(values[0])
    if op.compute_uv or _without_number(a) is not None or not a.size:
        return None
    _spend_cube(twin, a, 100)
    left = matrix(a if a.shape[0] <= a.shape[1] else a.T)
    squares = _spectrum(from_matrix(left * left.transpose()))[::-1]
    roots = [of_elements(RULES[ps.Sqrt], ps.sqrt, (x,)) for x in squares.tolist()]
    return [array_of(roots, squares.shape)]
