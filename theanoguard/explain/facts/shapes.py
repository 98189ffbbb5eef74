"""Follow the shapes of a call through a graph to the first operation whose operands do not fit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import combinations
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import indices_from_subtensor

from theanoguard._pytensor import advanced_subtensor_ops, increment_ops

Shape = tuple[int | None, ...]
"""The lengths of a value.  A length is None if it is not known."""


@dataclass(frozen=True)
class Misfit:
    """Two operands of a node whose shapes do not fit together."""

    node: Apply
    operands: tuple[int, int]  # the positions of the two among the node's inputs
    shapes: tuple[Shape, Shape]  # their shapes
    axes: tuple[int, int]  # the axis in question of each, counted from the end
    broadcasts: bool = False  # whether a length of 1 would fit if the type stated it


def first_misfit(nodes: Sequence[Any], known: Mapping[Variable, Shape]) -> Misfit | None:
    """Return the first node whose operands do not fit, or None.

    `nodes`: in an order in which they can be computed; in a pair, with the inputs to use.
    `known`: shapes of their inputs.  A shape that is missing is taken from the type.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, y = pt.dvectors("x", "y")
    >>> total = pt.exp(x) + y
    >>> nodes = [(v.owner, v.owner.inputs) for v in (total.owner.inputs[0], total)]
    >>> misfit = first_misfit(nodes, {x: (3,), y: (4,)})
    >>> misfit.node is total.owner, misfit.shapes
    (True, ((3,), (4,)))
    """
    shapes = dict(known)
    for node, inputs in nodes:
        read = [shapes.get(v) or static_shape(v) for v in inputs]
        shaped = [shape for shape in read if shape is not None]
        made = _follow(node.op, node, shaped) if len(shaped) == len(read) else None
        if isinstance(made, Misfit):
            return made
        if made is not None:
            shapes.setdefault(node.outputs[0], made)
    return None


def static_shape(variable: Variable) -> Shape | None:
    """Return the shape that the type states, None for a variable that is not an array."""
    return getattr(variable.type, "shape", None) if hasattr(variable.type, "dtype") else None


def shape_text(shape: Sequence[int | None]) -> str:
    """Return a shape as Python writes it, with ``?`` for a length that is not known.

    Examples
    --------
    >>> shape_text((3,)), shape_text((2, None))
    ('(3,)', '(2, ?)')
    """
    lengths = ["?" if n is None else str(n) for n in shape]
    return f"({', '.join(lengths)}{',' if len(lengths) == 1 else ''})"


@singledispatch
def _follow(op: Op, node: Apply, shapes: list[Shape]) -> Shape | Misfit | None:
    """Return the shape of a node's first output, a :class:`Misfit`, or None if it is not known."""
    return None


@_follow.register(Softmax)
@_follow.register(LogSoftmax)
@_follow.register(CumOp)
def _follow_same(op: Op, node: Apply, shapes: list[Shape]) -> Shape | None:
    return shapes[0] if len(shapes[0]) == node.outputs[0].type.ndim else None


@_follow.register
def _follow_dimshuffle(op: DimShuffle, node: Apply, shapes: list[Shape]) -> Shape:
    return tuple(1 if axis == "x" else shapes[0][axis] for axis in op.new_order)


@_follow.register
def _follow_reduction(op: CAReduce, node: Apply, shapes: list[Shape]) -> Shape:
    axes = range(len(shapes[0])) if op.axis is None else op.axis
    return tuple(length for axis, length in enumerate(shapes[0]) if axis not in axes)


@_follow.register
def _follow_elementwise(op: Elemwise, node: Apply, shapes: list[Shape]) -> Shape | Misfit:
    return _broadcast(node, shapes)


def _broadcast(node: Apply, shapes: list[Shape], core: int = 0) -> Shape | Misfit:
    """Broadcast shapes, without their last `core` axes, as PyTensor does."""
    types = [v.type.shape for v in node.inputs]
    ndim = max(map(len, shapes)) - core
    result = []
    for axis in range(-ndim - core, -core):
        there = [i for i, shape in enumerate(shapes) if len(shape) >= -axis]
        lengths = {
            i: shapes[i][axis] for i in there if shapes[i][axis] is not None and types[i][axis] != 1
        }
        for one, other in combinations(lengths, 2):
            if lengths[one] != lengths[other]:
                pair = shapes[one], shapes[other]
                return Misfit(node, (one, other), pair, (axis, axis), broadcasts=True)
        stretched = all(types[i][axis] == 1 for i in there)
        result.append(next(iter(lengths.values()), 1 if stretched else None))
    return tuple(result)


@_follow.register
def _follow_dot(op: Dot, node: Apply, shapes: list[Shape]) -> Shape | Misfit:
    left, right = shapes
    misfit = _inner(node, left, right)
    return misfit or left[:-1] + right[:-2] + right[-1:] * (len(right) > 1)


