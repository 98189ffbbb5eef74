"""Operations that move elements and change none, and those that write into an array."""

from typing import Any

import numpy as np
from flint import arb
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp
from pytensor.gradient import GradClip, GradScale
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    AllocEmpty,
    ARange,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    PermuteRowElements,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CpuContiguous, FillDiagonal, FillDiagonalOffset, Repeat
from pytensor.tensor.linalg.constructors import BlockDiagonal
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import SortOp
from pytensor.tensor.subtensor import Subtensor

from theanoguard._evaluate.replay import copy_value
from theanoguard._exact.balls import (
    UNKNOWN,
    ZERO,
    array_of,
    filled,
    is_balls,
    is_floats,
    midpoint_key,
    to_balls,
)
from theanoguard._exact.rules import along_axis, exact_value, is_real
from theanoguard._pytensor import advanced_subtensor_ops, increment_ops, sort_axis
from theanoguard.operations.moving import taking
from theanoguard.ops.asserts import Assert
from theanoguard.ops.print import Print

_FIRST = (
    *(SpecifyShape, CheckAndRaise, TypeCastingOp, DeepCopyOp, CpuContiguous, Assert, Print),
    *(ScalarFromTensor, TensorFromScalar, GradClip, GradScale),
)
_VIEWS = (DimShuffle, Reshape, JoinDims, SplitDims, Shape, Shape_i, Subtensor)
_MOVES = (
    *(Alloc, AllocDiag, ExtractDiag, FillDiagonal, FillDiagonalOffset, Join, MakeVector),
    *(PermuteRowElements, Repeat, Split, BlockDiagonal, *advanced_subtensor_ops),
)
MOVING = (*_FIRST, *_VIEWS, *_MOVES)
"""Operations that take floats as they are, which need not become balls."""


def _first(op: Op, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    return [values[0]]


def _viewed(op: Op, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    cells: list[list[Any]] = [[None]]
    op.perform(node, values, cells)
    return [as_array(cells[0][0])]


def as_array(value: Any) -> np.ndarray:
    """Return a single ball as an array of no dimension."""
    return array_of([value], ()) if isinstance(value, arb) else np.asarray(value)


def by_positions(op: Op, node: Apply, twin: Any, values: list[Any]) -> list[Any] | None:
    """Run an operation that moves elements on their positions."""
    if not any(is_balls(v) for v in values):
        return twin.kernels.run(node, [copy_value(v) for v in values])
    pool: list[arb] = [ZERO]
    inputs = [
        placed(pool, to_balls(value), variable.type.dtype)
        if is_balls(value) or is_floats(value)
        else value
        for variable, value in zip(node.inputs, values, strict=True)
    ]
    return [
        gathered(pool, out) if is_real(variable) else out
        for variable, out in zip(node.outputs, twin.kernels.run(node, inputs), strict=True)
    ]


def placed(pool: list[arb], balls: np.ndarray, dtype: str) -> np.ndarray:
    """Add balls to a pool, and return their positions there as floats; a zero has position 0."""
    places = []
    for ball in balls.ravel().tolist():
        places.append(0 if ball.is_zero() else len(pool))
        if places[-1]:
            pool.append(ball)
    if len(pool) > 1 << (np.finfo(dtype).nmant + 1):
        raise OverflowError(f"{dtype} cannot number {len(pool)} elements")
    return np.array(places, dtype).reshape(balls.shape)


def gathered(pool: list[arb], places: Any) -> np.ndarray:
    """Return the balls at positions in a pool."""
    places = np.asarray(places)
    return array_of([pool[int(i)] for i in places.ravel().tolist()], places.shape)


for _ops, _rule in ((_FIRST, _first), (_VIEWS, _viewed), (_MOVES, by_positions)):
    for _op in _ops:
        exact_value.register(_op, _rule)


@exact_value.register
def _empty(op: AllocEmpty, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    return [filled(UNKNOWN, tuple(int(v) for v in values))]


@exact_value.register
def _identity(op: Eye, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    return [to_balls(np.eye(int(values[0]), int(values[1]), int(values[2])))]


@exact_value.register
def _range(op: ARange, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    start, stop, step = (to_balls(v).ravel()[0] for v in values)
    count = ((stop - start) / step).ceil().unique_fmpz()
    if count is None:
        return [np.asarray(twin.floats(node)[0], object)]
    balls = [start + i * step for i in range(max(int(count), 0))]
    return [array_of(balls, (len(balls),))]


@exact_value.register
def _sorted_elements(op: SortOp, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    axis = sort_axis(op, values)
    return [along_axis(values[0], axis, lambda line: sorted(line, key=midpoint_key))]


# What is written into an array


def _written(op: Op, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    x, y, *where = values
    cell: list[Any] = [None]
    taking(op).perform(None, [np.arange(x.size).reshape(x.shape), *where], [cell])
    places = np.asarray(cell[0])
    flat = x.ravel().tolist()
    added = np.broadcast_to(to_balls(y), places.shape).ravel().tolist()
    for place, ball in zip(places.ravel().tolist(), added, strict=True):
        flat[place] = ball if op.set_instead_of_inc else flat[place] + ball
    return [array_of(flat, x.shape)]


for _op in increment_ops:
    exact_value.register(_op, _written)
