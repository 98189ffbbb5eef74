"""Find the elements of a node's operands that one element of its output is computed from.

There is one function per kind of operation, dispatched on the Op.  A region names an operand and
the part of it that is read: everything, a slice, or a single element.
"""

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blas import BatchedDot, Dot22, Dot22Scalar, Gemm, Gemv
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.sort import SortOp
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from theanoguard._pytensor import (
    advanced_increment_ops,
    advanced_subtensor_ops,
    ger_ops,
    sort_axis,
    split_join,
)


@dataclass(frozen=True)
class Region:
    """A part of one operand.

    Parameters
    ----------
    operand : int
        Position among the node's inputs.
    index : tuple
        The part that is read, as a NumPy index; ``(...,)`` for everything.
    """

    operand: int
    index: tuple = (...,)

    @property
    def is_element(self):
        """Whether the region is a single element."""
        return all(isinstance(i, int) for i in self.index)


def locate(region, value, position):
    """Return the index in `value` of the element at a flat position inside a region.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((3, 4))
    >>> locate(Region(0, (slice(None), 2)), x, 1), locate(Region(0), x, 5)
    ((1, 2), (1, 1))
    """
    if region.index == (...,):
        return _unravel(position, np.shape(value))
    if any(isinstance(i, np.ndarray) for i in region.index):
        [chosen] = region.index
        return tuple(int(i) for i in np.argwhere(chosen)[position])
    read = [range(n)[i] for i, n in zip(region.index, np.shape(value), strict=True)]
    lengths = [len(r) for r in read if isinstance(r, range)]
    inside = iter(_unravel(position, lengths))
    return tuple(r[next(inside)] if isinstance(r, range) else r for r in read)


def first_element(region, value, mask):
    """Return the index of the first element of `value` in `region` where `mask` is True.

    Parameters
    ----------
    mask : callable
        Returns a boolean mask of the shape of an array.

    Returns
    -------
    tuple of int or None
    """
    bad = np.asarray(mask(np.asarray(np.asarray(value)[region.index])))
    return locate(region, value, int(bad.argmax())) if bad.any() else None


def extreme_element(region, value):
    """Return the index of the element of largest magnitude (NaN counts as infinite)."""
    read = np.asarray(np.asarray(value)[region.index])
    magnitude = np.abs(read if read.dtype.kind != "b" else read.astype(np.int8))
    if np.isnan(magnitude).any():
        magnitude = np.where(np.isnan(magnitude), np.inf, magnitude)
    return locate(region, value, int(magnitude.argmax()))