@_follow.register
def _follow_blockwise(op: Blockwise, node: Apply, shapes: list[Shape]) -> Shape | Misfit | None:
    if (last := getattr(op.core_op, "b_ndim", 0)) and len(shapes[1]) >= last:  # a linear system
        left, right = shapes
        if None not in (left[-2], right[-last]) and left[-2] != right[-last]:
            return Misfit(node, (0, 1), (left, right), (-2, -last))
    if not isinstance(op.core_op, Dot) or min(map(len, shapes)) < 2:
        return None
    left, right = shapes
    batch = _inner(node, left, right) or _broadcast(node, shapes, core=2)
    return batch if isinstance(batch, Misfit) else (*batch, left[-2], right[-1])


def _inner(node: Apply, left: Shape, right: Shape) -> Misfit | None:
    inner = left[-1], right[-2:][0]
    if None in inner or inner[0] == inner[1]:
        return None
    return Misfit(node, (0, 1), (left, right), (-1, -min(len(right), 2)))


@_follow.register
def _follow_join(op: Join, node: Apply, shapes: list[Shape]) -> Shape | Misfit | None:
    # In PyTensor 3.0 the first operand is the axis.
    parts = [i for i, shape in enumerate(shapes) if shape]
    joined = op.axis if hasattr(op, "axis") else getattr(node.inputs[0], "data", None)
    if joined is None:
        return None
    ndim, first = len(shapes[parts[0]]), parts[0]
    joined = int(joined) % ndim
    for axis in set(range(ndim)) - {joined}:
        for i in parts[1:]:
            pair = shapes[first][axis], shapes[i][axis]
            if None not in pair and pair[0] != pair[1]:
                read = shapes[first], shapes[i]
                return Misfit(node, (first, i), read, (axis - ndim, axis - ndim))
    lengths = [shapes[i][joined] for i in parts]
    known = [n for n in lengths if n is not None]
    total = sum(known) if len(known) == len(lengths) else None
    return tuple(total if axis == joined else n for axis, n in enumerate(shapes[first]))


@singledispatch
def misfit_of_values(op: Op, node: Apply, values: Sequence[Any]) -> Misfit | None:
    """Return the :class:`Misfit` of a node that depends on more than shapes, or None.

    `values`: the values of its inputs.
    """
    return None


@misfit_of_values.register
def _misfit_of_parameters(op: RandomVariable, node: Apply, values: Sequence[Any]) -> Misfit | None:
    drawn_apart = not any(op.ndims_params)
    return _unequal(node, range(2, len(values)), values) if drawn_apart else None


def _unequal(node: Apply, positions: Iterable[int], values: Sequence[Any]) -> Misfit | None:
    """Return the first two values, at these positions, that do not broadcast together."""
    for pair in combinations(positions, 2):
        read = tuple(np.shape(values[i]) for i in pair)
        for axis in range(-min(map(len, read)), 0):
            lengths = {shape[axis] for shape in read}
            if len(lengths) > 1 and 1 not in lengths:
                return Misfit(node, pair, read, (axis, axis), broadcasts=True)
    return None


def _index(node: Apply, values: Sequence[Any], first: int) -> Misfit | None:
    """Return the misfit of an index whose parts begin at input `first`."""
    read, axis, arrays = np.shape(values[0]), 0, []
    for entry in getattr(node.op, "idx_list", None) or ():
        value = np.asarray(values[first + entry]) if isinstance(entry, int) else None
        if value is None or value.dtype.kind != "b":
            arrays += [] if value is None else [first + entry]
            axis += 1
            continue
        for k, length in enumerate(value.shape):
            if length != read[axis + k]:
                axes = axis + k - len(read), k - value.ndim
                return Misfit(node, (0, first + entry), (read, value.shape), axes)
        axis += value.ndim
    return _unequal(node, arrays, values)


def _taken(op: Op, node: Apply, values: Sequence[Any]) -> Misfit | None:
    return _index(node, values, 1)


def _written(op: Op, node: Apply, values: Sequence[Any]) -> Misfit | None:
    """Return the misfit of an index, or of what it takes and what is written there."""
    misfit = _index(node, values, 2)
    if misfit is not None:
        return misfit
    index = values[2:]
    if (entries := getattr(node.op, "idx_list", None)) is not None:
        index = indices_from_subtensor(index, entries)
    try:
        taken = np.broadcast_to(np.zeros((), bool), np.shape(values[0]))[tuple(index)].shape
    except IndexError:
        return None
    given, stated = np.shape(values[1]), node.inputs[1].type.shape
    for axis in range(-min(len(taken), len(given)), 0):
        if given[axis] != taken[axis] and stated[axis] != 1:
            return Misfit(node, (0, 1), (taken, given), (axis, axis), broadcasts=True)
    return None


for _kind in advanced_subtensor_ops:
    misfit_of_values.register(_kind, _taken)
for _kind in increment_ops:
    misfit_of_values.register(_kind, _written)
