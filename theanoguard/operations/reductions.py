"""Operations along axes: reductions, softmax, cumulative sums and products, sorting."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Prod, Sum
from pytensor.tensor.sort import SortOp
from pytensor.tensor.special import LogSoftmax, Softmax

from theanoguard._pytensor import has_initial, sort_axis
from theanoguard.operations.facts import EVERYWHERE, Kind, all_of, is_float, register, scalar_facts
from theanoguard.operations.moving import first_operand
from theanoguard.operations.regions import Arrays, Dependence, Dims, Index, Region, Values, filled


class Slices(Dependence):
    """Each element depends on all elements along some axes of the first operand.

    `axes`: ``axes(op, inputs)`` returns them: one axis, several, or None for all.  The output lacks
    them, or has the shape of the operand.
    """

    def __init__(self, axes: Callable[[Any, Values], Any] = lambda op, inputs: op.axis) -> None:
        self._axes_of = axes

    def _axes(self, node: Apply, inputs: Values) -> set[int]:
        ndim, axes = np.ndim(inputs[0]), self._axes_of(node.op, inputs)
        return {int(a) % ndim for a in (range(ndim) if axes is None else np.atleast_1d(axes))}

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        axes, ndim = self._axes(node, inputs), np.ndim(inputs[0])
        if len(index) == ndim:
            index = tuple(i for axis, i in enumerate(index) if axis not in axes)
        kept = iter(index)
        return [Region(0, tuple(slice(None) if a in axes else next(kept) for a in range(ndim)))]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        [mask] = filled(arrays, masks[:1], inputs[:1])
        for axis in self._axes(node, inputs):
            mask = arrays.xp.any(mask, axis=axis, keepdims=True)
        if len(shape) < mask.ndim:
            return mask.reshape(shape)
        return arrays.xp.broadcast_to(mask, shape)


class Cumulated(Dependence):
    """Each element depends on those before it along an axis, and on the same one."""

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        axis = node.op.axis
        if axis is None:
            flat = np.arange(np.size(inputs[0])).reshape(np.shape(inputs[0]))
            return [Region(0, (flat <= index[0],))]
        axis %= len(index)
        return [Region(0, (*index[:axis], slice(0, index[axis] + 1), *index[axis + 1 :]))]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        [mask] = filled(arrays, masks[:1], inputs[:1])
        axis = node.op.axis
        return arrays.xp.cumsum(mask.reshape(shape), 0 if axis is None else axis) > 0


def is_extreme(op: Any) -> bool:
    """Whether a reduction chooses the largest or the smallest element."""
    return isinstance(op.scalar_op, ps.ScalarMaximum | ps.ScalarMinimum)


def _keeps_size(node: Apply) -> bool:
    [given], [output] = node.inputs, node.outputs
    return is_extreme(node.op) and given.type.dtype == getattr(output.type, "dtype", None)


def _signals(node: Apply, on_c: bool) -> bool:
    reliable = "numba" in scalar_facts(node.op.scalar_op).signals
    return reliable and not _is_infinite_if_empty(node, on_c)


def _is_infinite_if_empty(node: Apply, on_c: bool) -> bool:
    """Return whether a node may be a maximum or a minimum of nothing, which is a literal Inf."""
    op, lengths = node.op, node.inputs[0].type.shape
    if not is_extreme(op):
        return False
    if on_c and not has_initial(op):
        return False  # the C code raises an error
    return not all(lengths if op.axis is None else [lengths[axis] for axis in op.axis])


register(
    CAReduce,
    depends=Slices(),
    keeps_size=_keeps_size,
    signals=_signals,
    never_empty=True,
    steady=True,
    counts=True,
    keeps_flags=EVERYWHERE,
)
register(Sum, Prod, carries=all_of(0))

register(
    *(Softmax, LogSoftmax),
    depends=Slices(),
    carries=lambda node, operand: Kind.NAN,  # softmax(-inf) is 0
    signals=lambda node, on_c: True,
    never_empty=True,
    steady=True,
    keeps_flags=EVERYWHERE,
)
register(Softmax, makes=Kind.NONE, bound=1.0)


def _is_loop_of_numba(node: Apply, on_c: bool) -> bool:
    [given] = node.inputs
    return not on_c and is_float(given) and not isinstance(given, Constant)


register(
    CumOp,
    depends=Cumulated(),
    carries=all_of(0),
    signals=_is_loop_of_numba,
    never_empty=True,
)
register(CumOp, Argmax, steady=True, keeps_flags=("numba",))

register(
    SortOp, depends=Slices(sort_axis), moves=first_operand, carries=all_of(0), never_empty=True
)
