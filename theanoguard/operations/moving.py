"""Operations that only move elements: views, copies, indexing, joining, and writing into arrays."""

from typing import Any

import numpy as np
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp, ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.printing import Print
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ARange,
    Choose,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.typed_list import MakeList

from theanoguard._pytensor import (
    IfElse,
    LazyIfElse,
    advanced_subtensor_ops,
    increment_ops,
    split_join,
)
from theanoguard.operations.elementwise import Elementwise
from theanoguard.operations.facts import EVERYWHERE, Kind, all_of, register
from theanoguard.operations.regions import (
    NUMPY,
    Arrays,
    Dependence,
    Dims,
    Index,
    Region,
    Values,
    broadcast_index,
    filled,
    unravel,
)


def first_operand(node: Apply) -> list[Variable]:
    """The rule ``moves`` of an operation whose output has elements of its first operand."""
    return node.inputs[:1]


class Moved(Dependence):
    """Each element is one of the first operand: the operation is run on positions, or on marks."""

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        shape = np.shape(inputs[0])
        positions = np.arange(np.size(inputs[0])).reshape(shape)
        moved = NUMPY.run(node, [positions, *inputs[1:]], output)
        return [Region(0, unravel(moved[index], shape))]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        [mask] = filled(arrays, masks[:1], inputs[:1])
        return arrays.run(node, [mask, *inputs[1:]], output)


# ---------------------------------------------------------------- views, copies and choices

VIEWS = (
    *(CheckAndRaise, DeepCopyOp, DimShuffle, JoinDims, Print, Reshape, ScalarFromTensor),
    *(SpecifyShape, SplitDims, TensorFromScalar, TypeCastingOp),
)
"""Operations that return their first operand, in another shape or under another name."""

VIEW: dict[str, Any] = {
    "depends": Elementwise(1),
    "moves": first_operand,
    "carries": all_of(0),
    "never_empty": True,
}
"""What is stated of each of them."""

register(*VIEWS, **VIEW)
register(DimShuffle, JoinDims, Reshape, SplitDims, depends=Moved())
register(
    *(ExtractDiag, Repeat, Split, Subtensor, *advanced_subtensor_ops),
    depends=Moved(),
    moves=first_operand,
)
register(Subtensor, *advanced_subtensor_ops, LazyIfElse, MakeList, chooses=True)
register(Alloc, depends=Elementwise(1), moves=first_operand, carries=all_of(0))
register(Subtensor, *advanced_subtensor_ops, name="getitem")
register(AllocEmpty, Eye, moves=first_operand)
register(ARange, name="arange")


class Chosen(Dependence):
    """Each element is the same one of one of the choices, if these are stacked in an array."""

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        which, choices = inputs
        if not isinstance(choices, np.ndarray):
            return super().regions(node, inputs, output, index)
        positions = np.arange(choices.size).reshape(choices.shape)
        chosen = NUMPY.run(node, [which, positions], output)
        return [Region(1, unravel(chosen[index], choices.shape))]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        if masks[1] is None:
            return super().reached(arrays, node, inputs, masks, output, shape)
        return arrays.run(node, [inputs[0], masks[1]], output)


register(Choose, depends=Chosen(), moves=lambda node: node.inputs[1:], chooses=True)
register(IfElse, moves=lambda node: node.inputs[1:], chooses=True)


# ---------------------------------------------------------------- joining


class Joined(Dependence):
    """Each element is one of the arrays that are joined."""

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        axis, parts = split_join(node.op, inputs)
        axis %= len(index)
        at = index[axis]
        for i, part in enumerate(parts, start=len(inputs) - len(parts)):
            if at < part.shape[axis]:
                return [Region(i, (*index[:axis], at, *index[axis + 1 :]))]
            at -= part.shape[axis]
        return []

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        pairs = zip(node.inputs, inputs, strict=True)  # (3.0 has the axis among them)
        given = [v.data if isinstance(v, Constant) and not v.type.ndim else x for v, x in pairs]
        axis, parts = split_join(node.op, given)
        return arrays.xp.concatenate(filled(arrays, masks[-len(parts) :], parts), axis)


class Stacked(Dependence):
    """Each element is one operand."""

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        return [Region(index[0], ())]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        marks = [mask.reshape(()) for mask in filled(arrays, masks, inputs)]
        return arrays.xp.stack(marks) if marks else arrays.xp.zeros(shape, dtype=bool)


register(
    Join,
    depends=Joined(),
    moves=lambda node: [v for v in node.inputs if v.type.ndim],  # (3.0 has the axis among them)
    carries=lambda node, operand: Kind.BOTH,
    never_empty=True,
)
register(
    MakeVector,
    depends=Stacked(),
    moves=lambda node: node.inputs,
    carries=lambda node, operand: Kind.BOTH,
    never_empty=True,
)


# ---------------------------------------------------------------- writing into an array


class Written(Dependence):
    """``x[idx] += y`` and ``x[idx] = y``: each element is one of x or of y, or their sum.

    The operation is run on marks as on numbers.
    """

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        x, y, *where = inputs
        cell: list[Any] = [None]
        positions = np.arange(x.size).reshape(x.shape)
        taking(node.op).perform(None, [positions, *where], [cell])
        target = np.ravel_multi_index(index, x.shape) if index else 0
        hits = [tuple(int(i) for i in hit) for hit in np.argwhere(np.asarray(cell[0]) == target)]
        from_y = [Region(1, broadcast_index(hit, np.shape(y))) for hit in hits]
        if from_y and node.op.set_instead_of_inc:
            return from_y[-1:]
        return [Region(0, index), *from_y]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        marks = map(arrays.as_numbers, filled(arrays, masks[:2], inputs[:2]))
        return arrays.run(node, [*marks, *inputs[2:]]) != 0


def taking(op: Any) -> Any:
    """Return the indexing operation for the elements that one of ``increment_ops`` overwrites."""
    if not hasattr(op, "idx_list"):  # on PyTensor 3.0
        return advanced_subtensor_ops[-1]()
    chooses = Subtensor if isinstance(op, IncSubtensor) else advanced_subtensor_ops[0]
    return chooses(op.idx_list)


def _what_is_set(node: Apply) -> list[Variable] | None:
    return node.inputs[:2] if node.op.set_instead_of_inc else None


def _kept(node: Apply, operand: int) -> Kind:
    """What is overwritten is lost, and what is written where there is no place."""
    is_kept = operand == 0 and not node.op.set_instead_of_inc
    return Kind.BOTH if is_kept else Kind.NONE


register(*increment_ops, depends=Written(), moves=_what_is_set, carries=_kept, never_empty=True)
register(IncSubtensor, signals=lambda node, on_c: True)
register(*increment_ops, name="inc_subtensor")


# ---------------------------------------------------------------- how their code runs

_CASTING = (DeepCopyOp, DimShuffle, ScalarFromTensor, TensorFromScalar)

register(*_CASTING, CheckAndRaise, counts=True)
register(
    *(*_CASTING, Alloc, AllocEmpty, CheckAndRaise, IfElse, Join, MakeVector, Reshape, Shape),
    *(Shape_i, Split, Subtensor, *advanced_subtensor_ops, *increment_ops),
    steady=True,
)
register(
    *(*_CASTING, AllocEmpty, MakeVector, Reshape, Shape, Shape_i, Subtensor),
    keeps_flags=EVERYWHERE,
)
register(Alloc, IfElse, IncSubtensor, Join, Split, keeps_flags=("numba",))
register(SpecifyShape, ViewOp, keeps_flags=("c",))
