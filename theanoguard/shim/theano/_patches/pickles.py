"""Graphs in pickles of Theano 1.0.5, where its Ops hold other things than PyTensor's."""

from itertools import count

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    inc_subtensor,
)

from .._standin import StandIn
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


def outputs_of(op, inputs):
    """Return the outputs of an Op that only Theano has in this form, or None."""
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
    outputs = outputs_of(self.op, self.inputs)
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
