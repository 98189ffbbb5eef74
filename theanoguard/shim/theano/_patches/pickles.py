"""Graphs in pickles of Theano 1.0.5, where its Ops hold other things than PyTensor's."""

from itertools import count

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.basic import AllocDiag, Nonzero
from pytensor.tensor.math import All, Any
from pytensor.tensor.sort import ArgSortOp, SortOp, argsort, sort
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    inc_subtensor,
)

from .._standin import StandIn
from ..tensor import basic
from ..tensor.subtensor import each_part
from . import Patch


def numbered(idx_list):
    """Return what is indexed with the numbers of the inputs; Theano has their types there."""
    numbers = count()

    def number(part):
        return None if part is None else next(numbers)

    return tuple(each_part(number, entry) for entry in idx_list)


def hold_pairs(op):
    """Keep the pairs of inputs that may be aliased in tuples: PyTensor cannot hash lists."""
    pairs = getattr(op, "destroyhandler_tolerate_aliased", None)
    if pairs is not None:
        op.destroyhandler_tolerate_aliased = tuple(tuple(pair) for pair in pairs)


def set_subtensor_state(self, state):
    """Take the state of an Op that indexes with slices and numbers."""
    vars(self).update(state)
    self.idx_list = numbered(self.idx_list)
    hold_pairs(self)


def index(variable):
    """Return what a variable among the inputs stands for between brackets."""
    if isinstance(variable, Constant) and isinstance(variable.data, slice | None):
        return variable.data
    if variable.owner is not None and type(variable.owner.op).__name__ == "MakeSlice":
        return slice(*map(index, variable.owner.inputs))
    return variable


def axis_of(variable):
    """The axis that is an input of Theano's sorting Ops."""
    return None if getattr(variable, "data", 0) is None else int(variable.data)


def again(op, x):
    """The same reduction, made by PyTensor: it has attributes that Theano's has not."""
    return type(op)(axis=op.axis)(x)


# What PyTensor has with other attributes, inputs or outputs than Theano: whether it is in Theano's
# form, and how it is made again.
REBUILT = {
    All: (lambda op, *_: not hasattr(op, "acc_dtype"), again),
    AllocDiag: (lambda op, *_: not hasattr(op, "fgraph"), lambda op, x: basic.diag(x, op.offset)),
    Any: (lambda op, *_: not hasattr(op, "acc_dtype"), again),
    ArgSortOp: (
        lambda op, inputs, _: len(inputs) == 2,
        lambda op, x, axis: argsort(x, axis_of(axis), op.kind),
    ),
    # For a vector the two look the same.
    Nonzero: (
        lambda op, inputs, count: count == 1 < inputs[0].type.ndim,
        lambda op, x: basic.stack(basic.nonzero(x)),
    ),
    SortOp: (
        lambda op, inputs, _: len(inputs) == 2,
        lambda op, x, axis: sort(x, axis_of(axis), op.kind),
    ),
}


def outputs_of(op, inputs, count):
    """Return the outputs of an Op, `count` of them, that only Theano has in this form, or None."""
    is_theanos, make = REBUILT.get(type(op), (None, None))
    if make is not None and is_theanos(op, inputs, count):
        return [make(op, *inputs)]
    if isinstance(type(op), StandIn):
        outputs = op(*inputs)
        return outputs if isinstance(outputs, list | tuple) else [outputs]
    # Theano's look at the inputs' types for what PyTensor's hold in `idx_list`.
    if isinstance(op, AdvancedSubtensor) and not hasattr(op, "idx_list"):
        x, *indices = inputs
        return [x[tuple(map(index, indices))]]
    if isinstance(op, AdvancedIncSubtensor) and not hasattr(op, "idx_list"):
        x, y, *indices = inputs
        part = x[tuple(map(index, indices))]
        return [inc_subtensor(part, y, op.inplace, op.set_instead_of_inc)]
    return None


def set_node_state(self, state):
    """Take the state of a node; the variables that are its outputs stay."""
    vars(self).update(state)
    outputs = outputs_of(self.op, self.inputs, len(self.outputs))
    if outputs is None:
        return
    node = outputs[0].owner
    if node.outputs != outputs:  # what is one Op in Theano is several
        node = OpFromGraph(self.inputs, outputs, inline=True).make_node(*self.inputs)
    self.op, self.inputs = node.op, node.inputs


PATCHES = [
    Patch(Apply, "__setstate__", set_node_state),
    Patch(Subtensor, "__setstate__", set_subtensor_state),
    Patch(IncSubtensor, "__setstate__", set_subtensor_state),
]
