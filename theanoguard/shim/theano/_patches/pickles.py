"""Load graphs from pickles of Theano 1.0.5, whose Ops have other attributes than PyTensor's."""

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
    """Return an index list with the numbers of the inputs; Theano's list has their types."""
    numbers = count()

    def number(part):
        return None if part is None else next(numbers)

    return tuple(each_part(number, entry) for entry in idx_list)


def hold_pairs(op):
    """Store the pairs of inputs that may be aliased as tuples, because PyTensor hashes them."""
    pairs = getattr(op, "destroyhandler_tolerate_aliased", None)
    if pairs is not None:
        op.destroyhandler_tolerate_aliased = tuple(tuple(pair) for pair in pairs)


def set_subtensor_state(self, state):
    """Set the state of an Op that indexes with slices and numbers."""
    vars(self).update(state)
    self.idx_list = numbered(vars(self)["idx_list"])
    hold_pairs(self)


def index(variable):
    """Return the index that a variable among the inputs represents."""
    if isinstance(variable, Constant) and isinstance(variable.data, slice | None):
        return variable.data
    if variable.owner is not None and type(variable.owner.op).__name__ == "MakeSlice":
        return slice(*map(index, variable.owner.inputs))
    return variable


def axis_of(variable):
    """Return the number of an axis, which is an input of Theano's sorting Ops."""
    return None if getattr(variable, "data", 0) is None else int(variable.data)


def again(op, x):
    """Return the same reduction as a new PyTensor Op, because Theano's lacks some attributes."""
    return type(op)(axis=op.axis)(x)


# Ops whose attributes, inputs or outputs differ between Theano and PyTensor.  The first function
# says whether an Op has Theano's form; the second one builds it again.
REBUILT = {
    All: (lambda op, *_: not hasattr(op, "acc_dtype"), again),
    AllocDiag: (lambda op, *_: not hasattr(op, "fgraph"), lambda op, x: basic.diag(x, op.offset)),
    Any: (lambda op, *_: not hasattr(op, "acc_dtype"), again),
    ArgSortOp: (
        lambda op, inputs, _: len(inputs) == 2,
        lambda op, x, axis: argsort(x, axis_of(axis), op.kind),
    ),
    # For a vector, the two forms cannot be distinguished.
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
    """Return the `count` outputs of an Op in Theano's form, built by PyTensor; else None."""
    is_theanos, make = REBUILT.get(type(op), (None, None))
    if make is not None and is_theanos(op, inputs, count):
        return [make(op, *inputs)]
    if isinstance(type(op), StandIn):
        outputs = op(*inputs)
        return outputs if isinstance(outputs, list | tuple) else [outputs]
    # Theano's Ops read their indices from the types of the inputs, PyTensor's from `idx_list`.
    if isinstance(op, AdvancedSubtensor) and not hasattr(op, "idx_list"):
        x, *indices = inputs
        return [x[tuple(map(index, indices))]]
    if isinstance(op, AdvancedIncSubtensor) and not hasattr(op, "idx_list"):
        x, y, *indices = inputs
        part = x[tuple(map(index, indices))]
        return [inc_subtensor(part, y, op.inplace, op.set_instead_of_inc)]
    return None


def set_node_state(self, state):
    """Set the state of a node; its outputs remain the same variables."""
    vars(self).update(state)
    outputs = outputs_of(self.op, self.inputs, len(self.outputs))
    if outputs is None:
        return
    node = outputs[0].owner
    if node.outputs != outputs:  # one Op of Theano is several Ops in PyTensor
        node = OpFromGraph(self.inputs, outputs, inline=True).make_node(*self.inputs)
    self.op, self.inputs = node.op, node.inputs


PATCHES = [
    Patch(Apply, "__setstate__", set_node_state),
    Patch(Subtensor, "__setstate__", set_subtensor_state),
    Patch(IncSubtensor, "__setstate__", set_subtensor_state),
]
