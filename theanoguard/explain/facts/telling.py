"""Choose the operand of an operation, and the element of it, that decides the result most."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.compile.ops import TypeCastingOp
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import Alloc, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape

from theanoguard._naming import INDEXING
from theanoguard.operations import Region, extreme_element, locate

QUOTIENTS = ("true_div", "int_div", "mod")
MATRIX_PRODUCTS = ("dot", "batched_dot", "outer")
DECOMPOSITIONS = (
    *("cholesky", "solve", "solveTriangular", "matrixInverse", "matrixPinv"),
    *("sLogDet", "slogdet", "det", "eigh"),
)
"""Operations on a whole matrix: no single element explains why they fail."""

_MOVES = (DimShuffle, Reshape, SpecifyShape, TypeCastingOp, *INDEXING)
_COMPUTES = (Elemwise, ScalarFromTensor, TensorFromScalar)


def decisive(name: str, values: Mapping[int, Any], result: Any) -> int:
    """Return the position of the operand that decides the result of an operation most.

    - `name`: name of the operation.
    - `values`: the operands that may be chosen, by position.

    Examples
    --------
    It chooses a zero factor, the numerator of 0 / x, a divisor of 0, or the larger operand of a
    difference:

    >>> decisive("mul", {0: 3.0, 1: 0.0}, 0.0), decisive("true_div", {0: 0.0, 1: 5.0}, 0.0)
    (1, 0)
    >>> decisive("true_div", {0: 0.0, 1: 0.0}, np.nan), decisive("sub", {0: 1.0, 1: 7.0}, -6.0)
    (1, 1)
    """
    bad = [i for i, value in values.items() if not np.isfinite(value)]
    if bad:
        return bad[0]
    if name in QUOTIENTS and 1 in values and values[1] == 0:
        return 1
    if name in ("pow", "switch", "clip", "arctan2"):
        return next(iter(values))
    if name in ("maximum", "minimum"):
        return min(values, key=lambda i: abs(values[i] - result))
    with np.errstate(all="ignore"):
        sizes = {i: float(np.log(abs(value))) for i, value in values.items()}
        if name in ("mul", "true_div"):
            shares = {i: -s if name == "true_div" and i == 1 else s for i, s in sizes.items()}
            towards = max if abs(result) >= 1 else min
            return towards(shares, key=shares.__getitem__)
    return max(sizes, key=sizes.__getitem__)


def is_fixed(variable: Variable) -> bool:
    """Return whether a variable is computed only from constants and lengths."""
    todo = [variable]
    for _ in range(20):
        if not todo:
            return True
        variable = todo.pop()
        node = variable.owner
        if node is None:
            if not isinstance(variable, Constant):
                return False
        elif isinstance(node.op, (*_MOVES, Alloc)):
            todo.append(node.inputs[0])
        elif isinstance(node.op, _COMPUTES):
            todo += node.inputs
        elif not isinstance(node.op, (Shape, Shape_i)):
            return False
    return False


def telling_elements(
    name: str, found: Sequence[Region], arrays: Sequence[Any], result: Any
) -> list[tuple[Any, ...] | None]:
    """Return for each region the index of its most decisive element, or None if it is empty.

    `name`: name of the operation.
    `arrays`: the operand of each region.
    `result`: the element that is computed from the regions.
    """
    indices = [
        _telling_element(name, region, array, result)
        for region, array in zip(found, arrays, strict=True)
    ]
    if name not in ("dot", "batched_dot") or len(found) < 2:
        return indices
    # Find the k of the largest term a[i, k] * b[k, j].  The first two regions are the row of a and
    # the column of b.
    row, column = (a[r.index] for r, a in zip(found[:2], arrays[:2], strict=True))
    if np.shape(row) != np.shape(column) or not np.size(row):
        return indices
    with np.errstate(all="ignore"):
        sizes = np.abs(row * column)
        if not np.isfinite(sizes).all():  # compare terms that overflow by their logarithms
            sizes = np.log(np.abs(row)) + np.log(np.abs(column))
    k = int(np.where(np.isnan(sizes), np.inf, sizes).argmax())
    pair = [locate(r, a, k) for r, a in zip(found[:2], arrays[:2], strict=True)]
    return [*pair, *indices[2:]]


def _telling_factor(read: Any, result: Any) -> Any:
    if result == 0:
        return np.equal(read, 0)
    return read < 0 if np.isfinite(result) and result < 0 else ~np.isfinite(read)


_CHOSEN = {
    "max": lambda read, result: np.equal(read, result),
    "min": lambda read, result: np.equal(read, result),
    "all": lambda read, result: ~read.astype(bool) if not result else read.astype(bool),
    "any": lambda read, result: read.astype(bool) if result else ~read.astype(bool),
    "prod": _telling_factor,
}
"""How to choose the most decisive element of a reduction's operand."""


def _telling_element(name: str, region: Region, array: Any, result: Any) -> tuple[Any, ...] | None:
    array = np.asarray(array)
    if region.is_element:
        return tuple(region.index)
    read = np.asarray(array[region.index])
    if not read.size:
        return None
    if name in _CHOSEN:
        with np.errstate(all="ignore"):
            chosen = np.ravel(_CHOSEN[name](read, result))
        if chosen.any():
            return locate(region, array, int(chosen.argmax()))
    return extreme_element(region, array)
