"""Operations that move elements and change none, and those that write into an array."""

from typing import Any

import numpy as np
from flint import arb
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp
from pytensor.gradient import GradClip, GradScale
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    AllocEmpty,
    ARange,
    Choose,
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
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import SortOp
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from theanoguard._exact.balls import (
    UNKNOWN,
    ZERO,
    array_of,
    filled,
    midpoint_key,
    to_balls,
)
from theanoguard._exact.rules import along_axis, exact_value
from theanoguard._pytensor import advanced_increment_ops, advanced_subtensor_ops, sort_axis
from theanoguard.ops.asserts import Assert
from theanoguard.ops.print import Print


@exact_value.register(SpecifyShape)
@exact_value.register(CheckAndRaise)
@exact_value.register(TypeCastingOp)
@exact_value.register(DeepCopyOp)
@exact_value.register(ScalarFromTensor)
@exact_value.register(TensorFromScalar)
@exact_value.register(CpuContiguous)
@exact_value.register(GradClip)
@exact_value.register(GradScale)
@exact_value.register(Assert)
@exact_value.register(Print)
def _first(op: Any, node: Any, twin: Any, values: list[Any]) -> list[Any]:
    return [values[0]]


@exact_value.register(DimShuffle)
@exact_value.register(Reshape)
@exact_value.register(JoinDims)
@exact_value.register(SplitDims)
@exact_value.register(Shape)
@exact_value.register(Shape_i)
@exact_value.register(Subtensor)
def _viewed(op: Any, node: Any, twin: Any, values: list[Any]) -> list[Any]:
    cells: list[list[Any]] = [[None]]
    op.perform(node, values, cells)
    return [as_array(cells[0][0])]


def as_array(value: Any) -> np.ndarray:
    """Return a single ball as an array of no dimension."""
    return value if isinstance(value, np.ndarray) else array_of([value], ())


@exact_value.register(Alloc)
@exact_value.register(AllocDiag)
@exact_value.register(Choose)
@exact_value.register(ExtractDiag)
@exact_value.register(FillDiagonal)
@exact_value.register(FillDiagonalOffset)
@exact_value.register(Join)
@exact_value.register(MakeVector)
@exact_value.register(PermuteRowElements)
@exact_value.register(Repeat)
@exact_value.register(Split)
def by_positions(op: Any, node: Any, twin: Any, values: list[Any]) -> list[Any] | None:
    """Run an operation that moves elements on their positions; 0 is a zero that it adds."""
    pool: list[arb] = [ZERO]
    inputs = []
    for variable, value in zip(node.inputs, values, strict=True):
        if isinstance(value, np.ndarray) and value.dtype == object:
            dtype = variable.type.dtype
            if len(pool) + value.size > 1 << (np.finfo(dtype).nmant + 1):
                return None
            places = np.arange(len(pool), len(pool) + value.size).reshape(value.shape)
            pool += value.ravel().tolist()
            inputs.append(places.astype(dtype))
        else:
            inputs.append(value)
    outputs = twin.kernels.run(node, inputs)
    return [_taken(pool, out) for out in outputs]


def _taken(pool: list[arb], places: Any) -> np.ndarray:
    places = np.asarray(places)
    return array_of([pool[int(i)] for i in places.ravel().tolist()], places.shape)


for _op in advanced_subtensor_ops:
    exact_value.register(_op, by_positions)


@exact_value.register
def _(op: AllocEmpty, node: Any, twin: Any, values: list[Any]) -> list[Any]:
    return [filled(UNKNOWN, tuple(int(v) for v in values))]


@exact_value.register
def _(op: Eye, node: Any, twin: Any, values: list[Any]) -> list[Any]:
    return [to_balls(np.eye(int(values[0]), int(values[1]), int(values[2])))]


@exact_value.register
def _(op: ARange, node: Any, twin: Any, values: list[Any]) -> list[Any]:
    start, stop, step = (to_balls(v).ravel()[0] for v in values)
    count = ((stop - start) / step).ceil().unique_fmpz()
    if count is None:
        return [np.asarray(twin.floats(node)[0], object)]
    balls = [start + i * step for i in range(max(int(count), 0))]
    return [array_of(balls, (len(balls),))]


@exact_value.register
def _(op: SortOp, node: Any, twin: Any, values: list[Any]) -> list[Any]:
    axis = sort_axis(op, values)
    return [along_axis(values[0], axis, lambda line: sorted(line, key=midpoint_key))]


# What is written into an array


@exact_value.register
def _(op: IncSubtensor, node: Any, twin: Any, values: list[Any]) -> list[Any]:
    return _written(Subtensor(op.idx_list), op, values)


def _advanced_written(op: Any, node: Any, twin: Any, values: list[Any]) -> list[Any]:
    # An op without a list of indices has one index vector, along the first axis.
    return _written(advanced_subtensor_ops[0](getattr(op, "idx_list", (0,))), op, values)


for _op in advanced_increment_ops:
    exact_value.register(_op, _advanced_written)


def _written(reader: Any, op: Any, values: list[Any]) -> list[Any]:
    x, y, *where = values
    x, y = to_balls(x), to_balls(y)
    cell: list[Any] = [None]
    reader.perform(None, [np.arange(x.size).reshape(x.shape), *where], [cell])
    places = np.asarray(cell[0])
    flat = x.ravel().tolist()
    added = np.broadcast_to(y, places.shape).ravel().tolist()
    for place, ball in zip(places.ravel().tolist(), added, strict=True):
        flat[place] = ball if op.set_instead_of_inc else flat[place] + ball
    return [array_of(flat, x.shape)]
