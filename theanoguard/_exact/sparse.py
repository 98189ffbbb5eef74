"""Operations on sparse matrices.

Operations that move elements run on a matrix of their positions.  Arithmetic is done on dense
arrays; the operation itself, run on ones, says which elements of the result are stored.  The module
knows PyTensor's operations by their names, since importing ``pytensor.sparse`` takes long.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply

from theanoguard._exact.balls import ZERO, array_of, filled, is_floats, to_balls
from theanoguard._exact.moving import as_array, gathered, placed
from theanoguard._exact.products import product
from theanoguard._exact.rules import each_line
from theanoguard._exact.scalars import SUMMING, over_arrays
from theanoguard._pytensor import is_sparse
from theanoguard._values import is_sparse as is_sparse_value


@dataclass(frozen=True)
class SparseBalls:
    """A sparse matrix of balls."""

    structure: Any  # which elements are stored
    data: np.ndarray  # their balls, in the order of ``structure.data``

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""
        shape: tuple[int, ...] = self.structure.shape
        return shape

    def dense(self) -> np.ndarray:
        """Return all elements."""
        out = filled(ZERO, self.shape)
        at = self.structure.tocoo()
        numbered = self.structure.copy()
        numbered.data = np.arange(len(self.data))
        order = numbered.tocoo().data
        for row, column, i in zip(at.row, at.col, order, strict=True):
            out[row, column] = self.data[i]
        return out


def as_sparse(value: Any) -> Any:
    """Return a matrix of floats as one of balls; any other value as it is."""
    return SparseBalls(value, to_balls(value.data)) if is_sparse_value(value) else value


def dense(value: Any) -> Any:
    """Return all elements of a sparse matrix; any other value as it is."""
    value = as_sparse(value)
    return value.dense() if isinstance(value, SparseBalls) else value


def _combined(kind: type) -> Callable[..., Any]:
    def combine(spend: Callable, op: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return over_arrays(SUMMING[kind], None, [x, y], spend)

    return combine


_add, _multiply = _combined(ps.Add), _combined(ps.Mul)


def _dot(spend: Callable, op: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return product(x, y, spend)


def _sum(spend: Callable, op: Any, x: np.ndarray) -> np.ndarray:
    spend(x.size)
    axes = (0, 1) if op.axis is None else (op.axis % 2,)
    return each_line(x, axes, lambda line: sum(line, ZERO))


def _sampled(spend: Callable, op: Any, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> np.ndarray:
    return _multiply(spend, op, product(x, y.T, spend), p)


def _scaled_rows(spend: Callable, op: Any, x: np.ndarray, s: np.ndarray) -> np.ndarray:
    return _multiply(spend, op, x, s[:, None])


_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    **dict.fromkeys(("AddSparseSparse", "AddSS", "AddSparseDense", "AddSD"), _add),
    **dict.fromkeys(("StructuredAddSparseDenseVector", "StructuredAddSV"), _add),
    **dict.fromkeys(("MultiplySparseSparse", "SparseSparseMultiply"), _multiply),
    **dict.fromkeys(("MultiplySparseDense", "SparseDenseMultiply"), _multiply),
    **dict.fromkeys(("MultiplySparseDenseVector", "SparseDenseVectorMultiply"), _multiply),
    **dict.fromkeys(("TrueDot", "StructuredDot", "Dot"), _dot),
    "ColScaleCSC": _multiply,
    "RowScaleCSC": _scaled_rows,
    "SamplingDot": _sampled,
    "SpSum": _sum,
}
"""On dense operands, by the names of the classes in PyTensor 3.3 and 3.0."""

_MOVING = frozenset(
    "CSM CSMProperties Cast DenseFromSparse Diag EnsureSortedIndices GetItem2Lists GetItem2d "
    "GetItemList GetItemScalar HStack SparseFromDense Transpose VStack".split()
)


def _ones(value: Any) -> Any:
    """What an operation is run on to find out which elements of the result are stored."""
    if isinstance(value, SparseBalls):
        structure = value.structure.copy().astype(np.float64)
        structure.data[:] = 1
        return structure
    return np.ones(value.shape)


def of_sparse(node: Apply, values: list[Any], kernels: Any, spend: Callable) -> list[Any] | None:
    """Return the exact values of a node that has sparse matrices among its operands or results.

    Return None if there is no rule.

    - `values`: list of the inputs.
    - `spend`: counts the work.
    """
    name = type(node.op).__name__
    values = [as_sparse(v) for v in values]
    if name in _MOVING:
        return _moved(node, values, kernels)
    if name not in _ARITHMETIC:
        return None
    result = _ARITHMETIC[name](spend, node.op, *(to_balls(dense(v)) for v in values))
    [variable] = node.outputs
    if not is_sparse(variable.type):
        return [result]
    [structure] = kernels.run(node, [_ones(v) for v in values])
    at = structure.tocoo()
    numbered = structure.copy()
    numbered.data = np.arange(len(structure.data))
    order = np.argsort(numbered.tocoo().data)
    data = array_of([result[at.row[i], at.col[i]] for i in order], (len(order),))
    return [SparseBalls(structure, data)]


def _moved(node: Apply, values: list[Any], kernels: Any) -> list[Any]:
    pool = [ZERO]
    inputs = []
    for variable, value in zip(node.inputs, values, strict=True):
        if isinstance(value, SparseBalls):
            structure = value.structure.copy()
            structure.data = placed(pool, value.data, variable.type.dtype)
            inputs.append(structure)
        elif is_floats(value) or getattr(value, "dtype", None) == np.dtype(object):
            inputs.append(placed(pool, to_balls(value), variable.type.dtype))
        else:
            inputs.append(value)
    return [
        SparseBalls(out, gathered(pool, out.data))
        if is_sparse_value(out)
        else gathered(pool, out)
        if str(getattr(variable.type, "dtype", "")).startswith("float")
        else as_array(out)
        for variable, out in zip(node.outputs, kernels.run(node, inputs), strict=True)
    ]