def broadcast_index(index, shape):
    """Return the index in an operand of `shape` that `index` of a broadcast result reads."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if n == 1 else i for i, n in zip(tail, shape, strict=True))


def whole_operands(node, inputs):
    """Return a region for the whole of each operand that is an array or a number."""
    return [
        Region(i)
        for i, value in enumerate(inputs)
        if isinstance(value, (np.ndarray, np.generic, int, float, complex))
    ]


@singledispatch
def regions(op, node, inputs, output, index):
    """Return the parts of the operands that one element of an output is computed from.

    Parameters
    ----------
    op : Op
        ``node.op``, on which the function is dispatched.
    node : Apply
    inputs : list
        Values of the node's inputs.
    output : int
        Which output.
    index : tuple of int
        The element of that output.

    Returns
    -------
    list of Region
        For an operation without a rule, the whole of every operand.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> x = pt.dmatrix("x")
    >>> node = x.sum(axis=1).owner
    >>> regions(node.op, node, [np.ones((2, 3))], 0, (1,))
    [Region(operand=0, index=(1, slice(None, None, None)))]
    """
    return whole_operands(node, inputs)


@regions.register
def _(op: ScalarOp, node, inputs, output, index):
    return [Region(i, ()) for i in range(len(inputs))]


@regions.register
def _(op: Elemwise, node, inputs, output, index):
    return [Region(i, broadcast_index(index, np.shape(v))) for i, v in enumerate(inputs)]


@regions.register
def _(op: CAReduce, node, inputs, output, index):
    ndim = np.ndim(inputs[0])
    axes = range(ndim) if op.axis is None else [a % ndim for a in op.axis]
    kept = iter(index)
    return [Region(0, tuple(slice(None) if a in axes else next(kept) for a in range(ndim)))]


@regions.register(Softmax)
@regions.register(LogSoftmax)
def _(op, node, inputs, output, index):
    axis = op.axis
    if isinstance(axis, int):
        axis = (axis,)
    axes = range(len(index)) if axis is None else [a % len(index) for a in axis]
    return [Region(0, tuple(slice(None) if a in axes else i for a, i in enumerate(index)))]


@regions.register(SpecifyShape)
@regions.register(CheckAndRaise)
@regions.register(TypeCastingOp)
@regions.register(DeepCopyOp)
@regions.register(ScalarFromTensor)
@regions.register(TensorFromScalar)
def _(op, node, inputs, output, index):
    return [Region(0, index)]


@regions.register
def _(op: Alloc, node, inputs, output, index):
    return [Region(0, broadcast_index(index, np.shape(inputs[0])))]


@regions.register
def _(op: MakeVector, node, inputs, output, index):
    return [Region(index[0], ())]


@regions.register
def _(op: Join, node, inputs, output, index):
    axis, parts = split_join(op, inputs)
    axis %= len(index)
    at = index[axis]
    for i, part in enumerate(parts, start=len(inputs) - len(parts)):
        if at < part.shape[axis]:
            return [Region(i, (*index[:axis], at, *index[axis + 1 :]))]
        at -= part.shape[axis]
    return []


# Operations that only move elements.  They are run on the positions of the elements.


@regions.register(DimShuffle)
@regions.register(Reshape)
@regions.register(Split)
@regions.register(Subtensor)
@regions.register(ExtractDiag)
@regions.register(Repeat)
def _moved(op, node, inputs, output, index):
    value = inputs[0]
    positions = np.arange(value.size).reshape(value.shape)
    cells = [[None] for _ in node.outputs]
    op.perform(node, [positions, *inputs[1:]], cells)
    return [Region(0, _unravel(cells[output][0][index], value.shape))]


for _op in advanced_subtensor_ops:
    regions.register(_op, _moved)


def _unravel(position, shape):
    return tuple(int(i) for i in np.unravel_index(int(position), tuple(shape)))


@regions.register
def _(op: IncSubtensor, node, inputs, output, index):
    return _written(Subtensor(op.idx_list), op, inputs, index)


def _advanced_written(op, node, inputs, output, index):
    reader = advanced_subtensor_ops[0]
    # An op without a list of indices has one index vector, along the first axis.
    return _written(reader(getattr(op, "idx_list", (0,))), op, inputs, index)


for _op in advanced_increment_ops:
    regions.register(_op, _advanced_written)


def _written(reader, op, inputs, index):
    """Regions of ``x[idx] += y`` and ``x[idx] = y``; `reader` is the op of ``x[idx]``."""
    x, y, *where = inputs
    positions = np.arange(x.size).reshape(x.shape)
    cell = [None]
    reader.perform(None, [positions, *where], [cell])
    target = np.ravel_multi_index(index, x.shape) if index else 0
    hits = [tuple(int(i) for i in hit) for hit in np.argwhere(np.asarray(cell[0]) == target)]
    from_y = [Region(1, broadcast_index(hit, np.shape(y))) for hit in hits]
    if from_y and op.set_instead_of_inc:
        return from_y[-1:]
    return [Region(0, index), *from_y]


# Matrix products


@regions.register
def _(op: Dot, node, inputs, output, index):
    return _product(0, 1, inputs, index)


@regions.register(Dot22)
@regions.register(BatchedDot)
def _(op, node, inputs, output, index):
    return _product(0, 1, inputs, index)


@regions.register
def _(op: Dot22Scalar, node, inputs, output, index):
    return [*_product(0, 1, inputs, index), Region(2, ())]


@regions.register
def _(op: Gemm, node, inputs, output, index):
    beta = inputs[4]
    added = [Region(0, broadcast_index(index, np.shape(inputs[0]))), Region(4, ())]
    return [*_product(2, 3, inputs, index), Region(1, ()), *(added if beta != 0 else [])]


@regions.register
def _(op: Gemv, node, inputs, output, index):
    beta = inputs[4]
    added = [Region(0, index), Region(4, ())]
    return [*_product(2, 3, inputs, index), Region(1, ()), *(added if beta != 0 else [])]


def _outer_product(op, node, inputs, output, index):
    return [Region(0, index), Region(1, ()), Region(2, index[:1]), Region(3, index[1:])]


for _op in ger_ops:
    regions.register(_op, _outer_product)


def _product(left, right, inputs, index):
    """Regions of ``left @ right``: the row and the column."""
    a = inputs[left]
    batch = index[: a.ndim - 2] if a.ndim > 2 else ()
    rest = index[len(batch) :]
    row, column = (rest[:1], rest[1:]) if np.ndim(a) > 1 else ((), rest)
    every = slice(None)
    return [
        Region(left, (*batch, *row, every)),
        Region(right, (*batch, every, *column)),
    ]


# Along an axis


@regions.register
def _(op: CumOp, node, inputs, output, index):
    if op.axis is None:
        flat = np.arange(np.size(inputs[0])).reshape(np.shape(inputs[0]))
        return [Region(0, (flat <= index[0],))]
    axis = op.axis % len(index)
    before = slice(0, index[axis] + 1)
    return [Region(0, (*index[:axis], before, *index[axis + 1 :]))]


@regions.register
def _(op: SortOp, node, inputs, output, index):
    axis = sort_axis(op, inputs) % len(index)
    return [Region(0, (*index[:axis], slice(None), *index[axis + 1 :]))]


@regions.register
def _(op: Blockwise, node, inputs, output, index):
    """For each operand, the whole core array of the same batch entry; of a product, a row."""
    n_batch = len(index) - len(op.outputs_sig[output])
    every, found = slice(None), []
    for i, (value, core) in enumerate(zip(inputs, op.inputs_sig, strict=True)):
        own = np.ndim(value) - len(core)
        batch = broadcast_index(index[:n_batch], np.shape(value)[:own])
        read = [every] * len(core)
        if isinstance(op.core_op, Dot):
            read = [index[-2], every] if i == 0 else [every, index[-1]]
        found.append(Region(i, (*batch, *read)))
    return found
